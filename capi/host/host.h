// SPDX-License-Identifier: Apache-2.0
//
// host.h: the lower half's own C: what ckptrun is made of.
//
// Owns: the arena, the gate, the threads of the upper half and what they are doing, interception
// of their system calls and signals.  May not know: MPI, images, epochs, files on disk (Go does,
// behind struct host_go).
//
// Files: main.c (start), program.c (ELF loading), arena.c (addresses), gate.S (crossing), trap.c
// (seccomp, Syscall User Dispatch), dispatch.c (which call is emulated by whom), sys_*.c (the
// emulations), signal.c (signals of two owners), hush.c (our own threads hear none of them),
// interrupted.c (calls that they end), thread.c (create, end, park, resume, frozen copy), errand.c (work
// for stopped threads), upcall.c (functions of the application that the lower half calls), fds.c (descriptor
// numbers), wrap.c (programs that start the program), lower.c (loading libckpt.so and the back).
//
// Words: "upper" is the application's half, "lower" ours.  A thread is in upper code exactly when
// its FS base is its upper_fs; that is how handlers tell the halves apart (SPLIT.md P5).
#ifndef HOST_H
#define HOST_H

#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <ucontext.h>

#include "ckpt/gate.h"
#include "hostgo.h"

// ---- layout of the arena -----------------------------------------------------------------------
#define ARENA CKPT_ARENA_BASE
#define ARENA_TABLES (ARENA + (16ull << 20)) // vid tables, mapped by Go; never saved
#define ARENA_STACK (ARENA + (256ull << 20)) // main stack lies below ARENA_STACK_END
#define ARENA_STACK_END (ARENA + (512ull << 20))
#define ARENA_BRK (ARENA + (1ull << 30)) // brk window
#define ARENA_BRK_END (ARENA + (65ull << 30))
#define ARENA_MMAP (ARENA + (128ull << 30)) // everything else
#define ARENA_END CKPT_ARENA_END
// A non-PIE program and MAP_32BIT mappings lie below this; nothing of the lower half does.
#define LOW_END CKPT_LOW_END

// ---- signals that are ours ---------------------------------------------------------------------
#define SIG_PARK 64 // stops a thread; hidden from the application
#define NSIGNALS 65
#define NR_ATTENTION 0x434b // no system call: "look at my attention word", issued by the gate

#define ATTN_PARK 1u   // park as soon as the thread is in upper code
#define ATTN_SIGNAL 2u // signals for the application wait in the thread's queue

// Signal masks are the kernel's 64-bit ones.
typedef uint64_t kmask;
#define KBIT(sig) (1ull << ((sig)-1))
// Never blocked while upper code runs: a trap with SIGSYS blocked kills (P1), and parking must work.
#define OURS (KBIT(SIGSYS) | KBIT(SIG_PARK))

struct kaction { // the kernel's struct sigaction
    uint64_t handler;
    uint64_t flags;
    uint64_t restorer;
    kmask mask;
};

// A wait that parking cut short: what is left of it when the call is issued again (P9).
struct cut_wait {
    uint64_t ip, sp;  // where the call stands; 0: none
    int64_t deadline; // CLOCK_MONOTONIC nanoseconds
};

struct kept_signal {
    siginfo_t info;
    uint64_t shared; // it was for the process, not for the thread
};

// Oldest first.  A list that grows leaves its old memory as it is, to a thread that may be reading it; a
// record that is used again keeps its lists.
struct signal_list {
    struct kept_signal *at;
    uint32_t count, room;
};

// The call before which a stopped thread stands, since it was stopped in it (interrupted.c).
struct stood {
    uint64_t ip, sp; // 0: none
    int64_t nr, arg;
    bool native; // the kernel makes it again, not the dispatcher
};

// Memory of the arguments and environment for an exec; NULL: none.
struct outfit {
    char **at;
    size_t bytes, used; // used: by pointers
    char *text;
};

enum thread_state {
    T_RUNNING = 0,
    T_PARKED = 1, // stands in the park handler, context saved
    T_HELD = 2,   // waits inside a gate call at a point from which it can be continued
};

