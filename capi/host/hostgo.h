// SPDX-License-Identifier: Apache-2.0
//
// hostgo.h: the interface between ckptrun (C) and libckpt-core.so (Go).  Private to this release: the
// two are always installed together, and check HOSTGO_VERSION.
#ifndef HOSTGO_H
#define HOSTGO_H

#include <stddef.h>
#include <stdint.h>

#define HOSTGO_VERSION 19

// The application's descriptors have numbers below FD_MOST, or below FD_FEW where the hard limit is below FD_PLENTY.
#define FD_MOST 768 // files.MaxNumber and 1
#define FD_FEW 256
#define FD_PLENTY 2048 // files.Plenty

enum plan_action { PLAN_EXIT = 0, PLAN_RUN = 1, PLAN_RESTART = 2 };

// What the command line asks for.  Filled by Go; strings live as long as the process.
struct host_plan {
    int version;
    int action;            // plan_action
    int exit_status;       // PLAN_EXIT
    char *message;         // PLAN_EXIT: for stdout when exit_status is 0, else for stderr
    char *exe;             // absolute path of the ELF program (a script's interpreter)
    char *interp;          // its PT_INTERP
    char *comm;            // name of the process, as the kernel would choose it
    char **argv;           // of the program, NULL-terminated
    char **again;          // options for the ckptrun of a program that this one starts, NULL-terminated
    int launched;          // an MPI launcher started this process
    int sud;               // --trap sud
    int two_phase;         // --safe-state 2pc
    char *back;            // path of the back, or "" when there is none
    char *no_back;         // why there is none, for an MPI program
    int restart_mpi;       // PLAN_RESTART: the image is of an MPI program
    int whole;             // --whole, or PLAN_RESTART of such an image: MPI is the program's own
    uint64_t trigger_mask; // --signal: these signals do not reach the program; the handler writes their
    int trigger_fd;        // numbers to this descriptor
    // Set by ckptrun: why each crossing writes the FS base (lower_tls.c), NULL when none does.
    const char *fs_switched;
};

// The version of what an image has of threads: thread_image, action_image, clock_image, process_image and kept_signal.
// It changes with them, and with nothing else: whatever becomes of this interface, images of older releases go on.  The
// first that was kept has 11, so it begins there; HOSTGO_VERSION, which once stood in its place, counts on by itself.
#define THREADS_VERSION 11

// A thread in an image: header, then xsave_bytes of extended state.
struct thread_image {
    uint32_t bytes; // of header and state, multiple of 8
    uint32_t kind;  // 1: resumes from a signal frame; 2: stands in a gate call that returns
                    // CKPT_GATE_RESTART; 3: stands in a gate call that is issued again
    int32_t vtid;
    uint32_t main;
    uint64_t upper_fs, upper_sp, clear_tid, mask, hidden_mask;
    uint64_t altstack_sp, altstack_size, altstack_flags;
    uint64_t cut_ip, cut_sp;
    int64_t cut_left;  // nanoseconds of the wait that are left
    uint64_t regs[23]; // gregs of ucontext
    uint32_t xsave_bytes, pending;
    char comm[16];
    uint32_t flags; // THREAD_*
    int32_t robust; // where its list of robust mutexes begins, counted from clear_tid; 0: it has none
};

#define THREAD_MPI 1u    // initialized MPI
#define THREAD_CUT 2u    // stands before a call, emulated, in which it was stopped
#define THREAD_WAITS 4u  // the same, but the kernel's own
#define THREAD_SLEEPS 8u // cut_left is of processor time

struct action_image {
    uint64_t handler, flags, restorer, mask;
};

// The application's clocks when it was stopped, in nanoseconds; [0] monotonic, [1] since boot.
struct clock_image {
    int64_t real;
    int64_t now[2];   // as the application sees them
    int64_t shift[2]; // by how much they were ahead of the kernel's
};

// A timer of timer_create. Times are in nanoseconds.
struct timer_image {
    int32_t id; // which it keeps
    int32_t clock;
    int32_t notify, signo; // of sigevent
    uint64_t value;
    int32_t tid;    // the thread that is told (SIGEV_THREAD_ID), as the application knows it
    uint32_t flags; // TIMER_AT
    int64_t interval;
    int64_t left; // until it expires; 0: it is not armed; negative: since it did, its signal is pending
    int64_t when; // the same as a time of the clock as the application has it
};
#define TIMER_AT 1u // was armed for a time of its clock, and not for one from then

