// SPDX-License-Identifier: Apache-2.0
//
// deferred.h: collective calls that were made while a checkpoint was pending, and are started later.
#ifndef CKPT_BACK_DEFERRED_H
#define CKPT_BACK_DEFERRED_H

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

// A collective call that waits for its start.
struct deferred {
    struct deferred *next;
    ckpt_vid comm, request;
    uint64_t k;
    int function; // index in the table
    int nargs;
    ckpt_vid *types; // memory for the start of MPI_Ialltoallw and its like
    MPI_Datatype *real_types;
    // Of MPI_Ialltoallw and its like the datatypes follow, since what the front gave is gone when the
    // call returns.
    long a[];
};
// Which argument is where the id of the request goes; -1: the function is deferred by nobody.
int back_deferred_request_at(int function);
int back_deferred_sound(const struct deferred *d);                          // as an image has it
struct deferred *back_deferred_new(int function, const long *a, int nargs); // NULL when out of memory
void back_deferred_free(struct deferred *d);

// Binds an id of an image: the deferred call of request vid, which becomes the slot's.
void back_deferred_bind(struct deferred *d, ckpt_slot *s);
// Starts the real call; its request takes the place of the one that the application has, and says what is
// returned too: the canonical error of the call, 0 for none.
long back_deferred_start(struct deferred *d);
struct deferred *back_deferred_of(const ckpt_slot *s);

// Starts what was deferred and may start now.
void back_start_deferred(void);

#pragma GCC visibility pop

#endif