// One thread of the upper half.  Its address is the thread's GS base.  Lower memory; what must
// survive is written to the image by thread_save.  Offsets below 64 are known to gate.S.
struct thread {
    struct thread *self; //  0
    uint64_t lower_fs;   //  8
    uint64_t upper_fs;   // 16
    uint64_t lower_sp;   // 24 where calls through the gate and from the dispatcher run
    uint64_t upper_sp;   // 32 gate frame of the innermost call
    uint32_t attention;  // 40 ATTN_*; set by handlers, cleared by the dispatcher
    uint32_t upcalls;    // 44 callbacks of the lower half now running in the upper
    uint64_t vdso_sp;    // 48 non-zero inside our vDSO: rewind point on the upper stack
    uint64_t clear_tid;  // 56 CLONE_CHILD_CLEARTID address

    struct thread *next; // list of live threads, under H.lock
    pid_t tid, vtid;     // the kernel's, and what the application believes
    bool main;
    volatile uint32_t state;
    stack_t app_altstack;
    kmask hidden_mask;          // which of OURS the application believes to have blocked
    struct signal_list pending; // signals that came while in the lower half
    uint32_t image_pending;     // how many of them go into the image
    struct cut_wait cut;
    struct stood stood;
    char comm[16]; // name, taken when the thread is stopped
    // Signals taken out of the kernel's queues while the thread is stopped (signal_queue.c).
    struct signal_list kept;
    bool more_signals;           // there was no memory for the rest of them
    volatile uint32_t collected; // the round of collecting that it has done
    void *altstack;              // lower signal stack
    struct fd_table *vfork_fds;  // descriptors of a child that borrows our memory (fds.c)
    struct outfit outfit;        // what a vfork child gave to its exec (wrap.c)
    pid_t *set_tid[2];           // CLONE_PARENT_SETTID, CLONE_CHILD_SETTID: where its number goes
    bool in_gate;                // restart: it goes on inside a gate call, which returns
    long gate_result;            // this
    bool retry;                  // held in a call that is issued again after a restart
    bool mpi;                    // the thread that initialized MPI: it runs errands
    volatile uint32_t errand;    // 1: it is to call H.go.serve
    bool suspended;              // pending signals are chosen by suspend_mask (rt_sigsuspend)
    kmask suspend_mask;
    // The upper context above which lower code runs that was not called through the gate: of a stopped
    // thread on an errand, of a system call that ends the program.  NULL: none.
    const ucontext_t *over;
    uint64_t upcall_sp;  // while over: where upcalls begin; 0: not chosen yet
    uint64_t upcall_map; // memory that was mapped for them; 0: none
    sigjmp_buf leave;    // to the start routine, when the upper thread ends
    // Context of a parked thread: copied out of the signal frame.
    ucontext_t uc;
    kmask uc_mask;
    uint32_t xsave_bytes;
    uint8_t *xsave; // H.xsave_max bytes
};

struct host {
    struct host_go go;
    struct thread *threads;     // live upper threads
    volatile int lock;          // guards threads, arena, fds; taken with all signals blocked
    volatile uint32_t park_gen; // even: threads run; odd: they stay parked
    volatile bool live;         // the program runs: before, there is nothing to be stopped
    volatile uint32_t collect;  // round of collecting pending signals
    struct thread *collector;   // who takes those of the process
    uint64_t itimer[3][4];      // the interval timers when they were stopped, as in an image
    int64_t itimer_stopped;     // when that was; 0: they run
    volatile uint32_t bell;     // futex: grows whenever park_gen or collect did
    pid_t pid;                  // of the process that owns this memory
    // Ids of the job's process, its parent, group and session: what they are, and what they were at
    // the first start, which the application keeps believing.
    struct {
        pid_t real, virtual;
    } ids[4];
    bool child; // a forked child: no Go, no checkpoint
    bool sud;
    bool two_phase; // what the back is told
    uint64_t brk;   // current break
    uint64_t vdso_start, vdso_end;
    uint64_t fake_vdso;     // one page
    int64_t clock_shift[2]; // ns: what the application's clocks are ahead of the kernel's (clocks.c)
    char exe[4096];         // what /proc/self/exe is for the application
    uint64_t arguments[4];  // where its arguments and environment begin and end
    struct kaction app[NSIGNALS];
    struct kaction lower[NSIGNALS]; // handlers that Go or MPI installed
    uint32_t xsave_max;
    volatile uint32_t shm, timers; // System V segments attached, POSIX timers: not saved yet
    volatile uint32_t ending;      // no checkpoint any more
    bool main_gone;                // restart: the main thread had ended
    char *libdir;                  // .../lib
    char *ckptrun;                 // path of this program
    char **again;                  // options for the ckptrun of a program that this one starts
    bool launched;                 // by an MPI launcher
    bool mpi;                      // the program has called MPI_Init
    bool parent;                   // it has started another process
    kmask start_mask;
    kmask trigger_mask; // --signal: signals that ask for a checkpoint
    int trigger_fd;     // where their numbers go
};
extern struct host H;

