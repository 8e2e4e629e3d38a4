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
    // After the arguments of MPI_Ialltoallw and its like, their datatypes: the front's arrays are gone when
    // the call returns.
    long a[];
};
// Which argument is where the id of the request goes; -1: the function is deferred by nobody.
int back_deferred_request_at(int function);
int back_deferred_sound(const struct deferred *d);                          // as an image has it
struct deferred *back_deferred_new(int function, const long *a, int nargs); // NULL when out of memory
void back_deferred_free(struct deferred *d);

// In a restart: makes d the deferred call of the request of slot s, which owns it from then on.
void back_deferred_bind(struct deferred *d, ckpt_slot *s);
// Starts the real call, and puts its request into the slot of the application's request.  Returns the
// canonical error of the call, 0 for none; the request reports it too.
long back_deferred_start(struct deferred *d);
struct deferred *back_deferred_of(const ckpt_slot *s);

// Starts what was deferred and may start now.
void back_start_deferred(void);

#pragma GCC visibility pop

#endif
