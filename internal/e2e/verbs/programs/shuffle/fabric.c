// SPDX-License-Identifier: Apache-2.0
//
// fabric.c: the verbs objects of a rank.
#include <errno.h>
#include <string.h>

#include "shuffle.h"

static void *have(void *made, const char *what) {
    if (made == NULL) wrong("%s: %s", what, strerror(errno));
    return made;
}

static void good(int rc, const char *what) {
    if (rc != 0) wrong("%s: %s", what, strerror(rc));
}

enum {
    REACH =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

static struct ibv_qp *make_qp(struct fabric *f, enum ibv_qp_type type) {
    struct ibv_qp_init_attr init = {.send_cq = f->cq,
                                    .recv_cq = f->cq,
                                    .srq = type == IBV_QPT_RC ? f->srq : NULL,
                                    .cap = {.max_send_wr = SLOTS,
                                            .max_recv_wr = RECEIVES,
                                            .max_send_sge = 2,
                                            .max_recv_sge = 2,
                                            .max_inline_data = 128},
                                    .qp_type = type};
    struct ibv_qp *qp = have(ibv_create_qp(f->pd, &init), "create_qp");
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REACH, .qkey = 0x1234};
    if (type == IBV_QPT_UC) a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    good(ibv_modify_qp(qp, &a,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
         "modify_qp INIT");
    return qp;
}

void fabric_receive(struct fabric *f, int peer, enum transport t, int at) {
    bool shared = t == RC && f->srq != NULL;
    int queue = t == UD ? 2 * RANKS : t == UC ? RANKS + peer : shared ? 0 : peer;
    char *to = f->memory->in[queue][at];
    // In two pieces.
    struct ibv_sge piece[2] = {{(uintptr_t)to, 100, f->mr->lkey},
                               {(uintptr_t)to + 100, LONGEST + GRH - 100, f->mr->lkey}};
    struct ibv_recv_wr wr = {.wr_id = id_of(true, t, shared ? 0 : peer, (uint32_t)at),
                             .sg_list = piece,
                             .num_sge = 2},
                       *bad;
    int rc = shared ? ibv_post_srq_recv(f->srq, &wr, &bad)
                    : ibv_post_recv(t == UD ? f->ud : f->qp[peer][t], &wr, &bad);
    good(rc, "post_recv");
}

void fabric_open(struct fabric *f) {
    int n;
    struct ibv_device **list = ibv_get_device_list(&n);
    if (list == NULL || n == 0) wrong("no InfiniBand device");
    f->context = have(ibv_open_device(list[0]), "open_device");
    ibv_free_device_list(list);
    f->pd = have(ibv_alloc_pd(f->context), "alloc_pd");
    f->memory = have(aligned_alloc(4096, (sizeof *f->memory + 4095) / 4096 * 4096), "memory");
    memset(f->memory, 0, sizeof *f->memory);
    f->mr = have(ibv_reg_mr(f->pd, f->memory, sizeof *f->memory, REACH), "reg_mr");
    if (f->events) f->channel = have(ibv_create_comp_channel(f->context), "create_comp_channel");
    f->cq = have(ibv_create_cq(f->context, (3 * f->ranks + 1) * (RECEIVES + SLOTS), f, f->channel, 0),
                 "create_cq");
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = RECEIVES, .max_sge = 2}};
    if (f->shared) f->srq = have(ibv_create_srq(f->pd, &srq), "create_srq");
    struct ibv_port_attr port;
    good(ibv_query_port(f->context, 1, &port), "query_port");
    f->mine = (struct card){.rkey = f->mr->rkey, .memory = (uintptr_t)f->memory, .lid = port.lid};
    f->mine.global = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (ibv_query_gid(f->context, 1, 0, &f->mine.gid) != 0) wrong("query_gid: %s", strerror(errno));
    for (int p = 0; p < f->ranks; p++) {
        f->qp[p][RC] = make_qp(f, IBV_QPT_RC), f->qp[p][UC] = make_qp(f, IBV_QPT_UC);
        f->mine.rc[p] = f->qp[p][RC]->qp_num, f->mine.uc[p] = f->qp[p][UC]->qp_num;
    }
    f->ud = make_qp(f, IBV_QPT_UD);
    f->mine.ud = f->ud->qp_num;
    for (int p = 0; p < f->ranks; p++)
        for (int i = 0; i < RECEIVES; i++) {
            if (p == 0 || f->srq == NULL) fabric_receive(f, p, RC, i);
            fabric_receive(f, p, UC, i);
        }
    for (int i = 0; i < RECEIVES; i++) fabric_receive(f, 0, UD, i);
}

static struct ibv_ah_attr way_to(const struct card *card) {
    struct ibv_ah_attr way = {.dlid = card->lid, .port_num = 1, .is_global = card->global};
    way.grh.dgid = card->gid, way.grh.hop_limit = 64;
    return way;
}

static void to_rts(struct ibv_qp *qp, const struct card *card, uint32_t number) {
    bool rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = number,
                            .max_dest_rd_atomic = 4,
                            .min_rnr_timer = 12};
    a.ah_attr = way_to(card);
    int mask = IBV_QP_STATE;
    if (!ud) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (rc) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    good(ibv_modify_qp(qp, &a, mask), "modify_qp RTR");
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (rc) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    good(ibv_modify_qp(qp, &a, mask), "modify_qp RTS");
}

void fabric_connect(struct fabric *f) {
    for (int p = 0; p < f->ranks; p++) {
        to_rts(f->qp[p][RC], &f->card[p], f->card[p].rc[f->rank]);
        to_rts(f->qp[p][UC], &f->card[p], f->card[p].uc[f->rank]);
        struct ibv_ah_attr a = way_to(&f->card[p]);
        f->ah[p] = have(ibv_create_ah(f->pd, &a), "create_ah");
    }
    to_rts(f->ud, &f->mine, 0);
}

void fabric_close(struct fabric *f) {
    for (int p = 0; p < f->ranks; p++) {
        good(ibv_destroy_qp(f->qp[p][RC]), "destroy_qp");
        good(ibv_destroy_qp(f->qp[p][UC]), "destroy_qp");
        good(ibv_destroy_ah(f->ah[p]), "destroy_ah");
    }
    good(ibv_destroy_qp(f->ud), "destroy_qp");
    if (f->srq != NULL) good(ibv_destroy_srq(f->srq), "destroy_srq");
    good(ibv_destroy_cq(f->cq), "destroy_cq");
    if (f->channel != NULL) good(ibv_destroy_comp_channel(f->channel), "destroy_comp_channel");
    good(ibv_dereg_mr(f->mr), "dereg_mr");
    good(ibv_dealloc_pd(f->pd), "dealloc_pd");
    good(ibv_close_device(f->context), "close_device");
    free(f->memory);
}
