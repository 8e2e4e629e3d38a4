// SPDX-License-Identifier: Apache-2.0
//
// embed.h: a job as the C of the runtime's own half knows it.  This code is in two libraries: in libckpt.so, which
// loads the core itself, and in the library of that name that a program finds under ckptrun, which reaches the core
// through the gate.  What differs is in one file each (core.c, gated.c), behind the functions at the end.
//
// All of it is memory of the runtime's half: under ckptrun it is in the image, so nothing here may keep an address
// of the lower half, but in the fields that say so.
//
//   job.c      the functions of ckpt.h: arguments, the runtime's structures, the way below
//   tasks.c    the tasks of one process meet in ckpt_checkpoint
//   rails.c    rails, endpoints, routes, and their way through a checkpoint
//   signals.c  signals that have come, and ckpt_poll
//   shm.c      memory that processes share
//   talk.c     calls of the core that need the runtime's callbacks
//   say.c      fills a ckpt_error
//   named.c    without ckptrun: programs that name their state (mpix_checkpoint.h)
//   world.c    without ckptrun: the MPI of such a program
#ifndef EMBED_H
#define EMBED_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt.h"
#include "embed/rails.h"
#include "embed/signals.h"
#include "embed/tasks.h"

// The runtime's callbacks, as this version knows them; what the runtime does not have is NULL.
struct embed_ops {
    ckpt_runtime_ops runtime;
    ckpt_object_ops objects;
    ckpt_message_ops messages;
    ckpt_sync_ops sync;
    ckpt_state_ops state;
};

struct embed_job {
    ckpt_job seen;        // what the runtime holds; first
    ckpt_job *core;       // the core's; NULL under ckptrun, where the other side knows it
    bool regions;         // without ckptrun: memory of ranks is saved
    ckpt_runtime_ops ops; // all.runtime
    void *ctx;
    struct embed_ops all;
    bool asked;     // ckpt_poll has said CKPT_POLL_CHECKPOINT, and nobody has come since
    bool answers;   // the checkpoint that is being made answers calls of the programs, not only a request
    bool restarted; // the process was continued from an image since ckpt_open
    struct embed_tasks tasks;
    struct embed_rails rails;
    struct embed_signals signals;
};

static inline struct embed_job *embed_of(const ckpt_job *job) { return (struct embed_job *)(uintptr_t)job; }

// What a call that cannot be made leaves in its error.
void embed_say(ckpt_error *error, int code, const char *why);

// Copies a structure that begins with its size.  What the runtime's lacks at its end stays zero; what it has beyond
// ours must be zero, since nothing here would use it.  least is its size in the version that it came with.
int embed_take(void *to, size_t mine, size_t least, const void *from, const char *what, const char *since,
               ckpt_error *error);

// The master's part of ckpt_checkpoint: all local tasks have come.
int embed_checkpoint(struct embed_job *job, ckpt_state *state, ckpt_error *error);
// The descriptor is left out of images (on), or no more.
int embed_ignore_fd(struct embed_job *job, int fd, bool on);

// ---- the way below: core.c, gated.c --------------------------------------------------------------
// Calls function number n of embed/functions.h, whose first argument is the job.  False: it cannot be called, and
// error says why.
bool embed_below(int n, const char *name, const long *args, int nargs, ckpt_error *error, long *result);
// 0, or why no call can be made in this process.
int embed_usable(ckpt_error *error);
// Opens job, whose callbacks are set; config is the runtime's.  0, or a CKPT_E code and error.
int embed_open(struct embed_job *job, const ckpt_config *config, ckpt_error *error);
int embed_close(struct embed_job *job, ckpt_error *error);
int embed_save(struct embed_job *job, ckpt_state *state, ckpt_error *error);
void *embed_runtime_state(struct embed_job *job, size_t bytes);
// core.c: the core's function of this name, which is loaded when it is not; NULL: there is none, and error says why.
void *embed_find(const char *name, ckpt_error *error);
// The open job of this process; NULL: none is.
struct embed_job *embed_job_open(void);

#endif
