// SPDX-License-Identifier: Apache-2.0
//
// qp.c: queue pairs, shared receive queues, address handles.
#include "verbs/front/front.h"
#include "verbs/route.h"

#include <stdbool.h>

static uint32_t power_of_two(uint32_t n) {
    uint32_t p = 1;
    while (p < n) p *= 2;
    return p;
}

enum { MOST = 1 << 20 }; // of anything in a queue

struct v_qp *front_qp(struct ibv_pd *pd, struct ibv_qp_init_attr_ex *a, int ex) {
    const struct ibv_qp_cap *cap = &a->cap;
    if (a->qp_type != IBV_QPT_RC && a->qp_type != IBV_QPT_UC && a->qp_type != IBV_QPT_UD)
        return FAILED(EOPNOTSUPP, NULL);
    if (!a->send_cq || !a->recv_cq || cap->max_send_wr > MOST || cap->max_recv_wr > MOST ||
        cap->max_send_sge > 1024 || cap->max_recv_sge > 1024)
        return FAILED(EINVAL, NULL);
    struct v_qp *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    q->init = (struct ibv_qp_init_attr){a->qp_context, a->send_cq, a->recv_cq,   a->srq,
                                        a->cap,        a->qp_type, a->sq_sig_all};
    q->ex = (uint32_t)ex;
    q->send_cq = v_of(v_cq, q, a->send_cq);
    q->recv_cq = v_of(v_cq, q, a->recv_cq);
    q->srq = a->srq ? v_of(v_srq, s, a->srq) : NULL;
    q->peer = V_PEER_NONE;
    q->state = IBV_QPS_RESET;
    // Two more than the program may post: for probes (back/drain.c).
    uint32_t sends = power_of_two(cap->max_send_wr + 4);
    q->send_mask = sends - 1;
    q->send = calloc(sends, sizeof *q->send);
    q->receive_slots = a->srq ? 0 : cap->max_recv_wr;
    q->receive = calloc(q->receive_slots + 1, v_receive_bytes(cap->max_recv_sge));
    q->q.context = pd->context;
    q->q.qp_context = a->qp_context;
    q->q.pd = pd;
    q->q.send_cq = a->send_cq;
    q->q.recv_cq = a->recv_cq;
    q->q.srq = a->srq;
    q->q.state = IBV_QPS_RESET;
    q->q.qp_type = a->qp_type;
    pthread_mutex_init(&q->q.mutex, NULL);
    pthread_cond_init(&q->q.cond, NULL);
    long r = q->send && q->receive ? 0 : ENOMEM;
    if (!r && ex) r = front_build(q);
    if (!r) r = CROSS(V_QP, (long)q);
    if (r) {
        free(q->send);
        free(q->receive);
        free(q->build);
        return FAILED(r, q);
    }
    a->cap = q->init.cap;
    return q;
}

API struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a) {
    struct ibv_qp_init_attr_ex all = {.qp_context = a->qp_context,
                                      .send_cq = a->send_cq,
                                      .recv_cq = a->recv_cq,
                                      .srq = a->srq,
                                      .cap = a->cap,
                                      .qp_type = a->qp_type,
                                      .sq_sig_all = a->sq_sig_all};
    struct v_qp *q = front_qp(pd, &all, 0);
    if (!q) return NULL;
    a->cap = all.cap;
    return &q->q;
}

struct ibv_qp *front_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *a) {
    (void)context;
    const uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                         IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                         IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                         IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
    if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd) return FAILED(EINVAL, NULL);
    int ex = (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    if (a->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
                                   IBV_QP_INIT_ATTR_CREATE_FLAGS) ||
        (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags) || (ex && a->send_ops_flags & ~ops))
        return FAILED(EOPNOTSUPP, NULL);
    struct v_qp *q = front_qp(a->pd, a, ex);
    return q ? &q->q : NULL;
}

API int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    return (int)CROSS(V_QP_MODIFY, (long)v_of(v_qp, q, qp), (long)attr, mask);
}

API int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
    return (int)CROSS(V_QP_QUERY, (long)v_of(v_qp, q, qp), (long)attr, mask, (long)init);
}

API int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags) {
    return (void)qp, (void)op, (void)flags, 0;
}

API int ibv_destroy_qp(struct ibv_qp *qp) {
    struct v_qp *q = v_of(v_qp, q, qp);
    long r = CROSS(V_QP_END, (long)q);
    if (r) return (int)r;
    front_given_back((struct v_owed){&qp->events_completed, &qp->mutex, &qp->cond});
    free(q->send);
    free(q->receive);
    free(q->build);
    free(q);
    return 0;
}

API int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    struct v_multicast *m = calloc(1, sizeof *m);
    if (!m) return ENOMEM;
    m->qp = v_of(v_qp, q, qp);
    m->gid = *gid;
    m->lid = lid;
    long r = CROSS(V_MULTICAST, (long)m, 1, 0);
    if (r) free(m);
    return (int)r;
}

