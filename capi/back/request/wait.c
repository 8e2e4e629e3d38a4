// SPDX-License-Identifier: Apache-2.0
//
// wait.c: calls that wait, and how a checkpoint finds them.
//
// A thread that waits is held where it is: after a restart its call is issued again with the same
// arguments.
#define _GNU_SOURCE // RUSAGE_THREAD
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "back/impl/lock.h"
#include "back/request/wait.h"

// How often the kernel gave this thread's processor to another while the thread could have gone on.
static long taken(void) {
    struct rusage r;
    return getrusage(RUSAGE_THREAD, &r) == 0 ? r.ru_nivcsw : -1;
}

// A yield that nobody takes is a system call in vain, longer than a turn: with a processor for each rank, half of
// a wait would be spent in the kernel, and what arrives meanwhile be seen later.  The kernel's count of switches
// tells whether anybody took it; time does not, as a switch to and fro may be as short as a slow system call.
void back_yield(void) {
    enum { ASK = 32, FEW = 4, LONGEST = 1023 }; // yields until the count is read; turns between two yields
    static _Thread_local unsigned between, left, yields;
    static _Thread_local long before;
    if (left > 0) {
        left--;
        return;
    }
    sched_yield();
    if (between == 0 && ++yields < ASK) return;
    yields = 0;
    long now = taken(), since = now - before;
    before = now;
    if (now < 0)
        between = 0;
    else if (since >
             (between == 0 ? FEW : 0)) // one switch may be the end of a time slice: less often, step by step
        between /= 4;
    else if (between < LONGEST)
        between = 2 * between + 1;
    left = between;
}

int back_turn(unsigned turn) {
    back_breathe(turn);
    if (!back_pending()) return 0;
    back_attend();
    if (back_stopping()) ckpt_hold(back.job);
    return 1;
}

int back_wait_real(MPI_Request *request, MPI_Status *status) {
    int flag = 0, rc;
    for (unsigned turn = 0;; turn++) {
        rc = MPI_Test(request, &flag, status);
        if (__builtin_expect(flag || rc != MPI_SUCCESS, 1)) return rc;
        back_breathe(turn);
        if (back_pending()) back_attend();
    }
}

// ---- who waits ----

static LIST_HEAD(, back_waiting) waiting = LIST_HEAD_INITIALIZER(waiting);

void back_enlist(struct back_waiting *w) {
    back_lock(LOCK_WAITING);
    LIST_INSERT_HEAD(&waiting, w, others);
    back_unlock(LOCK_WAITING);
}

void back_delist(struct back_waiting *w) {
    struct back_waiting *one;
    back_lock(LOCK_WAITING);
    LIST_FOREACH(one, &waiting, others) { // the loop may have left out the turn that enlists the call
        if (one != w) continue;
        LIST_REMOVE(one, others);
        break;
    }
    back_unlock(LOCK_WAITING);
}

static int list_messages(ckpt_waiting *list, int max) {
    int n = 0;
    back_lock(LOCK_WAITING);
    const struct back_waiting *w;
    LIST_FOREACH(w, &waiting, others) {
        if (n == max) break;
        list[n++] = (ckpt_waiting){w->call, (ckpt_vid)w->comm,
                                   w->peer >= 0                  ? (int)w->peer
                                   : w->peer == CANON_ANY_SOURCE ? CKPT_PEER_ANY
                                                                 : CKPT_PEER_NONE,
                                   w->tag >= 0 ? (int)w->tag : -1, w->what};
    }
    back_unlock(LOCK_WAITING);
    return n;
}

int back_list_waiting(void *ctx, ckpt_waiting *list, int max) {
    (void)ctx;
    if (back.tables == NULL) return 0;
    int n = list_messages(list, max);
    uint32_t i = 0;
    for (const ckpt_slot *s; n < max && (s = back_next_slot(CKPT_KIND_COMM, &i)) != NULL;) {
        if (s->extra == 0) continue;
        const ckpt_clock *c = &ckpt_comm_of(s)->clock;
        uint64_t returned = __atomic_load_n(&c->ret, __ATOMIC_ACQUIRE);
        if (c->name != NULL && __atomic_load_n(&c->call, __ATOMIC_RELAXED) != returned)
            list[n++] = (ckpt_waiting){c->name, CKPT_VID(CKPT_KIND_COMM, i - 1), CKPT_PEER_NONE, -1,
                                       CKPT_WAIT_COLLECTIVE};
    }
    return n;
}
