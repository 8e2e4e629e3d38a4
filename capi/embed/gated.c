// SPDX-License-Identifier: Apache-2.0
//
// gated.c: libckpt.so.1 of a program under ckptrun, and its way through the gate to the core in the lower half.
//
// A runtime in the program's half is in the image, and all of this with it (ckptrun --whole).  Its callbacks are made
// here, never from below: see ckpt/private/talk.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/private/gate.h"
#include "ckpt/private/talk.h"
#include "embed/embed.h"
#include "embed/functions.h"
#include "mpix_checkpoint.h"

#define EXPORT __attribute__((visibility("default")))

static long gate(unsigned fn, const void *args) {
    long rc;
    do rc = CKPT_GATE->gate(fn, args);
    while (rc == CKPT_GATE_RETRY);
    return rc;
}

bool embed_below(int n, const char *name, const long *args, int nargs, ckpt_error *error, long *result) {
    struct {
        long number, a[8];
    } call = {.number = n};
    (void)name;
    (void)error;
    memcpy(call.a, args, (size_t)nargs * sizeof *args);
    *result = gate(CKPT_FN_API, &call);
    return *result != CKPT_GATE_REFUSED;
}

// ---- callbacks -----------------------------------------------------------------------------------

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

static uint64_t callbacks(const struct embed_job *job) {
    const struct embed_ops *o = &job->all;
    return (o->runtime.progress ? CKPT_HAS_PROGRESS : 0) | (o->objects.rebuild ? CKPT_HAS_REBUILD : 0) |
           (o->messages.drain ? CKPT_HAS_DRAIN : 0) | (o->messages.one_sided ? CKPT_HAS_ONE_SIDED : 0) |
           (o->state.holds ? CKPT_HAS_HOLDS : 0) |
           (o->runtime.local_tasks && o->runtime.task_rank ? CKPT_HAS_TASKS : 0);
}

// Makes a call.  1: the process was continued from an image inside it.  Else 0, and t has the result.
static int talk(struct embed_job *job, ckpt_talk *t) {
    t->bytes = sizeof *t;
    t->error.size = sizeof t->error;
    for (;;) {
        long r = gate(CKPT_FN_TALK, &(const long){(long)t});
        if (r == CKPT_GATE_RESTART) return 1;
        if (r != 0 && t->ask == CKPT_ASK_NOTHING) t->result = r; // the host refused
        if (t->ask == CKPT_ASK_NOTHING) return 0;
        t->result = answer(job, t);
        t->subject = 0;
    }
}

static int pass(const ckpt_talk *t, ckpt_error *error) {
    if (t->error.code != 0) embed_say(error, t->error.code, t->error.message);
    return t->error.code;
}

// ---- the way below -------------------------------------------------------------------------------

int embed_usable(ckpt_error *error) { return (void)error, 0; }

int embed_open(struct embed_job *job, const ckpt_config *config, ckpt_error *error) {
    ckpt_talk t = {.subject = CKPT_TALK_OPEN, .a = {(uint64_t)config, callbacks(job)}};
    talk(job, &t);
    if (t.error.code != 0) return pass(&t, error);
    job->seen.tables = (ckpt_tables *)t.result;
    return 0;
}

int embed_close(struct embed_job *job, ckpt_error *error) {
    ckpt_talk t = {.subject = CKPT_TALK_CLOSE};
    talk(job, &t);
    return pass(&t, error);
}

int embed_save(struct embed_job *job, ckpt_state *state, ckpt_error *error) {
    bool asked = __atomic_exchange_n(&job->asked, false, __ATOMIC_RELAXED);
    ckpt_talk t;
again:
    t = (ckpt_talk){.subject = CKPT_TALK_CHECKPOINT, .a = {asked}};
    if (talk(job, &t) == 0) {
        *state = (ckpt_state)t.result;
        int code = pass(&t, error);
        return *state == CKPT_STATE_IGNORE ? CKPT_OK : code;
    }
    // This is another process now.  The core knows the job by its image, and the runtime by nothing yet.
    t = (ckpt_talk){.subject = CKPT_TALK_REOPEN, .a = {0, callbacks(job)}};
    job->restarted = true;
    talk(job, &t);
    if (t.error.code == 0 && job->tasks.gone) ckpt_core_tasks_left(&job->seen);
    // The image was made for others, while the program's call waited for those of other ranks, as it does still.
    if (t.error.code == 0 && !asked && !job->answers) goto again;
    *state = t.error.code == 0 ? CKPT_STATE_RESTART : CKPT_STATE_ERROR;
    return pass(&t, error);
}

// The memory of a runtime in this half is saved as it is.
void *embed_runtime_state(struct embed_job *job, size_t bytes) {
    (void)job;
    (void)bytes;
    return NULL;
}

// ---- mpix_checkpoint.h ---------------------------------------------------------------------------

enum { OK = 0, ERR_ARG = 12 };

// Of the last MPIX_Checkpoint, where a runtime in this half made it.
static ckpt_error whole_error = {.size = sizeof whole_error};

EXPORT int MPIX_Checkpoint(MPIX_CR_state_t *state) {
    if (state == NULL) return ERR_ARG;
    struct embed_job *job = embed_job_open();
    if (job) {
        ckpt_state s;
        whole_error.message[0] = 0;
        ckpt_checkpoint(&job->seen, 0, &s, &whole_error);
        *state = (MPIX_CR_state_t)s;
        return OK;
    }
    int s = MPIX_CR_STATE_IGNORE;
    const long args[] = {(long)&s};
    long rc = gate(CKPT_FN_CHECKPOINT, args);
    *state = rc == CKPT_GATE_RESTART ? MPIX_CR_STATE_RESTART : (MPIX_CR_state_t)s;
    return OK;
}

EXPORT int MPIX_Checkpoint_reason(char *text, size_t bytes) {
    const long args[] = {(long)text, (long)bytes};
    if (text == NULL || bytes == 0) return ERR_ARG;
    text[0] = 0;
    if (embed_job_open())
        snprintf(text, bytes, "%s", whole_error.message);
    else
        gate(CKPT_FN_REASON, args);
    return OK;
}

// Regions mode is for programs that run without ckptrun: here the whole process is saved.

EXPORT int MPIX_Checkpoint_protect(int id, void *base, size_t bytes) {
    (void)id, (void)base, (void)bytes;
    return OK;
}

EXPORT int MPIX_Checkpoint_recover(MPIX_CR_state_t *state) {
    if (state == NULL) return ERR_ARG;
    *state = MPIX_CR_STATE_IGNORE;
    return OK;
}
