// SPDX-License-Identifier: Apache-2.0
//
// grequest.h: generalized requests of the application.
#ifndef CKPT_BACK_GREQUEST_H
#define CKPT_BACK_GREQUEST_H

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

// What a generalized request is made again with.
struct back_grequest {
    void *upper, *thunk; // the front's
};
static inline struct back_grequest *back_grequest_of(const ckpt_slot *s) {
    return (struct back_grequest *)(uintptr_t)s->extra;
}
// In a restart: makes a generalized request that is complete; 0 or a CKPT_E code.
int back_grequest_again(ckpt_slot *s, ckpt_vid vid, void *upper, void *thunk);

#pragma GCC visibility pop

#endif
