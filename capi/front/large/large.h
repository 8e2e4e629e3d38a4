// SPDX-License-Identifier: Apache-2.0
//
// large.h: functions with large counts call those without _c (generated: gen/zz_large.c,
// gen/zz_mpi4.c).
//
// A count that does not fit an int becomes one element of a datatype of that many.  Arrays of counts and
// displacements become arrays of ints, which belong to the request when the call is not blocking.
#ifndef CKPT_FRONT_LARGE_H
#define CKPT_FRONT_LARGE_H

#include "front/front.h"

// What one call needs besides its arguments.
struct front_large {
    int *ints; // the arrays, one after the other
    size_t used;
    MPI_Datatype types[3]; // MPI_Get_accumulate_c has as many counts
    int ntypes;
    int out, in; // how many blocks go out and come in; 0 where the arrays mean nothing
    int refused; // a count does not fit an int where it must
    int rc;      // an error that was raised already
};

// The processes whose blocks the arrays describe.
enum front_blocks {
    FRONT_BLOCKS_ALL,      // each process of the (other) group
    FRONT_BLOCKS_LOCAL,    // each process of this group
    FRONT_BLOCKS_NEIGHBORS // each neighbour
};
// Makes room for `arrays` arrays.  root is the rank that reads them, -1 for all ranks.
void front_large_begin(struct front_large *w, MPI_Comm comm, enum front_blocks blocks, int arrays);
void front_large_rooted(struct front_large *w, MPI_Comm comm, int root, int arrays);
// n values as ints.
const int *front_large_ints(struct front_large *w, const MPI_Count *v, int n);
int front_large_block(struct front_large *w, MPI_Count count, MPI_Datatype *type);

// A count and its datatype, for a call that takes any datatype.
static inline int front_large_count(struct front_large *w, MPI_Count count, MPI_Datatype *type) {
    return __builtin_expect(count == (int)count, 1) ? (int)count : front_large_block(w, count, type);
}

// A count that must be an int.
static inline int front_large_int(struct front_large *w, MPI_Count count) {
    w->refused |= count != (int)count;
    return (int)count;
}

// A count, or 0 when the call is made in place and the count is not read.
static inline MPI_Count front_large_given(const void *buf, MPI_Count count) {
    return __builtin_expect(count == (int)count, 1) || in_buf(buf) != CANON_IN_PLACE ? count : 0;
}
// Whether a call with a root reads a count; at_root: of the side on which only the root is.
int front_large_matters(MPI_Comm comm, int root, int at_root);
static inline MPI_Count front_large_at(MPI_Comm comm, int root, int at_root, const void *buf,
                                       MPI_Count count) {
    return __builtin_expect(count == (int)count, 1)   ? count
           : front_large_matters(comm, root, at_root) ? front_large_given(buf, count)
                                                      : 0;
}

// Ends a call with its result.  request is that of a call that is not blocking, else NULL.
int front_large_end_slow(struct front_large *w, int rc, const MPI_Request *request);
static inline int front_large_end(struct front_large *w, int rc, const MPI_Request *request) {
    return __builtin_expect(w->ints == NULL && w->ntypes == 0, 1) ? rc : front_large_end_slow(w, rc, request);
}
// Ends a call that cannot be made: a count is too large, or something failed before.
int front_large_refuse(struct front_large *w, int sort, ckpt_vid object, unsigned fn) __attribute__((cold));

// ---- large_type.c ----

void front_contents_release(struct front_contents *c);

#endif
