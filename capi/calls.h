// SPDX-License-Identifier: Apache-2.0
//
// calls.h: the callbacks of a runtime, as Go calls them: through a structure of ours, into which those of the
// runtime were copied, and with an answer for each that the runtime does not have.
#ifndef CAPI_CALLS_H
#define CAPI_CALLS_H

#include <string.h>

#include "ckpt.h"

// The layers of a runtime's callbacks, as this version knows them; what the runtime does not have is NULL.
struct runtime_calls {
    ckpt_runtime_ops ops;
    ckpt_object_ops objects;
    ckpt_message_ops messages;
    ckpt_sync_ops sync;
    ckpt_state_ops state;
};
typedef const struct runtime_calls *calls;

static int op_rank(calls r, void *c) { return r->ops.rank(c); }
static int op_ranks(calls r, void *c) { return r->ops.ranks(c); }
static int op_allgather(calls r, void *c, void *m, void *a, size_t n) {
    return r->ops.oob_allgather(c, m, a, n);
}
static void op_progress(calls r, void *c) {
    if (r->ops.progress) r->ops.progress(c);
}
static const char *op_failure(calls r, void *c) {
    const char *why = r->ops.failure ? r->ops.failure(c) : NULL;
    return why ? why : "";
}
static int op_finalize(calls r, void *c) { return r->ops.finalize ? r->ops.finalize(c) : 0; }

static int op_bind(calls r, void *c, ckpt_job *j) { return r->objects.bind ? r->objects.bind(c, j) : 0; }
static int op_rebuild(calls r, void *c, int k, ckpt_vid v, void *d, size_t n, uint64_t *real) {
    return r->objects.rebuild ? r->objects.rebuild(c, (ckpt_kind)k, v, d, n, real) : CKPT_E_NOTSUP;
}

static int op_one_sided(calls r, void *c) { return r->messages.one_sided ? r->messages.one_sided(c) : 0; }
static int op_settle(calls r, void *c) { return r->messages.settle ? r->messages.settle(c) : 0; }
static int op_drain(calls r, void *c) { return r->messages.drain ? r->messages.drain(c) : 0; }
static long op_save(calls r, void *c, void *b, size_t n) {
    return r->messages.save ? r->messages.save(c, b, n) : 0;
}
static int op_load(calls r, void *c, const void *b, size_t n) {
    return r->messages.load ? r->messages.load(c, b, n) : n ? CKPT_E_NOTSUP : 0;
}
static void op_start(calls r, void *c) {
    if (r->messages.start_deferred) r->messages.start_deferred(c);
}

static int op_synchronous(calls r, void *c) { return r->sync.pending ? r->sync.pending(c) : 0; }
static long op_claims(calls r, void *c, ckpt_claim *l, long n) {
    return r->sync.claims ? r->sync.claims(c, l, n) : 0;
}
static void op_judge(calls r, void *c, ckpt_claim *l, long n) {
    if (r->sync.judge) r->sync.judge(c, l, n);
}
static void op_answered(calls r, void *c, ckpt_claim *l, long n) {
    if (r->sync.answered) r->sync.answered(c, l, n);
}

static int op_holds(calls r, void *c, char *w, size_t n) {
    return r->state.holds ? r->state.holds(c, w, n) : 0;
}
static const char *op_inside(calls r, void *c) { return r->state.inside ? r->state.inside(c) : NULL; }
static int op_waiting(calls r, void *c, ckpt_waiting *l, int n) {
    return r->state.waiting ? r->state.waiting(c, l, n) : 0;
}
static long op_files(calls r, void *c, char *b, size_t n) {
    return r->state.files ? r->state.files(c, b, n) : 0;
}
static long op_memory(calls r, void *c, uint64_t *l, long n) {
    return r->state.memory ? r->state.memory(c, l, n) : 0;
}

#endif
