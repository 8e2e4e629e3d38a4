/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt.h: libckpt for MPI implementations and other runtimes.
 *
 * A runtime opens a job once it knows its rank and can all-gather a few bytes, and calls ckpt_checkpoint
 * on all ranks.  It may do more, a layer at a time: give virtual ids to the objects that the application
 * holds (ckpt_object_ops), count messages and hand over those under way (ckpt_message_ops), bracket
 * collective calls (ckpt/clock.h).  docs/embedding.md has the calls in order, and who calls whom.
 *
 * Conventions.
 *
 *   Sizes      Structs that cross the border begin with their size in bytes, set by whoever made them, and
 *              grow at the end only.  A field that the other side does not know yet counts as zero; one
 *              that it must know and does not is CKPT_E_VERSION.  So a runtime that was compiled against
 *              any CKPT_API_MINOR works with any library of the same CKPT_API_MAJOR.
 *   Errors     Functions that can fail return 0 or a negative CKPT_E code, and fill the ckpt_error that
 *              they are given (NULL: nobody wants to know) as far as its size goes.  libckpt never prints,
 *              exits or aborts.
 *   Threads    Unless said otherwise a function may be called by any thread, outside signal handlers.
 *              Callbacks say by one of these words on which thread they come:
 *                [caller]   the thread that is inside ckpt_open, ckpt_close or ckpt_checkpoint
 *                [stopped]  one of the program's threads while all of them are stopped: the one that called
 *                           ckpt_thread_is_mine, else the one inside ckpt_checkpoint
 *                [any]      any thread, libckpt's own too, at any time: may only look at memory
 *                [task]     the task (ckpt_checkpoint) that came last, on its own stack and with no frame of
 *                           libckpt's core below it, so the callback may switch: it may have a user-level
 *                           scheduler run other tasks before it returns
 *              Where the runtime is saved with its program (ckptrun --whole), [caller] and [stopped] come as
 *              [task] too, and nothing is stopped meanwhile.
 *   Processes  A process has one job at a time; ckpt_open fails with CKPT_E_STATE while one is open.  After
 *              a fork that no exec follows, every call fails with CKPT_E_NOTSUP.
 */
#ifndef CKPT_H
#define CKPT_H

#include <stddef.h>
#include <stdint.h>

#include "ckpt/tables.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Versions a runtime was compiled against; ckpt_open refuses another major number. */
#define CKPT_API_MAJOR 1
#define CKPT_API_MINOR 1

/* Errors.  Numbers are never used again for something else. */
enum {
    CKPT_OK = 0,
    CKPT_E_ARG = -1,     /* an argument is wrong */
    CKPT_E_STATE = -2,   /* not possible now (the message says what holds it back) */
    CKPT_E_SYSTEM = -3,  /* the operating system refused */
    CKPT_E_CORRUPT = -4, /* an image or table is damaged */
    CKPT_E_PEER = -5,    /* another rank is lost or failed */
    CKPT_E_NOTSUP = -6,  /* not supported here (the message says what and why) */
    CKPT_E_VERSION = -7, /* made for another version */
    CKPT_E_AGAIN = -8    /* not yet: ask again after ckpt_poll */
};

typedef struct ckpt_error {
    size_t size;        /* sizeof(ckpt_error), set by the caller */
    int code;           /* CKPT_E_* */
    char message[1000]; /* one line, no newline, NUL-terminated; shorter when size is smaller */
} ckpt_error;

/* ---- the job ---------------------------------------------------------------------------------- */

/* What threads may do with a runtime; the numbers of MPI's levels. */
enum {
    CKPT_THREAD_SINGLE = 0,
    CKPT_THREAD_FUNNELED = 1,
    CKPT_THREAD_SERIALIZED = 2,
    CKPT_THREAD_MULTIPLE = 3
};

