// SPDX-License-Identifier: Apache-2.0
//
// cases.c: what an adapter says of mistakes, by two queue pairs of one process. Each line of the output is a case
// and what came of it; the test knows what an adapter must say.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint16_t lid;
static bool global; // peers are found by gid
static union ibv_gid gid;
static _Alignas(4096) char memory[1 << 16];

enum {
    REACH =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

static _Noreturn void stop(const char *what, int rc) {
    fprintf(stderr, "cases: %s: %s\n", what, strerror(rc));
    exit(1);
}

static void *have(void *made, const char *what) {
    if (made == NULL) stop(what, errno);
    return made;
}

static void good(int rc, const char *what) {
    if (rc != 0) stop(what, rc);
}

// ---- two queue pairs ----

struct pair {
    struct ibv_qp *a, *b;
};

static struct ibv_qp *make(enum ibv_qp_type type, struct ibv_srq *srq) {
    struct ibv_qp_init_attr init = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .srq = srq,
                                    .qp_type = type,
                                    .cap = {.max_send_wr = 64,
                                            .max_recv_wr = 8,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 64}};
    struct ibv_qp *qp = have(ibv_create_qp(pd, &init), "create_qp");
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REACH};
    good(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    return qp;
}

static void ready(struct ibv_qp *qp, uint16_t to_lid, uint32_t to, uint8_t rnr_retry, uint8_t timer) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = to,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = timer,
                            .ah_attr = {.dlid = to_lid, .port_num = 1, .is_global = global}};
    a.ah_attr.grh.dgid = gid, a.ah_attr.grh.hop_limit = 64;
    good(ibv_modify_qp(qp, &a,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "RTR");
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 1, .rnr_retry = rnr_retry, .max_rd_atomic = 1};
    good(ibv_modify_qp(qp, &a,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_MAX_QP_RD_ATOMIC),
         "RTS");
}

static struct pair open_pair(uint8_t rnr_retry, struct ibv_srq *srq) {
    struct pair p = {make(IBV_QPT_RC, NULL), make(IBV_QPT_RC, srq)};
    ready(p.a, lid, p.b->qp_num, rnr_retry, 1);
    ready(p.b, lid, p.a->qp_num, rnr_retry, 1);
    return p;
}

static void close_pair(struct pair p) {
    struct ibv_wc wc;
    good(ibv_destroy_qp(p.a), "destroy_qp");
    good(ibv_destroy_qp(p.b), "destroy_qp");
    while (ibv_poll_cq(cq, 1, &wc) > 0) continue;
}

static int receive(struct ibv_qp *qp, uint64_t id, size_t length) {
    struct ibv_sge s = {(uintptr_t)memory + 8192, (uint32_t)length, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &s, .num_sge = 1}, *bad;
    return ibv_post_recv(qp, &wr, &bad);
}

static int request(struct ibv_qp *qp, uint64_t id, enum ibv_wr_opcode op, size_t length, uint32_t lkey,
                   uint64_t at, uint32_t rkey, int flags) {
    struct ibv_sge s = {(uintptr_t)memory, (uint32_t)length, lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &s,
                             .num_sge = 1,
                             .opcode = op,
                             .send_flags = (unsigned)flags},
                       *bad;
    if (op >= IBV_WR_ATOMIC_CMP_AND_SWP) {
        wr.wr.atomic.remote_addr = at, wr.wr.atomic.rkey = rkey, wr.wr.atomic.compare_add = 5;
    } else {
        wr.wr.rdma.remote_addr = at, wr.wr.rdma.rkey = rkey;
    }
    return ibv_post_send(qp, &wr, &bad);
}

static int ask(struct ibv_qp *qp, uint64_t id, enum ibv_wr_opcode op, size_t length, uint64_t at,
               uint32_t rkey) {
    return request(qp, id, op, length, mr->lkey, at, rkey, IBV_SEND_SIGNALED);
}

// ---- what came ----

