// SPDX-License-Identifier: Apache-2.0
//
// thread.h: a thread of the upper half: its record, and who makes, stops, saves and continues it.
#ifndef THREAD_H
#define THREAD_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <ucontext.h>

#include "hostgo.h"
#include "machine.h"
#include "signals.h"
#include "wrap.h"

struct call;

#define ATTN_PARK 1u        // park as soon as the thread is in upper code
#define ATTN_SIGNAL 2u      // signals for the application wait in the thread's queue
#define NR_ATTENTION 0x434b // no system call of the kernel: the gate says "look at my attention word"

// A wait that parking cut short: what is left of it when the call is issued again (docs/split-process.md P9).
struct cut_wait {
    uint64_t ip, sp;  // the call's address and stack pointer; 0: none
    int64_t deadline; // CLOCK_MONOTONIC nanoseconds; of a sleep on processor time what is left of it
    bool processor;   // it is such a sleep
};

// The call in which a thread was stopped, and which it will make again (interrupted.c).
struct stood {
    uint64_t ip, sp; // 0: none
    int64_t nr, arg;
    bool native; // the call goes to the kernel, not to the dispatcher
};

enum thread_state {
    T_RUNNING = 0,
    T_PARKED = 1, // stands in the park handler, context saved
    T_HELD = 2,   // waits inside a gate call at a point from which it can be continued
};

// One thread of the upper half.  The record's address is at gs:[-8].  gate.S and vdso.S know offsets up to
// 64.  The record is in lower memory, which no image has.  So each field has a fate:
//
//   saved    thread_save writes it, thread_load reads it (thread_image.c)
//   again    made anew when a new lower thread carries the thread (thread_new, thread_attach, thread_start)
//   dropped  means nothing while the thread is stopped, and begins as 0
struct thread {
    struct thread *self; //  0 again
    uint64_t lower_fs;   //  8 again
    uint64_t upper_fs;   // 16 saved
    uint64_t lower_sp;   // 24 again    where calls through the gate and from the dispatcher run
    uint64_t upper_sp;   // 32 saved    gate frame of the innermost call
    uint32_t attention;  // 40 dropped  ATTN_*; set by handlers, cleared by the dispatcher
    uint32_t upcalls; // 44 dropped  callbacks of the lower half now running in the upper; nobody stops in one
    uint64_t vdso_sp; // 48 dropped  non-zero inside our vDSO: rewind point on the upper stack
    uint64_t clear_tid; // 56 saved    CLONE_CHILD_CLEARTID address
    uint32_t quick;     // 64 again    FS is the upper half's in the lower half, too (lower_tls.c)

    struct thread *next;         // again    list of live threads, under host.lock
    pid_t tid, vtid;             // again, saved  the kernel's, and what the application believes
    bool main;                   // saved
    volatile uint32_t state;     // saved    as kind of the image; T_PARKED when loaded
    stack_t app_altstack;        // saved
    uint64_t robust;             // saved    what the application gave to set_robust_list; 0: nothing
    kmask hidden_mask;           // saved    which of OURS the application believes to have blocked
    struct signal_list pending;  // saved    signals that came in the lower half; loaded into kept
    uint32_t image_pending;      // dropped  how many of pending go into the image
    struct cut_wait cut;         // saved    as the time that is left
    struct stood stood;          // saved    as a flag; the context has the rest
    uint64_t told;               // dropped  where the program is told EINTR for a signal of its own
    char comm[16];               // saved    name, taken when the thread is stopped
    struct signal_list kept;     // saved    taken out of the kernel's queues while stopped (signal_queue.c)
    bool more_signals;           // dropped  there was no memory for all of kept: no image is made
    volatile uint32_t collected; // dropped  the last round of collecting that the thread has done
    void *altstack;              // again    lower signal stack
    struct fd_table *vfork_fds;  // dropped  descriptors of a child that borrows our memory (fds.c)
    struct outfit outfit;        // dropped  what a vfork child gave to its exec (wrap.c)
    pid_t *set_tid[2]; // dropped  CLONE_PARENT_SETTID, CLONE_CHILD_SETTID: where the thread's number goes
    int status;        // dropped  with which it has ended
    bool in_gate;      // saved    restart: the thread goes on inside a gate call, which returns
    long gate_result;  // saved    ... this result
    bool retry;        // saved    held in a call that is issued again after a restart
    bool mpi;          // saved    the thread that initialized MPI: it runs errands
    volatile uint32_t errand; // dropped  1: the thread is to call host.go.serve
    bool suspended;           // dropped  pending signals are chosen by suspend_mask, until the call is cut
    bool calls;               // dropped  a system call of the application's own lets signals in
    kmask suspend_mask;       // dropped  of rt_sigsuspend, ppoll and others: the call sets it again
    // dropped: the upper context that lower code interrupted, when that code was not called through the gate:
    // that of a stopped thread on an errand, or of a system call that ends the program.  NULL: none.
    const ucontext_t *over;
    uint64_t upcall_sp;   // dropped  while over: where upcalls begin; 0: not chosen yet
    uint64_t upcall_map;  // dropped  memory that was mapped for them; 0: none
    sigjmp_buf leave;     // again    to the start routine, when the upper thread ends
    ucontext_t uc;        // saved    general registers of a parked thread, copied out of the signal frame
    kmask uc_mask;        // saved
    struct spent spent;   // saved    what is added to its processor time: as all that it has used
    uint32_t xsave_bytes; // saved
    uint8_t *xsave;       // again    host.xsave_max bytes; what is in them is saved, as this processor has it
    uint64_t fs_base;     // again    without FSGSBASE: the FS base that the kernel has
};

