// SPDX-License-Identifier: Apache-2.0
//
// file_calls.c: reading, writing and moving in files: which calls a file allows, and which ones are
// collective.
//
// Calls that all members make are counted on the clock of the file's communicator, so that a checkpoint finds
// all members in such a call or none.  A non-blocking call waits at the gate like a blocking one.  It is not
// deferred: a later call would then find the file pointer in the wrong place.
//
// The first half of a split collective does all of it, as MPI allows.  Its status is kept for the second
// half, also in an image.
#include "back/collective/clock.h"
#include "back/file/file.h"
#include "back/gen/zz_files.h"
#include "back/impl/error.h"
#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/request/request.h"

enum {
    COLLECTIVE = 1,
    SHARED = 2,       // uses the shared pointer
    UNSEQUENTIAL = 4, // not for files that were opened as sequential
    MOVES = 8         // moves this process's own pointer
};
// Open MPI's own library allows it nevertheless.
#if defined(OPEN_MPI)
enum { REFUSES_UNSEQUENTIAL = 0 };
#else
enum { REFUSES_UNSEQUENTIAL = 1 };
#endif

#define NUMBER(NAME) (CKPT_FN_MPI_FILE_##NAME - CKPT_FN_MPI)

static inline __attribute__((always_inline)) long call(ckpt_back_fn *fn, const char *name, const long *a,
                                                       int flags, int request) {
    struct file *f = back_file_of(a[0]);
    if (f == NULL) return fn(a);
    if (REFUSES_UNSEQUENTIAL && flags & UNSEQUENTIAL && f->amode & CANON_FILE_SEQUENTIAL)
        return CANON_ERR(UNSUPPORTED_OPERATION);
    if (flags & SHARED) f->shared = 1;
    if (flags & MOVES) f->moved = 1;
    if (!(flags & COLLECTIVE)) return fn(a);
    ckpt_vid comm = back_slot(CKPT_KIND_FILE, a[0])->clock;
    ckpt_coll made;
    back_gate(comm, name, CKPT_COLL_BLOCKING, &made);
    long rc = fn(a);
    // A file may be open for reading only, or for writing only: MPI checks that before it does anything.
    if (rc == 0 && request > 0) file_ordered(f, *(const ckpt_vid *)a[request]);
    back_gate_return(&made, (rc & 0xff) == CANON_ERR(ACCESS) ? CANON_ERR(AMODE) : rc);
    return rc;
}

#define DEFINE(name, NAME, flags, request)                                   \
    long clocked_File_##name(const long *a) {                                \
        return call(back_File_##name, "MPI_File_" #name, a, flags, request); \
    }
FILE_FUNCTIONS(DEFINE)

// ---- split collectives ----

// Does the whole split collective.  whole: the blocking function; a: the file and n - 1 more arguments.
static long begin(int number, ckpt_back_fn *whole, const long *a, int n) {
    struct file *f = back_file_of(a[0]);
    ckpt_mpi_status status = {0};
    long b[6] = {0};
    if (f == NULL) return CANON_ERR(FILE);
    if (f->split != 0) // a file has one at a time
        return CANON_ERR(IO);
    memcpy(b, a, (size_t)n * sizeof *b);
    b[n] = status_word(STATUS_CANON, &status);
    long rc = whole(b);
    if (rc == 0) {
        f->split = number;
        f->split_status = status;
    }
    return rc;
}

// file, buffer, status out
static long end(int number, const long *a) {
    struct file *f = back_file_of(a[0]);
    if (f == NULL) return CANON_ERR(FILE);
    if (f->split != number) return CANON_ERR(IO);
    f->split = 0;
    give_canon(&f->split_status, a[2]);
    return 0;
}

#define DEFINE_SPLIT(name, NAME, n)                                    \
    long back_File_##name##_begin(const long *a) {                     \
        return begin(NUMBER(NAME##_BEGIN), clocked_File_##name, a, n); \
    }                                                                  \
    long back_File_##name##_end(const long *a) { return end(NUMBER(NAME##_BEGIN), a); }
SPLIT_FUNCTIONS(DEFINE_SPLIT)