static struct ibv_wc next(void) {
    struct ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) continue;
    if (n < 0) stop("poll_cq", EIO);
    return wc;
}

// Completions of two queue pairs may come in any order: they are said by their numbers.
static void say(const char *name, int completions) {
    struct ibv_wc wc[8];
    printf("%s:", name);
    for (int i = 0; i < completions; i++) wc[i] = next();
    const char *between = " ";
    for (uint64_t id = 0; id < 100; id++) {
        for (int i = 0; i < completions; i++) {
            if (wc[i].wr_id != id) continue;
            printf("%s%lu %s", between, id, ibv_wc_status_str(wc[i].status));
            between = ", ";
        }
    }
    printf("\n");
}

static void say_state(const char *name, struct ibv_qp *qp) {
    static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;
    good(ibv_query_qp(qp, &a, IBV_QP_STATE, &i), "query_qp");
    printf("%s: %s\n", name, states[a.qp_state]);
}

static void say_event(const char *name) {
    struct ibv_async_event e;
    struct pollfd p = {.fd = context->async_fd, .events = POLLIN};
    if (poll(&p, 1, 60000) != 1) stop("no event came", ETIMEDOUT);
    good(ibv_get_async_event(context, &e), "get_async_event");
    printf("%s: %s\n", name, ibv_event_type_str(e.event_type));
    ibv_ack_async_event(&e);
}

#define AT(offset) ((uintptr_t)memory + (offset))

static void data(void) {
    struct pair p = open_pair(7, NULL);
    strcpy(memory, "letters");
    receive(p.b, 2, 100);
    ask(p.a, 1, IBV_WR_SEND, 8, 0, 0);
    say("send", 2);
    printf("received: %s\n", memory + 8192);
    ask(p.a, 1, IBV_WR_RDMA_WRITE, 8, AT(16384), mr->rkey);
    say("write", 1);
    printf("written: %s\n", memory + 16384);
    strcpy(memory + 16384, "to be read");
    ask(p.a, 1, IBV_WR_RDMA_READ, 11, AT(16384), mr->rkey);
    say("read", 1);
    printf("read: %s\n", memory);
    uint64_t *word = (uint64_t *)(memory + 24576), *old = (uint64_t *)memory;
    *word = 40;
    ask(p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, AT(24576), mr->rkey);
    say("add", 1);
    printf("added: %lu was %lu\n", *word, *old);
    ask(p.a, 1, IBV_WR_ATOMIC_CMP_AND_SWP, 8, AT(24576), mr->rkey); // it is not 5
    say("swap", 1);
    printf("not swapped: %lu was %lu\n", *word, *old);
    // What is not signaled says nothing, and has happened before what is.
    strcpy(memory, "quiet");
    request(p.a, 1, IBV_WR_RDMA_WRITE, 6, mr->lkey, AT(16384), mr->rkey, IBV_SEND_INLINE);
    memset(memory, 0, 8);
    ask(p.a, 3, IBV_WR_RDMA_WRITE, 0, 0, 0);
    say("unsignaled", 1);
    printf("written: %s\n", memory + 16384);
    close_pair(p);
}