typedef struct ckpt_config {
    size_t size;
    int api_major, api_minor;    /* CKPT_API_MAJOR, CKPT_API_MINOR */
    const char *runtime;         /* name, e.g. "mpich" */
    const char *runtime_version; /* free text, stored in the manifest; may be NULL */
    int thread_level;            /* highest that a rank asked for (CKPT_THREAD_*), stored in the manifest */
    /* Version 1.1; with CKPT_OPEN_REGIONS. */
    const char *dir;     /* where checkpoints go; NULL: CKPT_DIR, or "ckpt" */
    const char *restart; /* DIR or DIR@EPOCH to be continued; NULL: CKPT_RESTART, or nothing */
    unsigned flags;      /* CKPT_OPEN_* */
} ckpt_config;
enum {
    /* Without ckptrun, too, the job is saved: memory of ranks that ckpt_task_region names, and nothing else.
     * Settings are those of ckptrun, from the environment and ckpt.toml.  Under ckptrun --whole this means
     * nothing: all memory is saved. */
    CKPT_OPEN_REGIONS = 1
};

/* What a checkpoint did; same values as MPIX_CR_state_t. */
typedef enum {
    CKPT_STATE_ERROR = 0,
    CKPT_STATE_CHECKPOINT = 1,
    CKPT_STATE_RESTART = 2,
    CKPT_STATE_IGNORE = 3
} ckpt_state;

typedef struct ckpt_object_ops ckpt_object_ops;
typedef struct ckpt_message_ops ckpt_message_ops;
typedef struct ckpt_sync_ops ckpt_sync_ops;
typedef struct ckpt_state_ops ckpt_state_ops;

/* Callbacks of the runtime.  ctx is the pointer given to ckpt_open.  One that returns int returns 0 or a
 * negative CKPT_E code, unless said otherwise.  rank, ranks and oob_allgather must be there; everything
 * else may be NULL, and a layer that is NULL is one that the runtime does not have. */
typedef struct ckpt_runtime_ops {
    size_t size;
    /* [caller] This rank, and how many there are. */
    int (*rank)(void *ctx);
    int (*ranks)(void *ctx);
    /* [caller] All ranks give bytes bytes at mine and receive ranks*bytes at all, in rank order.  bytes is
     * the same on all of them: over a fence of unequal sizes (PMIx) the runtime pads. */
    int (*oob_allgather)(void *ctx, const void *mine, void *all, size_t bytes);
    /* [caller] Drives the runtime's communication once, without blocking, while the thread waits: peers may
     * need it. */
    int (*progress)(void *ctx);
    /* On the thread of the callback that failed: one line that says why, "" when there is nothing to say. */
    const char *(*failure)(void *ctx);
    /* [stopped] Ends the runtime (MPI_Finalize): a checkpoint was asked for with "then exit" and is
     * committed.  The process ends right after.  Not called where the runtime is saved with its program: its rails are
     * closed by then. */
    int (*finalize)(void *ctx);
    const ckpt_object_ops *objects;
    const ckpt_message_ops *messages;
    const ckpt_sync_ops *sync;
    const ckpt_state_ops *state;

    /* Version 1.1: runtimes whose ranks are tasks (user-level threads) of one process; rank and ranks then
     * count processes.  All of these may be NULL: one rank a process. */
    /* [any] How many ranks live in this process, those that have left among them: tasks 0 to that number - 1.  All
     * but those that have left must call ckpt_checkpoint; the first one to come counts them. */
    int (*local_tasks)(void *ctx);
    /* On the calling task, and with nothing of libckpt's below it but C of the caller's own half.  park returns
     * when the task was unparked, also when that came first; it may return early.  NULL park: yield is called
     * in a loop; NULL yield: sched_yield.  Both may switch. */
    void (*park)(void *ctx, int local_task);
    void (*unpark)(void *ctx, int local_task);
    void (*yield)(void *ctx);
    /* [caller] The rank in the job of a local task, asked in ckpt_open for all of them, which must be there by then;
     * local task 0 of process 0 is rank 0.  With it each task has collective clocks and message counts of its own
     * (ckpt_vid_task), and ranks in the lists of ckpt_comm_describe and ckpt_comm_set_members are those of tasks.
     * NULL: they are processes. */
    int (*task_rank)(void *ctx, int local_task);
    /* [task] 1: no thread of the runtime is inside a rail, or comes there, before quiesce(0).  Called before
     * rails are closed and before threads are stopped.  NULL: the runtime has no threads of its own and makes
     * progress in calls only. */
    int (*quiesce)(void *ctx, int on);
} ckpt_runtime_ops;

