// SPDX-License-Identifier: Apache-2.0
//
// emulation.h: emulations of the upper half's system calls.
//
// Each runs in the SIGSYS handler: lower FS base, lower signal stack, all signals blocked.  The table in
// dispatch.c (traps.h) says which number calls which one.
#ifndef EMULATION_H
#define EMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#include <ucontext.h>

#include "hostgo.h"
#include "signals.h"

struct thread;

struct call { // a trapped system call
    struct thread *t;
    ucontext_t *uc;
    long nr;
    long a[6];
};
typedef long (*emulation)(struct call *c);

// Results that no system call returns.
#define DONE_REGISTERS (INT64_MIN + 9) // the emulation has set the registers itself: no result is stored
#define CUT (INT64_MIN + 8) // the call was cut short because the thread must park: it is issued again

// ---- dispatch.c --------------------------------------------------------------------------------
void sigsys(struct thread *t, siginfo_t *si, ucontext_t *uc);
void rewind_call(ucontext_t *uc,
                 long nr); // uc stands before the call again: with DONE_REGISTERS it is made again
long blocking(struct call *c, long nr, const long a[6]);
long blocking_masked(struct call *c, long nr, const long a[6], kmask mask);
// Copies a string of the application's; false when the string is not readable or longer than bytes.
bool copy_string(char *to, size_t bytes, uint64_t from);
// Copies from or to an address of the application's; false when it is not one that can be read, or written.
bool copy_in(void *to, uint64_t from, size_t bytes);
bool copy_out(uint64_t to, const void *from, size_t bytes);

// ---- sys_wait.c: waits that may be cut and issued again ------------------------------------------
int64_t now_ns(void);                                                  // CLOCK_MONOTONIC
int64_t wait_deadline(struct call *c, const struct timespec *timeout); // when it ends
struct timespec wait_left(int64_t when);                               // what is left
void wait_remember(struct call *c, long result, int64_t when);

// ---- sys_proc.c: ids ---------------------------------------------------------------------------
pid_t to_real(pid_t virtual);
pid_t to_virtual(pid_t real);
void asks(uint32_t what); // CKPT_ASKED

// ---- clocks.c ----------------------------------------------------------------------------------
int64_t clock_shift(clockid_t clock); // nanoseconds that are added to the kernel's; without host.lock
// An absolute time of the application's as the kernel's clock has it: returns when, or to.
const struct timespec *clock_to_kernel(clockid_t clock, const struct timespec *when, struct timespec *to);
void clocks_save(struct clock_image *im);
void clocks_load(const struct clock_image *im);

// ---- spent.c -----------------------------------------------------------------------------------
// While all threads are stopped.  Writes one of threads for each.
void spent_save(struct spent_image *im, struct spent *threads);
void spent_load(const struct spent_image *im); // of the process; a thread has its own
void spent_begin(void);                    // the process goes on: what it has used until now is the restart's
void spent_begin_thread(struct thread *t); // the same, of the caller
void spent_forked(struct thread *t);       // a child has used nothing
int64_t spent_shift(clockid_t clock);      // clock_shift of a clock of processor time; 0 for others

// ---- inherit.c ---------------------------------------------------------------------------------
bool inherits(long op);       // of futex: a mutex that inherits priority
long inherit(struct call *c); // such a call

// ---- missing.c ---------------------------------------------------------------------------------
// Without host.lock.  what: enum memory_change, and whether this comes before or after the change; for
// MEMORY_COPY the addresses do not matter.
void memory_changes(struct call *c, uint64_t start, uint64_t bytes, int what);

// ---- sys_shm.c ---------------------------------------------------------------------------------
// Under host.lock: these addresses are not all of a segment any more, or (restart) such a part of one is there.
void segment_torn(uint64_t start, uint64_t end);
void segment_found(uint64_t start, uint64_t end, uint64_t offset, uint64_t id);

// ---- sys_ipc.c ---------------------------------------------------------------------------------
int undo_marks(struct sem_mark *list, int max); // of struct host_ops, as is
void undo_set(const struct sem_mark *list, int n);
void undo_forked(void); // under host.lock

