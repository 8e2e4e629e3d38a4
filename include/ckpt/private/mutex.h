/* SPDX-License-Identifier: Apache-2.0
 *
 * mutex.h: a lock whose waiters sleep, of one word that begins as 0.
 *
 * Threads may have real-time priorities (SCHED_FIFO).  One that yields until the lock is free keeps the processor from
 * a holder of lower priority, for ever, and with it the machine from everybody else.  So whoever has tried for a moment
 * waits in the kernel.  Nothing here uses the C library: the FS base may be the other half's.
 *
 * For threads of one process, and children that borrow its memory (vfork).  Not recursive, not fair.
 */
#ifndef CKPT_MUTEX_H
#define CKPT_MUTEX_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>

enum { CKPT_MUTEX_FREE, CKPT_MUTEX_HELD, CKPT_MUTEX_AWAITED, CKPT_MUTEX_TRIES = 64 };

static inline long ckpt_mutex_futex(uint32_t *word, long op, long value) {
    register long no_time __asm__("r10") = 0;
    long r;
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "0"((long)SYS_futex), "D"(word), "S"(op), "d"(value), "r"(no_time)
                     : "rcx", "r11", "memory");
    return r;
}

static inline void ckpt_mutex_take(uint32_t *word) {
    for (int i = 0; i < CKPT_MUTEX_TRIES; i++) {
        uint32_t free = CKPT_MUTEX_FREE;
        if (__atomic_compare_exchange_n(word, &free, CKPT_MUTEX_HELD, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
        __builtin_ia32_pause();
    }
    /* Others may sleep as well: whoever takes it here wakes one of them in the end, perhaps in vain. */
    while (__atomic_exchange_n(word, CKPT_MUTEX_AWAITED, __ATOMIC_ACQUIRE) != CKPT_MUTEX_FREE)
        ckpt_mutex_futex(word, FUTEX_WAIT_PRIVATE, CKPT_MUTEX_AWAITED);
}

static inline void ckpt_mutex_give(uint32_t *word) {
    if (__atomic_exchange_n(word, CKPT_MUTEX_FREE, __ATOMIC_RELEASE) == CKPT_MUTEX_AWAITED)
        ckpt_mutex_futex(word, FUTEX_WAKE_PRIVATE, 1);
}

#endif
