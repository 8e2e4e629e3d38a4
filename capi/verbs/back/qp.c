// SPDX-License-Identifier: Apache-2.0
//
// qp.c: queue pairs.
#include "verbs/back/lower.h"

enum { PROBES = 2, BOUNCES = 1 }; // that a drain posts beside what the program may post

int qp_make(struct v_qp *q) {
    struct ibv_qp_init_attr init = q->init;
    init.qp_context = q;
    init.send_cq = REAL_CQ(q->send_cq);
    init.recv_cq = REAL_CQ(q->recv_cq);
    init.srq = q->srq ? REAL_SRQ(q->srq) : NULL;
    init.cap.max_send_wr += PROBES;
    if (!init.srq) init.cap.max_recv_wr += BOUNCES;
    if (!init.cap.max_send_sge) init.cap.max_send_sge = 1;
    if (!init.cap.max_recv_sge && !init.srq) init.cap.max_recv_sge = 1;
    errno = 0;
    struct ibv_qp *r = real.ibv_create_qp(REAL_PD(q->q.pd), &init);
    if (!r) { // as many as the device has
        init.cap.max_send_wr = q->init.cap.max_send_wr;
        if (!init.srq) init.cap.max_recv_wr = q->init.cap.max_recv_wr;
        r = real.ibv_create_qp(REAL_PD(q->q.pd), &init);
    }
    if (!r) return error_number();
    q->real = (uint64_t)r;
    q->real_num = r->qp_num;
    q->q.handle = r->handle;
    q->rkey_epoch = 0;
    return 0;
}

long f_qp(const long *a) {
    struct v_qp *q = ARG(struct v_qp *, 0);
    const struct ibv_qp_cap *cap = &q->init.cap;
    uint32_t most = (uint32_t)LIMITS(q->q.context)->max_qp_wr;
    int e = cap->max_send_wr > most || (!q->srq && cap->max_recv_wr > most) ? EINVAL : qp_make(q);
    if (e) return e;
    ids_qp(q, true);
    list_add(&root->qps, &q->node);
    return 0;
}

