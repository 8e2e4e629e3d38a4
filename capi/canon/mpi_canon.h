// SPDX-License-Identifier: Apache-2.0
//
// mpi_canon.h: what fronts and backs exchange.
//
// A front belongs to the ABI that the application was compiled against, a back to the real MPI
// below. Between them every MPI function takes an array of 8-byte words, one for each C argument:
//
//   handle in                  its virtual id
//   handle out, in and out     address of a ckpt_vid
//   status in and out          a status_word (mpi_status.h), 0 when the application ignores it
//   rank, tag, buffer, ...     with the special values below
//   info                       address of its content: key NUL value NUL ... NUL; NULL: MPI_INFO_NULL
//   group                      address of a ckpt_mpi_group
//   all else                   as it is
//
// and returns an error code: a class (CANON_ERRCLASS_*) in the low 8 bits, above them a number
// under which the back finds the real MPI's code again (0 when code and class are the same).
//
// Between a front and a back of the same MPI statuses are not translated: the real MPI writes the
// application's own.  What is left there is no difference of ABIs, or costs a comparison with a constant:
// handles are virtual ids on every side, since a restart gives them other real ones; ranks and tags >= 0
// and buffers pass as they are once they are known not to be special (MPI_IN_PLACE and the like); the
// error code 0 is 0; and enumerations (locks, asserts, orders, ...) are looked up in calls that take much
// longer.  A front does not know which MPI is below, and a call that waits may go on above another one
// after a restart: so nothing of this may depend on it.
//
// Infos, groups, attributes, error handlers and names of objects live in the front: upper-half
// memory, so that they are in every image as they are.
#ifndef CKPT_MPI_CANON_H
#define CKPT_MPI_CANON_H

#include <stdint.h>

#include "ckpt/tables.h"
#include "canon/gen/zz_constants.h"
#include "canon/gen/zz_numbers.h"
#include "canon/mpi_status.h"

// Predefined objects; datatypes and operations are in zz_constants.h.  Index 0 is the null handle.
#define VID_COMM_NULL CKPT_VID(CKPT_KIND_COMM, 0)
#define VID_COMM_WORLD CKPT_VID(CKPT_KIND_COMM, 1)
#define VID_COMM_SELF CKPT_VID(CKPT_KIND_COMM, 2)
#define VID_TYPE_NULL CKPT_VID(CKPT_KIND_DATATYPE, 0)
#define VID_OP_NULL CKPT_VID(CKPT_KIND_OP, 0)
#define VID_REQUEST_NULL CKPT_VID(CKPT_KIND_REQUEST, 0)
#define VID_MESSAGE_NULL CKPT_VID(CKPT_KIND_MESSAGE, 0)
#define VID_MESSAGE_NO_PROC CKPT_VID(CKPT_KIND_MESSAGE, 1)
#define VID_WIN_NULL CKPT_VID(CKPT_KIND_WIN, 0)
#define VID_FILE_NULL CKPT_VID(CKPT_KIND_FILE, 0)

// Beside those of statuses, which are of ranks and tags too (mpi_status.h).
enum { CANON_ROOT = -4, CANON_UNDEFINED = -32766 };

// Buffers and weights.
#define CANON_BOTTOM 0l
#define CANON_IN_PLACE 1l
#define CANON_UNWEIGHTED 10l
#define CANON_WEIGHTS_EMPTY 11l

enum {
    CANON_THREAD_SINGLE = 0,
    CANON_THREAD_FUNNELED = 1,
    CANON_THREAD_SERIALIZED = 2,
    CANON_THREAD_MULTIPLE = 3
};
enum { CANON_IDENT = 0, CANON_CONGRUENT = 1, CANON_SIMILAR = 2, CANON_UNEQUAL = 3 };
enum { CANON_GRAPH = 1, CANON_CART = 2, CANON_DIST_GRAPH = 3 };
enum { CANON_ORDER_C = 0, CANON_ORDER_FORTRAN = 1 };
enum { CANON_DISTRIBUTE_BLOCK = 0, CANON_DISTRIBUTE_CYCLIC = 1, CANON_DISTRIBUTE_NONE = 2 };
#define CANON_DISTRIBUTE_DFLT_DARG (-1)
enum { CANON_TYPECLASS_REAL = 1, CANON_TYPECLASS_INTEGER = 2, CANON_TYPECLASS_COMPLEX = 3 };
// MPI 4's: parts of a node that an info names, and that the MPI chooses and names; MPICH's: processes that
// have in common what an info names.
enum {
    CANON_COMM_TYPE_SHARED = 1,
    CANON_COMM_TYPE_HW_GUIDED = 2,
    CANON_COMM_TYPE_HW_UNGUIDED = 3,
    CANON_COMM_TYPE_NEIGHBORHOOD = 4
};
#define CANON_HW_RESOURCE "mpi_hw_resource_type"
enum { CANON_HW_RESOURCE_BYTES = 64 };
enum { CANON_LOCK_EXCLUSIVE = 1, CANON_LOCK_SHARED = 2 };
// Asserts of one-sided communication are an or of these.
enum {
    CANON_MODE_NOCHECK = 1,
    CANON_MODE_NOPRECEDE = 2,
    CANON_MODE_NOPUT = 4,
    CANON_MODE_NOSTORE = 8,
    CANON_MODE_NOSUCCEED = 16
};