// Processor time, in nanoseconds (spent.c). With it the version is THREADS_VERSION + 2: it comes after the timers, a head and
// then one for each thread, in their order.
struct spent {
    int64_t all, user; // user: the part that was not the system's
};
struct spent_image {
    struct spent process, children;
    uint32_t threads, zero; // how many follow
};

// State of the process that is not in its memory.
struct process_image {
    uint32_t bytes, version;
    int32_t ids[4]; // virtual ids: process, parent, group, session
    uint32_t xsave_max;
    uint32_t timers; // how many timer_image come next; with any the version is THREADS_VERSION + 1 or later
    uint64_t brk;
    uint64_t fake_vdso;
    struct action_image actions[65];
    uint64_t itimer[3][4]; // interval s, us; value s, us
    struct clock_image clocks;
    uint64_t arguments[4];
    char exe[4096];
};

// What is in images that are kept does not change: new fields are a new version, and the old one is still read.
_Static_assert(sizeof(struct thread_image) == 320 && sizeof(struct action_image) == 32 &&
                   sizeof(struct clock_image) == 40 && sizeof(struct process_image) == 6392 &&
                   sizeof(struct timer_image) == 56 && sizeof(struct spent_image) == 40 &&
                   THREADS_VERSION == 11,
               "images of THREADS_VERSION 11 have structures of these sizes");

// Given by C to Go.  All functions may be called from any Go thread unless said otherwise.

// A name that the application gives to a file, in the file of host_ops.made; the path follows.
struct made_name {
    uint64_t ino;
    int64_t born_seconds; // since 1970
    uint32_t born_nanoseconds;
    uint32_t born_known; // whether the file system knows; or MADE_BEGINS
    uint32_t path_bytes, thread;
};
// Nothing had the name at that time, and this thread is about to give it, to the file of that number if there is one already.  When it
// has done so, the next record of the thread says so.
#define MADE_BEGINS 2
// Records of files that were there: the low bit of born_known is whether the file system knows when it was made, and the size that it has then, an
// int64_t, stands before the path.  There is no path where an earlier record since the last checkpoint has it.
#define MADE_APPENDS 0x10 // the application opened it to append
#define MADE_CLOSES 0x20  // and is about to close it
#define MADE_WRITES 0x30  // the application opened it to write anywhere, or a restart left it as it was
#define MADE_CUT 0x40     // a restart cut it to that size
#define MADE_LOST 0x50    // there were too many records: of no file is known what was appended
// Records of files that were there, with a struct made_spoilt before the path (spoilt.c).
#define MADE_SPOILT 0x60      // its content is about to change
#define MADE_GONE 0x70        // the name is about to be taken from it
#define MADE_MOVED 0x80       // it is about to get another name, which follows the path and a zero
#define MADE_SPOILT_MORE 0x90 // as MADE_SPOILT, and of other files nothing is known from here on
#define MADE_EXCHANGED 0xa0   // it and what has the other name are about to exchange names
#define MADE_GROWS 0xb0       // it was opened to append
#define MADE_NAMED 0xc0 // made after the time in modified, it is about to get that name by rename; said once
#define MADE_BACK 0xd0  // a restart went back to what the log says up to the place size
#define MADE_AGAIN 0xe0 // and made this in place of a file; its number and time are in at and modified

struct made_spoilt {
    int64_t size;
    int64_t modified,
        at;        // when its content had been changed, and when this was noted: nanoseconds since 1970
    uint32_t mode; // as in struct stat
    char kept
        [36]; // the name of its content in the folder of what is kept, or of the file itself; empty: it could not be kept
};

// A file that the application could write to, and has closed.
struct closed_file {
    uint64_t dev, ino;
    uint64_t
        number; // closed files are numbered as they are closed; a file that is closed again gets a new number
    uint32_t and_all; // there was no room for others on its file system: all of that counts as closed
    char path[4092];  // when it was closed
};

// The addresses of a socket as the application knows them, as the kernel would write them.
struct socket_name {
    uint64_t ino;
    uint32_t local_bytes, peer_bytes; // 0: as the kernel knows it
    uint8_t local[28], peer[28];
};

