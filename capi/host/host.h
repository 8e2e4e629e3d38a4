// SPDX-License-Identifier: Apache-2.0
//
// host.h: the lower half's own C: what ckptrun is made of.
//
// Owns: the arena, the gate, the threads of the upper half and what they are doing, interception
// of their system calls and signals.  May not know: MPI, images, epochs, files on disk (Go does,
// behind struct host_go).
//
// Files, by header:
//   hostgo.h     the interface between ckptrun and libckpt-core.so
//   host.h       main.c (start), trap.c (seccomp, Syscall User Dispatch)
//   machine.h    raw system calls, FS and GS bases
//   arena.h      arena.c (addresses), remap.c (mremap), sys_mem.c (mappings)
//   crossing.h   gate.S (the way into the lower half and back); vdso.S is the vDSO of the upper half;
//                clone_child.S is where threads of the lower half begin
//   program.h    program.c (ELF files, initial stack, gate page)
//   lower.h      lower.c (libckpt-core.so and the back, functions of the gate), whole.c (those of ckpt.h for
//                a runtime in the upper half), verbs.c (what is below the program's libibverbs)
//   emulation.h  dispatch.c (a trapped call, and who emulates it), sys_mem.c, sys_shm.c, sys_ipc.c, sys_proc.c,
//                sys_wait.c (the emulations), missing.c (memory that is still in the image), clocks.c (clocks of another machine), spent.c (processor time), inherit.c (mutexes that inherit priority), timers.c (interval timers), posix_timers.c (those of timer_create); traps.h is
//                the table of trapped calls
//   ipc_ids.h    ipc_ids.c (ids of System V objects, as the application knows them)
//   signals.h    signal.c (signals of two owners), signal_queue.c (signals that are pending when the process
//                is stopped), hush.c (our own threads do not hear the application's)
//   thread.h     thread.c (create, end, park, resume, frozen copy), thread_image.c (threads as bytes of an
//                image), thread_check.c (checks such bytes), errand.c (work for stopped threads),
//                upcall.c (functions of the application that the lower half calls), interrupted.c (calls
//                that a signal ends), robust.c (robust mutexes of a thread that ends)
//   fds.h        fds.c (descriptor numbers, fronts), made.c (names that the application
//                gives to files), spoilt.c (what it takes from them), appended.c (what it appends to them), locks.c (its record locks), closed.c (files that it has written to and closed,
//                until they are durable), names.c (addresses of sockets, as the application knows them),
//                visitors.c (connections that a checkpoint has accepted before the application did)
//   limits.h     limits.c (limits of memory and descriptors, as the program has them)
//   xstate.h     xstate.c (extended state of threads on another processor), forget.S (more registers than the program
//                knows of)
//   maps.h       maps.c (the mappings of this process)
//   wrap.h       wrap.c (programs that start the program)
//   at_end.h     at_end.c (what libraries of the lower half want called at the end)
//   lower_tls.h  lower_tls.c (thread-local storage of the lower half); fs_code.h, fs_code.c (finds the code that
//                is to be changed), fs_cache.h, fs_cache.c (keeps what was found), insn.h, insn.c (machine instructions)
//
// Words: "upper" is the application's half, "lower" ours.  Handlers tell the halves apart by
// where a thread stands (stands_in_upper; docs/split-process.md P5).
#ifndef HOST_H
#define HOST_H

#define _GNU_SOURCE // so each of our files includes this one first

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "hostgo.h"
#include "machine.h"
#include "signals.h"

#include "ckpt/private/mutex.h"

// The process: one, in host.
struct host {
    struct host_go go;

    // Threads, and stopping them (thread.c).
    struct thread *threads;     // live upper threads
    uint32_t lock;              // guards threads, arena, fds; taken with all signals blocked
    volatile uint32_t park_gen; // even: threads run; odd: they stay parked
    volatile uint32_t collect;  // round of collecting pending signals
    volatile uint32_t bell;     // futex: grows whenever park_gen or collect did
    volatile bool live;         // the program runs; before that there is nothing to stop
    volatile uint32_t ending;   // the program is ending: no checkpoint any more
    volatile bool lazy;         // memory is missing, and comes when it is touched (missing.c)
    bool restarted;             // it was continued from an image
    bool restarted_lazily;      // it was missing when the program was continued
    uint32_t asked;             // CKPT_ASKED: what it may have asked the kernel for
    struct thread *collector;   // the thread that takes the process's pending signals
    uint64_t itimer[3][4];      // the interval timers when they were stopped, as in an image
    int64_t itimer_stopped;     // when that was; 0: they run
    uint32_t xsave_max;         // bytes of extended state that this processor has
    bool main_gone;             // restart: the main thread had ended

    // The process and its family (sys_proc.c).
    pid_t pid; // of the process that owns this memory
    // Ids of the job's process, its parent, group and session: the kernel's, and those of the first start,
    // which the application still sees.
    struct {
        pid_t real, virtual;
    } ids[4];
    bool child;  // a forked child: no Go, no checkpoint
    bool parent; // it has started another process

    // What the application sees of itself.
    uint64_t brk;                  // current break
    uint64_t vdso_start, vdso_end; // the kernel's
    uint64_t fake_vdso;            // ours, one page
    int64_t clock_shift[2];        // ns: by how much its clocks are ahead (clocks.c)
    struct spent spent;            // what is added to its processor time, and to that of its
    struct spent spent_children;   // children (spent.c); 0 unless restarted
    uint64_t arguments[4];         // where its arguments and environment begin and end
    char exe[4096];                // what /proc/self/exe is

    // Signals (signal.c).
    struct kaction app[NSIGNALS];   // what the application asked for
    struct kaction lower[NSIGNALS]; // handlers that Go or MPI installed
    kmask start_mask;               // signals blocked when the process began, and so when the program begins
    kmask trigger_mask;             // --signal: signals that ask for a checkpoint
    int trigger_fd;                 // where their numbers go

    // How it was started.
    char *libdir;   // .../lib
    char *ckptrun;  // path of this program
    char **again;   // options for the ckptrun of a program that this one starts
    bool launched;  // by an MPI launcher
    bool mpi;       // the program has called MPI_Init
    bool sud;       // --trap sud
    bool two_phase; // what the back is told
    bool whole;     // --whole
};
extern struct host host;

// Locks are taken by code that runs with all signals blocked, so a holder is never interrupted by
// somebody who wants the same lock.
static inline void lock(void) { ckpt_mutex_take(&host.lock); }
static inline void unlock(void) { ckpt_mutex_give(&host.lock); }

// This code runs in a vfork child, which borrows the memory of the process host.pid.
static inline bool borrowed(void) { return RAW0(SYS_getpid) != host.pid; }

// ---- trap.c ------------------------------------------------------------------------------------
// Arms the trap for the calling thread, and for those that it makes from now on.  NULL, or what is wrong.
const char *trap_arm_process(void);
void trap_arm_thread(void);

#endif