// ---- timers.c: while all threads are stopped, signals blocked or not ---------------------------
void itimers_stop(void);
void itimers_start(void); // again, if they were stopped
void itimers_save(uint64_t to[3][4]);
void itimers_load(const uint64_t from[3][4]);

// ---- posix_timers.c ----------------------------------------------------------------------------
// While all threads are stopped.  Notes what the timers are at; collect takes the signals that are pending, again.
void timers_look(void (*collect)(void));
// Those whose signal was pending, once.  The main thread calls it when it goes on, all signals blocked.
void timers_start(void);
uint32_t timers_count(void);
void timers_save(struct timer_image *to);
// Makes those of an image; what is left counts from since (now_ns). 0, or what is wrong in why.
int timers_load(const struct timer_image *from, uint32_t n, int64_t since, char *why, size_t whybytes);
void timers_forked(void); // under host.lock

// ---- sys_proc.c --------------------------------------------------------------------------------
pid_t real_tid(pid_t vtid); // without host.lock
// A path in /proc by the id that this process, or a thread of it, has for the program: changes it to the one that the kernel has
// there, and returns true.  Without host.lock.
bool real_path(char *path, size_t bytes);
// A clock of a process's or a thread's processor time as the kernel has it; others are as they are.
clockid_t clock_of_kernel(clockid_t clock);

// ---- the emulations ----------------------------------------------------------------------------
#define EMULATION(name) long name(struct call *c)
EMULATION(sys_mmap);
EMULATION(sys_munmap);
EMULATION(sys_mremap);
EMULATION(sys_brk);
EMULATION(sys_madvise);
EMULATION(sys_userfaultfd);
EMULATION(sys_shmget);
EMULATION(sys_shmat);
EMULATION(sys_shmdt);
EMULATION(sys_shmctl);
EMULATION(sys_semget);
EMULATION(sys_semop);
EMULATION(sys_semtimedop);
EMULATION(sys_semctl);
EMULATION(sys_msgget);
EMULATION(sys_msgsnd);
EMULATION(sys_msgrcv);
EMULATION(sys_msgctl);
EMULATION(sys_timer_create);
EMULATION(sys_timer_settime);
EMULATION(sys_timer_delete);
EMULATION(sys_arch_prctl);
EMULATION(sys_prctl);
EMULATION(sys_set_tid_address);
EMULATION(sys_getpid);
EMULATION(sys_gettid);
EMULATION(sys_getppid);
EMULATION(sys_kill);
EMULATION(sys_tgkill);
EMULATION(sys_tkill);
EMULATION(sys_by_tid);
EMULATION(sys_by_kind);
EMULATION(sys_of_process);
EMULATION(sys_capabilities);
EMULATION(sys_kcmp);
EMULATION(sys_membarrier);
EMULATION(sys_mlock);
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
EMULATION(sys_bpf);
EMULATION(sys_close);
EMULATION(sys_dup);
EMULATION(sys_dup2);
EMULATION(sys_dup3);
EMULATION(sys_fcntl);
EMULATION(sys_socket_name);
EMULATION(sys_listen);
EMULATION(sys_make);
EMULATION(sys_remove);
EMULATION(sys_rename);
EMULATION(sys_truncate);
EMULATION(sys_pipe);
EMULATION(sys_socketpair);
EMULATION(sys_close_range);
EMULATION(sys_fstat);
EMULATION(sys_on_fd);
EMULATION(sys_prlimit64);
EMULATION(sys_getrlimit);
EMULATION(sys_setrlimit);
EMULATION(sys_ioctl);
EMULATION(sys_recvmsg);
EMULATION(sys_recvmmsg);
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
EMULATION(sys_set_robust_list);
EMULATION(sys_get_robust_list);
EMULATION(sys_rights);
EMULATION(sys_io_setup);
EMULATION(sys_passthrough);
EMULATION(sys_clock_gettime);
EMULATION(sys_clock_getres);
EMULATION(sys_getrusage);
EMULATION(sys_times);
EMULATION(sys_timerfd_settime);
#undef EMULATION

#endif