// The FS base that a handler finds in the thread that it interrupts; t may be NULL.
static inline uint64_t found_fs(const struct thread *t) { return fsgsbase || !t ? get_fs() : t->fs_base; }

// ---- thread.c ----------------------------------------------------------------------------------
struct thread *thread_new(void);      // record for the calling lower thread
void thread_attach(struct thread *t); // FS, GS, altstack of the calling thread
// Whether a handler has interrupted upper code, at uc; fs is the FS base that it found.  t may be NULL.
bool stands_in_upper(const struct thread *t, uint64_t fs, const ucontext_t *uc); // signal.c
void thread_enlist(struct thread *t);
struct thread *thread_by_vtid(pid_t vtid);
long thread_create(struct call *c);
void thread_forked(struct thread *t); // in the child: only this thread is left
_Noreturn void thread_run_main(uint64_t ip, uint64_t sp);
_Noreturn void threads_continue(void); // restart: all threads go on; the main one is the caller
_Noreturn void thread_leave(struct thread *t, int status);
void robust_end(struct thread *t); // robust.c: t ends; its robust mutexes get to know
// Makes the lower thread that carries t; restart: t is from an image.  Returns 0 or an error number.  *vtid
// is the id of t, which may have ended already.
int thread_carry(struct thread *t, bool restart, pid_t *vtid);
// Runs fn on the thread's own lower stack, from a signal handler that interrupted upper code at uc: Go
// must not run on a signal stack (docs/split-process.md P4).
long thread_call_lower(struct thread *t, const ucontext_t *uc, long (*fn)(void *), void *arg);
void on_park(int sig, siginfo_t *si, void *uc);
void thread_hold(struct thread *t);   // no upper code runs until thread_unhold
void thread_unhold(struct thread *t); // waits while the process is stopped
void threads_ring(void);              // wakes stopped threads: one may have an errand
extern const struct host_ops host_operations;

// ---- thread_image.c, thread_check.c ------------------------------------------------------------
long threads_save(void *buffer, size_t bytes); // of struct host_ops
int threads_load(const void *buffer, size_t bytes, uint64_t components, char *why, size_t whybytes);
int threads_check(const void *buffer, size_t bytes, char *why, size_t whybytes);
// Of bytes that were checked: the processor time, NULL where there is none, and where the threads begin.
const struct spent_image *threads_spent(const struct process_image *p);
size_t threads_begin(const struct process_image *p);

// ---- errand.c ----------------------------------------------------------------------------------
void thread_errand(struct thread *t, bool from_upper);
void thread_wait(struct thread *t); // while the process is stopped
int op_errand(void);
void back_hold(void);
void back_mine(void);

// ---- upcall.c ----------------------------------------------------------------------------------
long upcall(void *fn, const long args[6]);
void upcalls_over(struct thread *t); // no more upcalls above t->over
// Whether a thread at uc must not be stopped now, because a function of the application may be called
// meanwhile.
bool upcall_unsafe(const struct thread *t, const ucontext_t *uc);

// ---- interrupted.c: a signal ends the call in which a thread was stopped ------------------------
void call_cut(struct thread *t, const ucontext_t *uc); // uc is about to make the call again
void call_begun(struct thread *t);                     // a trapped call
void call_stopped(struct thread *t, ucontext_t *uc);
void call_told(struct thread *t, const ucontext_t *uc); // a handler of the program runs
uint32_t call_save(const struct thread *t);             // flags of an image
void call_load(struct thread *t, uint32_t flags);
// A handler of the application's is due.  True: keep the signal; the call will be made again, and end with
// it.
bool call_interrupted(struct thread *t, ucontext_t *uc, bool restart);

#endif
