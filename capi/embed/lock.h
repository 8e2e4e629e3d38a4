// SPDX-License-Identifier: Apache-2.0
//
// lock.h: a lock for a few instructions, among which there is no callback and no system call.  Tasks may share a
// kernel thread: as nobody switches while he holds it, whoever waits for it waits for another kernel thread.
#ifndef EMBED_LOCK_H
#define EMBED_LOCK_H

#include "ckpt/private/mutex.h"

static inline void embed_lock(unsigned *lock) { ckpt_mutex_take(lock); }
static inline void embed_unlock(unsigned *lock) { ckpt_mutex_give(lock); }

#endif
