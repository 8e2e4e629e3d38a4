// SPDX-License-Identifier: Apache-2.0
//
// verbs.h: a device of InfiniBand, and queue pairs on it that are connected within the process.
#ifndef BENCH_VERBS_H
#define BENCH_VERBS_H

#include <infiniband/verbs.h>

#include "measure.h"

enum {
    REACH =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_port_attr port;
static union ibv_gid gid;

static inline void open_device(int completions) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    DEMAND(list != NULL && list[0] != NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    DEMAND(context != NULL && ibv_query_port(context, 1, &port) == 0);
    DEMAND(ibv_query_gid(context, 1, 0, &gid) == 0);
    DEMAND((pd = ibv_alloc_pd(context)) != NULL);
    DEMAND((cq = ibv_create_cq(context, completions, NULL, NULL, 0)) != NULL);
}

static inline struct ibv_qp *make(uint32_t depth) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    DEMAND(qp != NULL);
    return qp;
}

static inline void ready(struct ibv_qp *qp) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REACH};
    DEMAND(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

static inline void connect_to(struct ibv_qp *qp, uint32_t to) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = to,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 12};
    a.ah_attr = (struct ibv_ah_attr){.dlid = port.lid, .port_num = 1};
    if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
        a.ah_attr.is_global = 1, a.ah_attr.grh.dgid = gid, a.ah_attr.grh.hop_limit = 64;
    DEMAND(ibv_modify_qp(qp, &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    DEMAND(ibv_modify_qp(qp, &a,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

#endif
