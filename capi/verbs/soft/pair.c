// SPDX-License-Identifier: Apache-2.0
//
// pair.c: queue pairs and their states.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/soft/impl.h"

struct soft_qp *soft_qp_find(uint32_t number) {
    struct soft_qp *qp;
    LIST_FOREACH(qp, &soft.qps[number % SOFT_BUCKETS], others) {
        if (qp->number == number) return qp;
    }
    return NULL;
}

// ---- life ----

static int check_init(const struct soft_qp_init *init) {
    if (soft.lost) return EIO;
    if (init->type != IBV_QPT_RC && init->type != IBV_QPT_UC && init->type != IBV_QPT_UD) return EOPNOTSUPP;
    const struct ibv_qp_cap *cap = &init->cap;
    bool fits = cap->max_send_wr <= soft.most_wrs && cap->max_recv_wr <= soft.most_wrs &&
                cap->max_send_sge <= SOFT_SGES && cap->max_recv_sge <= SOFT_SGES &&
                cap->max_inline_data <= SOFT_INLINE;
    return fits && init->send != NULL && init->receive != NULL ? 0 : EINVAL;
}

int soft_qp_new(const struct soft_qp_init *init, struct soft_qp **made) {
    int rc = check_init(init);
    if (rc != 0) return rc;
    struct soft_qp *qp = calloc(1, sizeof *qp);
    if (qp == NULL) return ENOMEM;
    qp->type = init->type, qp->state = IBV_QPS_RESET, qp->cap = init->cap, qp->pd = init->pd,
    qp->lid = init->lid;
    qp->all_signaled = init->all_signaled, qp->send = init->send, qp->receive = init->receive,
    qp->of = init->of;
    STAILQ_INIT(&qp->sends);
    rc = soft_queue_init(&qp->own, init->srq != NULL ? 0 : init->cap.max_recv_wr, init->cap.max_recv_sge,
                         init->pd);
    qp->queue = init->srq != NULL ? init->srq : &qp->own;
    pthread_mutex_lock(&soft.lock);
    if (rc == 0) rc = soft.net.claim(soft.net.who, qp->lid, soft.port, &qp->number);
    if (rc == 0) {
        LIST_INSERT_HEAD(&soft.qps[qp->number % SOFT_BUCKETS], qp, others);
        if (qp->queue->shared) qp->queue->users++;
    }
    pthread_mutex_unlock(&soft.lock);
    if (rc == 0) {
        *made = qp;
        return 0;
    }
    free(qp->own.ring);
    free(qp);
    return rc;
}

uint32_t soft_qp_number(const struct soft_qp *qp) { return qp->number; }

// Requests to this queue pair that are half read lose their place; those that wait for a receive are looked at again.
static void forget_requests(struct soft_qp *qp) {
    struct soft_link *link;
    LIST_FOREACH(link, &soft.links, others) {
        if (link->fd < 0 || link->ours || link->qp != qp) continue;
        if (link->took) soft_request_cut(link);
        link->pieces = link->at = 0;
        link->qp = NULL, link->in.status = IBV_WC_RETRY_EXC_ERR;
        if (link->stalled) soft_request_refuse(link);
    }
}

static void flush_receive(struct soft_qp *qp, uint64_t id) {
    struct ibv_wc wc = {
        .wr_id = id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = qp->number};
    soft_complete(qp->receive, &wc, true);
}

static void flush_receives(struct soft_qp *qp) {
    struct soft_receive r;
    if (qp->torn) flush_receive(qp, qp->torn_receive.id);
    qp->torn = false;
    if (qp->queue->shared) {
        soft.tell.event(qp->of, IBV_EVENT_QP_LAST_WQE_REACHED);
        return;
    }
    while (soft_queue_take(&qp->own, &r)) flush_receive(qp, r.id);
}

void soft_qp_fail(struct soft_qp *qp) {
    if (qp->state == IBV_QPS_ERR) return;
    qp->state = IBV_QPS_ERR;
    if (qp->link != NULL) soft_link_close(qp->link);
    soft_flush_sends(qp);
    forget_requests(qp);
    flush_receives(qp);
}

void soft_qp_fail_all(void) {
    struct soft_qp *qp;
    for (int i = 0; i < SOFT_BUCKETS; i++) LIST_FOREACH(qp, &soft.qps[i], others) soft_qp_fail(qp);
}

// Nothing is told of what was posted, and what has been told but not been polled is taken back.
static void reset(struct soft_qp *qp) {
    struct soft_send *send;
    qp->state = IBV_QPS_RESET; // so that nothing new is taken
    if (qp->link != NULL) soft_link_close(qp->link);
    while ((send = STAILQ_FIRST(&qp->sends)) != NULL) {
        STAILQ_REMOVE_HEAD(&qp->sends, behind);
        soft_send_free(send);
    }
    qp->waiting = 0, qp->doomed = false;
    forget_requests(qp);
    qp->torn = false;
    qp->own.tail = qp->own.head;
    soft_cq_forget(qp->send, qp->number);
    soft_cq_forget(qp->receive, qp->number);
    qp->attr = (struct ibv_qp_attr){0};
}