// A connection that a checkpoint has accepted before the application did (visitors.c).
struct visitor {
    uint64_t listener;   // number of the socket at which it waits
    int32_t fd;          // the connection
    int32_t token;       // what waits in its place, at its other end; -1: nothing does
    uint32_t name_bytes; // of the token, as accept tells it
    uint32_t peer_bytes; // of the visitor
    uint8_t name[28], peer[28];
};
#define VISITORS_MOST 256

// A System V object: the id that the application has for it, and the kernel's; -1: it is not on this node.
struct ipc_id {
    int32_t virtual, real;
    uint32_t made; // by this process, or by its restart
};
enum { IPC_SEGMENTS, IPC_SEMAPHORES, IPC_QUEUES };
#define IPC_MOST 4096 // of one kind, in one process

// Of a semaphore: what the kernel adds to it when this process ends (SEM_UNDO); or, with set, that this process has set its
// value, by which the kernel forgets that in all processes.  The number -1 is all of the semaphores.
struct sem_mark {
    int32_t virtual, number, adjust;
    uint32_t set;
    int64_t from,
        to; // CLOCK_MONOTONIC in ns: of the calls since there is something to undo, or of the one that has set it
    uint32_t waiting; // threads that may change it
};
#define SEM_MARKS_MOST 4096

// What a program asks the kernel for, that an image has to say. Commands of membarrier by which it registers are the bits of
// CKPT_ASKED_BARRIERS, as the kernel numbers them.
enum {
    CKPT_ASKED_HIDDEN = 1,   // that forks do not have some of its memory
    CKPT_ASKED_ADVICE = 2,   // other advice on memory that a mapping keeps
    CKPT_ASKED_LOCKED = 8,   // that memory stays in memory
    CKPT_ASKED_RIGHTS = 32,  // other ids, groups or capabilities
    CKPT_ASKED_AIO = 1024,   // a context of asynchronous I/O (io_setup)
    CKPT_ASKED_FILTER = 128, // a filter for its system calls
    CKPT_ASKED_BARRIERS = 4 | 16 | 64 | 256,
};

// A thread's id as the program knows it, and the kernel's.
struct thread_ids {
    int32_t virtual, real;
};

struct host_ops {
    size_t size;
    // Stops every upper thread; threads that stand in a held gate call count as stopped.  0, or
    // -ETIMEDOUT with a line in why, or -ESRCH while the program is ending.
    int (*park)(int timeout_ms, char *why, size_t bytes);
    void (*release)(void);
    // Writes process_image and the thread images of the parked threads; returns the bytes needed, -ENOMEM
    // when there was no memory for all signals that are pending, -ENOTSUP when a thread uses AMX tiles.
    long (*save)(void *buffer, size_t bytes);
    // Makes a child that is a frozen copy of this process, and dies with this process.  Only while parked.
    int (*freeze)(void);
    void (*thaw)(int pid);
    int (*fds)(int *list, int max);
    int (*place)(int number, int from, int cloexec);
    int (*original)(int i);
    void (*set_tables)(void *tables);
    // Whether some of these addresses, in the program's part of the arena, do not belong to the program.
    int (*foreign)(uint64_t start, uint64_t end);
    // Whether the program has mapped memory by address where nothing is saved; *start and *end say where.
    int (*outside)(uint64_t *start, uint64_t *end);

