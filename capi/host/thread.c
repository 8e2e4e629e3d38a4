// SPDX-License-Identifier: Apache-2.0
//
// thread.c: threads of the upper half: begun, ended, stopped, continued.
//
// Each upper thread is carried by a lower pthread of its own; calls through the gate run on that pthread's
// stack.  A thread starts, and starts again after a restart, by a sigreturn from a frame with its upper
// context: one path for new, restarted and main threads (docs/split-process.md P12).
//
// Stopping.  park() raises host.park_gen to an odd number and signals every thread.  A thread in upper code
// saves its context in the handler and sleeps there.  A thread in the lower half gets ATTN_PARK, and does the
// same on its way up.  A thread that waits in a held gate call (MPIX_Checkpoint, or a call that can be issued
// again) counts as stopped.  When all threads are stopped, no upper instruction runs, and they hold no lock
// of the lower half.
#include "host.h"
#include "arena.h"
#include "crossing.h"
#include "emulation.h"
#include "fds.h"
#include "ipc_ids.h"
#include "limits.h"
#include "lower_tls.h"
#include "lower.h"
#include "thread.h"
#include "xstate.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALTSTACK (256u << 10)

static struct thread *pool; // records of ended threads; never unmapped, since a thread of Go's may
                            // have inherited the address as its GS base (docs/split-process.md P5)

static long futex(volatile uint32_t *word, int op, uint32_t value, const struct timespec *ts) {
    return RAW6(SYS_futex, word, op, value, ts, 0, 0);
}

// Waits until *word differs from value; whoever changes one of these words rings the bell.
static void wait_for_bell(volatile uint32_t *word, uint32_t value) {
    for (;;) {
        uint32_t b = host.bell;
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (*word != value) return;
        futex(&host.bell, FUTEX_WAIT, b, NULL);
    }
}

void threads_ring(void) {
    __atomic_add_fetch(&host.bell, 1, __ATOMIC_SEQ_CST);
    futex(&host.bell, FUTEX_WAKE, INT32_MAX, NULL);
}

// ---- records -----------------------------------------------------------------------------------

struct thread *thread_new(void) {
    kmask old = block_all();
    lock();
    struct thread *t = pool;
    if (t) pool = t->next;
    unlock();
    set_kernel_mask(old);
    void *altstack = NULL;
    uint8_t *xsave = NULL;
    struct signal_list pending = {0}, kept = {0};
    if (t) {
        altstack = t->altstack;
        xsave = t->xsave;
        pending = t->pending;
        kept = t->kept;
    } else {
        size_t record = (sizeof(struct thread) + 63) & ~63ul;
        uint8_t *m = mmap(NULL, record + host.xsave_max + 64 + ALTSTACK, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m == MAP_FAILED) return NULL;
        t = (struct thread *)m;
        xsave = m + record;
        altstack = m + record + ((host.xsave_max + 63) & ~63u);
    }
    memset(t, 0, sizeof *t);
    t->self = t;
    t->altstack = altstack;
    t->xsave = xsave;
    t->pending = (struct signal_list){pending.at, 0, pending.room};
    t->kept = (struct signal_list){kept.at, 0, kept.room};
    return t;
}

static void use_altstack(struct thread *t, size_t bytes) {
    stack_t ss = {.ss_sp = t->altstack, .ss_size = bytes};
    RAW2(SYS_sigaltstack, &ss, NULL);
}

// Makes the calling lower thread the carrier of t.
void thread_attach(struct thread *t) {
    t->tid = (pid_t)RAW0(SYS_gettid);
    t->lower_fs = t->fs_base = get_fs();
    t->quick = lower_quick;
    if (lower_gs)
        lower_me = t;
    else
        set_gs(&t->self + 1);
    use_altstack(t, ALTSTACK);
    trap_arm_thread();
}

void thread_enlist(struct thread *t) {
    lock();
    t->next = host.threads;
    host.threads = t;
    unlock();
}

struct thread *thread_by_vtid(pid_t vtid) {
    for (struct thread *t = host.threads; t; t = t->next)
        if (t->vtid == vtid) return t;
    return NULL;
}

