// SPDX-License-Identifier: Apache-2.0
//
// compound.h: requests that consist of others: persistent collectives (collective/persist.c) and pairs of a
// send and a receive (isendrecv.c).
#ifndef CKPT_BACK_COMPOUND_H
#define CKPT_BACK_COMPOUND_H

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

struct back_coll {
    int function;       // index of the non-blocking call in the table
    int nargs, request; // how many arguments, which of them is the address of the request's id
    int arrays;         // the types go in two arrays
    int ntypes;
    int own; // the communicator, the argument before the request, is this request's own (persist_comm.c)
    ckpt_vid inner; // while active
    long a[14];
    ckpt_vid types[]; // our own
};

static inline struct back_coll *back_coll_of(const ckpt_slot *s) {
    return (struct back_coll *)(uintptr_t)s->extra;
}

// NULL when memory is out.  That of a pair is freed by free.
struct back_coll *back_coll_new(int ntypes);

#pragma GCC visibility pop

#endif