/* A call of the application that waits. */
typedef struct ckpt_waiting {
    const char *call; /* a constant: "MPI_Recv" */
    ckpt_vid comm;    /* CKPT_VID_NONE: none that is known */
    int peer;         /* rank on comm (of the remote group) that the message is from or for, or CKPT_PEER_* */
    int tag;          /* negative: any */
    int what;         /* CKPT_WAIT_* */
} ckpt_waiting;
enum {
    CKPT_WAIT_MESSAGE = 0,    /* for a message from peer */
    CKPT_WAIT_RECEIVER = 1,   /* until peer has received one */
    CKPT_WAIT_COLLECTIVE = 2, /* for the members of comm */
    CKPT_WAIT_REQUEST = 3     /* for a request of another kind */
};
enum { CKPT_PEER_ANY = -1, CKPT_PEER_NONE = -2 };

/* What of this rank is looked at besides its memory. */
struct ckpt_state_ops {
    size_t size;
    /* [stopped] What holds a checkpoint back on this rank (an unfinished request, an open epoch): writes one
     * line of at most bytes-1 characters and returns 1; returns 0 when nothing does. */
    int (*holds)(void *ctx, char *why, size_t bytes);
    /* [any] The call in which a thread of this rank waits for processes outside the job, so that it cannot be
     * held; NULL when none does. */
    const char *(*inside)(void *ctx);
    /* [any] Lists calls of the application that have been waiting for a while, at most max, and returns how
     * many.  For people to read. */
    int (*waiting)(void *ctx, ckpt_waiting *list, int max);
    /* [stopped] Lists the files that the runtime has open for the application, so that they are durable
     * before an epoch is committed, and as they were when it is continued.  For each: letters (w: it may be
     * written to; d: it is deleted when it is closed; o: this rank answers for it, as one of those that have
     * it open), NUL, its absolute path, NUL.  Writes nothing that bytes have no room for, and returns how
     * many it takes.  Called after save. */
    long (*files)(void *ctx, char *buffer, size_t bytes);
    /* [stopped] Lists shared mappings at addresses of the application's that are this rank's memory, saved
     * with it, though the runtime made them: start and end of each.  Writes at most max addresses and
     * returns how many there are.  rebuild finds the content in memory that is mapped there. */
    long (*memory)(void *ctx, uint64_t *list, long max);
};

/* ---- memory of ranks (regions mode) ---------------------------------------------------------------
 *
 * For runtimes whose ranks can move to other processes.  The memory of each rank is in an image apart from that of
 * the others, and in a restart any process takes any rank, in any number of processes.  A checkpoint goes its usual
 * way through the runtime (quiesce, rails, ckpt_signal), but nobody stops threads: from quiesce(1) to quiesce(0) no
 * rank may run.  docs/embedding.md has what must be true of a program whose stacks are saved so. */

enum {
    /* It holds stacks, or other addresses of code: only the same build of the program takes it, whose code has
     * fixed addresses (-no-pie) and no canaries (-fno-stack-protector). */
    CKPT_REGION_CODE = 1
};
typedef struct ckpt_saved {
    size_t size;
    int epoch;
    int ranks;     /* of the job: 0 to ranks-1 */
    int processes; /* that it was saved by */
    int called; /* 1: the programs had called ckpt_checkpoint, and were to be answered; 0: others had asked */
} ckpt_saved;
#ifndef CKPT_TYPES_ONLY /* libckpt itself defines the functions */

/* Opens the job.  Collective over all ranks.  In a process that ckptrun restarted it reads this rank's image
 * and rebuilds every object before it returns; ckpt_restarted tells.  (One that is saved with its program is
 * inside ckpt_checkpoint then.)  Outside of ckptrun nothing is saved: ckpt_checkpoint answers
 * CKPT_STATE_IGNORE.  NULL on error: CKPT_E_VERSION, CKPT_E_ARG (a callback is missing), CKPT_E_STATE (a job is
 * open), CKPT_E_NOTSUP, CKPT_E_PEER, CKPT_E_CORRUPT, CKPT_E_SYSTEM. */
