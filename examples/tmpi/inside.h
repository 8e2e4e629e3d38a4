// SPDX-License-Identifier: Apache-2.0
//
// inside.h: what the files of tmpi know of each other.
//
//   program  ->  match.c, coll.c  ->  sched.c                 tasks; knows nothing above
//                      |
//                      v
//                   embed.c  ->  rail_tcp.c, rail_shm.c  ->  match.c (match_arrived)
//                   move.c   ranks that go on in other processes (tmpirun --slots)
//   all of them  ->  slots.c  memory of ranks
//
// Locks, outermost first: progress (embed.c), lock of a rail, lock of an endpoint or of a task's messages, lock of a
// slot's heap, run queue.
// No task switches while it holds one of them.
#ifndef TMPI_INSIDE_H
#define TMPI_INSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ckpt.h"
#include "ckpt/clock.h"
#include "ckpt/rail.h"
#include "tmpi.h"

// ---- the process (tmpi.c) ----

struct task;
extern struct tmpi {
    int process, processes;
    int first, local, size; // ranks of this process, from first on, and of the job
    int workers;
    struct task **tasks; // local of them
    bool slots;          // each rank is saved apart from its process (move.c)
    ckpt_job *job;
} tmpi;

// Each process has as many ranks as the others or, after a restart in another number of processes, one more.
static inline int first_of(int process) { return (int)((long)tmpi.size * process / tmpi.processes); }
static inline int process_of(int rank) { return (int)(((rank + 1L) * tmpi.processes - 1) / tmpi.size); }

// Prints why and ends this process; tmpirun ends the others.
_Noreturn void tmpi_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *tmpi_must(void *memory); // returns it, or dies when it is NULL

// ---- tasks (sched.c) ----

// With slots it is saved with its rank.  Then index, next, token, why, fiber and taken mean nothing in an image.
struct task {
    int index; // in this process
    int rank;
    int result; // of the program, when it has ended
    bool ended;
    // sched.c
    void *sp; // its stack while it does not run
    struct task *next;
    int token; // atomic: see task_park
    int why;   // it left its worker
    void *fiber;
    // match.c
    struct messages *messages;
    // embed.c
    ckpt_vid view; // its own of the ranks' only communicator
    int taken;     // part in so many checkpoints
    ckpt_state state;
    bool called; // it is in tmpi_checkpoint
    // move.c
    bool meeting; // atomic: it waits for a checkpoint to be over
};

static inline struct task *task_of(int rank) { return tmpi.tasks[rank - tmpi.first]; }

void sched_start(void (*body)(struct task *)); // makes tmpi.tasks, all that are not there
void sched_run(void);                          // returns when all of them have ended
// Held: no task runs, or will.  Called by a worker on its own stack.
void sched_hold(bool held);

// The task that calls; NULL on a worker's own stack.
struct task *task_self(void);
void task_yield(void);
// Returns once task_unpark was called since the last task_park of this task, also when that came first.  It may
// return early: the caller looks again at what it waits for.
void task_park(void);
void task_unpark(struct task *t); // any thread

// ---- messages (match.c) ----

enum { CONTEXT_PROGRAM, CONTEXT_COLLECTIVE }; // contexts do not match each other

struct header {
    uint32_t bytes;
    int32_t source, dest, tag; // ranks of the job
    uint32_t context;
    uint32_t number; // of this message among those from source to dest; rails overtake each other
};
struct message {
    struct message *next;
    struct header h;
    char data[];
};

void match_start(struct task *t);
void match_continue(struct task *t); // it comes from an image
void match_send(const void *data, size_t bytes, int dest, int tag, int context);
void match_recv(void *data, size_t bytes, int source, int tag, int context, tmpi_status *status);
// For a rail: room for a message, and the message when it is whole.  Any thread.
struct message *match_room(const struct header *h);
void match_arrived(struct message *m);

// ---- libckpt (embed.c) ----

void embed_open(void);  // the job
void embed_rails(void); // its networks; from now on messages come
void embed_close(void);
// The calling task takes part in a checkpoint that was asked for; called where a rank enters tmpi and where it waits.
void embed_serve(struct task *t);
void embed_leave(struct task *t); // it has ended
// Around a collective call, whose name is a constant: no checkpoint finds it half done.
void embed_enter(const char *name, ckpt_coll *call);
void embed_return(const ckpt_coll *call);
// Moves messages, once and without waiting.  Returns whether there were any.
bool embed_progress(void);
// Called by a worker between tasks, on its own stack.
void embed_between(void);
// A variable of the environment, after a restart that of the new launcher; "" when there is none.
const char *embed_env(const char *name, char text[256]);

// ---- memory of ranks (slots.c) ----

// A slot has the same address in each process: a page without access, the stack, the task, the rank's heap.
struct task *slot_make(int rank);
struct task *slot_task(int rank); // of a slot that is there
char *slot_base(int rank);        // of what is saved
size_t slot_bytes(void);
void *slot_stack(struct task *t); // its upper end

// Not zeroed; NULL: there is no more.  Without slots t may be NULL.
void *task_room(struct task *t, size_t bytes);
void task_free(struct task *t, void *memory);

// ---- ranks that go on in other processes (move.c) ----

// Takes the ranks of this process from what is saved; false: the job begins.
bool move_in(void);
void move_register(struct task *t); // it is here, and is to be saved
// The calling task waits until a checkpoint is over, which some worker makes when all tasks wait.
void move_wait(struct task *t);
void move_meet(void);
void move_leave(struct task *t);
void embed_met(ckpt_state state); // it is over; tasks still wait
void embed_moved(int called);     // so many ranks are in tmpi_checkpoint

// ---- rails ----

struct rail {
    ckpt_rail_ops ops;
    bool (*open)(void); // first start; collective
    bool (*poll)(void); // moves messages; progress is locked
    ckpt_rail *known;   // libckpt's name of it
};
struct endpoint {
    ckpt_endpoint base; // first
    // Takes the message as a whole: 0, or CKPT_E_AGAIN when there is no room now.
    int (*send)(struct endpoint *, const struct header *, const void *);
};
extern struct rail rail_tcp, rail_shm;

// Tags of ckpt_allgather and ckpt_barrier, kinds of signals, priorities of rails: all in one place.
enum { TAG_START = 1, TAG_TCP_OPEN, TAG_SHM_NAMES, TAG_SHM_MAPPED };
enum { SIGNAL_TCP_ASK = CKPT_SIGNAL_FIRST, SIGNAL_NONE };
enum { PRIORITY_TCP = 10, PRIORITY_SHM = 20 };

#endif
