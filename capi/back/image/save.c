// SPDX-License-Identifier: Apache-2.0
//
// save.c: drained messages, matched messages and requests are written into an image (section.h).
#include "back/collective/deferred.h"
#include "back/collective/op.h"
#include "back/file/file.h"
#include "back/image/section.h"
#include "back/impl/error.h"
#include "back/impl/status.h"
#include "back/message/drained.h"
#include "back/message/sync.h"
#include "back/object/fresh.h"
#include "back/object/keep.h"
#include "back/request/compound.h"
#include "back/request/done.h"
#include "back/request/grequest.h"
#include "back/request/persistent.h"
#include "back/request/posted.h"

int back_no_memory(const char *what) {
    back_fail(MPI_ERR_NO_MEM, "%s", what);
    return CKPT_E_SYSTEM;
}

static void write_message(struct out *o, const struct drained *m) {
    const struct saved_message v = {
        .comm = m->comm, .source = m->source, .tag = m->tag, .bytes = m->bytes, .data = m->data};
    out_message(o, &v);
}

static void write_done(struct out *o, const ckpt_slot *s) {
    MPI_Status st;
    ckpt_mpi_status c;
    int rc = back_done_status(real_of(s), &st);
    canon_status(&st, &c);
    const struct saved_done v = {.source = c.source,
                                 .tag = c.tag,
                                 .cancelled = c.cancelled,
                                 .bytes = c.bytes,
                                 .error = (int)(back_error(rc) & 0xff)};
    out_done(o, &v);
}

static void write_posted(struct out *o, ckpt_vid vid) {
    const struct posted *p = back_posted_of(vid);
    const struct saved_posted v = {.order = (int64_t)p->serial,
                                   .buffer = (uint64_t)(uintptr_t)p->buf,
                                   .count = p->count,
                                   .type = p->type,
                                   .source = p->source,
                                   .tag = p->tag};
    out_posted(o, &v);
}

static void write_coll(struct out *o, const ckpt_slot *s) {
    const struct back_coll *c = back_coll_of(s);
    const struct saved_coll v = {.function = c->function,
                                 .args = {c->a, (size_t)c->nargs},
                                 .request = c->request,
                                 .arrays = c->arrays,
                                 .types = {.n = (size_t)c->ntypes},
                                 .own_types = c->types,
                                 .started =
                                     s->a & (REQUEST_ACTIVE | REQUEST_PAIR) ? c->inner : VID_REQUEST_NULL};
    out_coll(o, &v);
}

static void write_deferred(struct out *o, const ckpt_slot *s) {
    const struct deferred *d = back_deferred_of(s);
    const struct saved_deferred v = {
        .call = (int64_t)d->k, .function = d->function, .args = {d->a, (size_t)d->nargs}};
    out_deferred(o, &v);
}

static void write_request(struct out *o, const ckpt_slot *s, ckpt_vid vid) {
    int persistent = s->a & REQUEST_PERSISTENT && !(s->a & REQUEST_COLL), state = request_state(s);
    if (state == STATE_AWAITED && !back_sync_awaits(s)) state = STATE_DONE;
    back_assert(request_sound(s));
    const struct saved_head head = {.id = vid,
                                    .flags =
                                        (s->a & LASTING & ~(state == STATE_COLL ? REQUEST_PERSISTENT : 0)) |
                                        (back_keep_has(s, vid) ? SAVED_KEEPS_TYPE : 0),
                                    .peer = s->b,
                                    .owner = (ckpt_vid)s->clock,
                                    .state = state};
    out_head(o, &head);
    if (state == STATE_DONE) {
        write_done(o, s);
    } else if (state == STATE_AWAITED) {
        const struct saved_awaited v = {.id = back_sync_of(s)->id, .receiver = back_sync_of(s)->dest};
        out_awaited(o, &v);
    } else if (state == STATE_POSTED) {
        write_posted(o, vid);
    } else if (state == STATE_COLL) {
        write_coll(o, s);
    } else if (state == STATE_GENERALIZED) {
        const struct back_grequest *g = back_grequest_of(s);
        const struct saved_upper v = {.object = (uint64_t)(uintptr_t)g->upper,
                                      .thunk = (uint64_t)(uintptr_t)g->thunk};
        out_upper(o, &v);
    } else if (state == STATE_DEFERRED) {
        write_deferred(o, s);
    }
    if (persistent) {
        const struct persistent *p = persistent_of(s);
        const struct saved_persistent v = {.mode = p->mode, .args = {p->a, 6}};
        out_persistent(o, &v);
    }
}

static int64_t live(ckpt_kind kind) {
    int64_t n = 0;
    for (uint32_t i = 0; back_next_slot(kind, &i) != NULL;) n++;
    return n;
}

static int awaits_any(void) {
    uint32_t i = 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;)
        if (back_sync_awaits(s)) return 1;
    return 0;
}

// Writes the claim on a message, if there is one; returns how many there are.
static int64_t write_claim(struct out *o, const struct drained *m, int64_t number) {
    const struct saved_claim v = {.message = number, .sender = m->sender, .id = m->claim};
    if (m->claim != 0 && o != NULL) out_claim(o, &v);
    return m->claim != 0;
}

static int64_t write_claims(struct out *o) {
    int64_t number = 0, n = 0;
    uint32_t i = 0;
    const struct drained *m;
    TAILQ_FOREACH(m, &back_drained_all, others) n += write_claim(o, m, number++);
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;)
        n += write_claim(o, back_matched_of(s), number++);
    return n;
}

long back_save(void *ctx, void *buffer, size_t bytes) {
    (void)ctx;
    struct out o = {buffer, 0, buffer ? bytes : 0};
    int64_t n = 0, claims = write_claims(NULL);
    int rc = 0, version = claims > 0 || awaits_any() ? SAVE_VERSION_CLAIMS : SAVE_VERSION_PLAIN;
    if (buffer == NULL) { // the turn without a buffer: describing takes memory, so it is done once
        back_keep_look();
        rc = fresh_tell() != 0 ? back_no_memory("describing datatypes")
             : ops_tell() != 0 ? back_no_memory("describing operations")
                               : files_describe();
    }
    if (rc != 0) return rc;
    out(&o, version);
    const struct drained *m;
    TAILQ_FOREACH(m, &back_drained_all, others) n++;
    out(&o, n);
    TAILQ_FOREACH(m, &back_drained_all, others) write_message(&o, m);
    out(&o, live(CKPT_KIND_MESSAGE));
    uint32_t i = 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;) {
        out(&o, CKPT_VID(CKPT_KIND_MESSAGE, i - 1));
        write_message(&o, back_matched_of(s));
    }
    out(&o, live(CKPT_KIND_REQUEST));
    i = 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;)
        write_request(&o, s, CKPT_VID(CKPT_KIND_REQUEST, i - 1));
    if (version == SAVE_VERSION_CLAIMS) {
        out(&o, claims);
        write_claims(&o);
    }
    return (long)o.n;
}
