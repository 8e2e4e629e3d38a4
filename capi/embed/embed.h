// SPDX-License-Identifier: Apache-2.0
//
// embed.h: a job as the C of the runtime's own half knows it.  This code is in two libraries: in libckpt.so, which
// loads the core itself, and in the library of that name that a program finds under ckptrun, which reaches the core
// through the gate.  What differs is in one file each (core.c, gated.c), behind the functions of below.h.
//
// All of it is memory of the runtime's half: under ckptrun it is in the image, so nothing here may keep an address
// of the lower half.
#ifndef EMBED_H
#define EMBED_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt.h"
#include "embed/rails.h"
#include "embed/tasks.h"

struct embed_job {
    ckpt_job seen; // what the runtime holds; first
    ckpt_runtime_ops ops;
    void *ctx;
    struct embed_tasks tasks;
    struct embed_rails rails;
};

static inline struct embed_job *embed_of(const ckpt_job *job) { return (struct embed_job *)(uintptr_t)job; }

// What a call that cannot be made leaves in its error.
void embed_say(ckpt_error *error, int code, const char *why);

// The master's part of ckpt_checkpoint: all local tasks have come.
int embed_checkpoint(struct embed_job *job, ckpt_state *state, ckpt_error *error);
// The descriptor is left out of images (on), or no more.
int embed_ignore_fd(struct embed_job *job, int fd, bool on);

#endif
