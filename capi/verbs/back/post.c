// SPDX-License-Identifier: Apache-2.0
//
// post.c: sends and receives.  Each is logged, then posted with real keys.  No thread is stopped in between, so what
// is in a log has been posted.
#include "verbs/back/lower.h"

enum { CHUNK = 16, SGES = 256 };

static bool takes_receive(int op) {
    return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM ||
           op == IBV_WR_SEND_WITH_INV;
}

static void translate_sges(struct ibv_sge *to, const struct ibv_sge *from, int n, bool keys) {
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
        if (keys && from[i].length) to[i].lkey = ids_lkey(from[i].lkey);
    }
}

// The real form of a work request; an error number.
static int translate(struct v_qp *q, struct ibv_send_wr *to, const struct ibv_send_wr *from,
                     struct ibv_sge *sges) {
    *to = *from;
    translate_sges(sges, from->sg_list, from->num_sge, !(from->send_flags & IBV_SEND_INLINE));
    to->sg_list = sges;
    switch (from->opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
        to->wr.rdma.rkey = ids_rkey(q, from->wr.rdma.rkey);
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        to->wr.atomic.rkey = ids_rkey(q, from->wr.atomic.rkey);
        break;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
        if (q->q.qp_type != IBV_QPT_UD) break;
        if (!from->wr.ud.ah) return EINVAL;
        to->wr.ud.ah = ah_to(v_of(v_ah, a, from->wr.ud.ah), from->wr.ud.remote_qpn);
        if (!to->wr.ud.ah) return ENOMEM;
        to->wr.ud.remote_qpn = ids_real_qpn(from->wr.ud.remote_qpn);
        break;
    case IBV_WR_SEND_WITH_INV:
        to->invalidate_rkey = ids_rkey(q, from->invalidate_rkey);
        break;
    default:
        return mw_translate(to, from);
    }
    return 0;
}

static bool of_window(int op) { return op == IBV_WR_BIND_MW || op == IBV_WR_LOCAL_INV; }

void log_send(struct v_qp *q, uint64_t ordinal, const struct ibv_send_wr *w, uint64_t takes) {
    struct v_send *s = &q->send[ordinal & q->send_mask];
    s->wr_id = w->wr_id;
    s->opcode = (uint8_t)w->opcode;
    s->signaled = q->init.sq_sig_all || w->send_flags & IBV_SEND_SIGNALED;
    s->take = takes_receive(w->opcode);
    s->takes = takes;
    s->own = 0;
    s->length = 0;
    if (of_window(w->opcode)) { // never without a completion below: no probe is like them
        s->own = s->signaled ? 0 : V_OWN_END;
        s->signaled = 1;
        s->rkey = w->opcode == IBV_WR_BIND_MW ? w->bind_mw.rkey : w->invalidate_rkey;
        return;
    }
    for (int i = 0; i < w->num_sge; i++) s->length += w->sg_list[i].length;
    bool atomic = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    s->remote = atomic ? w->wr.atomic.remote_addr : w->wr.rdma.remote_addr;
    s->rkey = atomic ? w->wr.atomic.rkey : w->wr.rdma.rkey;
}