// Files: modes, from where a position counts, the displacement of a view that is where the shared pointer is.  Those of
// MPICH and Open MPI.
enum {
    CANON_FILE_CREATE = 1,
    CANON_FILE_RDONLY = 2,
    CANON_FILE_WRONLY = 4,
    CANON_FILE_RDWR = 8,
    CANON_FILE_DELETE_ON_CLOSE = 16,
    CANON_FILE_UNIQUE_OPEN = 32,
    CANON_FILE_EXCL = 64,
    CANON_FILE_APPEND = 128,
    CANON_FILE_SEQUENTIAL = 256
};
enum { CANON_SEEK_SET = 600, CANON_SEEK_CUR = 602, CANON_SEEK_END = 604 };
enum { CANON_DISPLACEMENT_CURRENT = -54278278 };

// Combiners; part of descriptors, hence of images.
enum {
    CANON_COMBINER_NAMED = 1,
    CANON_COMBINER_DUP = 2,
    CANON_COMBINER_CONTIGUOUS = 3,
    CANON_COMBINER_VECTOR = 4,
    CANON_COMBINER_HVECTOR = 6,
    CANON_COMBINER_INDEXED = 7,
    CANON_COMBINER_HINDEXED = 9,
    CANON_COMBINER_INDEXED_BLOCK = 10,
    CANON_COMBINER_STRUCT = 12,
    CANON_COMBINER_SUBARRAY = 13,
    CANON_COMBINER_DARRAY = 14,
    CANON_COMBINER_F90_REAL = 15,
    CANON_COMBINER_F90_COMPLEX = 16,
    CANON_COMBINER_F90_INTEGER = 17,
    CANON_COMBINER_RESIZED = 18,
    CANON_COMBINER_HINDEXED_BLOCK = 19
};

// Predefined attributes, asked for by number.
enum {
    CANON_ATTR_TAG_UB = 1,
    CANON_ATTR_HOST,
    CANON_ATTR_IO,
    CANON_ATTR_WTIME_IS_GLOBAL,
    CANON_ATTR_UNIVERSE_SIZE,
    CANON_ATTR_LASTUSEDCODE,
    CANON_ATTR_APPNUM,
    CANON_ATTRS
};

// MPI_TAG_UB above every MPI: that of MPICH, the smallest of those that may be below (Open MPI has
// 2147483647).  A program that takes the highest tag can be continued under any of them.
enum { CANON_TAG_UB = 0x0fffffff };

typedef struct ckpt_mpi_group {
    int size;
    int rank;    // mine, CANON_UNDEFINED when I am no member
    int world[]; // world rank of each member
} ckpt_mpi_group;

// A name that is published, in the application's memory, and so in its images: the front makes it, the back
// lists those that are published (back_state) and publishes them again after a restart.
typedef struct ckpt_mpi_name {
    struct ckpt_mpi_name *next; // the back's
    const char *service, *info, *port;
} ckpt_mpi_name;

// The three functions of a generalized request are called through the front: what MPI_Grequest_start
// was given, which of the three, its status, whether it was complete.
enum { CANON_GREQUEST_QUERY = 1, CANON_GREQUEST_FREE = 2, CANON_GREQUEST_CANCEL = 3 };
typedef long ckpt_mpi_grequest_thunk(void *grequest, int what, ckpt_mpi_status *status, int complete);

// The user function of an operation is called through the front, which knows the ABI's datatype
// handles: invec, inoutvec, address of the length, virtual id of the datatype, the function.
typedef long ckpt_mpi_user_thunk(void *in, void *inout, int *len, long type, void *function);

#endif