static void mistakes(void) {
    struct pair p = open_pair(7, NULL);
    receive(p.b, 2, 4);
    receive(p.b, 4, 4);
    ask(p.a, 1, IBV_WR_SEND, 8, 0, 0);
    say("too long", 3);
    say_state("that asked", p.a);
    say_state("that was asked", p.b);
    say_event("event");
    ask(p.a, 5, IBV_WR_SEND, 8, 0, 0);
    receive(p.b, 6, 4);
    say("afterwards", 2);
    close_pair(p);

    p = open_pair(7, NULL);
    ask(p.a, 1, IBV_WR_RDMA_WRITE, 8, AT(0), mr->rkey + 1);
    ask(p.a, 3, IBV_WR_RDMA_WRITE, 8, AT(0), mr->rkey);
    say("wrong key", 2);
    say_event("event");
    close_pair(p);

    p = open_pair(7, NULL);
    ask(p.a, 1, IBV_WR_RDMA_READ, 8, AT(sizeof memory - 4), mr->rkey);
    say("over the end", 1);
    say_event("event");
    close_pair(p);

    struct ibv_mr *readable = have(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_READ), "reg_mr");
    p = open_pair(7, NULL);
    ask(p.a, 1, IBV_WR_RDMA_WRITE, 8, AT(0), readable->rkey);
    say("no right to write", 1);
    say_event("event");
    close_pair(p);
    uint32_t old = readable->rkey;
    good(ibv_dereg_mr(readable), "dereg_mr");
    readable = have(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_READ), "reg_mr");
    p = open_pair(7, NULL);
    ask(p.a, 1, IBV_WR_RDMA_READ, 8, AT(0), old);
    say("old key", 1);
    say_event("event");
    close_pair(p);
    good(ibv_dereg_mr(readable), "dereg_mr");

    p = open_pair(7, NULL);
    request(p.a, 1, IBV_WR_SEND, 8, mr->lkey + 1, 0, 0, IBV_SEND_SIGNALED);
    say("wrong key of its own", 1);
    say_state("that asked", p.a);
    close_pair(p);

    p = open_pair(7, NULL);
    ask(p.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, AT(4), mr->rkey);
    say("not aligned", 1);
    say_event("event");
    close_pair(p);
}

static void nobody(void) {
    struct pair p = open_pair(1, NULL);
    ask(p.a, 1, IBV_WR_SEND, 8, 0, 0);
    say("no receive, one retry", 1);
    close_pair(p);

    p = open_pair(7, NULL);
    ask(p.a, 1, IBV_WR_SEND, 8, 0, 0);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    receive(p.b, 2, 100);
    say("no receive at first", 2);
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
    receive(p.b, 4, 100);
    good(ibv_modify_qp(p.b, &a, IBV_QP_STATE), "ERR");
    say("flushed", 1);
    ask(p.a, 1, IBV_WR_SEND, 8, 0, 0);
    say("to one in error", 1);
    close_pair(p);

    struct ibv_qp *alone = make(IBV_QPT_RC, NULL), *gone = make(IBV_QPT_RC, NULL);
    ready(alone, lid, gone->qp_num, 7, 1);
    good(ibv_destroy_qp(gone), "destroy_qp");
    ask(alone, 1, IBV_WR_RDMA_WRITE, 8, AT(0), mr->rkey);
    say("to nobody", 1);
    good(ibv_destroy_qp(alone), "destroy_qp");
    struct ibv_qp *there = make(IBV_QPT_RC, NULL);
    alone = make(IBV_QPT_RC, NULL);
    ready(alone, (uint16_t)(lid + 7), there->qp_num, 7, 1);
    ask(alone, 1, IBV_WR_RDMA_WRITE, 8, AT(0), mr->rkey);
    say("to another lid", 1);
    close_pair((struct pair){alone, there});
}

static void shared(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = have(ibv_create_srq(pd, &init), "create_srq");
    struct pair p = open_pair(7, srq);
    struct ibv_srq_attr limit = {.srq_limit = 2};
    struct ibv_sge s = {(uintptr_t)memory + 8192, 100, mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;
    for (wr.wr_id = 2; wr.wr_id <= 6; wr.wr_id += 2) good(ibv_post_srq_recv(srq, &wr, &bad), "post_srq_recv");
    good(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), "modify_srq");
    ask(p.a, 1, IBV_WR_SEND, 8, 0, 0);
    ask(p.a, 3, IBV_WR_SEND, 8, 0, 0);
    say("shared queue", 4);
    say_event("event");
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
    good(ibv_modify_qp(p.b, &a, IBV_QP_STATE), "ERR");
    say_event("event");
    close_pair(p);
    good(ibv_destroy_srq(srq), "destroy_srq");
}

