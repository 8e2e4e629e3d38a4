// SPDX-License-Identifier: Apache-2.0
//
// qp.c: queue pairs of ids, with completion queues where the program brings none.
#include "verbs/cm/cm.h"

#include <arpa/inet.h>
#include <string.h>

enum {
    RNR_TIMER = 12,   // 0.64 ms
    ACK_TIMEOUT = 18, // 1 s
};

// The way to the peer, as its message tells it.
void cm_ah(const struct cm_id *id, struct ibv_ah_attr *a) {
    const struct cm_message *peer = &id->peer;
    memset(a, 0, sizeof *a);
    a->port_num = id->id.port_num;
    a->dlid = peer->lid;
    if (id->port.link_layer != IBV_LINK_LAYER_ETHERNET && peer->lid &&
        peer->gid.global.subnet_prefix == id->id.route.addr.addr.ibaddr.sgid.global.subnet_prefix)
        return;
    a->is_global = 1;
    a->grh.dgid = peer->gid;
    a->grh.sgid_index = (uint8_t)id->gid_index;
    a->grh.hop_limit = 64;
}

// For a state, by what is known so far: 0, or an error number.
static int attributes(const struct cm_id *id, struct ibv_qp_attr *a, int *mask) {
    enum ibv_qp_state state = a->qp_state;
    bool reliable = id->id.qp_type == IBV_QPT_RC, datagrams = id->id.qp_type == IBV_QPT_UD;
    bool heard = id->peer.kind != 0;
    if (!id->device) return EINVAL;
    memset(a, 0, sizeof *a);
    a->qp_state = state;
    *mask = IBV_QP_STATE;
    switch (state) {
    case IBV_QPS_INIT:
        *mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        a->port_num = id->id.port_num;
        if (datagrams) {
            *mask |= IBV_QP_QKEY;
            a->qkey = RDMA_UDP_QKEY;
            return 0;
        }
        *mask |= IBV_QP_ACCESS_FLAGS;
        if (heard || id->state == CALLS) a->qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
        if (heard && reliable && id->responder_resources)
            a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        return 0;
    case IBV_QPS_RTR:
        if (datagrams) return 0;
        if (!heard) return EINVAL;
        *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        cm_ah(id, &a->ah_attr);
        a->path_mtu = id->peer.mtu < id->port.active_mtu ? (enum ibv_mtu)id->peer.mtu : id->port.active_mtu;
        a->dest_qp_num = id->peer.qp_num;
        a->rq_psn = id->peer.psn;
        if (!reliable) return 0;
        *mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        a->max_dest_rd_atomic = id->responder_resources;
        a->min_rnr_timer = RNR_TIMER;
        return 0;
    case IBV_QPS_RTS:
        *mask |= IBV_QP_SQ_PSN;
        if (datagrams) return 0;
        if (!heard) return EINVAL;
        a->sq_psn = id->psn;
        if (!reliable) return 0;
        *mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        a->timeout = id->ack_timeout ? id->ack_timeout : ACK_TIMEOUT;
        a->retry_cnt = id->retry_count;
        a->rnr_retry = id->rnr_retry_count;
        a->max_rd_atomic = id->initiator_depth;
        return 0;
    default:
        return EINVAL;
    }
}

API int rdma_init_qp_attr(struct rdma_cm_id *p, struct ibv_qp_attr *attr, int *mask) {
    pthread_mutex_lock(&cm_lock);
    int e = attributes(CM_ID(p), attr, mask);
    pthread_mutex_unlock(&cm_lock);
    return cm_result(e);
}

static int step(struct cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state, int responder_resources,
                int initiator_depth) {
    struct ibv_qp_attr a = {.qp_state = state};
    int mask;
    if (rdma_init_qp_attr(&id->id, &a, &mask)) return -1;
    if (responder_resources >= 0) a.max_dest_rd_atomic = (uint8_t)responder_resources;
    if (initiator_depth >= 0) a.max_rd_atomic = (uint8_t)initiator_depth;
    return cm_result(ibv_modify_qp(qp, &a, mask));
}

// From INIT once more: what the peer may do is known only now.
int cm_to_ready(struct cm_id *id, int responder_resources, int initiator_depth) {
    struct ibv_qp *qp = id->id.qp;
    if (!qp) return 0;
    if (step(id, qp, IBV_QPS_INIT, -1, -1)) return -1;
    if (step(id, qp, IBV_QPS_RTR, responder_resources, -1)) return -1;
    return step(id, qp, IBV_QPS_RTS, -1, initiator_depth);
}

int cm_to_error(struct cm_id *id) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
    return id->id.qp ? cm_result(ibv_modify_qp(id->id.qp, &a, IBV_QP_STATE)) : 0;
}

// ---- completion queues of an id ---------------------------------------------------------------------

