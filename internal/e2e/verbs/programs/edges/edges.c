// SPDX-License-Identifier: Apache-2.0
//
// edges.c: edges CASE DIR
//
// Two ranks (CKPT_RANK) do what makes a checkpoint hard, say "ready", wait for DIR/go, and look at what became of it:
// "right".  They meet by files in DIR.
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 512, WRITES = 100, SENDS = 3 };

struct card {
    uint32_t qpn, rkey, spare_rkey;
    uint64_t words, spare;
    uint16_t lid;
    union ibv_gid gid;
};

static int rank;
static uint16_t lid;
static union ibv_gid gid;
static int global; // peers are found by gid
static const char *dir;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *sends, *receives;
static struct ibv_comp_channel *channel;
static struct ibv_qp *qp;
static struct ibv_mr *mr, *spare_mr;
static uint64_t *words;
static uint64_t *spare;
static struct card mine, theirs;

static void wrong(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "edges: rank %d: ", rank);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

static void good(int e, const char *what) {
    if (e) wrong("%s: %s", what, strerror(e < 0 ? errno : e));
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }

static void tell(const char *what, int who, const void *p, size_t n) {
    char path[4096], fresh[4200];
    snprintf(path, sizeof path, "%s/%s-%d", dir, what, who);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *f = fopen(fresh, "w");
    if (!f || fwrite(p, n, 1, f) != 1 || fclose(f) || rename(fresh, path))
        wrong("%s cannot be written", path);
}

static void hear(const char *what, int who, void *p, size_t n) {
    char path[4096];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s-%d", dir, what, who);
    while (!(f = fopen(path, "r"))) nap();
    if (fread(p, n, 1, f) != 1) wrong("%s is too short", path);
    fclose(f);
}

static void together(const char *what) {
    char c = 1;
    tell(what, rank, &c, 1);
    hear(what, !rank, &c, 1);
}

static int gone(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/go", dir);
    return access(path, F_OK) == 0;
}

static void say_ready(void) {
    together("ready");
    printf("rank %d: ready\n", rank);
    fflush(stdout);
}

static void ready(void) {
    say_ready();
    while (!gone()) nap();
}

static void open_all(int fork_safe) {
    if (fork_safe) good(ibv_fork_init(), "fork_init");
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list || !list[0]) wrong("no device");
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (!context || !(pd = ibv_alloc_pd(context))) wrong("no protection domain");
    if (posix_memalign((void **)&words, 4096, WORDS * 8) || posix_memalign((void **)&spare, 4096, 4096))
        wrong("no memory");
    memset(words, 0, WORDS * 8);
    int reach =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mr = ibv_reg_mr(pd, words, WORDS * 8, reach);
    spare_mr = ibv_reg_mr(pd, spare, 4096, reach);
    channel = ibv_create_comp_channel(context);
    sends = ibv_create_cq(context, 256, NULL, NULL, 0);
    receives = ibv_create_cq(context, 64, &rank, channel, 0);
    if (!mr || !spare_mr || !channel || !sends || !receives) wrong("no queues");
    struct ibv_qp_init_attr init = {
        .send_cq = sends,
        .recv_cq = receives,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 200, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
    if (!(qp = ibv_create_qp(pd, &init))) wrong("no queue pair");
    struct ibv_port_attr port;
    good(ibv_query_port(context, 1, &port), "query_port");
    lid = port.lid;
    global = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    good(ibv_query_gid(context, 1, 0, &gid), "query_gid");
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)reach};
    good(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
}

static void lead(uint32_t qpn, uint16_t lid, union ibv_gid gid) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = qpn,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 1,
                            .ah_attr = {.dlid = lid, .port_num = 1, .is_global = (uint8_t)global}};
    a.ah_attr.grh.dgid = gid;
    a.ah_attr.grh.hop_limit = 64;
    good(ibv_modify_qp(qp, &a,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "RTR");
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    good(ibv_modify_qp(qp, &a,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC),
         "RTS");
}

static void meet(void) {
    mine = (struct card){qp->qp_num, mr->rkey, spare_mr->rkey, (uintptr_t)words, (uintptr_t)spare, lid, gid};
    tell("card", rank, &mine, sizeof mine);
    hear("card", !rank, &theirs, sizeof theirs);
    lead(theirs.qpn, theirs.lid, theirs.gid);
    together("met");
}