ckpt_job *ckpt_open(const ckpt_config *config, const ckpt_runtime_ops *ops, void *ctx, ckpt_error *error);

/* Closes the job: waits until an epoch that is being written is committed or given up.  Collective. */
int ckpt_close(ckpt_job *job, ckpt_error *error);

/* The thread_level of the job that this process continues: what the fresh runtime is to be started with,
 * before ckpt_open.  -1 in a process that continues none. */
int ckpt_restart_thread_level(void);

/* 1 when this process was continued from an image, else 0. */
int ckpt_restarted(ckpt_job *job);

/* Bytes that the runtime wants back after a restart (thread level, counters, ...).  Saved with every image as
 * they are at that moment; after ckpt_open of a restart they hold what was saved.  The memory is libckpt's,
 * zeroed at first, and stays in place until ckpt_close.  NULL: no memory, or job is not open. */
void *ckpt_runtime_state(ckpt_job *job, size_t bytes);

/* Saves the job.  Collective; called by each local task (0 for one rank a process).  Returns 0 once the
 * snapshot is taken, in a continued run, and when nothing was done: *state says which of them it is, and with
 * CKPT_STATE_IGNORE the text of error why.  A negative code, with CKPT_STATE_ERROR: it failed, the job goes on
 * and its last epoch is whole. */
int ckpt_checkpoint(ckpt_job *job, int local_task, ckpt_state *state, ckpt_error *error);

/* The runtime says: this thread initialized it, and is the one that may call it while the program is stopped. */
int ckpt_thread_is_mine(ckpt_job *job);

/* For a call of the runtime that waits, while CKPT_PENDING_STOP is set.  The calling thread stands where the
 * application's call can be issued again with the same arguments, which is what a restart does.  Returns 0
 * at once when the process is not being stopped, else when it runs again; meanwhile the thread may be asked
 * to run callbacks. */
int ckpt_hold(ckpt_job *job);

/* Calls a function of the application's on the application's stack and returns its result: operations of its
 * own, attribute callbacks.  Only by a thread of the application: in a call that it made, or stopped and in a
 * callback. */
long ckpt_upcall(ckpt_job *job, void *function, const long args[6]);

/* ---- requests from outside --------------------------------------------------------------------- */

enum {
    CKPT_POLL_NOTHING = 0,
    CKPT_POLL_CHECKPOINT = 1 /* call ckpt_checkpoint, on every local task */
};
/* What ckpt_poll does when there is something: calls the handlers of signals that have come, and returns
 * CKPT_POLL_*. */
int ckpt_attend(ckpt_job *job);

/* For the progress loop of a runtime that is saved with its program (ckptrun --whole), whose threads nobody
 * interrupts: one load when there is nothing.  It says CKPT_POLL_CHECKPOINT until that checkpoint is over, to each
 * thread that polls: a runtime where several do keeps in mind that it was told. */
static inline int ckpt_poll(ckpt_job *job) {
    if (__builtin_expect(__atomic_load_n(&job->tables->attention, __ATOMIC_RELAXED) == 0, 1))
        return CKPT_POLL_NOTHING;
    return ckpt_attend(job);
}

/* ---- the signaling network, for runtimes ---------------------------------------------------------
 *
 * libckpt's own network between the processes of the job; ranks here are rank() of ckpt_runtime_ops.  It is there
 * from ckpt_open on, also after a restart, when the runtime has no other: in ckpt_rail_ops.reopen, for example. */

/* Collective over processes.  tag: the runtime's own number, below 2^62; calls with one tag follow each other. */
int ckpt_allgather(ckpt_job *job, uint64_t tag, const void *mine, void *all, size_t bytes, ckpt_error *error);
int ckpt_barrier(ckpt_job *job, uint64_t tag, ckpt_error *error);

