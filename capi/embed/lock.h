// SPDX-License-Identifier: Apache-2.0
//
// lock.h: a lock for a few instructions, among which there is no callback and no system call.  Tasks may share a
// kernel thread: as nobody switches while he holds it, whoever waits for it waits for another kernel thread.
#ifndef EMBED_LOCK_H
#define EMBED_LOCK_H

#include <sched.h>

static inline void embed_lock(unsigned *lock) {
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) != 0) sched_yield();
}
static inline void embed_unlock(unsigned *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

#endif
