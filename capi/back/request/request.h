// SPDX-License-Identifier: Apache-2.0
//
// request.h: the states of a request, for those who start and those who complete it.
#ifndef CKPT_BACK_REQUEST_H
#define CKPT_BACK_REQUEST_H

#include "back/impl/impl.h"

static inline int is_null(const ckpt_slot *s) { return s == back.slots[CKPT_KIND_REQUEST]; }

static inline MPI_Request real_of(const ckpt_slot *s) { return (MPI_Request)(uintptr_t)s->real; }

// An inactive persistent request completes at once, with an empty status.
static inline int is_inactive(const ckpt_slot *s) {
    return (s->a & (REQUEST_PERSISTENT | REQUEST_ACTIVE)) == REQUEST_PERSISTENT;
}

// A collective call that was not started yet: it has no real request, and is not complete.  Another
// thread may be starting it; when the flag is gone its real request is there.
static inline int is_deferred(const ckpt_slot *s) {
    return __builtin_expect(__atomic_load_n(&s->a, __ATOMIC_ACQUIRE) & REQUEST_DEFERRED, 0);
}

// A request of MPI-IO: it belongs to a file.
static inline int of_file(const ckpt_slot *s) { return CKPT_VID_KIND(s->clock) == CKPT_KIND_FILE; }

#pragma GCC visibility push(hidden)
// MPI_Test for a request that is to be tested in its turn.
int file_test(ckpt_slot *s, int *flag, MPI_Status *status);
#pragma GCC visibility pop

// MPI_Test of *r, the real request of s.
static inline int request_test(ckpt_slot *s, MPI_Request *r, int *flag, MPI_Status *status) {
    if (__builtin_expect(s->a & REQUEST_ORDERED, 0)) return file_test(s, flag, status);
    return MPI_Test(r, flag, status);
}

#endif