/* Signals: small messages to a process, in order per kind and sender, each once; those that nobody has taken are
 * saved with the process.  At most CKPT_SIGNAL_BYTES.  ckpt_signal_send does not wait for the receiver to look,
 * unless many signals wait for it. */
#define CKPT_SIGNAL_FIRST 0x1000u /* kinds that are the runtime's */
#define CKPT_SIGNAL_LAST 0xfeffu
#define CKPT_SIGNAL_BYTES 65536u
int ckpt_signal_send(ckpt_job *job, int process, unsigned kind, const void *bytes, size_t n,
                     ckpt_error *error);
/* f is called for each signal of the kind, in ckpt_poll, ckpt_route and in ckpt_checkpoint; it may send, and may
 * switch.  NULL: there is no handler any more. */
int ckpt_signal_handle(ckpt_job *job, unsigned kind,
                       void (*f)(void *ctx, int from, const void *bytes, size_t n), void *ctx);
/* Without a handler: takes the next one.  *n is the room at bytes, and becomes the length.  Returns 1, 0 when
 * there is none, or a negative CKPT_E code. */
int ckpt_signal_recv(ckpt_job *job, unsigned kind, int *from, void *bytes, size_t *n, ckpt_error *error);

/* A variable of the environment that the launcher gave to this start of the process; after a restart environ
 * is the former launcher's.  Copies at most bytes-1 characters and a NUL, and returns the length; 0: not set. */
size_t ckpt_launch_env(ckpt_job *job, const char *name, char *text, size_t bytes);

/* ---- memory of ranks, see ckpt_saved -------------------------------------------------------------- */

/* From now on the whole pages at base are memory of the rank: rank of the job, not local task.  Private and
 * anonymous, readable and writable, of no other rank.  bytes 0: those at base are it no more.  A checkpoint is
 * refused (CKPT_STATE_IGNORE) unless each rank from 0 on has memory in one process.  Without CKPT_OPEN_REGIONS: 0, and
 * nothing is done. */
int ckpt_task_region(ckpt_job *job, int rank, void *base, size_t bytes, unsigned flags, ckpt_error *error);

/* What the job continues: 1, 0 when it begins, or a negative CKPT_E code. */
int ckpt_tasks_saved(ckpt_job *job, ckpt_saved *saved, ckpt_error *error);
/* Puts the memory of a saved rank back at its addresses, as a whole or not at all; from then on the rank is this
 * process's, as by ckpt_task_region.  *base (NULL: nobody wants to know) is where it begins.  The caller says who
 * takes which rank; each must be taken before the next checkpoint. */
int ckpt_task_load(ckpt_job *job, int rank, void **base, ckpt_error *error);

/* The local task ends: nobody waits for it in ckpt_checkpoint any more, and when this returns nobody will unpark it.
 * CKPT_E_STATE: it has left already, or is in ckpt_checkpoint.  May switch.
 * When all of them have left, none can be added.  From then on ckpt_poll takes part in checkpoints itself, and [task]
 * callbacks come inside it: a thread of the runtime calls it, with no lock held, until ckpt_close. */
int ckpt_task_leave(ckpt_job *job, int local_task);

#endif

/* ---- memory that processes of one node share ------------------------------------------------------
 *
 * For memory whose content is the application's or the runtime's state: windows, heaps.  Queues that are empty when
 * their rail is quiet need none of this: the rail unmaps them in close, and makes them anew in reopen. */

#define CKPT_SHM_ZERO 1u /* the content need not be saved: after a restart it is zeros */

typedef struct ckpt_shm {
    size_t size;
    const char
        *name; /* at most 63 letters, digits, and characters . _ -; a process has one segment of a name */
    size_t bytes;
    const int *processes; /* who shares it, ascending, this one among them; the first one makes it */
    int n;
    unsigned flags; /* CKPT_SHM_* */
} ckpt_shm;

#ifndef CKPT_TYPES_ONLY