void soft_qp_free(struct soft_qp *qp) {
    pthread_mutex_lock(&soft.lock);
    if (qp->type == IBV_QPT_UD) soft_link_let_go();
    LIST_REMOVE(qp, others); // before its links are looked at again: it is nobody
    reset(qp);
    if (qp->queue->shared) qp->queue->users--;
    soft.net.release(soft.net.who, qp->number);
    pthread_mutex_unlock(&soft.lock);
    free(qp->own.ring);
    free(qp);
}

// ---- states ----

// What a step must name, by type. Any state may go to RESET and to ERR.
static const struct {
    enum ibv_qp_state from, to;
    int rc, uc, ud;
} steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
     IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, 0},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, 0, 0},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, 0, 0},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, 0, 0},
};

static int check_step(const struct soft_qp *qp, enum ibv_qp_state to, int mask) {
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (steps[i].from != qp->state || steps[i].to != to) continue;
        int must = qp->type == IBV_QPT_RC ? steps[i].rc : qp->type == IBV_QPT_UC ? steps[i].uc : steps[i].ud;
        return (mask & must) == must ? 0 : EINVAL;
    }
    return EINVAL;
}

static int check_values(const struct ibv_qp_attr *a, int mask) {
    bool bad = (mask & IBV_QP_PORT && a->port_num != 1) || (mask & IBV_QP_PKEY_INDEX && a->pkey_index != 0) ||
               (mask & IBV_QP_DEST_QPN && a->dest_qp_num > 0xffffff) ||
               (mask & IBV_QP_MAX_QP_RD_ATOMIC &&
                a->max_rd_atomic > soft_limit("CKPTSOFT_RD_ATOMIC", SOFT_RD_ATOMIC)) ||
               (mask & IBV_QP_MAX_DEST_RD_ATOMIC &&
                a->max_dest_rd_atomic > soft_limit("CKPTSOFT_RD_ATOMIC", SOFT_RD_ATOMIC)) ||
               (mask & IBV_QP_PATH_MTU &&
                (a->path_mtu < IBV_MTU_256 || (int)a->path_mtu > soft_limit("CKPTSOFT_MTU", IBV_MTU_4096)));
    if (mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_RATE_LIMIT)) return EOPNOTSUPP;
    return bad ? EINVAL : 0;
}

static void keep(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask) {
#define KEEP(bit, field) \
    if (mask & (bit)) to->field = a->field
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
    KEEP(IBV_QP_SQ_PSN, sq_psn);
    KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    KEEP(IBV_QP_DEST_QPN, dest_qp_num);
#undef KEEP
}

static void enter(struct soft_qp *qp, enum ibv_qp_state to, bool tell) {
    enum ibv_qp_state from = qp->state;
    if (to == IBV_QPS_RESET) {
        reset(qp);
        return;
    }
    if (to == IBV_QPS_ERR) {
        soft_qp_fail(qp);
        return;
    }
    qp->state = to;
    // Requests that came before it was ready.
    if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) {
        struct soft_link *link;
        LIST_FOREACH(link, &soft.links, others) {
            if (link->fd < 0 || !link->stalled || link->qp != qp) continue;
            link->stalled = false;
            soft_link_watch(link);
            soft_link_in(link);
        }
    }
    if (to == IBV_QPS_RTS && from == IBV_QPS_SQD && qp->link != NULL) soft_link_flush(qp->link);
    if (to == IBV_QPS_SQD && tell && qp->waiting == 0) soft.tell.event(qp->of, IBV_EVENT_SQ_DRAINED);
}

int soft_qp_modify(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask) {
    pthread_mutex_lock(&soft.lock);
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
    int rc = mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state ? EINVAL : check_step(qp, to, mask);
    if (rc == 0) rc = check_values(attr, mask);
    if (rc == 0) {
        keep(&qp->attr, attr, mask);
        if (mask & IBV_QP_STATE)
            enter(qp, to, mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify);
    }
    pthread_mutex_unlock(&soft.lock);
    return rc;
}

void soft_qp_query(struct soft_qp *qp, struct ibv_qp_attr *attr) {
    pthread_mutex_lock(&soft.lock);
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = qp->state;
    attr->cap = qp->cap;
    attr->sq_draining = qp->state == IBV_QPS_SQD && qp->waiting > 0;
    pthread_mutex_unlock(&soft.lock);
}

int soft_qp_receive(struct soft_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    pthread_mutex_lock(&soft.lock);
    int rc = qp->queue->shared || qp->state == IBV_QPS_RESET ? EINVAL : 0;
    if (rc != 0)
        *bad = wr;
    else
        rc = soft_queue_post(qp->queue, wr, bad);
    if (rc == 0 && qp->state == IBV_QPS_ERR) flush_receives(qp);
    pthread_mutex_unlock(&soft.lock);
    return rc;
}