// ---- gate.S ------------------------------------------------------------------------------------
extern const char gate_code[], gate_code_end[], gate_commit[], gate_in[], gate_tail[];
long host_upcall(void *fn, const long args[6]);
// Runs the system call unless *attention is set, else returns -EINTR; a handler that finds the
// instruction pointer in [cancel_begin, cancel_end) moves it to cancel_out.
long host_cancelable(volatile uint32_t *attention, long nr, const long args[6]);
extern const char cancel_begin[], cancel_end[], cancel_out[];
_Noreturn void host_resume_gate(struct thread *t, long result);
_Noreturn void host_sigreturn(ucontext_t *frame, uint64_t fs);
_Noreturn void host_enter(uint64_t ip, uint64_t sp);
long host_on_stack(long (*fn)(void *), void *arg, uint64_t sp);
long host_vfork(long flags, void *child_stack, void (*child)(void *), void *arg);
void host_restorer(void);
long host_raw(long nr, ...);

static inline long raw6(long nr, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#define RAW0(nr) raw6(nr, 0, 0, 0, 0, 0, 0)
#define RAW1(nr, a) raw6(nr, (long)(a), 0, 0, 0, 0, 0)
#define RAW2(nr, a, b) raw6(nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define RAW3(nr, a, b, c) raw6(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define RAW4(nr, a, b, c, d) raw6(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define RAW6(nr, a, b, c, d, e, f) raw6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline struct thread *self(void) {
    struct thread *t;
    __asm__ volatile("rdgsbase %0" : "=r"(t));
    return t;
}
static inline uint64_t get_fs(void) {
    uint64_t v;
    __asm__ volatile("rdfsbase %0" : "=r"(v));
    return v;
}
static inline void set_fs(uint64_t v) { __asm__ volatile("wrfsbase %0" ::"r"(v) : "memory"); }
static inline void set_gs(void *v) { __asm__ volatile("wrgsbase %0" ::"r"(v) : "memory"); }

static inline bool in_upper(uint64_t ip) { return (ip >= ARENA && ip < ARENA_END) || ip < LOW_END; }

// Locks are taken by code that runs with all signals blocked, so a holder is never interrupted by
// somebody who wants the same lock.
static inline void lock(void) {
    while (__atomic_exchange_n(&H.lock, 1, __ATOMIC_ACQUIRE)) RAW0(24 /* sched_yield */);
}
static inline void unlock(void) { __atomic_store_n(&H.lock, 0, __ATOMIC_RELEASE); }

// ---- arena.c -----------------------------------------------------------------------------------
uint64_t arena_reserve(uint64_t bytes, uint64_t align); // 0 when full; caller maps it
bool arena_claim(uint64_t start, uint64_t end);         // takes a fixed range out of the free list
void arena_free(uint64_t start, uint64_t end);
bool arena_has_free(uint64_t start, uint64_t end);
int memory_outside(uint64_t *start, uint64_t *end);
void arena_init(void);
const char *arena_vacant(void); // NULL, or a sentence about what lies in the arena

// ---- program.c ---------------------------------------------------------------------------------
struct program {
    uint64_t entry, phdr, phnum, base, interp_base, interp_entry;
};
const char *program_load(const char *path, struct program *out); // NULL, or what is wrong
uint64_t program_stack(const struct program *p, const char *exe, char **argv, char **envp);
void program_show(const char *comm); // name and arguments, as ps shows them
const char *gate_page_map(void);
void gate_page_set_tables(void *tables);
void gate_page_set_clocks(const struct timespec shift[2]);
void gate_page_set_functions(long (**fn)(const long *));
const char *vdso_load(void);