static void destroy_queues(struct rdma_cm_id *p) {
    if (p->recv_cq) ibv_destroy_cq(p->recv_cq);
    if (p->send_cq && p->send_cq != p->recv_cq) ibv_destroy_cq(p->send_cq);
    if (p->recv_cq_channel) ibv_destroy_comp_channel(p->recv_cq_channel);
    if (p->send_cq_channel && p->send_cq_channel != p->recv_cq_channel)
        ibv_destroy_comp_channel(p->send_cq_channel);
    p->send_cq = p->recv_cq = NULL;
    p->send_cq_channel = p->recv_cq_channel = NULL;
}

static int queue(struct rdma_cm_id *p, uint32_t entries, struct ibv_comp_channel **channel,
                 struct ibv_cq **cq) {
    if (!entries) return 0;
    if (!(*channel = ibv_create_comp_channel(p->verbs))) return -1;
    *cq = ibv_create_cq(p->verbs, (int)entries, p, *channel, 0);
    return *cq ? 0 : -1;
}

API int rdma_create_qp_ex(struct rdma_cm_id *p, struct ibv_qp_init_attr_ex *a) {
    struct cm_id *id = CM_ID(p);
    if (p->qp || !id->device) return cm_fail(EINVAL);
    if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd) {
        a->comp_mask |= IBV_QP_INIT_ATTR_PD;
        a->pd = p->pd;
    }
    if (a->pd->context != p->verbs || (p->recv_cq && a->recv_cq && p->recv_cq != a->recv_cq) ||
        (p->send_cq && a->send_cq && p->send_cq != a->send_cq))
        return cm_fail(EINVAL);
    if (queue(p, a->recv_cq || p->recv_cq ? 0 : a->cap.max_recv_wr, &p->recv_cq_channel, &p->recv_cq) ||
        queue(p, a->send_cq || p->send_cq ? 0 : a->cap.max_send_wr, &p->send_cq_channel, &p->send_cq)) {
        int e = errno;
        destroy_queues(p);
        return cm_fail(e);
    }
    if (!a->send_cq) a->send_cq = p->send_cq;
    if (!a->recv_cq) a->recv_cq = p->recv_cq;
    if (!a->srq) a->srq = p->srq;
    struct ibv_qp *qp = ibv_create_qp_ex(p->verbs, a);
    bool made = qp != NULL;
    if (made) made = !step(id, qp, IBV_QPS_INIT, -1, -1);
    if (made && p->qp_type == IBV_QPT_UD)
        made = !step(id, qp, IBV_QPS_RTR, -1, -1) && !step(id, qp, IBV_QPS_RTS, -1, -1);
    if (!made) {
        int e = errno;
        if (qp) ibv_destroy_qp(qp);
        destroy_queues(p);
        return cm_fail(e);
    }
    p->pd = qp->pd;
    p->qp = qp;
    return 0;
}

API int rdma_create_qp(struct rdma_cm_id *p, struct ibv_pd *pd, struct ibv_qp_init_attr *a) {
    struct ibv_qp_init_attr_ex all = {.qp_context = a->qp_context,
                                      .send_cq = a->send_cq,
                                      .recv_cq = a->recv_cq,
                                      .srq = a->srq,
                                      .cap = a->cap,
                                      .qp_type = a->qp_type,
                                      .sq_sig_all = a->sq_sig_all,
                                      .comp_mask = IBV_QP_INIT_ATTR_PD,
                                      .pd = pd ? pd : p->pd};
    int r = rdma_create_qp_ex(p, &all);
    a->send_cq = all.send_cq;
    a->recv_cq = all.recv_cq;
    a->srq = all.srq;
    a->cap = all.cap;
    return r;
}

API void rdma_destroy_qp(struct rdma_cm_id *p) {
    ibv_destroy_qp(p->qp);
    p->qp = NULL;
    destroy_queues(p);
}

API int rdma_create_srq(struct rdma_cm_id *p, struct ibv_pd *pd, struct ibv_srq_init_attr *a) {
    if (!pd) pd = p->pd;
    if (!pd) return cm_fail(EINVAL);
    struct ibv_srq *srq = ibv_create_srq(pd, a);
    if (!srq) return -1;
    if (!p->pd) p->pd = pd;
    p->srq = srq;
    return 0;
}

API int rdma_create_srq_ex(struct rdma_cm_id *p, struct ibv_srq_init_attr_ex *a) {
    if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE)) return cm_fail(EINVAL);
    if (a->srq_type != IBV_SRQT_BASIC) return cm_fail(EOPNOTSUPP);
    struct ibv_srq_init_attr plain = {.srq_context = a->srq_context, .attr = a->attr};
    int r = rdma_create_srq(p, a->comp_mask & IBV_SRQ_INIT_ATTR_PD ? a->pd : NULL, &plain);
    a->attr = plain.attr;
    return r;
}

API void rdma_destroy_srq(struct rdma_cm_id *p) {
    ibv_destroy_srq(p->srq);
    p->srq = NULL;
    destroy_queues(p);
}
