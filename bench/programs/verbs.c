// SPDX-License-Identifier: Apache-2.0
//
// verbs: what does a call of libibverbs cost natively and under ckptrun, and what a round trip?
//
// With "trips" it asks what tcp.c asks of plain sockets, with "stream" for bandwidth alone. Two queue pairs of one
// process are connected with each other. Posting a receive and taking a completion that is there are calls that
// need no network: those tell what the front adds. The others go once through the adapter.
#include "verbs.h"

enum { MANY = 64, LARGE = 64 << 10, WINDOW = 16 };

static struct ibv_mr *mr;
static _Alignas(4096) char memory[2 * LARGE];

static void post_receive(struct ibv_qp *qp, uint32_t length) {
    struct ibv_sge s = {(uintptr_t)memory + LARGE, length, mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;
    DEMAND(ibv_post_recv(qp, &wr, &bad) == 0);
}

// Receives are posted, and flushed by an error of the queue pair: no other side is needed.
static void calls(struct measure *m, const char *what, int polls) {
    struct ibv_qp *qp = make(MANY);
    struct ibv_wc wc;
    for (int batch = -m->batches / 10; batch < m->batches; batch++) {
        struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
        ready(qp);
        uint64_t from = ticks();
        for (int i = 0; i < MANY; i++) post_receive(qp, 8);
        uint64_t to = ticks();
        DEMAND(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
        if (polls) from = ticks();
        for (int i = 0; i < MANY; i++) DEMAND(ibv_poll_cq(cq, 1, &wc) == 1);
        if (polls) to = ticks();
        if (batch >= 0) m->batch[batch] = (double)(to - from) / MANY;
        a.qp_state = IBV_QPS_RESET;
        DEMAND(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
    }
    measure_report(m, what);
    DEMAND(ibv_destroy_qp(qp) == 0);
}

static void trip(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t length) {
    struct ibv_sge s = {(uintptr_t)memory, length, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    struct ibv_wc wc;
    int n;
    if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
        wr.wr.atomic.remote_addr = (uintptr_t)memory + LARGE, wr.wr.atomic.rkey = mr->rkey;
    else
        wr.wr.rdma.remote_addr = (uintptr_t)memory + LARGE, wr.wr.rdma.rkey = mr->rkey;
    DEMAND(ibv_post_send(qp, &wr, &bad) == 0);
    for (int left = op == IBV_WR_SEND ? 2 : 1; left > 0; left -= n) {
        n = ibv_poll_cq(cq, 1, &wc);
        DEMAND(n >= 0 && (n == 0 || wc.status == IBV_WC_SUCCESS));
    }
}

// Bandwidth: large writes, so many of them under way all the time.
static void stream(struct measure *m, struct ibv_qp *qp, const char *what) {
    struct ibv_sge s = {(uintptr_t)memory, LARGE, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &s,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)memory + LARGE, mr->rkey}},
                       *bad;
    struct ibv_wc wc[WINDOW];
    int under_way = 0;
    for (int batch = -m->batches / 10; batch <= m->batches; batch++) {
        uint64_t from = ticks();
        for (int ended = 0, n; ended < MANY; ended += n) {
            for (; under_way < WINDOW; under_way++) DEMAND(ibv_post_send(qp, &wr, &bad) == 0);
            DEMAND((n = ibv_poll_cq(cq, WINDOW, wc)) >= 0);
            for (int i = 0; i < n; i++) DEMAND(wc[i].status == IBV_WC_SUCCESS);
            under_way -= n;
        }
        if (batch >= 0 && batch < m->batches) m->batch[batch] = (double)(ticks() - from) / MANY;
    }
    for (int n; under_way > 0; under_way -= n) DEMAND((n = ibv_poll_cq(cq, WINDOW, wc)) >= 0);
    measure_report(m, what);
}

int main(int argc, char **argv) {
    struct measure m = measure_begin(argc, argv);
    open_device(2 * MANY);
    mr = ibv_reg_mr(pd, memory, sizeof memory, REACH);
    DEMAND(mr != NULL);

    struct ibv_qp *a = make(MANY), *b = make(MANY);
    ready(a), ready(b);
    connect_to(a, b->qp_num), connect_to(b, a->qp_num);
    if (argc > 2 && strcmp(argv[2], "trips") == 0) {
        MEASURE(&m, "8 bytes", 4, trip(a, IBV_WR_RDMA_WRITE, 8));
        MEASURE(&m, "64 KiB", 1, trip(a, IBV_WR_RDMA_WRITE, LARGE));
        return 0;
    }
    if (argc > 2 && strcmp(argv[2], "stream") == 0) {
        stream(&m, a, "write of 64 KiB, 16 under way");
        return 0;
    }
    calls(&m, "post a receive", 0);
    calls(&m, "poll a completion", 1);
    MEASURE(&m, "send of 8 bytes", 4, post_receive(b, 8); trip(a, IBV_WR_SEND, 8));
    MEASURE(&m, "write of 8 bytes", 4, trip(a, IBV_WR_RDMA_WRITE, 8));
    MEASURE(&m, "read of 8 bytes", 4, trip(a, IBV_WR_RDMA_READ, 8));
    MEASURE(&m, "atomic addition", 4, trip(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 8));
    MEASURE(&m, "send of 64 KiB", 1, post_receive(b, LARGE); trip(a, IBV_WR_SEND, LARGE));
    MEASURE(&m, "write of 64 KiB", 1, trip(a, IBV_WR_RDMA_WRITE, LARGE));
    MEASURE(&m, "read of 64 KiB", 1, trip(a, IBV_WR_RDMA_READ, LARGE));
    stream(&m, a, "write of 64 KiB, 16 under way");
    return 0;
}