long f_send(const long *a) {
    struct v_qp *q = ARG(struct v_qp *, 0);
    struct ibv_send_wr *w = ARG(struct ibv_send_wr *, 1), **bad = ARG(struct ibv_send_wr **, 2);
    struct ibv_send_wr chunk[CHUNK], *origin[CHUNK], *real_bad;
    struct ibv_sge sges[SGES];
    int e = 0;
    take(&q->send_lock);
    while (w && !e) {
        int n = 0, used = 0;
        uint64_t takes = q->takes_posted;
        for (; w && n < CHUNK; w = w->next) {
            uint64_t ordinal = q->send_head + (uint64_t)n;
            if (ordinal - __atomic_load_n(&q->send_tail, __ATOMIC_ACQUIRE) >= q->init.cap.max_send_wr)
                e = ENOMEM;
            else if (w->num_sge < 0 || (uint32_t)w->num_sge > q->init.cap.max_send_sge || w->num_sge > SGES)
                e = EINVAL;
            else if (used + w->num_sge > SGES)
                break;
            else
                e = translate(q, &chunk[n], w, sges + used);
            if (e) break;
            takes += takes_receive(w->opcode);
            log_send(q, ordinal, w, takes);
            if (of_window(w->opcode)) chunk[n].send_flags |= IBV_SEND_SIGNALED;
            chunk[n].wr_id = WR_ID(ID_SEND, ordinal);
            chunk[n].next = NULL;
            if (n) chunk[n - 1].next = &chunk[n];
            used += w->num_sge;
            origin[n++] = w;
        }
        struct ibv_send_wr *stopped = w;
        int posted = n, r = 0;
        if (n) {
            // Completions may come before the call returns: what they look at is there already.
            real_bad = NULL;
            r = REAL_QP(q)->context->ops.post_send(REAL_QP(q), chunk, &real_bad);
            if (r) posted = real_bad ? (int)(real_bad - chunk) : 0;
        }
        if (posted) {
            q->takes_posted = q->send[(q->send_head + (uint64_t)posted - 1) & q->send_mask].takes;
            q->send_head += (uint64_t)posted;
            for (int i = 0; i < posted; i++)
                if (of_window(origin[i]->opcode)) mw_posted(q, origin[i]);
        }
        if (r) e = r, stopped = origin[posted];
        if (e && bad) *bad = stopped;
    }
    give(&q->send_lock);
    return e;
}

// ---- receives ---------------------------------------------------------------------------------------

void messages_drop(struct v_messages *m) {
    while (m->first) {
        struct v_message *one = m->first;
        m->first = one->next;
        verbs_host.unmap(one, one->bytes);
    }
    m->last = NULL;
}

// Gives a kept message to a receive, and the program its completion.
static void deliver(struct v_qp *q, struct v_messages *from, const struct ibv_recv_wr *w) {
    struct v_message *m = from->first;
    from->first = m->next;
    if (!m->next) from->last = NULL;
    struct ibv_wc wc = m->wc;
    wc.wr_id = w->wr_id;
    uint32_t left = wc.opcode == IBV_WC_RECV ? wc.byte_len : 0, at = 0;
    for (int i = 0; i < w->num_sge && left; i++) {
        uint32_t n = w->sg_list[i].length < left ? w->sg_list[i].length : left;
        memcpy((void *)w->sg_list[i].addr, m->data + at, n);
        at += n;
        left -= n;
    }
    if (left) { // as the adapter would have said
        wc.status = IBV_WC_LOC_LEN_ERR;
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        q->failed = 1;
        real.ibv_modify_qp(REAL_QP(q), &attr, IBV_QP_STATE);
    }
    take(&q->recv_cq->lock);
    cq_keep(q->recv_cq, &wc);
    event_for(q->recv_cq);
    give(&q->recv_cq->lock);
    verbs_host.unmap(m, m->bytes);
}

static int post_receive(struct v_qp *q, const struct v_receive *r, uint64_t ordinal) {
    struct ibv_sge sges[SGES];
    if (r->n > SGES) return EINVAL;
    translate_sges(sges, r->sge, (int)r->n, true);
    struct ibv_recv_wr w = {.wr_id = WR_ID(ID_RECEIVE, ordinal), .sg_list = sges, .num_sge = (int)r->n}, *bad;
    return REAL_QP(q)->context->ops.post_recv(REAL_QP(q), &w, &bad);
}

static int log_receive(struct v_receive *r, const struct ibv_recv_wr *w, uint32_t max) {
    if (w->num_sge < 0 || (uint32_t)w->num_sge > max) return EINVAL;
    r->wr_id = w->wr_id;
    r->n = (uint32_t)w->num_sge;
    if (r->n) memcpy(r->sge, w->sg_list, r->n * sizeof *r->sge);
    return 0;
}

