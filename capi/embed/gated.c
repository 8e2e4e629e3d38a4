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
#include "embed/embed.h"
#include "embed/functions.h"
#include "embed/talk.h"
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

bool embed_talk_below(ckpt_talk *t, ckpt_error *error) {
    (void)error;
    long r = gate(CKPT_FN_TALK, &(const long){(long)t});
    if (r == CKPT_GATE_RESTART) return true;
    if (r != 0 && t->ask == CKPT_ASK_NOTHING) t->result = r; // the host refused
    return false;
}

// ---- the way below -------------------------------------------------------------------------------

int embed_usable(ckpt_error *error) { return (void)error, 0; }

int embed_open(struct embed_job *job, const ckpt_config *config, ckpt_error *error) {
    ckpt_talk t = {.subject = CKPT_TALK_OPEN, .a = {(uint64_t)config, embed_callbacks(job)}};
    embed_talk(job, &t);
    if (t.error.code != 0) return embed_pass(&t, error);
    job->seen.tables = (ckpt_tables *)t.result;
    return 0;
}

int embed_close(struct embed_job *job, ckpt_error *error) {
    ckpt_talk t = {.subject = CKPT_TALK_CLOSE};
    embed_talk(job, &t);
    return embed_pass(&t, error);
}

int embed_save(struct embed_job *job, ckpt_state *state, ckpt_error *error) {
    bool asked = __atomic_exchange_n(&job->asked, false, __ATOMIC_RELAXED);
    ckpt_talk t;
again:
    t = (ckpt_talk){.subject = CKPT_TALK_CHECKPOINT, .a = {asked, (uint64_t)__builtin_frame_address(0)}};
    if (!embed_talk(job, &t)) {
        *state = (ckpt_state)t.result;
        int code = embed_pass(&t, error);
        return *state == CKPT_STATE_IGNORE ? CKPT_OK : code;
    }
    // This is another process now.  The core knows the job by its image, and the runtime by nothing yet.
    t = (ckpt_talk){.subject = CKPT_TALK_REOPEN, .a = {0, embed_callbacks(job)}};
    job->restarted = true;
    embed_talk(job, &t);
    if (t.error.code == 0 && job->tasks.gone) ckpt_core_tasks_left(&job->seen);
    // The image was made for others, while the program's call waited for those of other ranks, as it does still.
    if (t.error.code == 0 && !asked && !job->answers) goto again;
    *state = t.error.code == 0 ? CKPT_STATE_RESTART : CKPT_STATE_ERROR;
    return embed_pass(&t, error);
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

// Regions mode is for programs that run without ckptrun: here the whole process is saved, and there is nothing that
// could be loaded.

EXPORT int MPIX_Checkpoint_protect(int id, void *base, size_t bytes) {
    (void)id, (void)base, (void)bytes;
    return OK;
}

EXPORT int MPIX_Checkpoint_unprotect(int id) { return (void)id, OK; }

EXPORT int MPIX_Checkpoint_distribute(int id, int dims, const size_t *whole, const size_t *first,
                                      const size_t *count, size_t element) {
    (void)id, (void)dims, (void)whole, (void)first, (void)count, (void)element;
    return OK;
}

EXPORT int MPIX_Checkpoint_level(int level) { return (void)level, OK; }
EXPORT int MPIX_Checkpoint_raise(int level) { return (void)level, OK; }

EXPORT int MPIX_Checkpoint_recover(MPIX_CR_state_t *state) {
    if (state == NULL) return MPIX_CR_ERR_NONE;
    *state = MPIX_CR_STATE_IGNORE;
    return OK;
}

EXPORT int MPIX_Checkpoint_saved(int id, size_t *bytes) {
    (void)id;
    if (bytes == NULL) return ERR_ARG;
    *bytes = 0;
    return MPIX_CR_ERR_NONE;
}

EXPORT int MPIX_Checkpoint_recover_one(int id) { return (void)id, MPIX_CR_ERR_NONE; }
