// SPDX-License-Identifier: Apache-2.0
//
// persistent.h: what a persistent request was made with.
#ifndef CKPT_BACK_PERSISTENT_H
#define CKPT_BACK_PERSISTENT_H

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

struct persistent {
    uint64_t real; // while REQUEST_DONE: the persistent request itself
    int mode;      // 0: receive; 1 to 4: send, bsend, ssend, rsend
#define PERSISTENT_BSEND 2
    long a[6];
    uint32_t type_generation, comm_generation;
    struct back_sync *sync; // of a synchronous send, while it is active
};

static inline struct persistent *persistent_of(const ckpt_slot *s) {
    return (struct persistent *)(uintptr_t)s->extra;
}

// Frees the struct persistent of a slot.
void back_persistent_forget(ckpt_slot *s);

#pragma GCC visibility pop

#endif
