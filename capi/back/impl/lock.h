// SPDX-License-Identifier: Apache-2.0
//
// lock.h: the mutexes of a back, and the order in which a thread takes them.
//
//   drained ──► starting ──► deferred ──► everyone
//      │           └───────► persistent ─► fresh
//      └──────► sync             ▲
//   orphans ─────────────────────┘
//   files, sync, words, buffered, orphans, drained ──► fresh
//                               (the real MPI may call the program's operation, which asks for a datatype)
//   all ──► errors, reserve
//
// A thread takes a mutex only if it is below all mutexes that the thread has, in the list that follows.  So
// no two threads wait for each other.  back_trylock may try any mutex.
#ifndef CKPT_BACK_LOCK_H
#define CKPT_BACK_LOCK_H

#include <pthread.h>

#include "back/impl/process.h"

enum back_lock {
    LOCK_DRAINED,    // drained.c: the list, and back.self
    LOCK_ORPHANS,    // orphan.c: the list
    LOCK_FILES,      // file_order.c: operations that were started on files; one of them is tested at a time
    LOCK_STARTING,   // deferred.c: held by the one thread that starts calls, so that they start in order
    LOCK_DEFERRED,   // deferred.c: the list, and that libckpt names no call which is not on it yet
    LOCK_SYNC,       // sync.c: the lanes, and that an entry with REQUEST_AWAIT is what its request says
    LOCK_WORDS,      // sync.c: the words that are under way
    LOCK_BUFFERED,   // bsend.c: the list, and how much of the buffer is taken
    LOCK_PERSISTENT, // keep.c: the list; and that what a persistent request was made with is not freed
    LOCK_OPS,        // op.c: operations to be freed later
    LOCK_FRESH,      // fresh.c: all, when several threads may be here
    LOCK_NEWS,       // untold.c: all, when several threads may be here
    // A thread that has one of these takes only LOCK_ERRORS and LOCK_RESERVE besides.
    LOCK_HELD,     // blocking.c: the sends of held threads
    LOCK_WAITING,  // wait.c: who waits
    LOCK_EVERYONE, // comm.c: back.everyone
    LOCK_OUTSIDE,  // outside.c: the list
    LOCK_WINDOWS,  // window.c: attached memory
    LOCK_PORTS,    // ports.c: the list of this rank's
    LOCK_NAMES,   // names.c: the list; no thread that has it is held for a checkpoint: image and server agree
    LOCK_ERRORS,  // error.c: codes of the real MPI
    LOCK_RESERVE, // reserve.c: pieces of memory
    LOCKS
};

#pragma GCC visibility push(hidden)

struct back_mutex {
    _Alignas(64) pthread_mutex_t mutex; // in a cache line of its own
};
extern struct back_mutex back_locks[LOCKS];

#ifdef BACK_CHECKS
extern __thread unsigned back_locks_held; // one bit for each mutex that this thread has
#endif

static inline void back_lock(enum back_lock lock) {
    back_assert(back_locks_held >> lock == 0);
    pthread_mutex_lock(&back_locks[lock].mutex);
#ifdef BACK_CHECKS
    back_locks_held |= 1u << lock;
#endif
}

// 1 when this thread has it now, 0 when another one does.
static inline int back_trylock(enum back_lock lock) {
    if (pthread_mutex_trylock(&back_locks[lock].mutex) != 0) return 0;
#ifdef BACK_CHECKS
    back_locks_held |= 1u << lock;
#endif
    return 1;
}

static inline void back_unlock(enum back_lock lock) {
    back_assert(back_locks_held & 1u << lock);
#ifdef BACK_CHECKS
    back_locks_held &= ~(1u << lock);
#endif
    pthread_mutex_unlock(&back_locks[lock].mutex);
}

#pragma GCC visibility pop

#endif
