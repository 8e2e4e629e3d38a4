// SPDX-License-Identifier: Apache-2.0
//
// talk.h: calls that need the runtime's callbacks (talk.c).
#ifndef EMBED_TALK_H
#define EMBED_TALK_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/private/talk.h"

struct embed_job;

// Makes a call.  True: the process was continued from an image inside it.  Else t has the result.
bool embed_talk(struct embed_job *job, ckpt_talk *t);
// The error of a call that is over, and its code.
int embed_pass(const ckpt_talk *t, ckpt_error *error);
// The callbacks that the runtime has, as CKPT_HAS_*.
uint64_t embed_callbacks(const struct embed_job *job);

// One way to the core and back: core.c, gated.c.  error is t's.
bool embed_talk_below(ckpt_talk *t, ckpt_error *error);

#endif
