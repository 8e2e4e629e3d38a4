// SPDX-License-Identifier: Apache-2.0
//
// rails.h: the rails of a job, and their way through a checkpoint (rails.c).
#ifndef EMBED_RAILS_H
#define EMBED_RAILS_H

#include <stdbool.h>

#include "ckpt.h"
#include "ckpt/rail.h"

struct embed_job;

// All zero at first.  Saved with the process.
struct embed_rails {
    struct ckpt_routes routes; // job->seen.routes, from the first rail on
    struct ckpt_rail *first;   // in the order of election; read without lock
    struct ckpt_rail *last;
    unsigned long registered; // so many, which numbers them
    unsigned lock;            // of all lists; held for a few instructions, never over a callback
    bool held; // by a checkpoint: from the first embed_rails_quiet to the end of embed_rails_reopen
};

// The master's steps of a checkpoint, in this order.  All but quiet may switch.
//
// reopen is collective, so all processes must call it for the same rails: no process may close its rails before all
// processes have found theirs quiet, and when one gives up after that, the others close theirs too, and all reopen.
//
// 1 when every rail is quiet, 0 when one is not yet, or a negative CKPT_E code.  From the first call on the rails
// are draining.
int embed_rails_quiet(struct embed_job *job, ckpt_error *error);
// Closes all rails that are to be closed, in descending priority, also those behind one that fails.  On failure
// error names the rail that failed first.  All of them stay closed until embed_rails_reopen.
int embed_rails_close(struct embed_job *job, ckpt_error *error);
// Opens what is closed, in ascending priority; what is draining was not closed, and is open without a callback.  A
// rail that fails is broken; the result is a CKPT_E code only when no rail is open.  The reason is the same on all
// processes.
int embed_rails_reopen(struct embed_job *job, int why, ckpt_error *error);
// Forgets all rails, without a callback: the job is closed.
void embed_rails_end(struct embed_job *job);

#endif