/* Makes a segment of zeros, and maps it, for reading and writing: *at may differ from process to process.  Collective
 * over its processes, all of which give the same; waits for them as ckpt_barrier does.  Its memory is there: who uses it
 * is not killed for lack of it.  It has no name that outlives the call, and ends with the last process that has it.
 * A checkpoint saves the content once.  After a restart it is mapped where it was before any thread runs; processes
 * that shared it must then be on one node again.  On error nobody has it: CKPT_E_ARG (also when others give
 * something else), CKPT_E_STATE (a process has one of this name), CKPT_E_SYSTEM (also: /dev/shm has no room),
 * CKPT_E_PEER, CKPT_E_NOTSUP (its processes are on several nodes), CKPT_E_VERSION. */
int ckpt_shm_map(ckpt_job *job, const ckpt_shm *shm, void **at, ckpt_error *error);
/* Unmaps it in this process.  Not collective: the others keep it.  CKPT_E_ARG: there is none of this name. */
int ckpt_shm_unmap(ckpt_job *job, const char *name);

#endif

/* ---- objects: virtual ids (vid/doc.go; inline look-up in ckpt/vid.h) ---------------------------- */

struct ckpt_object_ops {
    size_t size;
    /* [caller] Called once in ckpt_open, when the tables exist and before anything is rebuilt: the runtime
     * binds its predefined objects (ckpt_vid_bind).  job is the one that ckpt_open will return. */
    int (*bind)(void *ctx, ckpt_job *job);
    /* [caller] Makes the object again in a fresh runtime.  Called in ckpt_open of a restart, in the order that
     * the descriptors need (see ckpt_vid_new), on every rank in one global order per communicator.  Stores
     * the new handle through real.  Must be there when ckpt_vid_new is used. */
    int (*rebuild)(void *ctx, ckpt_kind kind, ckpt_vid vid, const void *descriptor, size_t bytes,
                   uint64_t *real);
};

#ifndef CKPT_TYPES_ONLY

/* Gives the object a virtual id and keeps its descriptor: bytes that the runtime's rebuild callback
 * understands.  needs lists the ids (nneeds of them) that the descriptor refers to: they are rebuilt first,
 * and their descriptors live as long as this one does, even when freed.  order ranks objects whose
 * rebuilding is collective: smaller first, equal on all members (0 when local).  Returns CKPT_VID_NONE on
 * error. */
ckpt_vid ckpt_vid_new(ckpt_job *job, ckpt_kind kind, uint64_t real, const void *descriptor, size_t bytes,
                      const ckpt_vid *needs, size_t nneeds, uint64_t order);

/* Reserves ids of a kind, at most n, for objects that are made and freed often: the runtime gives them out
 * itself, and libckpt hears only of those that are alive when it must know them.  The runtime sets real of
 * the slot and makes its generation odd when the object is made, and even again when it is freed; such an id
 * may be given out again.  Returns how many there are in ids, or a negative CKPT_E code.  Ids that were not
 * adopted are not in an image, and are not reserved after a restart. */
int ckpt_vid_reserve(ckpt_job *job, ckpt_kind kind, ckpt_vid *ids, int n);

/* Makes a live object with a reserved id known, as ckpt_vid_new does: before another one needs it, and in the
 * save callback at the latest.  From then on it is freed by ckpt_vid_free, which takes the id back. */
int ckpt_vid_adopt(ckpt_job *job, ckpt_vid vid, const void *descriptor, size_t bytes, const ckpt_vid *needs,
                   size_t nneeds);

/* Binds a predefined object (index below CKPT_VID_PREDEFINED) to its real handle; such objects have no
 * descriptor.  The runtime does so at start, after every restart too. */
int ckpt_vid_bind(ckpt_job *job, ckpt_vid vid, uint64_t real);

/* Replaces the descriptor of a live object (an attribute was set). */
int ckpt_vid_describe(ckpt_job *job, ckpt_vid vid, const void *descriptor, size_t bytes,
                      const ckpt_vid *needs, size_t nneeds);

/* The name that people see when a communicator is mentioned ("grid"). */
int ckpt_vid_set_name(ckpt_job *job, ckpt_vid vid, const char *name);

/* The application freed the object: the id becomes stale and may be reused with a new generation. */
int ckpt_vid_free(ckpt_job *job, ckpt_vid vid);

