// SPDX-License-Identifier: Apache-2.0
//
// verbsheld: what a program that holds objects of InfiniBand pays when it is saved and when it is continued.
//
//     verbsheld memory MIB plain|registered   saved twice: how long MPIX_Checkpoint takes
//     verbsheld pairs N                       saved once; continued, it says the moment of its first instruction
//     verbsheld clock COMMAND...              says the moment, and becomes the command
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"
#include "mpix_checkpoint.h"

enum {
    REACH =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_port_attr port;
static union ibv_gid gid;

static void open_device(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    DEMAND(list != NULL && list[0] != NULL);
    DEMAND((context = ibv_open_device(list[0])) != NULL && ibv_query_port(context, 1, &port) == 0);
    DEMAND(ibv_query_gid(context, 1, 0, &gid) == 0);
    DEMAND((pd = ibv_alloc_pd(context)) != NULL && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)) != NULL);
}

static void say_moment(const char *name) {
    printf("moment\t%s\t%lld\n", name, (long long)clock_ns());
    fflush(stdout);
}

static void memory(size_t mib, int registered) {
    size_t bytes = mib << 20;
    open_device();
    if (mib > 0) {
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        DEMAND(p != MAP_FAILED && madvise(p, bytes, MADV_NOHUGEPAGE) == 0);
        for (size_t i = 0; i < bytes; i += 4096) memset(p + i, (int)(1 + i / 4096 % 251), 4096);
        DEMAND(!registered || ibv_reg_mr(pd, p, bytes, REACH) != NULL);
    }
    int64_t least = 0, sum = 0;
    for (int i = 0; i < 2; i++) {
        MPIX_CR_state_t state;
        int64_t before = clock_ns();
        DEMAND(MPIX_Checkpoint(&state) == 0 && state == MPIX_CR_STATE_CHECKPOINT);
        int64_t took = clock_ns() - before;
        sum += took;
        if (i == 0 || took < least) least = took;
    }
    printf("ns\tMPIX_Checkpoint\t%lld\t%lld\t%lld\n", (long long)sum / 2, (long long)least,
           (long long)(sum - least));
}

static struct ibv_qp *make(void) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REACH};
    DEMAND(qp != NULL);
    DEMAND(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t to) {
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

// One is connected with itself, others two by two.
static void pairs(int n) {
    open_device();
    struct ibv_qp *former = NULL;
    for (int i = 0; i < n; i++) {
        struct ibv_qp *qp = make();
        if (n == 1) connect_to(qp, qp->qp_num);
        if (i % 2) connect_to(qp, former->qp_num), connect_to(former, qp->qp_num);
        former = qp;
    }
    MPIX_CR_state_t state;
    DEMAND(MPIX_Checkpoint(&state) == 0);
    if (state == MPIX_CR_STATE_RESTART) {
        say_moment("first instruction");
        _exit(0);
    }
    printf("took\tsaved\t1\n");
}

int main(int argc, char **argv) {
    DEMAND(argc > 2);
    if (strcmp(argv[1], "clock") == 0) {
        say_moment("start");
        execvp(argv[2], argv + 2);
        DEMAND(!"execvp");
    }
    if (strcmp(argv[1], "pairs") == 0) {
        pairs(atoi(argv[2]));
    } else {
        DEMAND(argc == 4 && strcmp(argv[1], "memory") == 0);
        memory((size_t)atol(argv[2]), strcmp(argv[3], "registered") == 0);
    }
    return 0;
}
