// SPDX-License-Identifier: Apache-2.0
//
// save.c: drained messages, matched messages and requests are written into an image (section.h).
#include "back/collective/deferred.h"
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

// Bytes that have no room are counted.
struct out {
    char *p;
    size_t n, room;
};

static void out_bytes(struct out *o, const void *from, size_t n) {
    size_t padded = (n + 7) & ~(size_t)7;
    if (o->n + padded <= o->room) {
        memset(o->p + o->n + n, 0, padded - n);
        if (n > 0) memcpy(o->p + o->n, from, n);
    }
    o->n += padded;
}

static void out(struct out *o, int64_t v) { out_bytes(o, &v, 8); }

static void out_message(struct out *o, const struct drained *m) {
    out(o, m->comm);
    out(o, m->source);
    out(o, m->tag);
    out(o, m->bytes);
    out_bytes(o, m->data, (size_t)m->bytes);
}

static void out_status(struct out *o, const ckpt_slot *s) {
    MPI_Request r = (MPI_Request)(uintptr_t)s->real;
    MPI_Status st;
    ckpt_mpi_status c;
    int rc = back_done_status(r, &st);
    canon_status(&st, &c);
    out(o, c.source);
    out(o, c.tag);
    out(o, c.cancelled);
    out(o, c.bytes);
    out(o, back_error(rc) & 0xff);
}

static void out_request(struct out *o, const ckpt_slot *s, ckpt_vid vid) {
    int persistent = s->a & REQUEST_PERSISTENT && !(s->a & REQUEST_COLL);
    int state = s->a & (REQUEST_COLL | REQUEST_PAIR)     ? STATE_COLL
                : back_sync_awaits(s)                    ? STATE_AWAITED
                : s->a & REQUEST_DONE                    ? STATE_DONE
                : s->a & REQUEST_DEFERRED                ? STATE_DEFERRED
                : s->a & REQUEST_GENERALIZED             ? STATE_GENERALIZED
                : persistent && !(s->a & REQUEST_ACTIVE) ? STATE_INACTIVE
                                                         : STATE_POSTED;
    out(o, vid);
    out(o, (s->a & LASTING & ~(state == STATE_COLL ? REQUEST_PERSISTENT : 0)) |
               (back_keep_has(s, vid) ? REQUEST_KEEPS_TYPE : 0));
    out(o, s->b);
    out(o, s->clock);
    out(o, state);
    if (state == STATE_DONE) {
        out_status(o, s);
    } else if (state == STATE_AWAITED) {
        out(o, (int64_t)back_sync_of(s)->id);
        out(o, back_sync_of(s)->dest);
    } else if (state == STATE_POSTED) {
        const struct posted *p = back_posted_of(vid);
        out(o, (int64_t)p->serial);
        out(o, (int64_t)(uintptr_t)p->buf);
        out(o, p->count);
        out(o, p->type);
        out(o, p->source);
        out(o, p->tag);
    } else if (state == STATE_COLL) {
        const struct back_coll *c = back_coll_of(s);
        out(o, c->function);
        out(o, c->nargs);
        for (int i = 0; i < c->nargs; i++) out(o, c->a[i]);
        out(o, c->request);
        out(o, c->arrays);
        out(o, c->ntypes);
        for (int i = 0; i < c->ntypes; i++) out(o, c->types[i]);
        out(o, s->a & (REQUEST_ACTIVE | REQUEST_PAIR) ? c->inner : VID_REQUEST_NULL);
    } else if (state == STATE_GENERALIZED) {
        const struct back_grequest *g = (const struct back_grequest *)(uintptr_t)s->extra;
        out(o, (int64_t)(uintptr_t)g->upper);
        out(o, (int64_t)(uintptr_t)g->thunk);
    } else if (state == STATE_DEFERRED) {
        const struct deferred *d = back_deferred_of(s);
        out(o, (int64_t)d->k);
        out(o, d->function);
        out(o, d->nargs);
        for (int i = 0; i < d->nargs; i++) out(o, d->a[i]);
    }
    if (persistent) {
        const struct persistent *p = persistent_of(s);
        out(o, p->mode);
        for (int i = 0; i < 6; i++) out(o, p->a[i]);
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
static int64_t out_claim(struct out *o, const struct drained *m, int64_t number) {
    if (m->claim != 0 && o != NULL) {
        out(o, number);
        out(o, m->sender);
        out(o, (int64_t)m->claim);
    }
    return m->claim != 0;
}

static int64_t out_claims(struct out *o) {
    int64_t number = 0, n = 0;
    uint32_t i = 0;
    for (const struct drained *m = back_drained_first; m != NULL; m = m->next) n += out_claim(o, m, number++);
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;)
        n += out_claim(o, back_matched_of(s), number++);
    return n;
}

long back_save(void *ctx, void *buffer, size_t bytes) {
    (void)ctx;
    struct out o = {buffer, 0, buffer ? bytes : 0};
    int64_t n = 0, claims = out_claims(NULL);
    int rc = 0, version = claims > 0 || awaits_any() ? SAVE_VERSION_CLAIMS : SAVE_VERSION;
    if (buffer == NULL) { // once, since what is described takes memory
        back_keep_look();
        rc = fresh_tell() == 0 ? files_describe() : back_no_memory("datatypes are to be described");
    }
    if (rc != 0) return rc;
    out(&o, version);
    for (const struct drained *m = back_drained_first; m != NULL; m = m->next) n++;
    out(&o, n);
    for (const struct drained *m = back_drained_first; m != NULL; m = m->next) out_message(&o, m);
    out(&o, live(CKPT_KIND_MESSAGE));
    uint32_t i = 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;) {
        out(&o, CKPT_VID(CKPT_KIND_MESSAGE, i - 1));
        out_message(&o, back_matched_of(s));
    }
    out(&o, live(CKPT_KIND_REQUEST));
    i = 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;)
        out_request(&o, s, CKPT_VID(CKPT_KIND_REQUEST, i - 1));
    if (version == SAVE_VERSION_CLAIMS) {
        out(&o, claims);
        out_claims(&o);
    }
    return (long)o.n;
}
