// SPDX-License-Identifier: Apache-2.0
//
// slots.c: the functions that programs call through a context, since they are inline in verbs.h.
#include "verbs/front/front.h"

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
    return (int)CROSS(V_POLL, (long)v_of(v_cq, q, cq), n, (long)wc);
}

static int arm(struct ibv_cq *cq, int solicited) {
    return (int)CROSS(V_ARM, (long)v_of(v_cq, q, cq), solicited);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    return (int)CROSS(V_SEND, (long)v_of(v_qp, q, qp), (long)wr, (long)bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    return (int)CROSS(V_RECEIVE, (long)v_of(v_qp, q, qp), (long)wr, (long)bad);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    return (int)CROSS(V_SRQ_RECEIVE, (long)v_of(v_srq, s, srq), (long)wr, (long)bad);
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size) {
    struct ibv_port_attr all;
    memset(&all, 0, sizeof all);
    long r = CROSS(V_PORT, (long)front_context(context), port, (long)&all);
    if (r) return (int)r;
    memset(attr, 0, size);
    memcpy(attr, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
    if (input && input->comp_mask) return EINVAL;
    if (size < sizeof(struct ibv_device_attr)) return EINVAL;
    struct ibv_device_attr_ex all;
    memset(&all, 0, sizeof all);
    long r = CROSS(V_DEVICE_EX, (long)front_context(context), (long)&all, sizeof all);
    if (r) return (int)r;
    memset(attr, 0, size);
    memcpy(attr, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

// An empty slot has the inline function give EOPNOTSUPP.
void front_fill(struct verbs_context *v) {
    v->context.ops.poll_cq = poll_cq;
    v->context.ops.req_notify_cq = arm;
    v->context.ops.post_send = post_send;
    v->context.ops.post_recv = post_recv;
    v->context.ops.post_srq_recv = post_srq_recv;
    v->context.ops.alloc_mw = front_alloc_mw;
    v->context.ops.dealloc_mw = front_dealloc_mw;
    v->context.ops.bind_mw = front_bind_mw;
    v->query_port = query_port;
    v->query_device_ex = query_device_ex;
    v->create_qp_ex = front_create_qp_ex;
    v->create_cq_ex = front_create_cq_ex;
}