// Attributes that the program gave, as they are of now.
static void merge(struct v_qp *q, const struct ibv_qp_attr *attr, int mask) {
#define KEEP(bit, field) \
    if (mask & (bit)) q->attr.field = attr->field
    KEEP(IBV_QP_CUR_STATE, cur_qp_state);
    KEEP(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
    KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    KEEP(IBV_QP_PKEY_INDEX, pkey_index);
    KEEP(IBV_QP_PORT, port_num);
    KEEP(IBV_QP_QKEY, qkey);
    KEEP(IBV_QP_AV, ah_attr);
    KEEP(IBV_QP_PATH_MTU, path_mtu);
    KEEP(IBV_QP_TIMEOUT, timeout);
    KEEP(IBV_QP_RETRY_CNT, retry_cnt);
    KEEP(IBV_QP_RNR_RETRY, rnr_retry);
    KEEP(IBV_QP_RQ_PSN, rq_psn);
    KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    KEEP(IBV_QP_ALT_PATH, alt_ah_attr);
    KEEP(IBV_QP_ALT_PATH, alt_pkey_index);
    KEEP(IBV_QP_ALT_PATH, alt_port_num);
    KEEP(IBV_QP_ALT_PATH, alt_timeout);
    KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    KEEP(IBV_QP_SQ_PSN, sq_psn);
    KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    KEEP(IBV_QP_PATH_MIG_STATE, path_mig_state);
    KEEP(IBV_QP_DEST_QPN, dest_qp_num);
    KEEP(IBV_QP_RATE_LIMIT, rate_limit);
#undef KEEP
}

// Where a connection leads to, found when it is made, and the real attributes; false: out of the job. *to: which gid of the
// peer it goes by; -1: a lid.
static bool lead(struct v_qp *q, struct ibv_qp_attr *attr, int mask, struct verbs_who *who, int *to) {
    struct v_context *c = CONTEXT(q->q.context);
    bool way = mask & IBV_QP_AV;
    *to = -1;
    if (mask & IBV_QP_DEST_QPN) q->peer = V_PEER_FOREIGN;
    if (!way && !(mask & IBV_QP_DEST_QPN)) return false;
    uint32_t number = mask & IBV_QP_DEST_QPN ? attr->dest_qp_num : q->attr.dest_qp_num;
    bool job = ids_who(number, who) && (!way || ids_leads_to(&attr->ah_attr, who));
    if (job && mask & IBV_QP_DEST_QPN) {
        q->peer = ids_rank_of(number);
        attr->dest_qp_num = who->real;
    }
    if (!way) return job;
    struct way from = device_way(c, &attr->ah_attr);
    if (job) *to = ids_translate(&attr->ah_attr, who, &from);
    attr->ah_attr.grh.sgid_index = device_gid_index(c, attr->ah_attr.port_num, attr->ah_attr.grh.sgid_index);
    return job;
}

// Below, an adapter does not give up for want of receives (rnr.c).
static void patient(struct v_qp *q, struct ibv_qp_attr *attr, int mask) {
    if (!(mask & IBV_QP_RNR_RETRY) || q->peer < 0 || attr->rnr_retry >= 7) return;
    attr->rnr_retry = 7;
    rnr_watch();
}

static void forget(struct v_qp *q) {
    q->send_tail = q->send_proved = q->send_head;
    q->receive_tail = q->receive_head;
    q->takes_posted = q->takes_done = q->receives_done = q->lost = 0;
    q->probe = 0;
    q->failed = q->last_told = 0;
    q->peer = V_PEER_NONE;
    q->to_init = q->to_rtr = q->to_rts = 0;
    messages_drop(&q->kept);
}

static void at_most(uint8_t *value, int most) {
    if (most > 0 && *value > most) *value = (uint8_t)most;
}

// After a restart: the adapters of both sides may be smaller than those that the program has asked.
static void fit(const struct v_qp *q, struct ibv_qp_attr *attr, const struct verbs_who *peer) {
    const struct ports *now = (const struct ports *)CONTEXT(q->q.context)->lower;
    uint8_t mtu = (uint8_t)attr->path_mtu;
    at_most(&mtu, q->attr.port_num <= V_PORTS ? now->mtu[q->attr.port_num] : 0);
    if (peer) at_most(&mtu, peer->mtu);
    attr->path_mtu = (enum ibv_mtu)mtu;
    at_most(&attr->max_dest_rd_atomic, now->rd_atomics);
    at_most(&attr->max_rd_atomic, now->rd_atomics_asked);
    if (peer) at_most(&attr->max_rd_atomic, peer->rd_atomics);
}

long f_qp_modify(const long *a) {
    struct v_qp *q = ARG(struct v_qp *, 0);
    struct ibv_qp_attr attr = *ARG(struct ibv_qp_attr *, 1);
    int mask = ARG(int, 2), peer = q->peer;
    if (mask & IBV_QP_CAP) return EOPNOTSUPP;
    bool rtr = mask & IBV_QP_STATE && attr.qp_state == IBV_QPS_RTR;
    struct verbs_who who;
    int to;
    bool known = lead(q, &attr, mask, &who, &to);
    patient(q, &attr, mask);
    if (made_again) fit(q, &attr, known && mask & IBV_QP_DEST_QPN ? &who : NULL);
    int e = real.ibv_modify_qp(REAL_QP(q), &attr, mask);
    if (e) {
        q->peer = peer;
        return e;
    }
    merge(q, ARG(struct ibv_qp_attr *, 1), mask);
    int what = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
    if (!(mask & IBV_QP_STATE)) {
        q->to_rts |= q->state >= IBV_QPS_RTR ? what & ~(q->to_init | q->to_rtr) : 0;
        q->to_init |= q->state == IBV_QPS_INIT ? what : 0;
        return 0;
    }
    switch (attr.qp_state) {
    case IBV_QPS_RESET:
        cq_take_back(q->send_cq, q->q.qp_num);
        if (q->recv_cq != q->send_cq) cq_take_back(q->recv_cq, q->q.qp_num);
        forget(q);
        break;
    case IBV_QPS_INIT:
        q->to_init |= what;
        break;
    case IBV_QPS_RTR:
        q->to_rtr = what;
        break;
    case IBV_QPS_RTS:
        q->to_rts |= what & ~(q->to_init | q->to_rtr);
        break;
    case IBV_QPS_ERR:
        q->failed = 1;
        break;
    default:
        break;
    }
    if (rtr) q->takes_posted = q->takes_done = q->receives_done = q->lost = 0;
    q->state = attr.qp_state;
    q->q.state = attr.qp_state;
    return 0;
}

// A step to RTS follows the one to RTR of the same queue pair.
int qp_step(struct v_qp *q, enum ibv_qp_state state, char *why, size_t bytes) {
    static struct verbs_who peer;
    static bool known;
    struct ibv_qp_attr attr = q->attr;
    int mask = state == IBV_QPS_INIT  ? q->to_init
               : state == IBV_QPS_RTR ? q->to_rtr
               : state == IBV_QPS_RTS ? q->to_rts
                                      : 0;
    attr.qp_state = state;
    if (state == IBV_QPS_RTR) {
        struct v_context *c = CONTEXT(q->q.context);
        struct way from = device_way(c, &attr.ah_attr);
        char reason[200];
        int to;
        known = lead(q, &attr, mask, &peer, &to);
        if (known && device_no_way(c, &from, &peer, to, reason, sizeof reason)) {
            snprintf(why, bytes, "queue pair 0x%06x, which is connected to rank %d, cannot be made again: %s",
                     q->q.qp_num, q->peer, reason);
            return EHOSTUNREACH;
        }
    }
    fit(q, &attr, known ? &peer : NULL);
    patient(q, &attr, mask);
    return real.ibv_modify_qp(REAL_QP(q), &attr, mask | IBV_QP_STATE);
}

long f_qp_query(const long *a) {
    struct v_qp *q = ARG(struct v_qp *, 0);
    struct ibv_qp_attr *attr = ARG(struct ibv_qp_attr *, 1);
    struct ibv_qp_init_attr *init = ARG(struct ibv_qp_init_attr *, 3);
    int e = real.ibv_query_qp(REAL_QP(q), attr, ARG(int, 2), init);
    if (e) return e;
    *init = q->init;
    attr->cap = q->init.cap;
    if (q->to_rtr & IBV_QP_DEST_QPN) {
        attr->dest_qp_num = q->attr.dest_qp_num;
        attr->ah_attr = q->attr.ah_attr;
        attr->path_mtu = q->attr.path_mtu;
        attr->max_dest_rd_atomic = q->attr.max_dest_rd_atomic;
    }
    if (q->to_rts & IBV_QP_RNR_RETRY) attr->rnr_retry = q->attr.rnr_retry;
    if (q->to_rts & IBV_QP_MAX_QP_RD_ATOMIC) attr->max_rd_atomic = q->attr.max_rd_atomic;
    q->q.state = attr->qp_state;
    return 0;
}

long f_qp_end(const long *a) {
    struct v_qp *q = ARG(struct v_qp *, 0);
    ids_qp_hide(q, true); // what looks for it by its number finds a real one
    int e = real.ibv_destroy_qp(REAL_QP(q));
    if (e) {
        ids_qp_hide(q, false);
        return e;
    }
    ids_qp_end(q);
    events_forget(CONTEXT(q->q.context), &q->q.events_completed);
    // Nobody polls a queue with a completion of this one in hand.
    take(&q->send_cq->lock);
    give(&q->send_cq->lock);
    take(&q->recv_cq->lock);
    give(&q->recv_cq->lock);
    messages_drop(&q->kept);
    list_remove(&q->node);
    return 0;
}

long f_multicast(const long *a) {
    struct v_multicast *m = ARG(struct v_multicast *, 0);
    if (a[1]) {
        int e = real.ibv_attach_mcast(REAL_QP(m->qp), &m->gid, m->lid);
        if (!e) list_add(&root->multicasts, &m->node);
        return e;
    }
    int e = real.ibv_detach_mcast(REAL_QP(m->qp), &m->gid, m->lid);
    if (e) return e;
    take(&lists_lock);
    struct v_multicast *found = NULL;
    EACH(v_multicast, one, root->multicasts) {
        if (one->qp == m->qp && one->lid == m->lid && !memcmp(&one->gid, &m->gid, sizeof m->gid)) found = one;
    }
    give(&lists_lock);
    if (found) list_remove(&found->node);
    *ARG(struct v_multicast **, 2) = found;
    return 0;
}