// The number of a new thread: the kernel's, unless a restarted thread has that number already.
static pid_t choose_vtid(pid_t tid) {
    while (thread_by_vtid(tid)) tid += 1 << 22; // above any pid the kernel gives
    return tid;
}

void thread_forked(struct thread *t) {
    host.threads = t;
    t->next = NULL;
    t->tid = t->vtid = (pid_t)RAW0(SYS_gettid);
    t->main = true;
    host.park_gen = 0;
    t->attention &= ~ATTN_PARK;
}

// Continues t in upper code at its saved context.  Called on its lower stack, signals blocked.
static _Noreturn void resume_upper(struct thread *t) {
    t->fs_base = t->upper_fs;
    uint8_t area[sizeof(ucontext_t) + XSTATE_MOST + 128] __attribute__((aligned(64)));
    uint8_t *x = area + ((sizeof(ucontext_t) + 63) & ~63ul);
    memcpy(x, t->xsave, t->xsave_bytes);
    ucontext_t *uc = (ucontext_t *)area;
    memcpy(uc, &t->uc, KUC_BYTES);
    uc->uc_mcontext.fpregs = (fpregset_t)x;
    uc->uc_stack = (stack_t){.ss_sp = t->altstack, .ss_size = ALTSTACK};
    uc_set_mask(uc, t->uc_mask);
    host_sigreturn(uc, t->upper_fs);
}

// Continues a thread of an image: in the gate call in which it was held, or in upper code.
static _Noreturn void go_on(struct thread *t) {
    t->state = T_RUNNING;
    spent_begin_thread(t);
    if (!fsgsbase && !t->upper_fs) t->upper_fs = t->lower_fs; // as in run_main
    RAW2(SYS_prctl, PR_SET_NAME, t->comm);
    signals_requeue(t);
    if (t->in_gate) {
        t->in_gate = false;
        t->fs_base = t->upper_fs;
        set_kernel_mask(t->uc_mask & ~OURS);
        host_resume_gate(t, t->gate_result);
    }
    resume_upper(t);
}

static void keep_context(struct thread *t, const ucontext_t *uc) {
    memcpy(&t->uc, uc, KUC_BYTES);
    t->xsave_bytes = xsave_size(uc);
    memcpy(t->xsave, uc->uc_mcontext.fpregs, t->xsave_bytes);
    t->uc_mask = uc_mask(uc);
}

struct lower_call {
    struct thread *t;
    long (*fn)(void *);
    void *arg;
    const ucontext_t *uc;
};

// The handler that called this keeps its frames in the upper part of the signal stack.  The kernel would
// begin at the top of that stack again, since the thread has left it; so only the lower part is offered
// meanwhile.
static long run_lower(void *p) {
    struct lower_call *c = p;
    const ucontext_t *before = c->t->over;
    use_altstack(c->t, ALTSTACK / 2);
    c->t->over = c->uc;
    long r = c->fn(c->arg);
    upcalls_over(c->t);
    c->t->over = before;
    use_altstack(c->t, ALTSTACK);
    return r;
}

long thread_call_lower(struct thread *t, const ucontext_t *uc, long (*fn)(void *), void *arg) {
    struct lower_call c = {t, fn, arg, uc};
    return host_on_stack(run_lower, &c, t->lower_sp - 256);
}

// ---- begin and end -----------------------------------------------------------------------------

// The upper thread has ended.  Nothing upper may be touched once the word at clear_tid is 0: a joiner may
// unmap the stack.  That word is cleared before the thread leaves the list, so that an image never lacks a
// thread that a joiner waits for.
static void farewell(struct thread *t) {
    uint32_t *word = (uint32_t *)t->clear_tid;
    robust_end(t);
    if (word) {
        __atomic_store_n(word, 0, __ATOMIC_RELEASE);
        futex(word, FUTEX_WAKE, 1, NULL);
    }
    lock();
    for (struct thread **p = &host.threads; *p; p = &(*p)->next)
        if (*p == t) {
            *p = t->next;
            break;
        }
    bool last = !host.threads;
    unlock();
    if (last) { // the program ends with its last thread
        host.ending = 1;
        if (!host.child) host.go.ending(t->status, host.parent);
        RAW1(SYS_exit_group, t->status);
    }
}