    // The live threads; returns how many there are.
    int (*threads)(struct thread_ids *list, int max);
    // What of CKPT_ASKED the program may have asked the kernel for; first these are added.
    uint32_t (*asked)(uint32_t add);
    // The program's limit of descriptors or memory (RLIMIT_NOFILE, _AS, _DATA), soft and hard, as it was; then it becomes
    // that of set, unless that is NULL.  0, or -EPERM: it may not have so many.
    int (*limit)(int resource, uint64_t limit[2], const uint64_t *set);
    // Ends the process at once: with the exit status, or by SIGKILL when the status is negative.
    void (*end)(int status);
    // Restart: takes over what save wrote; the memory is mapped already.  components: those of extended state, bits as in
    // XCR0, that the processor had on which the program was started.
    int (*load)(const void *buffer, size_t bytes, uint64_t components, char *why, size_t whybytes);
    // Only while parked: has the stopped thread that initialized MPI call serve, and waits until serve has
    // returned.  -ESRCH when there is no such thread.
    int (*errand)(void);
    // Whether memory of the program is missing, and comes when it is touched (host_go.memory).
    void (*lazy)(int on);
    // Ends the process at once with this exit status, and the job with it.
    void (*fail)(int status);
    // The i-th closed file: 1, or 0 when there is none.  closed_safe forgets those up to that number.
    int (*closed)(int i, struct closed_file *out);
    void (*closed_safe)(uint64_t number);
    // From now on the names that the application gives to files are written to the end of fd, as struct made_name; -1: no more.
    // What it is about to take from files that were there then is kept in folder, under names that begin with at (hexadecimal) and a
    // minus sign; so many bytes of them are copied.  folder -1: nothing is kept.
    void (*made)(int fd, int folder, uint64_t at, uint64_t bytes);
    // Restart, before threads continue: sockets whose addresses the application knows otherwise.
    void (*names)(const struct socket_name *list, int n);
    // What is below the program's libibverbs (capi/verbs/back.h): its calls, NULL when the program has asked for none;
    // with load it is loaded, and NULL tells that it cannot be, with the reason in why.
    const struct verbs_calls *(*verbs)(int load, char *why, size_t bytes);
    // The application's System V objects of a kind, as far as ids are translated, or it has made or found them; how many.
    // The other one is for a restart.
    int (*ipc)(int kind, struct ipc_id *list, int max);
    void (*ipc_set)(int kind, const struct ipc_id *list, int n);
    int (*undo)(struct sem_mark *list, int max);
    void (*undo_set)(const struct sem_mark *list, int n);
    // Connections that were accepted and not given to the application yet, in order; the program is stopped.
    int (*visitors)(struct visitor *list, int max);
    void (*visitors_set)(const struct visitor *list, int n);
};

// What a thread of the program does with memory, of which some may be missing.
enum memory_change {
    MEMORY_MOVE = 0, // it will move it: all of it must be there
    MEMORY_GONE = 1, // it has given it back, or mapped something else there: what is missing is not wanted
    MEMORY_COPY = 2, // it will copy the process: all memory must be there
};

// What ckpt_thread_is_mine, ckpt_hold and ckpt_upcall of ckpt.h do under ckptrun.
struct host_hooks {
    void (*mine)(void);
    void (*hold)(void);
    long (*upcall)(void *upper_fn, const long args[6]);
};

// Whether all processes have come to MPIX_Checkpoint.
enum come {
    HOST_COME,  // they have
    HOST_AGAIN, // not yet: the program's signals have their turn, then it is asked again
    HOST_STAY,  // they never will: state and why are the answer
};

// Exported by Go, found by dlsym.
struct host_go {
    int (*plan)(struct host_plan *plan, int argc, char **argv, const struct host_ops *ops);
    // PLAN_RUN, before the program starts: opens the control endpoint.  Non-zero: message is set.
    int (*start)(char **message);
    // PLAN_RESTART of a program without MPI: maps the image and calls ops->load.
    int (*restore)(char **message, int *status);
    // MPIX_Checkpoint without MPI, by a held thread: waits for the other processes of the job.
    int (*come)(int *state, char *why, size_t bytes); // enum come
    // Then this makes it.  Returns the MPIX_CR_state.
    int (*checkpoint)(char *why, size_t bytes);
    // The program ends with this status; parent: it has started other processes.  Returns when nothing is
    // left to be written.
    void (*ending)(int status, int parent);
    // A call of a runtime in the program's half (ckpt/private/talk.h).  On a thread that is held.
    void (*talk)(void *talk);
    // The job of that runtime as the functions of ckpt.h know it; NULL: none is open.
    void *(*job)(void);
    // Work for a stopped thread of the program (errand).
    void (*serve)(void);
    // While memory is missing (host_ops.lazy): such a change (enum memory_change).
    void (*memory)(uint64_t start, uint64_t end, int change);
    // Which rank of how many this process is, where processes know each other without MPI; else ranks is 0.
    void (*verbs_job)(int *rank, int *ranks);
    // A question of verbs_back.h to another rank, and a line for the log.
    int (*verbs_ask)(int rank, int question, uint32_t id, void *answer, size_t bytes);
    void (*verbs_say)(const char *line);
    // Once, before anything else.
    void (*hooks)(const struct host_hooks *hooks);
};

void ckpt_host_hooks(const struct host_hooks *hooks);

#endif