// ---- trap.c ------------------------------------------------------------------------------------
const char *trap_arm_process(void); // the calling thread, and those it makes from now on
void trap_arm_thread(void);

// ---- dispatch.c --------------------------------------------------------------------------------
void sigsys(struct thread *t, siginfo_t *si, ucontext_t *uc);
struct call { // a trapped system call
    struct thread *t;
    ucontext_t *uc;
    long nr;
    long a[6];
};
typedef long (*emulation)(struct call *c);
// The call finished its own way: registers are set, no result is stored.
#define DONE_REGISTERS (INT64_MIN + 9)
long blocking(struct call *c, long nr, const long a[6]);
long blocking_masked(struct call *c, long nr, const long a[6], kmask mask);
// The call was cut short because the thread must park: it is issued again afterwards.
#define CUT (INT64_MIN + 8)
// Waits that may be cut and issued again (sys_wait.c): when it ends, what is left, what to remember.
int64_t wait_deadline(struct call *c, const struct timespec *timeout);
struct timespec wait_left(int64_t when);
void wait_remember(struct call *c, long result, int64_t when);
// Copies a string of the application's; false when it is not readable or longer than bytes.
bool copy_string(char *to, size_t bytes, uint64_t from);
pid_t to_real(pid_t virtual);
pid_t to_virtual(pid_t real);
// This code runs in a vfork child, which borrows the memory of the process H.pid.
static inline bool borrowed(void) { return RAW0(39 /* getpid */) != H.pid; }

#define EMULATION(name) long name(struct call *c)
EMULATION(sys_mmap);
EMULATION(sys_munmap);
EMULATION(sys_mremap);
EMULATION(sys_brk);
EMULATION(sys_shmat);
EMULATION(sys_shmdt);
EMULATION(sys_timer_create);
EMULATION(sys_timer_delete);
EMULATION(sys_arch_prctl);
EMULATION(sys_set_tid_address);
EMULATION(sys_getpid);
EMULATION(sys_gettid);
EMULATION(sys_getppid);
EMULATION(sys_kill);
EMULATION(sys_tgkill);
EMULATION(sys_tkill);
EMULATION(sys_by_tid);
EMULATION(sys_by_pid);
EMULATION(sys_getpgrp);
EMULATION(sys_setpgid);
EMULATION(sys_execveat);
EMULATION(sys_wait4);
EMULATION(sys_waitid);
EMULATION(sys_sigqueueinfo);
EMULATION(sys_clone);
EMULATION(sys_fork);
EMULATION(sys_vfork);
EMULATION(sys_execve);
EMULATION(sys_exit);
EMULATION(sys_exit_group);
EMULATION(sys_rt_sigaction);
EMULATION(sys_rt_sigprocmask);
EMULATION(sys_rt_sigreturn);
EMULATION(sys_sigaltstack);
EMULATION(sys_rt_sigsuspend);
EMULATION(sys_rt_sigtimedwait);
EMULATION(sys_pause);
EMULATION(sys_open);
EMULATION(sys_openat);
EMULATION(sys_creat);
EMULATION(sys_newfd);
EMULATION(sys_close);
EMULATION(sys_dup);
EMULATION(sys_dup2);
EMULATION(sys_dup3);
EMULATION(sys_fcntl);
EMULATION(sys_pipe);
EMULATION(sys_socketpair);
EMULATION(sys_close_range);
EMULATION(sys_fstat);
EMULATION(sys_newfstatat);
EMULATION(sys_statx);
EMULATION(sys_accept);
EMULATION(sys_readlink);
EMULATION(sys_readlinkat);
EMULATION(sys_nanosleep);
EMULATION(sys_clock_nanosleep);
EMULATION(sys_poll);
EMULATION(sys_ppoll);
EMULATION(sys_select);
EMULATION(sys_pselect6);
EMULATION(sys_epoll_wait);
EMULATION(sys_epoll_pwait2);
EMULATION(sys_futex);
EMULATION(sys_blocking);
EMULATION(sys_attention);
EMULATION(sys_enosys);
EMULATION(sys_zero);
EMULATION(sys_passthrough);

