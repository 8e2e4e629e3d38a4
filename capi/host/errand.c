// SPDX-License-Identifier: Apache-2.0
//
// errand.c: what a stopped thread does while it is stopped.
//
// Only the program's own thread may call MPI, also when the program is stopped and its messages have to be
// received.  So that thread, wherever it was stopped, is woken for an errand: it calls into libckpt, on its
// lower stack and with its lower FS base, and is stopped again afterwards.  It runs no upper code meanwhile,
// and its saved context does not change.
#include "host.h"
#include "thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>

static void futex_wait(volatile uint32_t *word, uint32_t value) {
    RAW6(SYS_futex, word, FUTEX_WAIT, value, NULL, 0, 0);
}

static void futex_wake(volatile uint32_t *word) { RAW6(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, 0, 0); }

// MPI's reductions and the program's own operations must round here as they do in the program, which may have
// changed the processor's modes (-ffast-math does).  A handler begins with the kernel's modes, so this sets
// the program's.
static long serve(void *arg) {
    const struct thread *t = arg;
    uint16_t cw, own_cw;
    uint32_t mxcsr, own_mxcsr;
    memcpy(&cw, t->xsave, sizeof cw); // the layout of FXSAVE
    memcpy(&mxcsr, t->xsave + 24, sizeof mxcsr);
    __asm__ volatile("fnstcw %0; stmxcsr %1" : "=m"(own_cw), "=m"(own_mxcsr));
    __asm__ volatile("fldcw %0; ldmxcsr %1" ::"m"(cw), "m"(mxcsr));
    host.go.serve();
    __asm__ volatile("fldcw %0; ldmxcsr %1" ::"m"(own_cw), "m"(own_mxcsr));
    return 0;
}

// Runs what the thread was woken for.  from_upper: called by the handler that interrupted upper code,
// on the signal stack; the thread's lower stack is free then.
void thread_errand(struct thread *t, bool from_upper) {
    if (from_upper)
        thread_call_lower(t, &t->uc, serve, t);
    else
        host.go.serve(); // held in a call through the gate, which does not change these modes
    __atomic_store_n(&t->errand, 0, __ATOMIC_SEQ_CST);
    futex_wake(&t->errand);
}

// A held thread waits here while the process is stopped, once or several times in a row: it may not have
// woken between two stops.
void thread_wait(struct thread *t) {
    for (uint32_t gen; (gen = host.park_gen) & 1;) {
        uint32_t bell = __atomic_load_n(&host.bell, __ATOMIC_SEQ_CST);
        if (host.park_gen != gen) continue;
        if (t->errand)
            thread_errand(t, false);
        else
            futex_wait(&host.bell, bell);
    }
}

int op_errand(void) {
    kmask old = block_all();
    lock();
    struct thread *to = NULL;
    for (struct thread *t = host.threads; t; t = t->next)
        if (t->state != T_RUNNING && (!to || t->mpi || (t->main && !to->mpi))) to = t;
    if (to) to->errand = 1;
    unlock();
    set_kernel_mask(old);
    if (!to) return -ESRCH;
    threads_ring();
    while (__atomic_load_n(&to->errand, __ATOMIC_SEQ_CST)) futex_wait(&to->errand, 1);
    return 0;
}

// ---- for the back ------------------------------------------------------------------------------

void back_hold(void) {
    struct thread *t = self();
    if (!(host.park_gen & 1) || t->upcalls || host.child) {
        RAW0(SYS_sched_yield);
        return;
    }
    t->retry = true;
    thread_hold(t);
    thread_unhold(t);
    t->retry = false;
}

void back_mine(void) { self()->mpi = host.mpi = true; }