static void post(enum ibv_wr_opcode op, uint64_t id, unsigned flags, void *from, uint32_t bytes, uint64_t to,
                 uint32_t rkey) {
    struct ibv_sge s = {(uintptr_t)from, bytes, mr->lkey};
    struct ibv_send_wr w = {.wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = op, .send_flags = flags},
                       *bad;
    if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        w.wr.atomic.remote_addr = to, w.wr.atomic.rkey = rkey, w.wr.atomic.compare_add = id;
    } else {
        w.wr.rdma.remote_addr = to, w.wr.rdma.rkey = rkey;
    }
    good(ibv_post_send(qp, &w, &bad), "post_send");
}

static void post_receive(uint64_t id, void *to) {
    struct ibv_sge s = {(uintptr_t)to, 64, mr->lkey};
    struct ibv_recv_wr w = {.wr_id = id, .sg_list = &s, .num_sge = 1}, *bad;
    good(ibv_post_recv(qp, &w, &bad), "post_recv");
}

static struct ibv_wc one(struct ibv_cq *cq) {
    struct ibv_wc wc;
    int n;
    while (!(n = ibv_poll_cq(cq, 1, &wc))) sched_yield();
    if (n < 0) wrong("poll_cq: %d", n);
    return wc;
}

static struct ibv_wc fine(struct ibv_cq *cq, uint64_t id) {
    struct ibv_wc wc = one(cq);
    if (wc.status || wc.wr_id != id || wc.qp_num != qp->qp_num)
        wrong("completion of %llu: status %d (%s), id %llu, queue pair %x of %x", (unsigned long long)id,
              wc.status, ibv_wc_status_str(wc.status), (unsigned long long)wc.wr_id, wc.qp_num, qp->qp_num);
    return wc;
}

// Sends that nobody waits for, behind writes that have no completion, and an addition behind all.
static void late(void) {
    if (rank == 0) {
        for (int i = 0; i < WRITES; i++) {
            words[i] = 1000u + (unsigned)i;
            post(IBV_WR_RDMA_WRITE, 0, 0, &words[i], 8, theirs.words + 8u * (unsigned)i, theirs.rkey);
        }
        for (int i = 0; i < SENDS; i++) {
            words[200 + 8 * i] = 5000u + (unsigned)i;
            post(IBV_WR_SEND, 70u + (unsigned)i, IBV_SEND_SIGNALED, &words[200 + 8 * i], 64, 0, 0);
        }
        post(IBV_WR_ATOMIC_FETCH_AND_ADD, 7, 0, &words[300], 8, theirs.words + 8 * 400, theirs.rkey);
    } else {
        while (__atomic_load_n(&words[WRITES - 1], __ATOMIC_ACQUIRE) != 1000 + WRITES - 1) sched_yield();
        words[0] = 1; // the first write must not be made again
    }
    ready();
    if (rank == 0) {
        for (int i = 0; i < SENDS; i++) fine(sends, 70u + (unsigned)i);
        post(IBV_WR_RDMA_READ, 9, IBV_SEND_SIGNALED, &words[310], 8, theirs.words + 8 * 400, theirs.rkey);
        fine(sends, 9);
        if (words[310] != 7 || words[300] != 0)
            wrong("the addition was made: %llu", (unsigned long long)words[310]);
    } else {
        for (int i = 0; i < SENDS; i++) post_receive(80u + (unsigned)i, &words[320 + 8 * i]);
        for (int i = 0; i < SENDS; i++) {
            struct ibv_wc wc = fine(receives, 80u + (unsigned)i);
            if (wc.byte_len != 64 || words[320 + 8 * i] != 5000u + (unsigned)i || wc.src_qp != theirs.qpn)
                wrong("message %d: %u bytes, %llu, of queue pair %x", i, wc.byte_len,
                      (unsigned long long)words[320 + 8 * i], wc.src_qp);
        }
        if (words[0] != 1) wrong("a write was made twice");
        for (int i = 1; i < WRITES; i++)
            if (words[i] != 1000u + (unsigned)i) wrong("write %d is missing", i);
    }
    together("checked");
}

// A completion that has come, and an event of which nobody has heard yet.
static void event(void) {
    if (rank == 1) {
        post_receive(1, &words[8]);
        post_receive(2, &words[16]);
        good(ibv_req_notify_cq(receives, 0), "req_notify_cq");
    }
    together("armed");
    if (rank == 0) {
        post(IBV_WR_SEND, 3, IBV_SEND_SIGNALED, words, 64, 0, 0);
        fine(sends, 3);
    }
    ready();
    for (int round = 0; round < 2 && rank == 1; round++) {
        struct pollfd p = {.fd = channel->fd, .events = POLLIN};
        struct ibv_cq *cq;
        void *what;
        if (poll(&p, 1, 60000) != 1) wrong("no event");
        good(ibv_get_cq_event(channel, &cq, &what), "get_cq_event");
        if (cq != receives || what != &rank) wrong("an event of another queue");
        ibv_ack_cq_events(cq, 1);
        fine(receives, 1u + (unsigned)round);
        good(ibv_req_notify_cq(receives, 0), "req_notify_cq");
        if (round == 0) tell("next", 1, "n", 1);
    }
    if (rank == 0) {
        char c;
        hear("next", 1, &c, 1);
        post(IBV_WR_SEND, 4, IBV_SEND_SIGNALED, words, 64, 0, 0);
        fine(sends, 4);
    }
    together("checked");
}