API int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    struct v_multicast one = {.qp = v_of(v_qp, q, qp), .gid = *gid, .lid = lid}, *found = NULL;
    long r = CROSS(V_MULTICAST, (long)&one, 0, (long)&found);
    if (!r) free(found);
    return (int)r;
}

API int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece) {
    (void)qp;
    if (ece->comp_mask) return EINVAL;
    ece->vendor_id = ece->options = 0;
    return 0;
}

API int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece) {
    (void)qp;
    return ece->vendor_id ? EOPNOTSUPP : 0;
}

// ---- shared receive queues -------------------------------------------------------------------------

API struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a) {
    if (!a->attr.max_wr || a->attr.max_wr > MOST || a->attr.max_sge > 1024) return FAILED(EINVAL, NULL);
    struct v_srq *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->attr = a->attr;
    s->attr.srq_limit = 0;
    s->slots = calloc(a->attr.max_wr, v_receive_bytes(a->attr.max_sge));
    if (!s->slots) return FAILED(ENOMEM, s);
    s->s.context = pd->context;
    s->s.srq_context = a->srq_context;
    s->s.pd = pd;
    pthread_mutex_init(&s->s.mutex, NULL);
    pthread_cond_init(&s->s.cond, NULL);
    long r = CROSS(V_SRQ, (long)s);
    if (r) {
        free(s->slots);
        return FAILED(r, s);
    }
    return &s->s;
}

API int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) {
    if (mask & IBV_SRQ_MAX_WR) return EOPNOTSUPP;
    return (int)CROSS(V_SRQ_MODIFY, (long)v_of(v_srq, s, srq), (long)attr, mask);
}

API int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) {
    return (int)CROSS(V_SRQ_QUERY, (long)v_of(v_srq, s, srq), (long)attr);
}

API int ibv_destroy_srq(struct ibv_srq *srq) {
    struct v_srq *s = v_of(v_srq, s, srq);
    long r = CROSS(V_SRQ_END, (long)s);
    if (r) return (int)r;
    front_given_back((struct v_owed){&srq->events_completed, &srq->mutex, &srq->cond});
    free(s->slots);
    free(s);
    return 0;
}

// ---- address handles -------------------------------------------------------------------------------

API struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
    struct v_ah *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->attr = *attr;
    h->a.context = pd->context;
    h->a.pd = pd;
    long r = CROSS(V_AH, (long)h);
    return r ? FAILED(r, h) : &h->a;
}

API int ibv_destroy_ah(struct ibv_ah *ah) {
    long r = CROSS(V_AH_END, (long)v_of(v_ah, a, ah));
    if (!r) free(v_of(v_ah, a, ah));
    return (int)r;
}

// Where a gid stands.  On Ethernet it is there for each version of RoCE; after a restart elsewhere that may be another.
static int index_of(struct ibv_context *context, uint8_t port, const union ibv_gid *gid, bool routed) {
    union ibv_gid one;
    struct ibv_gid_entry e;
    int found = -1;
    for (int i = 0; !ibv_query_gid(context, port, i, &one); i++) {
        if (memcmp(&one, gid, sizeof one)) continue;
        if (found < 0) found = i;
        if (!ibv_query_gid_ex(context, port, (uint32_t)i, &e, 0) &&
            (e.gid_type == IBV_GID_TYPE_ROCE_V2) == routed)
            return i;
    }
    return found;
}

// The sender of a message is where the reply goes: the header before it has the addresses of both.
API int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
                            struct ibv_ah_attr *a) {
    memset(a, 0, sizeof *a);
    a->dlid = wc->slid;
    a->sl = wc->sl;
    a->src_path_bits = wc->dlid_path_bits;
    a->port_num = port;
    if (!(wc->wc_flags & IBV_WC_GRH)) return 0;
    a->is_global = 1;
    union ibv_gid own;
    struct iphdr ip;
    bool routed = true;
    if (route_ipv4(grh, &ip)) {
        own = route_gid(ip.daddr);
        a->grh.dgid = route_gid(ip.saddr);
        a->grh.traffic_class = ip.tos;
        a->grh.hop_limit = ip.ttl;
    } else {
        uint32_t flow = ntohl(grh->version_tclass_flow);
        own = grh->dgid;
        a->grh.dgid = grh->sgid;
        a->grh.flow_label = flow & 0xfffff;
        a->grh.traffic_class = (flow >> 20) & 0xff;
        a->grh.hop_limit = 0xff;
        routed = grh->next_hdr == IPPROTO_UDP;
    }
    int i = index_of(context, port, &own, routed);
    if (i < 0) return -1;
    a->grh.sgid_index = (uint8_t)i;
    return 0;
}

API struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
                                         uint8_t port) {
    struct ibv_ah_attr a;
    return ibv_init_ah_from_wc(pd->context, port, wc, grh, &a) ? NULL : ibv_create_ah(pd, &a);
}

API int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[6],
                                    uint16_t *vid) {
    (void)context, (void)attr, (void)mac, (void)vid;
    errno = EOPNOTSUPP;
    return -1;
}
