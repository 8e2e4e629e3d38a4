// SPDX-License-Identifier: Apache-2.0
//
// window.c: memory windows.  What a window is bound to is known here, so that it is bound again after a restart; the key
// that the program knows of it keeps its upper 24 bits for ever, and its lower 8 change with each binding, as a real one's.
#include "verbs/back/lower.h"

#define REAL_MW(w) ((struct ibv_mw *)(w)->real)

int mw_make(struct v_mw *w) {
    struct ibv_context *rc = REAL_CONTEXT(CONTEXT(w->w.context));
    errno = 0;
    if (!rc->ops.alloc_mw) return EOPNOTSUPP;
    struct ibv_mw *r = rc->ops.alloc_mw(REAL_PD(w->w.pd), w->w.type);
    if (!r) return error_number();
    w->real = (uint64_t)r;
    w->rkey = r->rkey;
    w->w.handle = r->handle;
    memset(w->asked, 0, sizeof w->asked);
    return 0;
}

long f_mw(const long *a) {
    struct v_mw *w = ARG(struct v_mw *, 0);
    int e = mw_make(w);
    if (e) return e;
    ids_mw(w);
    list_add(&root->mws, &w->node);
    return 0;
}

long f_mw_end(const long *a) {
    struct v_mw *w = ARG(struct v_mw *, 0);
    int e = REAL_MW(w)->context->ops.dealloc_mw(REAL_MW(w));
    if (e) return e;
    list_remove(&w->node);
    ids_changed(w->asked, w->w.rkey);
    return 0;
}

// The window of a key of this process, or NULL.
static struct v_mw *find(uint32_t rkey, bool real_one) {
    struct v_mw *found = NULL;
    take(&lists_lock);
    EACH(v_mw, w, root->mws) {
        if ((real_one ? w->rkey : w->w.rkey) >> 8 == rkey >> 8) found = w;
    }
    give(&lists_lock);
    return found;
}

static struct ibv_mw_bind_info translated(const struct ibv_mw_bind_info *from) {
    struct ibv_mw_bind_info to = *from;
    if (from->mr) to.mr = (struct ibv_mr *)v_of(v_mr, m, from->mr)->real;
    return to;
}

// A binding for the program's key rkey; a real one has its lower 8 bits for the second type.
int mw_translate(struct ibv_send_wr *to, const struct ibv_send_wr *from) {
    struct v_mw *w;
    switch (from->opcode) {
    case IBV_WR_BIND_MW:
        w = v_of(v_mw, w, from->bind_mw.mw);
        to->bind_mw.mw = REAL_MW(w);
        to->bind_mw.rkey = (w->rkey & ~0xffu) | (from->bind_mw.rkey & 0xff);
        // One that is not for this window must not become one.
        if (from->bind_mw.rkey >> 8 != w->w.rkey >> 8) to->bind_mw.rkey ^= 1u << 31;
        to->bind_mw.bind_info = translated(&from->bind_mw.bind_info);
        return 0;
    case IBV_WR_LOCAL_INV:
        w = find(from->invalidate_rkey, false);
        to->invalidate_rkey = w && w->bound && w->w.rkey == from->invalidate_rkey ? w->rkey : 0;
        return 0;
    default:
        return EOPNOTSUPP;
    }
}

static void bound(struct v_mw *w, struct v_qp *q, const struct ibv_mw_bind_info *info, uint32_t rkey,
                  uint32_t real_rkey) {
    uint32_t former = w->w.rkey;
    w->w.rkey = rkey;
    w->rkey = real_rkey;
    w->qp = q;
    w->info = *info;
    w->bound = info->length != 0;
    ids_changed(w->asked, former);
}

// Such a work request has been posted.
void mw_posted(struct v_qp *q, const struct ibv_send_wr *w) {
    struct v_mw *m;
    if (w->opcode == IBV_WR_BIND_MW) {
        m = v_of(v_mw, w, w->bind_mw.mw);
        bound(m, q, &w->bind_mw.bind_info, w->bind_mw.rkey, (m->rkey & ~0xffu) | (w->bind_mw.rkey & 0xff));
    } else if (w->opcode == IBV_WR_LOCAL_INV && (m = find(w->invalidate_rkey, false)))
        m->bound = 0;
}

// A binding has failed.
void mw_failed(uint32_t rkey) {
    struct v_mw *w = find(rkey, false);
    if (w && w->w.rkey == rkey) w->bound = 0;
}