// ---- fds.c -------------------------------------------------------------------------------------
#define FD_FENCE 256
#define FD_OWN 64             // descriptors that ckptrun and the real MPI need at least, from FD_FENCE on
void fds_isolate(bool again); // again: numbers below FD_FENCE are the application's already
// The new number when entry of an environment, NAME=NUMBER, names a descriptor of the launcher, else -1.
int fds_launcher(struct call *c, const char *entry);
int fds_used(int *list, int max); // numbers below FD_FENCE that the application has
int fds_place(int number, int from, bool cloexec);
int fds_original(int i); // high-numbered dup of the launcher's descriptor i, or -1
void fds_forked(void);
void fds_abort_job(int status); // has MPICH's launcher end the other ranks
void fds_vfork_begin(struct thread *t);
void fds_vfork_end(struct thread *t);
// The front that stands in for path's file, or NULL.
const char *front_for(const char *path);
void fronts_scan(void);

// ---- wrap.c ------------------------------------------------------------------------------------
// At the start, before anything reads the environment: takes what wrap_outfit had put there out of
// both.  True when a program under ckptrun started this one.
bool wrap_arrived(char **environment);
void wrap_begin(void); // once the plan is known
// Environment for a program that takes the place of the caller, or of the job's process; NULL: no memory.
char **wrap_environment(struct call *c, char *const *envp, struct outfit *o);
// ckptrun's arguments to run path in the place of this process.
char **wrap_arguments(const char *path, char *const *argv, struct outfit *o);
void wrap_free(struct outfit *o);

