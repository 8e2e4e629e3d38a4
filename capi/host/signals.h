// SPDX-License-Identifier: Apache-2.0
//
// signals.h: signals of two owners: the kernel's structures, masks, lists of pending signals, and who hears
// which signal.
//
// Only inline functions may be called here before the FS base is the lower one.
#ifndef SIGNALS_H
#define SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#include "machine.h"

// ---- ours --------------------------------------------------------------------------------------
#define SIG_PARK 64 // stops a thread; hidden from the application
#define NSIGNALS 65

// ---- the kernel's ------------------------------------------------------------------------------
// Signal masks are the kernel's 64-bit ones.
typedef uint64_t kmask;
#define KBIT(sig) (1ull << ((sig)-1))
// Never blocked while upper code runs: a trap with SIGSYS blocked kills (docs/split-process.md P1), and
// parking must work.
#define OURS (KBIT(SIGSYS) | KBIT(SIG_PARK))

struct kaction { // the kernel's struct sigaction
    uint64_t handler;
    uint64_t flags;
    uint64_t restorer;
    kmask mask;
};

// The size of the extended state of a context, in bytes.
static inline uint32_t xsave_size(const ucontext_t *uc) {
    const uint32_t *sw = (const uint32_t *)((const char *)uc->uc_mcontext.fpregs + 464);
    return sw[0] == 0x46505853u /* FP_XSTATE_MAGIC1 */ ? sw[1] : 512;
}
#define KUC_BYTES (offsetof(ucontext_t, uc_sigmask) + 8) // the kernel's struct ucontext
static inline kmask uc_mask(const ucontext_t *uc) { return *(const kmask *)&uc->uc_sigmask; }
static inline void uc_set_mask(ucontext_t *uc, kmask m) { *(kmask *)&uc->uc_sigmask = m & ~OURS; }
static inline kmask block_all(void) {
    kmask all = ~0ull, old;
    RAW4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
    return old;
}
static inline void set_kernel_mask(kmask m) { RAW4(SYS_rt_sigprocmask, SIG_SETMASK, &m, 0, 8); }

// ---- lists -------------------------------------------------------------------------------------
struct kept_signal {
    siginfo_t info;
    uint64_t shared; // the signal was for the process, not for the thread
};

// Signals, oldest first.  A list that grows does not free its old memory, since a thread may be reading it.
// A thread record that is used again keeps its lists.
struct signal_list {
    struct kept_signal *at;
    uint32_t count, room;
};

// ---- signal.c ----------------------------------------------------------------------------------
void signals_install(void);
void signals_wrap_lower(void); // after a library may have installed handlers
void signals_reinstall(void);  // after a restart: the application's, from host.app
void signals_before_exec(void);
void kernel_action(int sig, uint64_t handler, uint64_t flags);
void install_app_action(int sig);
void signal_virtual(siginfo_t *si);
bool signal_on_altstack(const struct thread *t, uint64_t sp); // the application's
void deliver_pending(struct thread *t, ucontext_t *uc);
void pending_return(struct thread *t, kmask mask); // gives back queued signals that a call does not let in
// Whether mask lets in a queued signal; *restart: its handler restarts interrupted calls.
bool pending_deliverable(struct thread *t, kmask mask, bool *restart);
// Moves a context that is inside the vDSO or the gate's entry back to where it can be saved and begins again.
void rewind_vdso(struct thread *t, ucontext_t *uc);

// ---- signal_queue.c ----------------------------------------------------------------------------
bool signal_room(struct signal_list *l);                                  // for one more
void signal_add(struct signal_list *l, const siginfo_t *si, bool shared); // when there is room
void signals_collect(struct thread *t, bool shared);                      // all signals blocked
void signals_collect_shared(struct thread *t); // for a stopped t, by another thread
void signals_requeue(struct thread *t);
void signal_process(const siginfo_t *si); // all signals blocked
long signal_urgent(pid_t tid, const siginfo_t *si);
void signal_unmark(siginfo_t *si);

// ---- hush.c: threads of the lower half do not hear the application's signals --------------------
void hush_all(void);                    // Go's threads, once SIGURG is wrapped
bool hush_ordered(const siginfo_t *si); // whether the signal only tells a thread to hush
void hush(ucontext_t *uc);              // the thread's mask, once uc goes on
int lower_thread(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);

#endif