/* Copies at most bytes of the descriptor to buffer and returns its full length, or CKPT_E_ARG. */
long ckpt_vid_descriptor(ckpt_job *job, ckpt_vid vid, void *buffer, size_t bytes);

/* The id of a live object by its real handle; CKPT_VID_NONE when there is none. */
ckpt_vid ckpt_vid_find(ckpt_job *job, ckpt_kind kind, uint64_t real);

/* Adds a page of free slots of a kind whose ids are given out in C (ckpt/vid.h). */
int ckpt_vid_grow(ckpt_job *job, ckpt_kind kind);

/* Says that the communicator is the view of this local task; before ckpt_comm_describe, and not again after a restart.
 * Without this call it is that of task 0.  Each task has ids of its own for its views, so its counters are its own.
 * CKPT_E_ARG: there is no such task, or no such communicator.  CKPT_E_STATE: the view is that of another task. */
int ckpt_vid_task(ckpt_job *job, ckpt_vid comm, int local_task);

/* Says who can be reached over a communicator, and gives it its counters (slot.counters).  rank and size go to
 * the slot; world holds the world rank of each of the npeers processes that messages are sent to (the remote
 * group of an intercommunicator), -1 for one outside the world of this job; identity is equal on all members
 * and differs from that of every other communicator. */
int ckpt_comm_describe(ckpt_job *job, ckpt_vid comm, int rank, int size, const int *world, int npeers,
                       uint64_t identity);

/* Who takes part in collective calls on comm: world ranks, in an order that is equal on all members.  Again after a
 * restart, in rebuild. */
int ckpt_comm_set_members(ckpt_job *job, ckpt_vid comm, const int *world, int n, uint64_t identity);

#endif

/* ---- messages: counted with ckpt_sent and ckpt_received (ckpt/vid.h) ----------------------------- */

/* What is under way when a checkpoint comes at any moment.  NULL: the runtime has nothing under way whenever
 * it is stopped, or calls ckpt_checkpoint itself at such moments only. */
struct ckpt_message_ops {
    size_t size;
    /* [stopped] 1 when other ranks may write to this one's memory without its doing (windows), else 0.  When
     * some rank says 1, settle is called on all of them, once, before the first turn of drain: it completes
     * what was begun, and may block until the others have come to it too. */
    int (*one_sided)(void *ctx);
    int (*settle)(void *ctx);
    /* [stopped] Makes one turn of draining, without blocking: it receives messages that were sent to this rank
     * (into memory of the runtime's own where the application posted no receive), completes operations that
     * can be completed, and returns how many are left that must be before the rank can be saved, or a
     * negative CKPT_E code.  It is called until none is left and the counters of all communicators agree
     * with those of the peers. */
    int (*drain)(void *ctx);
    /* [stopped] Writes the messages that were received that way, and all requests, to buffer, and returns how
     * many bytes that takes; when bytes are fewer, what it has written is incomplete. */
    long (*save)(void *ctx, void *buffer, size_t bytes);
    /* [caller] Makes them again in a fresh runtime.  Called in ckpt_open of a restart, after all rebuilds. */
    int (*load)(void *ctx, const void *saved, size_t bytes);
    /* [stopped] Starts the deferred collective calls that ckpt_coll_start names.  Called when the program has
     * made no call of the runtime for a while and other ranks may wait for such a start. */
    void (*start_deferred)(void *ctx);
};

/* A synchronous send, to its receiver and back. */
enum {
    CKPT_CLAIM_NEW = 0,   /* its message is that of comm, source and tag behind which `later` are sent;
                             as an answer: it is neither taken nor held, the send goes on as it is */
    CKPT_CLAIM_KNOWN = 1, /* its message was given this id at an earlier checkpoint */
    CKPT_CLAIM_HELD = 2,  /* answer: nobody has taken it */
    CKPT_CLAIM_TAKEN = 3
};
typedef struct ckpt_claim {
    uint64_t id;   /* its sender's */
    uint64_t comm; /* identity of the communicator */
    uint64_t later;
    int32_t rank; /* in the world, of the other side */
    int32_t source, tag, state;
} ckpt_claim;

