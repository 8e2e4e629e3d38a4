// SPDX-License-Identifier: Apache-2.0
//
// inherit.c: mutexes that inherit priority (PTHREAD_PRIO_INHERIT), after a restart.
//
// The C library writes the number of the owner into the word of such a mutex, and the kernel looks for a thread of that
// number when another one wants it.  After a restart the kernel has other numbers for the threads: it would find none, or a
// stranger.  So these calls are made from plain waits here, and the one who waits does not lend its priority.
//
// The word is 0, or the owner's number; FUTEX_WAITERS makes the owner call us to give it up.  Then it becomes 0 and one that
// waits is woken, which takes the word with FUTEX_WAITERS, since others may wait still.  Whoever finds the word taken sets
// that bit before it sleeps.  A thread that is saved while it waits makes its call again, so nobody depends on a wake
// that was before.
#include "host.h"
#include "emulation.h"
#include "thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#ifndef FUTEX_LOCK_PI2 // Linux 5.14
#define FUTEX_LOCK_PI2 13
#endif

bool inherits(long op) {
    switch (op & FUTEX_CMD_MASK) {
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
    case FUTEX_TRYLOCK_PI:
    case FUTEX_UNLOCK_PI:
    case FUTEX_WAIT_REQUEUE_PI:
    case FUTEX_CMP_REQUEUE_PI:
        return true;
    }
    return false;
}

static bool swap(uint32_t *word, uint32_t *was, uint32_t to) {
    return __atomic_compare_exchange_n(word, was, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

// Until it has the word, its time is over, or it is to be stopped.
static long take(struct call *c, uint32_t *word, bool tries) {
    uint32_t me = (uint32_t)c->t->vtid, v, more = 0;
    struct timespec until, to;
    // FUTEX_LOCK_PI means the calendar's time, and FUTEX_LOCK_PI2 has a flag for it.
    long real =
        (c->a[1] & FUTEX_CMD_MASK) == FUTEX_LOCK_PI ? FUTEX_CLOCK_REALTIME : c->a[1] & FUTEX_CLOCK_REALTIME;
    long a[6] = {
        c->a[0], FUTEX_WAIT_BITSET | real | (c->a[1] & FUTEX_PRIVATE_FLAG), 0, 0, 0, FUTEX_BITSET_MATCH_ANY};
    if (!tries && c->a[3]) {
        if (!copy_in(&until, (uint64_t)c->a[3], sizeof until)) return -EFAULT;
        // Before the word is looked at, as by the kernel: its owner is told, too.
        if (until.tv_sec < 0 || until.tv_nsec < 0 || until.tv_nsec >= 1000000000) return -EINVAL;
        a[3] = (long)clock_to_kernel(real ? CLOCK_REALTIME : CLOCK_MONOTONIC, &until, &to);
    }
    for (;;) {
        if (!copy_in(&v, (uint64_t)word, sizeof v)) return -EFAULT;
        if ((v & FUTEX_TID_MASK) == me) return -EDEADLK;
        if (!(v & FUTEX_TID_MASK)) {
            if (swap(word, &v, me | more | (v & (FUTEX_OWNER_DIED | FUTEX_WAITERS)))) return 0;
            continue;
        }
        if (tries) return -EAGAIN;
        if (!(v & FUTEX_WAITERS) && !swap(word, &v, v | FUTEX_WAITERS)) continue;
        a[2] = v | FUTEX_WAITERS;
        long r = blocking(c, SYS_futex, a);
        if (r != 0 && r != -EAGAIN) return r;
        more = FUTEX_WAITERS;
    }
}

static long give(struct call *c, uint32_t *word) {
    uint32_t v;
    if (!copy_in(&v, (uint64_t)word, sizeof v)) return -EFAULT;
    do
        if ((v & FUTEX_TID_MASK) != (uint32_t)c->t->vtid) return -EPERM;
    while (!swap(word, &v, 0));
    if (v & FUTEX_WAITERS) RAW6(SYS_futex, word, FUTEX_WAKE | (c->a[1] & FUTEX_PRIVATE_FLAG), 1, 0, 0, 0);
    return 0;
}

// A mutex knows no EINTR: the handler runs, and the call is made again, as by the kernel.
static long no_interruption(struct call *c, long result) {
    if (result != -EINTR) return result;
    rewind_call(c->uc, c->nr);
    return DONE_REGISTERS;
}

long inherit(struct call *c) {
    if (!host.restarted) return no_interruption(c, blocking(c, SYS_futex, c->a));
    uint32_t *word = (uint32_t *)c->a[0];
    if ((uint64_t)word % sizeof *word) return -EINVAL;
    switch (c->a[1] & FUTEX_CMD_MASK) {
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
        return no_interruption(c, take(c, word, false));
    case FUTEX_TRYLOCK_PI:
        return take(c, word, true);
    case FUTEX_UNLOCK_PI:
        return give(c, word);
    }
    return -ENOSYS; // of condition variables: the C library has made none of these calls since 2.25
}