static void detach(struct thread *t) {
    stack_t off = {.ss_flags = SS_DISABLE};
    RAW2(SYS_sigaltstack, &off, NULL);
    if (lower_gs)
        lower_me = NULL;
    else
        set_gs(NULL);
    lock();
    t->upper_fs = t->lower_fs = UINT64_MAX; // matches no thread's FS base
    t->next = pool;
    pool = t;
    unlock();
}

// The start routine may find the upper half's thread-local storage unmapped.  The protectors of its stack are there.
_Noreturn void thread_leave(struct thread *t, int status) {
    t->status = status;
    if (!fsgsbase) RAW2(SYS_arch_prctl, ARCH_SET_FS, t->fs_base = t->lower_fs);
    siglongjmp(t->leave, 1);
}

// The stack pointer with which the gate begins this thread's calls: below the caller's frame.
#define GATE_STACK(frame) (((uint64_t)(frame)-1024) & ~15ull)

// How a thread begins, on its maker's stack: before the maker looks, the thread may have ended, and its
// record may belong to another thread.
struct birth {
    struct thread *t;
    bool restart; // the thread is from an image
    pid_t vtid;
    volatile uint32_t done;
};

static void *thread_start(void *arg) {
    struct birth *birth = arg;
    struct thread *t = birth->t;
    block_all();
    thread_attach(t);
    if (sigsetjmp(t->leave, 0) == 0) {
        t->lower_sp = GATE_STACK(__builtin_frame_address(0) - 4096);
        if (!t->vtid) {
            lock();
            t->vtid = choose_vtid(t->tid);
            unlock();
            for (int i = 0; i < 2; i++)
                if (t->set_tid[i]) *t->set_tid[i] = t->vtid;
        }
        bool restart = birth->restart;
        const uint32_t held = host.park_gen; // by the restart
        if (!restart) thread_enlist(t);
        birth->vtid = t->vtid;
        __atomic_store_n(&birth->done, 1, __ATOMIC_RELEASE);
        futex(&birth->done, FUTEX_WAKE, 1, NULL);
        if (restart) // until the whole process is there again
            while (host.park_gen == held) wait_for_bell(&host.park_gen, held);
        go_on(t);
    }
    farewell(t);
    detach(t);
    return NULL;
}

int thread_carry(struct thread *t, bool restart, pid_t *vtid) {
    struct birth birth = {.t = t, .restart = restart};
    pthread_t id;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 8u << 20);
    int error = lower_thread(&id, &attr, thread_start, &birth);
    pthread_attr_destroy(&attr);
    if (error) return error;
    while (!__atomic_load_n(&birth.done, __ATOMIC_ACQUIRE)) futex(&birth.done, FUTEX_WAIT, 0, NULL);
    *vtid = birth.vtid;
    return 0;
}

long thread_create(struct call *c) {
    unsigned long flags = (unsigned long)c->a[0];
    struct thread *t = thread_new();
    if (!t) return -EAGAIN;
    keep_context(t, c->uc);
    t->uc.uc_mcontext.gregs[REG_RAX] = 0;
    if (c->a[1]) t->uc.uc_mcontext.gregs[REG_RSP] = c->a[1];
    t->upper_fs = flags & CLONE_SETTLS ? (uint64_t)c->a[4] : c->t->upper_fs;
    t->clear_tid = flags & CLONE_CHILD_CLEARTID ? (uint64_t)c->a[3] : 0;
    t->hidden_mask = c->t->hidden_mask;
    t->set_tid[0] = flags & CLONE_PARENT_SETTID ? (pid_t *)c->a[2] : NULL;
    t->set_tid[1] = flags & CLONE_CHILD_SETTID ? (pid_t *)c->a[3] : NULL;
    pid_t vtid;
    if (thread_carry(t, false, &vtid)) {
        kmask old = block_all();
        lock();
        t->next = pool;
        pool = t;
        unlock();
        set_kernel_mask(old);
        return -EAGAIN;
    }
    return vtid;
}

