// SPDX-License-Identifier: Apache-2.0
//
// poll.c: completions.  A real one tells the kind of its queue and the place in the log (WR_ID); the queue pair is
// found by its real number.
#include "verbs/back/lower.h"
#include "verbs/route.h"

bool draining;
uint64_t last_completion;

#define ORDINAL(tail, id) ((tail) + (((id) - (tail)) & 0xffffffffffull))

// The addresses of a datagram's header, as the program knows them.
static void former_route(struct ibv_grh *grh, const struct v_qp *q, const struct verbs_who *who) {
    struct v_context *c = CONTEXT(q->q.context);
    uint8_t port = q->attr.port_num <= V_PORTS ? q->attr.port_num : 0;
    const struct v_port *p = &((struct v_device *)c->v.context.device)->port[port];
    const struct ports *now = (const struct ports *)c->lower;
    struct iphdr ip;
    bool four = route_ipv4(grh, &ip);
    union ibv_gid from = four ? route_gid(ip.saddr) : grh->sgid, to = four ? route_gid(ip.daddr) : grh->dgid;
    for (uint32_t i = 0; i < who->gids; i++)
        if (!memcmp(&from, who->real_gid[i], sizeof from)) {
            memcpy(&from, who->gid[i], sizeof from);
            break;
        }
    for (uint32_t i = 0; i < p->gids; i++)
        if (!memcmp(&to, &now->gid[port][i], sizeof to)) {
            to = p->gid[i];
            break;
        }
    if (four && route_address(&from, &ip.saddr) && route_address(&to, &ip.daddr)) {
        ip.check = route_checksum(ip);
        memcpy((char *)grh + sizeof *grh - sizeof ip, &ip, sizeof ip);
        return;
    }
    if (four) // to a program that began where there are route headers
        *grh = (struct ibv_grh){.version_tclass_flow = htonl(6u << 28 | (uint32_t)ip.tos << 20),
                                .paylen = htons((uint16_t)(ntohs(ip.tot_len) - sizeof ip)),
                                .next_hdr = ip.protocol,
                                .hop_limit = ip.ttl};
    grh->sgid = from;
    grh->dgid = to;
}

// A sender of a datagram, and the header before its data, as the program knows them.
static void from_whom(struct v_qp *q, struct ibv_wc *w, const struct v_receive *r) {
    if (q->q.qp_type != IBV_QPT_UD) {
        w->src_qp = q->attr.dest_qp_num;
        return;
    }
    struct verbs_who who;
    if (!ids_back(w->src_qp, w->slid, &who)) return;
    w->src_qp = who.real;
    if (w->slid == who.real_lid) w->slid = who.lid;
    if ((w->wc_flags & IBV_WC_GRH) && r->n && r->sge[0].length >= sizeof(struct ibv_grh))
        former_route((struct ibv_grh *)r->sge[0].addr, q, &who);
}

static void append(struct v_messages *to, struct v_message *m) {
    m->next = NULL;
    if (to->last && to->first)
        to->last->next = m;
    else
        to->first = m;
    to->last = m;
}

// A message that came into memory of ours.
static void bounced(struct v_qp *q, struct v_message **slot, struct v_messages *to, const struct ibv_wc *w) {
    struct v_message *m = *slot;
    *slot = NULL;
    if (!m) return;
    if (m->real) real.ibv_dereg_mr((struct ibv_mr *)m->real);
    m->real = 0;
    m->wc = *w;
    m->wc.qp_num = q->q.qp_num;
    m->wc.src_qp = q->attr.dest_qp_num;
    if (w->status != IBV_WC_SUCCESS) {
        struct v_messages one = {m, m};
        messages_drop(&one);
        return;
    }
    append(to, m);
}

