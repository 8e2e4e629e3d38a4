// SPDX-License-Identifier: Apache-2.0
//
// robust.c: robust mutexes of a thread that ends.
//
// The kernel knows the list, too, and goes through it when the process is killed.  It compares with the number of the
// thread that the kernel knows, which after a restart is another one than that in the mutexes: so we go through the
// list ourselves when a thread ends.
#include "host.h"
#include "emulation.h"
#include "thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>

enum { ROBUST_MOST = 2048 }; // the kernel's limit: the list may be a circle

long sys_set_robust_list(struct call *c) {
    if (c->a[1] != sizeof(struct robust_list_head)) return -EINVAL;
    c->t->robust = (uint64_t)c->a[0];
    return RAW2(SYS_set_robust_list, c->a[0], c->a[1]);
}

long sys_get_robust_list(struct call *c) {
    size_t bytes = sizeof(struct robust_list_head);
    lock();
    struct thread *t = c->a[0] ? thread_by_vtid((pid_t)c->a[0]) : c->t;
    uint64_t head = t ? t->robust : 0;
    unlock();
    if (!t || borrowed()) return RAW3(SYS_get_robust_list, to_real((pid_t)c->a[0]), c->a[1], c->a[2]);
    return copy_out((uint64_t)c->a[1], &head, sizeof head) &&
                   copy_out((uint64_t)c->a[2], &bytes, sizeof bytes)
               ? 0
               : -EFAULT;
}

// The owner of the word, t, is dead.  pending: it was about to take it, or to give it up.
static void robust_word(const struct thread *t, uint64_t entry, long offset, bool pending) {
    uint64_t at = (entry & ~1ull) + (uint64_t)offset;
    uint32_t *word = (uint32_t *)at, v;
    if (at % sizeof v || !copy_in(&v, at, sizeof v)) return;
    bool waits = pending && v == 0;
    while ((v & FUTEX_TID_MASK) == (uint32_t)t->vtid) {
        if (!__atomic_compare_exchange_n(word, &v, (v & FUTEX_WAITERS) | FUTEX_OWNER_DIED, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        waits = v & FUTEX_WAITERS;
        break;
    }
    // The kernel gives one that inherits priority (1) to who waits for it when the thread ends; after a restart we do (inherit.c).
    if (waits && (!(entry & 1) || host.restarted)) RAW6(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0);
}

void robust_end(struct thread *t) {
    struct robust_list_head head;
    uint64_t next, at = t->robust;
    t->robust = 0;
    if (!at) return;
    RAW2(SYS_set_robust_list, 0, sizeof head); // its memory may be another thread's soon
    if (!copy_in(&head, at, sizeof head)) return;
    uint64_t entry = (uint64_t)head.list.next, pending = (uint64_t)head.list_op_pending;
    for (int i = 0; i < ROBUST_MOST && (entry & ~1ull) != at; i++, entry = next) {
        if (!copy_in(&next, entry & ~1ull, sizeof next)) return;
        if (entry != pending) robust_word(t, entry, head.futex_offset, false);
    }
    if (pending) robust_word(t, pending, head.futex_offset, true);
}