// The record is a parameter where sigsetjmp returns twice: gcc 16 takes what self() has inlined for a variable that is written
// between the two.
static _Noreturn void run_main(struct thread *t, uint64_t ip, uint64_t sp) {
    if (sigsetjmp(t->leave, 0) == 0) {
        t->lower_sp = GATE_STACK(__builtin_frame_address(0) - 4096);
        host.live = true;
        if (!fsgsbase)
            t->upper_fs = t->fs_base; // handlers look for the stack's protector there, until it has its own
        set_kernel_mask(host.start_mask & ~OURS);
        host_enter(ip, sp);
    }
    farewell(t);
    detach(t);
    for (;;) RAW0(SYS_pause); // other threads go on; the process ends with the last one
}

_Noreturn void thread_run_main(uint64_t ip, uint64_t sp) { run_main(self(), ip, sp); }

static _Noreturn void continue_all(struct thread *t) {
    if (sigsetjmp(t->leave, 0) == 0) {
        t->lower_sp = GATE_STACK(__builtin_frame_address(0) - 32768);
        spent_begin();
        lock(); // whoever stops the process from now on must wait for all threads
        for (struct thread *o = host.threads; o; o = o->next) o->state = T_RUNNING;
        host.park_gen++; // even: all threads go
        host.live = true;
        unlock();
        threads_ring();
        if (host.main_gone) {
            detach(t);
            for (;;) RAW0(SYS_pause);
        }
        go_on(t);
    }
    farewell(t);
    detach(t);
    for (;;) RAW0(SYS_pause);
}

_Noreturn void threads_continue(void) { continue_all(self()); }

// ---- stop --------------------------------------------------------------------------------------

// Whether a parked thread stays parked; otherwise it counts as running from now on.  The next stop may come
// before a thread has woken from the last one, so whoever stops the process looks under the lock too.
static bool still_parked(struct thread *t) {
    kmask old = block_all();
    lock();
    bool stays = host.park_gen & 1;
    if (!stays) t->state = T_RUNNING;
    unlock();
    set_kernel_mask(old);
    return stays;
}

static void park_upper(struct thread *t, ucontext_t *uc) {
    call_stopped(t, uc);
    if (!(host.park_gen & 1)) return; // too late: released already
    rewind_vdso(t, uc);
    // A context outside of upper code could not be continued; the parker signals again.
    if (!in_upper((uint64_t)uc->uc_mcontext.gregs[REG_RIP])) return;
    // The same inside a callback of the lower half, whose frames are in no image: the thread parks after it.
    if (t->upcalls) {
        t->attention |= ATTN_PARK;
        return;
    }
    if (upcall_unsafe(t, uc)) return; // the parker signals again
    keep_context(t, uc);
    RAW2(SYS_prctl, PR_GET_NAME, t->comm);
    t->collected = host.collect;
    t->state = T_PARKED;
    while (still_parked(t)) {
        uint32_t b = host.bell, round = host.collect;
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (t->collected != round) {
            signals_collect(t, host.collector == t);
            t->collected = round;
        }
        if (t->errand) {
            thread_errand(t, true);
            continue;
        }
        if ((host.park_gen & 1) && host.collect == round) futex(&host.bell, FUTEX_WAIT, b, NULL);
    }
    signals_requeue(t); // the kernel delivers them when the upper context is back
}

// Has each thread take its pending signals, once all threads are stopped.
static void collect_signals(void) {
    kmask old = block_all();
    lock();
    host.collector = NULL;
    for (struct thread *t = host.threads; t; t = t->next)
        if (t->state == T_PARKED) host.collector = t;
    host.collect++;
    // All threads wait in held calls and none looks again, so the process's signals are taken here.
    if (!host.collector && host.threads) signals_collect_shared(host.threads);
    unlock();
    threads_ring();
    for (struct thread *t = host.threads; t; t = t->next)
        while (t->state == T_PARKED && t->collected != host.collect)
            nanosleep(&(struct timespec){0, 20000}, NULL);
    set_kernel_mask(old);
}