// Makes a real completion the program's; false: it is not for the program.
static bool settle(struct ibv_wc *w) {
    struct v_qp *q = ids_real_qp(w->qp_num);
    uint64_t id = w->wr_id & 0xffffffffffull;
    int kind = (int)(w->wr_id >> 56);
    if (!q) return false; // of one that was destroyed
    if (w->status != IBV_WC_SUCCESS) {
        bool rnr = kind == ID_SEND && q->failed == V_FAILED_RNR;
        if (rnr) w->status = IBV_WC_RNR_RETRY_EXC_ERR;
        if (rnr || q->failed != V_FAILED_RNR) q->failed = V_FAILED;
    }
    if (kind == ID_SEND) {
        uint64_t ordinal = ORDINAL(q->send_tail, id);
        const struct v_send *s = &q->send[ordinal & q->send_mask];
        bool own = s->own == V_OWN || (s->own == V_OWN_END && w->status == IBV_WC_SUCCESS);
        if (s->opcode == IBV_WR_BIND_MW && w->status != IBV_WC_SUCCESS) mw_failed(s->rkey);
        w->wr_id = s->wr_id;
        w->qp_num = q->q.qp_num;
        q->takes_done = s->takes;
        if (q->probe == ordinal + 1) q->probe = 0;
        __atomic_store_n(&q->send_tail, ordinal + 1, __ATOMIC_RELEASE);
        return !own;
    }
    bool message = w->status != IBV_WC_WR_FLUSH_ERR;
    if (message && q->q.qp_type == IBV_QPT_RC) mw_invalidated(w);
    if (message) q->receives_done++;
    if (kind == ID_BOUNCE) {
        bounced(q, &q->bounce, &q->kept, w);
        return false;
    }
    struct v_srq *s = q->srq;
    if (kind == ID_SRQ_BOUNCE && s) {
        bounced(q, &s->bounce, &s->kept, w);
        return false;
    }
    const struct v_receive *r;
    uint64_t ordinal = ORDINAL(q->receive_tail, id);
    if (kind == ID_SRQ && s)
        r = srq_slot(s, id % s->attr.max_wr);
    else if (kind == ID_RECEIVE && !s && q->receive_slots)
        r = receive_of(q, ordinal);
    else
        return false;
    w->wr_id = r->wr_id;
    w->qp_num = q->q.qp_num;
    from_whom(q, w, r);
    if (kind == ID_SRQ) {
        __atomic_add_fetch(&s->done, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&((struct v_receive *)r)->posted, 0, __ATOMIC_RELEASE);
    } else
        __atomic_store_n(&q->receive_tail, ordinal + 1, __ATOMIC_RELEASE);
    return true;
}

int poll_real(struct v_cq *c, int n, struct ibv_wc *wc) {
    int got = REAL_CQ(c)->context->ops.poll_cq(REAL_CQ(c), n, wc), kept = 0;
    if (got > 0 && draining) last_completion = now_ns();
    for (int i = 0; i < got; i++)
        if (settle(&wc[i])) {
            if (kept != i) wc[kept] = wc[i];
            kept++;
        }
    // Nothing but our own: there may be more behind.
    if (got > 0 && !kept && !draining) return poll_real(c, n, wc);
    return got < 0 ? got : kept;
}

bool cq_keep(struct v_cq *c, const struct ibv_wc *wc) {
    if (c->head - c->tail == c->capacity) {
        c->overrun = 1;
        return false;
    }
    c->kept[c->head++ & (c->capacity - 1)] = *wc;
    return true;
}

void cq_keep_all(struct v_cq *c) {
    struct ibv_wc wc[32];
    for (int n; (n = poll_real(c, 32, wc)) > 0;)
        for (int i = 0; i < n; i++) cq_keep(c, &wc[i]);
}

// As adapters do it, or should: what a queue pair has completed before a reset is not seen after it.  What is real
// still is taken first, since its places in the logs are good only now.
void cq_take_back(struct v_cq *c, uint32_t number) {
    take(&c->lock);
    cq_keep_all(c);
    uint32_t to = c->tail;
    for (uint32_t from = c->tail; from != c->head; from++) {
        const struct ibv_wc *w = &c->kept[from & (c->capacity - 1)];
        if (w->qp_num != number) c->kept[to++ & (c->capacity - 1)] = *w;
    }
    c->head = to;
    give(&c->lock);
}

long f_poll(const long *a) {
    struct v_cq *c = ARG(struct v_cq *, 0);
    int n = ARG(int, 1), got = 0;
    struct ibv_wc *wc = ARG(struct ibv_wc *, 2);
    take(&c->lock);
    while (c->tail != c->head && got < n) wc[got++] = c->kept[c->tail++ & (c->capacity - 1)];
    if (got < n) {
        int more = poll_real(c, n - got, wc + got);
        if (more > 0 || !got) got += more;
    }
    give(&c->lock);
    return got;
}

long f_arm(const long *a) {
    struct v_cq *c = ARG(struct v_cq *, 0);
    take(&c->lock);
    int e = REAL_CQ(c)->context->ops.req_notify_cq(REAL_CQ(c), ARG(int, 1));
    if (!e && c->armed != 1) c->armed = ARG(int, 1) ? 2 : 1;
    give(&c->lock);
    return e;
}