// Numbers of objects that are made later are none of former ones; a key that was given back is good for nothing.
static void numbers(void) {
    enum { MORE = 60 };
    ready();
    struct ibv_mr *more[MORE];
    struct ibv_qp *pairs[MORE];
    struct ibv_qp_init_attr init = {
        .send_cq = sends, .recv_cq = receives, .qp_type = IBV_QPT_RC, .cap = {2, 2, 1, 1, 0}};
    for (int i = 0; i < MORE; i++) {
        more[i] = ibv_reg_mr(pd, words, 64, IBV_ACCESS_LOCAL_WRITE);
        pairs[i] = ibv_create_qp(pd, &init);
        if (!more[i] || !pairs[i]) wrong("no more objects");
        if (more[i]->lkey == mr->lkey || more[i]->rkey == mr->rkey || more[i]->rkey == spare_mr->rkey)
            wrong("a key twice");
        if (pairs[i]->qp_num == qp->qp_num || pairs[i]->qp_num == theirs.qpn) wrong("a number twice");
    }
    words[1] = 42;
    post(IBV_WR_RDMA_WRITE, 5, IBV_SEND_SIGNALED, &words[1], 8, theirs.spare, theirs.spare_rkey);
    fine(sends, 5);
    together("written");
    if (rank == 1) {
        if (spare[0] != 42) wrong("the write is not there");
        good(ibv_dereg_mr(spare_mr), "dereg_mr");
        if (!(spare_mr = ibv_reg_mr(pd, spare, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)))
            wrong("no memory again");
    }
    together("again");
    if (rank == 0) {
        post(IBV_WR_RDMA_WRITE, 6, IBV_SEND_SIGNALED, &words[1], 8, theirs.spare, theirs.spare_rkey);
        struct ibv_wc wc = one(sends);
        if (wc.wr_id != 6 || wc.status != IBV_WC_REM_ACCESS_ERR)
            wrong("a key that is no longer good: status %d", wc.status);
    }
    together("checked");
}

// Memory that is registered is in the image, whatever the program says of forks.
static void forks(void) {
    for (int i = 0; i < WORDS; i++) words[i] = 77u * (unsigned)i;
    ready();
    for (int i = 0; i < WORDS; i++)
        if (words[i] != 77u * (unsigned)i) wrong("word %d is %llu", i, (unsigned long long)words[i]);
    together("checked");
}

// Additions all the time: the sum in rank 1's image is the one that rank 0's image knows.
static void adds(void) {
    uint64_t n = 0;
    say_ready();
    while (rank == 0 && !gone()) {
        post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, IBV_SEND_SIGNALED, &words[300], 8, theirs.words + 8 * 400,
             theirs.rkey);
        fine(sends, 1);
        if (words[300] != n)
            wrong("the sum was %llu after %llu additions of 1", (unsigned long long)words[300],
                  (unsigned long long)n);
        n++;
        tell("sum", 0, &n, sizeof n);
    }
    if (rank == 0) tell("end", 0, &n, sizeof n);
    hear("end", 0, &n, sizeof n);
    if (rank == 1 && (n == 0 || words[400] != n))
        wrong("the sum is %llu, not %llu", (unsigned long long)words[400], (unsigned long long)n);
    together("checked");
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: edges CASE DIR\n"), 2;
    const char *name = argv[1];
    dir = argv[2];
    rank = getenv("CKPT_RANK") ? atoi(getenv("CKPT_RANK")) : 0;
    open_all(!strcmp(name, "forks"));
    if (!strcmp(name, "foreign")) {
        lead(0x2b1, 5, gid);
        printf("rank 0: ready\n");
        fflush(stdout);
        for (;;) nap();
    }
    meet();
    if (!strcmp(name, "late"))
        late();
    else if (!strcmp(name, "event"))
        event();
    else if (!strcmp(name, "numbers"))
        numbers();
    else if (!strcmp(name, "forks"))
        forks();
    else if (!strcmp(name, "adds"))
        adds();
    else
        wrong("no such case");
    printf("rank %d: right\n", rank);
    return 0;
}