static void refused(void) {
    struct pair p = open_pair(7, NULL);
    struct ibv_qp *fresh = make(IBV_QPT_RC, NULL);
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS};
    printf("INIT to RTS: %s\n", strerror(ibv_modify_qp(fresh, &a, IBV_QP_STATE)));
    printf("send in INIT: %s\n", strerror(ask(fresh, 1, IBV_WR_SEND, 8, 0, 0)));
    int n = 0, rc;
    while ((rc = receive(p.b, 2, 100)) == 0) n++;
    printf("receives: %d, then %s\n", n, strerror(rc));
    printf("writing from far without here: %s\n",
           ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_REMOTE_WRITE) == NULL ? strerror(errno) : "made");
    good(ibv_destroy_qp(fresh), "destroy_qp");
    close_pair(p);
}

// All that the adapter says it has, of what takes little memory.
static void largest(void) {
    struct ibv_device_attr d;
    good(ibv_query_device(context, &d), "query_device");
    if (d.max_srq_wr > 1 << 16) d.max_srq_wr = 1 << 16;
    struct ibv_srq_init_attr init = {.attr = {.max_wr = (uint32_t)d.max_srq_wr, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    printf("largest shared queue: %s\n", srq == NULL ? strerror(errno) : "made");
    if (srq != NULL) good(ibv_destroy_srq(srq), "destroy_srq");
}

static void channel(void) {
    struct ibv_comp_channel *c = have(ibv_create_comp_channel(context), "create_comp_channel");
    struct ibv_cq *all = cq, *of;
    void *mine;
    cq = have(ibv_create_cq(context, 100, memory, c, 0), "create_cq");
    struct pair p = open_pair(7, NULL);
    struct pollfd poller = {.fd = c->fd, .events = POLLIN};
    good(ibv_req_notify_cq(cq, 1), "req_notify_cq");
    receive(p.b, 2, 100);
    receive(p.b, 4, 100);
    ask(p.a, 1, IBV_WR_SEND, 8, 0, 0);
    say("asked for solicited ones", 2);
    printf("events: %d\n", poll(&poller, 1, 100));
    request(p.a, 3, IBV_WR_SEND, 8, mr->lkey, 0, 0, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    printf("solicited: %d\n", poll(&poller, 1, 60000));
    good(ibv_get_cq_event(c, &of, &mine), "get_cq_event");
    printf("of the queue: %s\n", of == cq && mine == memory ? "yes" : "no");
    ibv_ack_cq_events(cq, 1);
    say("then", 2);
    good(ibv_destroy_qp(p.a), "destroy_qp");
    good(ibv_destroy_qp(p.b), "destroy_qp");
    good(ibv_destroy_cq(cq), "destroy_cq");
    good(ibv_destroy_comp_channel(c), "destroy_comp_channel");
    cq = all;
}

int main(void) {
    int n;
    struct ibv_device **list = ibv_get_device_list(&n);
    if (list == NULL || n == 0) stop("no InfiniBand device", ENODEV);
    context = have(ibv_open_device(list[0]), "open_device");
    ibv_free_device_list(list);
    struct ibv_port_attr port;
    good(ibv_query_port(context, 1, &port), "query_port");
    lid = port.lid;
    global = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (ibv_query_gid(context, 1, 0, &gid) != 0) stop("query_gid", errno);
    pd = have(ibv_alloc_pd(context), "alloc_pd");
    cq = have(ibv_create_cq(context, 256, NULL, NULL, 0), "create_cq");
    mr = have(ibv_reg_mr(pd, memory, sizeof memory, REACH), "reg_mr");
    printf("busy: %s\n", strerror(ibv_dealloc_pd(pd)));
    data();
    mistakes();
    nobody();
    shared();
    refused();
    largest();
    channel();
    good(ibv_dereg_mr(mr), "dereg_mr");
    good(ibv_destroy_cq(cq), "destroy_cq");
    good(ibv_dealloc_pd(pd), "dealloc_pd");
    good(ibv_close_device(context), "close_device");
    return 0;
}
