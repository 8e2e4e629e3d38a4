// SPDX-License-Identifier: Apache-2.0
//
// inside.h: what the files of tmpi know of each other.
//
//   program  ->  match.c, coll.c  ->  sched.c                 tasks; knows nothing above
//                      |
//                      v
//                   embed.c  ->  rail_tcp.c, rail_shm.c  ->  match.c (match_arrived)
//
// Locks, outermost first: progress (embed.c), lock of a rail, lock of an endpoint or of a task's messages, run queue.
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
    int local, size; // ranks of this process, and of the job: the same number in each process
    int workers;
    struct task *tasks; // local of them; the ranks of a process follow each other
    ckpt_job *job;
} tmpi;

// Prints why and ends this process; tmpirun ends the others.
_Noreturn void tmpi_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *tmpi_must(void *memory); // returns it, or dies when it is NULL

// ---- tasks (sched.c) ----

struct task {
    int index; // in this process
    int rank;
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
};

void sched_start(void (*body)(struct task *)); // makes tmpi.tasks
void sched_run(void);                          // returns when all of them have ended

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
void match_send(const void *data, size_t bytes, int dest, int tag, int context);
void match_recv(void *data, size_t bytes, int source, int tag, int context, tmpi_status *status);
// For a rail: room for a message, and the message when it is whole.  Any thread.
struct message *match_room(const struct header *h);
void match_arrived(struct message *m);

// ---- libckpt (embed.c) ----

void embed_open(void);
void embed_close(void);
// The calling task takes part in a checkpoint that was asked for; called where a rank enters tmpi and where it waits.
void embed_serve(struct task *t);
void embed_leave(struct task *t); // it has ended
// Around a collective call, whose name is a constant: no checkpoint finds it half done.
void embed_enter(const char *name, ckpt_coll *call);
void embed_return(const ckpt_coll *call);
// Moves messages, once and without waiting.  Returns whether there were any.
bool embed_progress(void);
// A variable of the environment, after a restart that of the new launcher; "" when there is none.
const char *embed_env(const char *name, char text[256]);

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
