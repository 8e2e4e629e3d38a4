// SPDX-License-Identifier: Apache-2.0
//
// tasks.h: the tasks of one process meet in ckpt_checkpoint (tasks.c).
//
//               a task arrives                    the last one arrives, or the last one that was missing leaves
//    [Idle] ------------------> [Gathering] ------------------------------------------> [Master works]
//      ^                             | others: park, or yield, until the                      |
//      |                             | generation is another one                              | the result is stored,
//      |                             v                                                        | generation + 1
//      `---------------------- [Releasing] <---- unpark each other task ----------------------'
//
//   state           how it is told                          what is true
//   Idle            arrived == 0, waking == 0               nobody waits; result is that of the last meeting
//   Gathering       0 < arrived < n - left                  mark is generation + 1 for those who came, and them alone
//   Master works    arrived == n - left                     every task but the master waits; result is the master's
//   Releasing       waking > 0                              result is complete, and stays so until all have come again
//
// Releasing and the next Gathering may overlap: arrived is 0 before the generation that lets tasks go is seen.  The
// result cannot be overwritten before each task has read it, since a task reads it before it comes again or leaves.
#ifndef EMBED_TASKS_H
#define EMBED_TASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt.h"

struct embed_job;

// All zero at first.  Saved with the process: after a restart the master goes on where the image was taken.
struct embed_tasks {
    unsigned lock;       // held for a few instructions, never over a callback
    int room;            // of mark
    uint64_t *mark;      // of each task: the meeting that it came to last, or TASK_LEFT; under lock
    int n;               // tasks of this meeting; under lock
    int left;            // how many of them have left; under lock
    int arrived;         // how many have come; under lock
    int chosen;          // task + 1 of the one that waits and is to be master, 0: none; read without lock
    bool gone;           // all have left; under lock, never false again
    int answering;       // a thread takes part in a checkpoint for them; read without lock
    int waking;          // how many tasks are in calls of unpark; read without lock
    uint64_t generation; // meetings that are over; read without lock
    // The result of the last meeting.  Written by its master before generation, read after it.
    int code;
    ckpt_state state;
    ckpt_error error;
};

// ckpt_checkpoint: waits for all local tasks, one of which saves the job (embed_checkpoint) for all of them.  The
// result is the same for all.  CKPT_E_ARG and CKPT_E_STATE: this call counts for nothing; the others wait on.
int embed_meet(struct embed_job *job, int local_task, ckpt_state *state, ckpt_error *error);
// ckpt_task_leave.  When it returns nobody will unpark the task any more.
int embed_task_leave(struct embed_job *job, int local_task);
// When all tasks have left: takes part in the checkpoint that somebody asks for, and returns true.  One thread does; for
// others there is nothing to do.
bool embed_tasks_answer(struct embed_job *job);
// Frees what the meetings of a job have taken; nobody is in one.
void embed_tasks_end(struct embed_job *job);

#endif