/* Synchronous sends whose messages are drained.  [stopped], all of them. */
struct ckpt_sync_ops {
    size_t size;
    /* Whether this rank has any that the application has not seen complete. */
    int (*pending)(void *ctx);
    /* When some rank has, then on all of them after drain: lists this rank's (at most max; NULL: none) and
     * returns how many they are. */
    long (*claims)(void *ctx, ckpt_claim *list, long max);
    /* Is given those that are for this rank, rank being the sender, and says of each whether the application
     * has taken the message. */
    void (*judge)(void *ctx, ckpt_claim *list, long n);
    /* Is given the answers to this rank's own, rank being the receiver. */
    void (*answered)(void *ctx, const ckpt_claim *list, long n);
};

/* ---- collective calls --------------------------------------------------------------------------
 *
 * A checkpoint at any moment needs to know which collective calls are under way.  The runtime brackets each of
 * them with ckpt_coll_begin and ckpt_coll_end (ckpt/clock.h), which count it without a fence and come here
 * only while a checkpoint is pending. */

enum { /* modes of a call */
       CKPT_COLL_BLOCKING = 0,
       CKPT_COLL_NONBLOCKING = 1, /* may be answered by CKPT_COLL_DEFER */
       CKPT_COLL_GATED = 2        /* asks always: enters only when all members have called (MPI_Finalize) */
};
enum {                      /* answers */
       CKPT_COLL_WAIT = 0,  /* ask ckpt_coll_permitted until it says something else */
       CKPT_COLL_ENTER = 1, /* go on into the call */
       CKPT_COLL_DEFER = 2  /* return a request that is not complete; ckpt_coll_start says when to start */
};

/* What a rank knows of a call of MPI_Intercomm_create.  Ranks are those of the world. */
typedef struct ckpt_intercomm_call {
    ckpt_vid comm; /* the local communicator */
    int n;
    const int *world; /* its members; a negative one is a process outside the job */
    uint64_t identity;
    int leader;
    int remote; /* the rest on the leader only: the other leader, negative when it is outside the job */
    int tag;
    uint64_t peer; /* identity of the communicator with the other leader */
} ckpt_intercomm_call;

#ifndef CKPT_TYPES_ONLY

int ckpt_coll_call(ckpt_job *job, ckpt_vid comm, uint64_t k, int mode);
int ckpt_coll_permitted(ckpt_job *job, ckpt_vid comm, uint64_t k);
void ckpt_coll_returned(ckpt_job *job, ckpt_vid comm, uint64_t k);
/* The call failed before it took part in anything, so it is none: the next one on comm has its number.
 * deferred: it was, and later ones on comm may wait for their start: they move up by one. */
void ckpt_coll_withdrawn(ckpt_job *job, ckpt_vid comm, uint64_t k, int deferred);
/* The next deferred call that may be started now; 0 when there is none.  ckpt_coll_started answers. */
int ckpt_coll_start(ckpt_job *job, ckpt_vid *comm, uint64_t *k);
void ckpt_coll_started(ckpt_job *job, ckpt_vid comm, uint64_t k);

/* Calls of ranks that have no communicator of their own yet, name being that of the function.
 * MPI_Comm_create_group is called by some members (world ranks in the group's order) of a communicator whose
 * identity is parent; MPI_Intercomm_create by two groups that learn here of each other.  _begin returns the
 * call's number; the call may go on when ckpt_group_call_ready says CKPT_COLL_ENTER; ckpt_group_call_end says
 * that it has returned, and that what it made is registered.  0: it goes on at once and needs neither. */
uint64_t ckpt_group_call_begin(ckpt_job *job, ckpt_vid comm, uint64_t parent, int tag, const int *world,
                               int n, const char *name);
uint64_t ckpt_intercomm_call_begin(ckpt_job *job, const ckpt_intercomm_call *call, const char *name);
int ckpt_group_call_ready(ckpt_job *job, uint64_t number);
void ckpt_group_call_end(ckpt_job *job, uint64_t number);

#endif

#ifdef __cplusplus
}
#endif
#endif