// ---- signal.c ----------------------------------------------------------------------------------
void signals_install(void);
void signals_wrap_lower(void); // after a library may have installed handlers
void signals_reinstall(void);  // after a restart: the application's, from H.app
void deliver_pending(struct thread *t, ucontext_t *uc);
void pending_return(struct thread *t, kmask mask); // queued ones that a call does not let in
// A queued signal is not blocked by mask; *restart: interrupted calls are to be restarted.
bool signal_on_altstack(const struct thread *t, uint64_t sp); // the application's
bool pending_deliverable(struct thread *t, kmask mask, bool *restart);
void install_app_action(int sig);
void signal_virtual(siginfo_t *si);
void signals_collect(struct thread *t, bool shared);                      // all signals blocked
bool signal_room(struct signal_list *l);                                  // for one more
void signal_add(struct signal_list *l, const siginfo_t *si, bool shared); // when there is room
void signals_collect_shared(struct thread *t); // for a stopped t, by another thread
void signals_requeue(struct thread *t);        // all signals blocked
// ---- hush.c: threads of the lower half do not hear the application's signals --------------------
void hush_all(void);                    // those of Go, once SIGURG is wrapped
bool hush_ordered(const siginfo_t *si); // this signal only tells a thread to
void hush(ucontext_t *uc);              // from when uc goes on
int lower_thread(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
// ---- interrupted.c: a signal ends the call in which a thread was stopped ------------------------
void call_cut(struct thread *t, const ucontext_t *uc); // uc is about to make it again
void call_begun(struct thread *t);                     // a trapped call
void call_stopped(struct thread *t, const ucontext_t *uc);
uint32_t call_save(const struct thread *t); // flags of an image
void call_load(struct thread *t, uint32_t flags);
// A handler of the application's is due.  true: keep the signal, the call will be made and end with it.
bool call_interrupted(struct thread *t, ucontext_t *uc, bool restart);
// ---- clocks.c ----------------------------------------------------------------------------------
int64_t clock_shift(clockid_t clock);
// An absolute time of the application's as the kernel has it: when itself, or in *to.
const struct timespec *clock_to_kernel(clockid_t clock, const struct timespec *when, struct timespec *to);
void clocks_save(struct clock_image *im);
void clocks_load(const struct clock_image *im);
long sys_clock_gettime(struct call *c);
long sys_timerfd_settime(struct call *c);

// ---- timers.c: while all threads are stopped, signals blocked or not ---------------------------
void itimers_stop(void);
void itimers_start(void); // again, if they were stopped
void itimers_save(uint64_t to[3][4]);
void itimers_load(const uint64_t from[3][4]);

// ---- signal.c ----------------------------------------------------------------------------------
void kernel_action(int sig, uint64_t handler, uint64_t flags);
void signals_before_exec(void);
// Extended state of a context: address and bytes; and what a sigreturn would load.
static inline uint32_t xsave_size(const ucontext_t *uc) {
    const uint32_t *sw = (const uint32_t *)((const char *)uc->uc_mcontext.fpregs + 464);
    return sw[0] == 0x46505853u /* FP_XSTATE_MAGIC1 */ ? sw[1] : 512;
}
#define KUC_BYTES (offsetof(ucontext_t, uc_sigmask) + 8) // the kernel's struct ucontext
static inline kmask uc_mask(const ucontext_t *uc) { return *(const kmask *)&uc->uc_sigmask; }
static inline void uc_set_mask(ucontext_t *uc, kmask m) { *(kmask *)&uc->uc_sigmask = m & ~OURS; }
static inline kmask block_all(void) {
    kmask all = ~0ull, old;
    RAW4(14 /* rt_sigprocmask */, SIG_SETMASK, &all, &old, 8);
    return old;
}
static inline void set_kernel_mask(kmask m) { RAW4(14, SIG_SETMASK, &m, 0, 8); }

// ---- thread.c, thread_image.c ------------------------------------------------------------------
struct thread *thread_new(void);      // record for the calling lower thread
void thread_attach(struct thread *t); // FS, GS, altstack of the calling thread
void on_park(int sig, siginfo_t *si, void *uc);
long thread_create(struct call *c);
void thread_forked(struct thread *t); // in the child: only this one is left
_Noreturn void thread_run_main(uint64_t ip, uint64_t sp);
_Noreturn void threads_continue(void); // restart: all threads go on; the main one is the caller
_Noreturn void thread_leave(struct thread *t);
struct thread *thread_by_vtid(pid_t vtid);
void thread_enlist(struct thread *t);
// Makes the lower thread that carries t; restart: t is one of an image.  Returns 0 or an error number;
// *vtid is its id, and it may have ended already.
int thread_carry(struct thread *t, bool restart, pid_t *vtid);
long threads_save(void *buffer, size_t bytes); // of struct host_ops
int threads_check(const void *buffer, size_t bytes, uint32_t xsave_max, char *why, size_t whybytes);
int threads_load(const void *buffer, size_t bytes, char *why, size_t whybytes);
// Runs fn on the thread's own lower stack, from a signal handler that interrupted upper code at uc: Go
// must not run on a signal stack (P4).
long thread_call_lower(struct thread *t, const ucontext_t *uc, long (*fn)(void *), void *arg);
void thread_hold(struct thread *t);                    // no upper code runs until thread_unhold
void thread_unhold(struct thread *t);                  // waits while the process is stopped
void threads_ring(void);                               // stopped threads look around
void thread_errand(struct thread *t, bool from_upper); // errand.c
void thread_wait(struct thread *t);                    // errand.c: while the process is stopped
long upcall(void *fn, const long args[6]);             // upcall.c
void upcalls_over(struct thread *t);                   // upcall.c: no more of them above t->over
// A thread at uc must not be stopped now, since functions of the application may be called meanwhile.
bool upcall_unsafe(const struct thread *t, const ucontext_t *uc);
bool back_calls_up(void); // ... by callbacks of libckpt's, on a stopped thread
int op_errand(void);
void back_hold(void);
void back_mine(void);
void rewind_vdso(struct thread *t, ucontext_t *uc);
extern const struct host_ops host_operations;
int64_t now_ns(void);

// ---- lower.c -----------------------------------------------------------------------------------
_Noreturn void die(int status, const char *format, ...);
long fn_load_back(const long *a);
long fn_checkpoint(const long *a);
long fn_reason(const long *a);
const char *back_load(const char *abi);
int back_restart(char **message);
void lower_open(void);

// Which back fn_load_back loads; name stays where it is.
void back_choose(char *name);

#endif
