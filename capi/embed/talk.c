// SPDX-License-Identifier: Apache-2.0
//
// talk.c: calls that need the runtime's callbacks (ckpt/private/talk.h).  The callbacks are made here, on the stack of
// the caller, with nothing of the core below them.
#include <stdio.h>

#include "embed/embed.h"
#include "embed/talk.h"

static void say_failure(const struct embed_job *job, char *text, size_t bytes) {
    const char *why = job->ops.failure ? job->ops.failure(job->ctx) : NULL;
    snprintf(text, bytes, "%s", why ? why : "");
}

static long answer(struct embed_job *job, ckpt_talk *t) {
    const struct embed_ops *o = &job->all;
    void *ctx = job->ctx;
    switch (t->ask) {
    case CKPT_ASK_RANK:
        return o->runtime.rank(ctx);
    case CKPT_ASK_RANKS:
        return o->runtime.ranks(ctx);
    case CKPT_ASK_ALLGATHER:
        return o->runtime.oob_allgather(ctx, (const void *)t->a[0], (void *)t->a[1], t->a[2]);
    case CKPT_ASK_PROGRESS:
        embed_signals_take(job); // the others may need an answer
        return o->runtime.progress ? o->runtime.progress(ctx) : 0;
    case CKPT_ASK_FAILURE:
        say_failure(job, (char *)t->a[0], t->a[1]);
        return 0;
    case CKPT_ASK_BIND:
        job->seen.tables = (ckpt_tables *)t->a[0];
        return o->objects.bind ? o->objects.bind(ctx, &job->seen) : 0;
    case CKPT_ASK_REBUILD:
        return o->objects.rebuild(ctx, (ckpt_kind)t->a[0], (ckpt_vid)t->a[1], (const void *)t->a[2], t->a[3],
                                  (uint64_t *)t->a[4]);
    case CKPT_ASK_HOLDS:
        return o->state.holds(ctx, (char *)t->a[0], t->a[1]);
    case CKPT_ASK_ONE_SIDED:
        return o->messages.one_sided(ctx);
    case CKPT_ASK_SETTLE:
        return o->messages.settle ? o->messages.settle(ctx) : 0;
    case CKPT_ASK_DRAIN:
        return o->messages.drain(ctx);
    case CKPT_ASK_QUIESCE:
        if (t->a[0]) job->answers = t->a[1] != 0;
        return o->runtime.quiesce ? o->runtime.quiesce(ctx, (int)t->a[0]) : 0;
    case CKPT_ASK_RAILS_QUIET:
        embed_signals_take(job);
        return embed_rails_quiet(job, (ckpt_error *)t->a[0]);
    case CKPT_ASK_RAILS_CLOSE:
        return embed_rails_close(job, (ckpt_error *)t->a[0]);
    case CKPT_ASK_RAILS_REOPEN:
        return embed_rails_reopen(job, (int)t->a[0], (ckpt_error *)t->a[1]);
    case CKPT_ASK_LOCAL_TASKS:
        return o->runtime.local_tasks(ctx);
    case CKPT_ASK_TASK_RANK:
        return o->runtime.task_rank(ctx, (int)t->a[0]);
    default:
        return CKPT_E_NOTSUP;
    }
}

uint64_t embed_callbacks(const struct embed_job *job) {
    const struct embed_ops *o = &job->all;
    return (o->runtime.progress ? CKPT_HAS_PROGRESS : 0) | (o->objects.rebuild ? CKPT_HAS_REBUILD : 0) |
           (o->messages.drain ? CKPT_HAS_DRAIN : 0) | (o->messages.one_sided ? CKPT_HAS_ONE_SIDED : 0) |
           (o->state.holds ? CKPT_HAS_HOLDS : 0) |
           (o->runtime.local_tasks && o->runtime.task_rank ? CKPT_HAS_TASKS : 0);
}

bool embed_talk(struct embed_job *job, ckpt_talk *t) {
    t->bytes = sizeof *t;
    t->error.size = sizeof t->error;
    for (;;) {
        if (embed_talk_below(t, &t->error)) return true;
        if (t->ask == CKPT_ASK_NOTHING) return false;
        t->result = answer(job, t);
        t->subject = 0;
    }
}

int embed_pass(const ckpt_talk *t, ckpt_error *error) {
    if (t->error.code != 0) embed_say(error, t->error.code, t->error.message);
    return t->error.code;
}
