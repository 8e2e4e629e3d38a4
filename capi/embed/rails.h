// SPDX-License-Identifier: Apache-2.0
//
// rails.h: the rails of a job, and their way through a checkpoint (rails.c).
#ifndef EMBED_RAILS_H
#define EMBED_RAILS_H

#include "ckpt.h"
#include "ckpt/rail.h"

struct embed_job;

struct embed_rails {
    int placeholder;
};

// The master's steps of a checkpoint, in this order.  All but quiet may switch.
// 1 when every rail is quiet, 0 when one is not yet, or a negative CKPT_E code.  From the first call on the rails
// are draining.
int embed_rails_quiet(struct embed_job *job, ckpt_error *error);
// Closes all rails that are to be closed, in descending priority.  On failure error names the rail; the rails that
// were closed stay so until embed_rails_reopen.
int embed_rails_close(struct embed_job *job, ckpt_error *error);
// Opens what is closed or draining, in ascending priority.  A rail that fails is broken; the result is a CKPT_E code
// only when no rail is open.
int embed_rails_reopen(struct embed_job *job, int why, ckpt_error *error);

#endif
