// SPDX-License-Identifier: Apache-2.0
//
// pairs.c: queue pairs and address handles of a context.
#include <errno.h>
#include <stdlib.h>

#include <rdma/ib_user_verbs.h>

#include "verbs/soft/provider/provider.h"

static void fill(struct provider_qp *qp, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr) {
    struct ibv_qp *q = &qp->qp.qp;
    q->context = pd->context, q->qp_context = attr->qp_context, q->pd = pd;
    q->send_cq = attr->send_cq, q->recv_cq = attr->recv_cq, q->srq = attr->srq;
    q->handle = q->qp_num = soft_qp_number(qp->soft);
    q->state = IBV_QPS_RESET, q->qp_type = attr->qp_type;
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->cond, NULL);
}

static struct provider_qp *create(struct ibv_pd *pd, const struct ibv_qp_init_attr *attr) {
    struct provider_qp *qp = calloc(1, sizeof *qp);
    int rc = qp == NULL ? ENOMEM : attr->send_cq == NULL || attr->recv_cq == NULL ? EINVAL : 0;
    if (rc == 0) {
        struct soft_qp_init init = {.type = attr->qp_type,
                                    .pd = pd,
                                    .lid = provider_of(pd->context)->lid,
                                    .send = ((struct provider_cq *)attr->send_cq)->soft,
                                    .receive = ((struct provider_cq *)attr->recv_cq)->soft,
                                    .srq =
                                        attr->srq != NULL ? ((struct provider_srq *)attr->srq)->soft : NULL,
                                    .cap = attr->cap,
                                    .all_signaled = attr->sq_sig_all,
                                    .of = qp};
        qp->qp.qp.context = pd->context;
        rc = soft_qp_new(&init, &qp->soft);
    }
    if (rc != 0) {
        free(qp);
        errno = rc;
        return NULL;
    }
    qp->init = *attr;
    fill(qp, pd, attr);
    return qp;
}

struct ibv_qp *provider_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    struct provider_qp *qp = create(pd, attr);
    return qp == NULL ? NULL : &qp->qp.qp;
}

enum {
    SENDS = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
            IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
            IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV |
            IBV_QP_EX_WITH_SEND_WITH_INV
};

struct ibv_qp *provider_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr) {
    bool sends = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    (void)context;
    if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) ||
        attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
                                      IBV_QP_INIT_ATTR_CREATE_FLAGS) ||
        (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags != 0) ||
        (sends && attr->send_ops_flags & ~(uint64_t)SENDS)) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct ibv_qp_init_attr plain = {.qp_context = attr->qp_context,
                                     .send_cq = attr->send_cq,
                                     .recv_cq = attr->recv_cq,
                                     .srq = attr->srq,
                                     .cap = attr->cap,
                                     .qp_type = attr->qp_type,
                                     .sq_sig_all = attr->sq_sig_all};
    struct provider_qp *qp = create(attr->pd, &plain);
    if (qp == NULL) return NULL;
    if (sends) {
        provider_wr_functions(&qp->qp.ex);
        qp->qp.has |= ABI_QP_EX;
    }
    return &qp->qp.qp;
}

int provider_destroy_qp(struct ibv_qp *qp) {
    struct provider_qp *q = (struct provider_qp *)qp;
    soft_qp_free(q->soft);
    q->events_sent -= provider_forget(provider_of(qp->context)->events, (uintptr_t)qp,
                                      sizeof(struct ib_uverbs_async_event_desc));
    pthread_mutex_lock(&qp->mutex);
    while (qp->events_completed != q->events_sent) pthread_cond_wait(&qp->cond, &qp->mutex);
    pthread_mutex_unlock(&qp->mutex);
    free(q->list);
    free(q);
    return 0;
}

// On Ethernet there is no way without gids.
static bool is_way(struct ibv_context *context, const struct ibv_ah_attr *way) {
    const struct provider_context *c = provider_of(context);
    return !c->ethernet || c->gids == 0 || (way->is_global && way->grh.sgid_index < c->gids);
}

int provider_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    if (mask & IBV_QP_AV && !is_way(qp->context, &attr->ah_attr)) return EINVAL;
    return soft_qp_modify(((struct provider_qp *)qp)->soft, attr, mask);
}

int provider_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
    struct provider_qp *q = (struct provider_qp *)qp;
    (void)mask;
    soft_qp_query(q->soft, attr);
    *init = q->init;
    qp->state = attr->qp_state; // it may have failed by itself
    return 0;
}

int provider_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    return soft_qp_receive(((struct provider_qp *)qp)->soft, wr, bad);
}

// ---- datagrams ----

struct provider_ah {
    struct ibv_ah ah;
    struct ibv_ah_attr way;
};

struct ibv_ah *provider_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
    struct provider_ah *ah = calloc(1, sizeof *ah);
    if (ah == NULL || attr->port_num != 1 || !is_way(pd->context, attr)) {
        errno = ah == NULL ? ENOMEM : EINVAL;
        free(ah);
        return NULL;
    }
    ah->ah.context = pd->context, ah->ah.pd = pd;
    ah->way = *attr;
    return &ah->ah;
}

int provider_destroy_ah(struct ibv_ah *ah) {
    free(ah);
    return 0;
}

static const struct ibv_ah_attr *route(struct ibv_ah *ah) { return &((struct provider_ah *)ah)->way; }

int provider_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    return soft_qp_send(((struct provider_qp *)qp)->soft, wr, bad, route);
}