long f_receive(const long *a) {
    struct v_qp *q = ARG(struct v_qp *, 0);
    struct ibv_recv_wr *w = ARG(struct ibv_recv_wr *, 1), **bad = ARG(struct ibv_recv_wr **, 2);
    int e = q->srq ? EINVAL : 0;
    take(&q->receive_lock);
    for (; w && !e; w = w->next) {
        if (q->kept.first) {
            deliver(q, &q->kept, w);
            continue;
        }
        uint64_t ordinal = q->receive_head;
        if (ordinal - __atomic_load_n(&q->receive_tail, __ATOMIC_ACQUIRE) >= q->receive_slots) e = ENOMEM;
        if (!e) e = log_receive(receive_of(q, ordinal), w, q->init.cap.max_recv_sge);
        if (!e) e = post_receive(q, receive_of(q, ordinal), ordinal);
        if (e) break;
        q->receive_head++;
    }
    if (e && bad) *bad = w;
    give(&q->receive_lock);
    return e;
}

static int post_slot(struct v_srq *s, uint32_t slot) {
    struct v_receive *r = srq_slot(s, slot);
    struct ibv_sge sges[SGES];
    if (r->n > SGES) return EINVAL;
    translate_sges(sges, r->sge, (int)r->n, true);
    struct ibv_recv_wr w = {.wr_id = WR_ID(ID_SRQ, slot), .sg_list = sges, .num_sge = (int)r->n}, *bad;
    return REAL_SRQ(s)->context->ops.post_srq_recv(REAL_SRQ(s), &w, &bad);
}

long f_srq_receive(const long *a) {
    struct v_srq *s = ARG(struct v_srq *, 0);
    struct ibv_recv_wr *w = ARG(struct ibv_recv_wr *, 1), **bad = ARG(struct ibv_recv_wr **, 2);
    int e = 0;
    take(&s->lock);
    for (; w && !e; w = w->next) {
        bool delivered = false;
        while (s->kept.first && !delivered) {
            struct v_qp *q = ids_qp_of(s->kept.first->wc.qp_num);
            if (q) {
                deliver(q, &s->kept, w);
                delivered = true;
                continue;
            }
            struct v_messages one = {s->kept.first, NULL}; // its queue pair is gone
            s->kept.first = one.first->next;
            one.first->next = NULL;
            messages_drop(&one);
        }
        if (delivered) continue;
        uint32_t max = s->attr.max_wr, slot = s->hint, i = 0;
        while (i < max && __atomic_load_n(&srq_slot(s, slot)->posted, __ATOMIC_ACQUIRE))
            slot = (slot + 1) % max, i++;
        if (i == max) e = ENOMEM;
        struct v_receive *r = srq_slot(s, slot);
        if (!e) e = log_receive(r, w, s->attr.max_sge);
        if (e) break;
        r->posted = 1;
        e = post_slot(s, slot);
        if (e) {
            r->posted = 0;
            break;
        }
        s->hint = (slot + 1) % max;
        __atomic_add_fetch(&s->posted, 1, __ATOMIC_RELAXED);
    }
    if (e && bad) *bad = w;
    give(&s->lock);
    return e;
}

// ---- after a restart --------------------------------------------------------------------------------

int post_again(struct v_qp *q) {
    for (uint64_t i = q->receive_tail; i < q->receive_head; i++) {
        int e = post_receive(q, receive_of(q, i), i);
        if (e) return e;
    }
    return 0;
}

int post_srq_again(struct v_srq *s) {
    for (uint32_t i = 0; i < s->attr.max_wr; i++) {
        int e = srq_slot(s, i)->posted ? post_slot(s, i) : 0;
        if (e) return e;
    }
    return 0;
}