void on_park(int sig, siginfo_t *si, void *v) {
    (void)sig;
    (void)si;
    struct thread *t = self();
    uint64_t fs = found_fs(t);
    ucontext_t *uc = v;
    bool upper = stands_in_upper(t, fs, uc);
    if (upper) {
        set_fs(t->lower_fs);
        park_upper(t, uc);
        set_fs(t->upper_fs);
    } else if (t && (lower_gs || fs == t->lower_fs)) {
        t->attention |= ATTN_PARK;
        uint64_t ip = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
        if (ip >= (uint64_t)cancel_begin && ip < (uint64_t)cancel_end)
            uc->uc_mcontext.gregs[REG_RIP] = (greg_t)cancel_out;
    }
}

// Stores the modes of floating point in the gate's frame, which then has all that a call preserves.  The
// modes are still those of the caller, since the lower half's functions preserve them too.  The gate itself
// does not save them: reading and setting them takes as long as all the rest of the gate, without the FS
// bases.
static void complete_gate_frame(const struct thread *t) {
    uint8_t *frame = (uint8_t *)t->upper_sp; // gate.S
    uint32_t mxcsr;
    uint16_t control;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(control));
    memcpy(frame, &mxcsr, sizeof mxcsr);
    memcpy(frame + 4, &control, sizeof control);
}

void thread_hold(struct thread *t) {
    t->uc_mask = block_all();
    t->xsave_bytes = 0;
    complete_gate_frame(t);
    signals_collect(t, true);
    RAW2(SYS_prctl, PR_GET_NAME, t->comm);
    t->state = T_HELD;
    set_kernel_mask(t->uc_mask);
}

void thread_unhold(struct thread *t) {
    kmask old = block_all();
    lock();
    while (host.park_gen & 1) { // the process is stopped, perhaps again: this thread counts as held
        unlock();
        set_kernel_mask(old);
        thread_wait(t);
        block_all();
        lock();
    }
    t->state = T_RUNNING;
    unlock();
    signals_requeue(t);
    set_kernel_mask(t->uc_mask); // Go, if it was called meanwhile, may have let in other signals
}

static void op_release(void) {
    itimers_start();
    kmask old = block_all();
    lock();
    host.park_gen++;
    bool held = false;
    for (struct thread *t = host.threads; t; t = t->next) {
        t->attention &= ~ATTN_PARK;
        held |= t->main && t->state == T_HELD;
    }
    unlock();
    if (held)
        timers_start(); // the main thread may be in its call for long, and what expires meanwhile would count twice
    threads_ring();
    set_kernel_mask(old);
}

// Signals the threads that still run.  Returns how many these are; *which is one of them.
static int signal_running(pid_t *which, bool *in_lower) {
    kmask old = block_all();
    lock();
    int running = 0;
    for (struct thread *t = host.threads; t; t = t->next) {
        if (t->state != T_RUNNING) continue;
        running++;
        *which = t->vtid;
        *in_lower = t->attention & ATTN_PARK;
        RAW3(SYS_tgkill, host.pid, t->tid, SIG_PARK);
    }
    unlock();
    set_kernel_mask(old);
    return running;
}

static int op_park(int timeout_ms, char *why, size_t bytes) {
    if (host.ending) {
        snprintf(why, bytes, "the program is ending");
        return -ESRCH;
    }
    int64_t end = now_ns() + timeout_ms * 1000000ll, pause = 20000;
    // Before a program's first instruction there is no thread to stop.  And a restart itself holds its
    // threads with an odd generation, until threads_continue().
    for (; !host.live; nanosleep(&(struct timespec){0, 1000000}, NULL))
        if (now_ns() > end) {
            snprintf(why, bytes, "the program does not run yet");
            return -EBUSY;
        }
    kmask old = block_all();
    lock(); // so that any thread_unhold comes before or after this
    host.park_gen++;
    unlock();
    set_kernel_mask(old);
    pid_t which = 0;
    bool in_lower = false;
    while (signal_running(&which, &in_lower)) {
        if (now_ns() > end || host.ending) {
            op_release();
            snprintf(why, bytes, "thread %d %s", (int)which,
                     host.ending ? "ended the program"
                     : in_lower  ? "is inside a call of MPI, or of libckpt, that has not returned"
                                 : "cannot be stopped (it waits inside the kernel, or for a child of vfork)");
            return host.ending ? -ESRCH : -ETIMEDOUT;
        }
        struct timespec ts = {0, pause};
        nanosleep(&ts, NULL);
        if (pause < 2000000) pause *= 2;
    }
    itimers_stop();
    collect_signals();
    timers_look(collect_signals);
    return 0;
}