// If a message on a connection has taken a window's binding away, the key becomes the one that the program knows. rdma_rxe
// tells it by the kernel's own flag, which for programs is that of a checksum, and says nothing of a connection.
void mw_invalidated(struct ibv_wc *c) {
    bool kernels = !(c->wc_flags & (IBV_WC_WITH_INV | IBV_WC_WITH_IMM)) && (c->wc_flags & IBV_WC_IP_CSUM_OK);
    if (!(c->wc_flags & IBV_WC_WITH_INV) && !kernels) return;
    struct v_mw *w = find(c->invalidated_rkey, true);
    if (!w) return;
    if (kernels) c->wc_flags ^= IBV_WC_IP_CSUM_OK | IBV_WC_WITH_INV;
    w->bound = 0;
    c->invalidated_rkey = w->w.rkey;
}

// The first type: the adapter chooses the key.
static int bind(struct v_qp *q, struct v_mw *w, uint64_t wr_id, unsigned flags,
                const struct ibv_mw_bind_info *info) {
    struct ibv_mw_bind b = {
        .wr_id = wr_id, .send_flags = flags | IBV_SEND_SIGNALED, .bind_info = translated(info)};
    if (w->w.type == IBV_MW_TYPE_1) return REAL_MW(w)->context->ops.bind_mw(REAL_QP(q), REAL_MW(w), &b);
    struct ibv_send_wr r = {.wr_id = wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = b.send_flags}, *bad;
    r.bind_mw.mw = REAL_MW(w);
    r.bind_mw.rkey = (w->rkey & ~0xffu) | (w->w.rkey & 0xff);
    r.bind_mw.bind_info = b.bind_info;
    int e = REAL_QP(q)->context->ops.post_send(REAL_QP(q), &r, &bad);
    if (!e) w->rkey = r.bind_mw.rkey;
    return e;
}

long f_bind(const long *a) {
    struct v_qp *q = ARG(struct v_qp *, 0);
    struct v_mw *w = ARG(struct v_mw *, 1);
    const struct ibv_mw_bind *b = ARG(struct ibv_mw_bind *, 2);
    uint32_t rkey = ibv_inc_rkey(w->w.rkey);
    int e = 0;
    take(&q->send_lock);
    if (q->send_head - __atomic_load_n(&q->send_tail, __ATOMIC_ACQUIRE) >= q->init.cap.max_send_wr)
        e = ENOMEM;
    struct ibv_send_wr own = {.wr_id = b->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = b->send_flags};
    own.bind_mw.rkey = rkey;
    if (!e) {
        log_send(q, q->send_head, &own, q->takes_posted);
        e = bind(q, w, WR_ID(ID_SEND, q->send_head), b->send_flags, &b->bind_info);
    }
    if (!e) {
        q->send_head++;
        bound(w, q, &b->bind_info, rkey, REAL_MW(w)->rkey);
    }
    give(&q->send_lock);
    return e;
}

// After a restart, by a queue pair that can: of the first type any of the domain.
static struct v_qp *binder(struct v_mw *w) {
    struct v_qp *by = NULL;
    EACH(v_qp, q, root->qps) {
        bool can = q->state == IBV_QPS_RTS && !q->failed && q->q.pd == w->w.pd && q->q.qp_type != IBV_QPT_UD;
        if (can && (q == w->qp || (!by && w->w.type == IBV_MW_TYPE_1))) by = q;
    }
    return by;
}

int mw_bind_again(struct v_mw *w) {
    struct v_qp *q = w->bound ? binder(w) : NULL;
    if (!q) return 0; // nobody could use it
    struct v_send own = {
        .opcode = IBV_WR_BIND_MW, .signaled = 1, .own = V_OWN, .takes = q->takes_posted, .rkey = w->w.rkey};
    q->send[q->send_head & q->send_mask] = own;
    int e = bind(q, w, WR_ID(ID_SEND, q->send_head), 0, &w->info);
    if (e) return e;
    if (w->w.type == IBV_MW_TYPE_1) w->rkey = REAL_MW(w)->rkey;
    q->send_head++;
    // Nothing else has been posted.
    for (uint64_t start = now_ns(); q->send_tail != q->send_head; sched_yield()) {
        if (now_ns() - start > 10000000000ull) return ETIMEDOUT;
        take(&q->send_cq->lock);
        cq_keep_all(q->send_cq);
        give(&q->send_cq->lock);
    }
    return w->bound ? 0 : EINVAL;
}
