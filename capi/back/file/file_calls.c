// SPDX-License-Identifier: Apache-2.0
//
// file_calls.c: reading, writing and moving in files: who may, and who must together.
//
// Calls that all members make are counted on the clock of the file's communicator, so that a
// checkpoint finds all of them in such a call or none.  A non-blocking one is let in like a blocking
// one: were it deferred, a later call would find the file pointer where it should not be.
//
// A split collective is done by its first half, as MPI allows; what it tells is kept for the second
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
    SHARED = 2,      // uses the shared pointer
    UNSEQUENTIAL = 4 // not for files that were opened as sequential
};
// Open MPI's own library lets programs do it all the same.
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
    if (!(flags & COLLECTIVE)) return fn(a);
    ckpt_vid comm = back_slot(CKPT_KIND_FILE, a[0])->clock;
    ckpt_coll made;
    back_gate(comm, name, CKPT_COLL_BLOCKING, &made);
    long rc = fn(a);
    // A file that was opened for reading only, or for writing only: MPI looks before it does anything.
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

// whole: the blocking function, checked.  The file, n - 1 more arguments.
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