// ---- frozen copy -------------------------------------------------------------------------------

// The copy ends with the process, and not before.  PR_SET_PDEATHSIG would end the copy with the thread that
// made it: a program's thread may ask for a checkpoint and end.
_Noreturn static void copy_lives(pid_t parent) {
    RAW3(SYS_close_range, 0, ~0u, 0);
    struct pollfd end = {.fd = (int)RAW6(SYS_pidfd_open, parent, 0, 0, 0, 0, 0), .events = POLLIN};
    while (RAW0(SYS_getppid) == parent) {
        // Where a sandbox does not allow descriptors of processes, or poll on them, the copy looks now and
        // then.
        struct timespec look = {1, 0};
        if (end.fd < 0)
            RAW6(SYS_ppoll, NULL, 0, &look, NULL, 0, 0);
        else if (RAW6(SYS_ppoll, &end, 1, NULL, NULL, 0, 0) > 0 && end.revents & POLLIN)
            break;
        else
            end.fd = -1;
    }
    for (;;) RAW1(SYS_exit_group, 0);
}

// Makes a child that does nothing: its memory is that of this moment.  It has no exit signal, so that the
// application's wait() never sees it, and no descriptors, so that no pipe of the application stays open in
// it.
static int op_freeze(void) {
    kmask old = block_all();
    pid_t parent = host.pid;
    long pid = RAW6(SYS_clone, 0, 0, 0, 0, 0, 0);
    if (pid == 0) copy_lives(parent);
    set_kernel_mask(old);
    return (int)pid;
}

static void op_thaw(int pid) {
    int status;
    RAW2(SYS_kill, pid, SIGKILL);
    RAW4(SYS_wait4, pid, &status, __WCLONE, 0);
}

static void op_end(int status) {
    host.ending = 1;
    if (status < 0) RAW2(SYS_kill, host.pid, SIGKILL);
    RAW1(SYS_exit_group, status);
}

static void op_fail(int status) {
    host.ending = 1;
    fds_abort_job(status);
    RAW1(SYS_exit_group, status);
}

static void op_lazy(int on) {
    if (on) host.restarted_lazily = true;
    __atomic_store_n(&host.lazy, on, __ATOMIC_RELEASE);
}

static int op_threads(struct thread_ids *list, int max) {
    int n = 0;
    kmask old = block_all();
    lock();
    for (struct thread *t = host.threads; t; t = t->next, n++)
        if (n < max) list[n] = (struct thread_ids){t->vtid, t->tid};
    unlock();
    set_kernel_mask(old);
    return n;
}

static uint32_t op_asked(uint32_t add) { return __atomic_or_fetch(&host.asked, add, __ATOMIC_ACQ_REL); }

static int op_foreign(uint64_t start, uint64_t end) {
    if (start < ARENA_MMAP || end > ARENA_END) return 0; // the list does not cover these addresses
    lock();
    bool is = arena_has_free(start, end);
    unlock();
    return is;
}

static int op_place(int number, int from, int cloexec) { return fds_place(number, from, cloexec); }

const struct host_ops host_operations = {
    .size = sizeof host_operations,
    .park = op_park,
    .release = op_release,
    .save = threads_save,
    .freeze = op_freeze,
    .thaw = op_thaw,
    .fds = fds_used,
    .place = op_place,
    .original = fds_original,
    .set_tables = gate_page_set_tables,
    .foreign = op_foreign,
    .outside = memory_outside,
    .threads = op_threads,
    .asked = op_asked,
    .limit = limits_exchange,
    .end = op_end,
    .load = threads_load,
    .errand = op_errand,
    .lazy = op_lazy,
    .fail = op_fail,
    .closed = closed_file,
    .closed_safe = closed_safe,
    .made = made_log,
    .names = names_set,
    .visitors = visitors_list,
    .visitors_set = visitors_set,
    .verbs = verbs_calls,
    .ipc = ipc_known,
    .ipc_set = ipc_set,
    .undo = undo_marks,
    .undo_set = undo_set,
};
