// SPDX-License-Identifier: Apache-2.0
//
// coll.h: operations of the application, and the blocks of collective calls (coll.c).
#ifndef CKPT_FRONT_COLL_H
#define CKPT_FRONT_COLL_H

#include "front/core.h"

// An operation of the application; call knows the language of function, and what extra is.
struct front_op;
typedef void front_op_call(const struct front_op *o, void *in, void *inout, int *len, MPI_Datatype type);
struct front_op {
    front_op_call *call;
    void *function, *extra;
    struct front_op *next; // among those that are freed later
};
int front_op_new(front_op_call *call, void *function, int commute, unsigned fn, MPI_Op *op);
struct front_op *front_op(MPI_Op op); // NULL for a predefined one
// How many blocks a collective call with a count for each peer, or for each neighbour, moves.
int front_blocks(MPI_Comm comm, int neighbors, int *out, int *in);

#endif
