// SPDX-License-Identifier: Apache-2.0
//
// edges.c: edges CASE DIR
//
// Two ranks (CKPT_RANK) do what makes a checkpoint hard, say "ready", wait for DIR/go, and look at what became of it:
// "right".  They meet by files in DIR.
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 512, WRITES = 100, SENDS = 3 };
enum {
    REACH =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

struct card {
    uint32_t qpn, rkey, spare_rkey;
    uint64_t words, spare;
    uint16_t lid;
};

static int rank;
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
static uint8_t rnr_retry = 7, rnr_timer = 1;

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

static int is_there(const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, what);
    return access(path, F_OK) == 0;
}

static int gone(void) { return is_there("go"); }

static void say_ready(void) {
    together("ready");
    printf("rank %d: ready\n", rank);
    fflush(stdout);
}

static void ready(void) {
    say_ready();
    while (!gone()) nap();
}

static void begin_pair(void) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REACH};
    good(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
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
    mr = ibv_reg_mr(pd, words, WORDS * 8, REACH);
    spare_mr = ibv_reg_mr(pd, spare, 4096, REACH);
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
    begin_pair();
}

static void close_all(void) {
    good(ibv_destroy_qp(qp), "destroy_qp");
    good(ibv_destroy_cq(sends), "destroy_cq");
    good(ibv_destroy_cq(receives), "destroy_cq");
    good(ibv_destroy_comp_channel(channel), "destroy_comp_channel");
    good(ibv_dereg_mr(mr), "dereg_mr");
    good(ibv_dereg_mr(spare_mr), "dereg_mr");
    good(ibv_dealloc_pd(pd), "dealloc_pd");
    good(ibv_close_device(context), "close_device");
}

static void lead(uint32_t qpn, uint16_t lid) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = qpn,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = rnr_timer,
                            .ah_attr = {.dlid = lid, .port_num = 1}};
    good(ibv_modify_qp(qp, &a,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "RTR");
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = rnr_retry, .max_rd_atomic = 1};
    good(ibv_modify_qp(qp, &a,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC),
         "RTS");
}

static const char *card = "card";

static void meet(void) {
    struct ibv_port_attr port;
    good(ibv_query_port(context, 1, &port), "query_port");
    mine = (struct card){qp->qp_num, mr->rkey, spare_mr->rkey, (uintptr_t)words, (uintptr_t)spare, port.lid};
    tell(card, rank, &mine, sizeof mine);
    hear(card, !rank, &theirs, sizeof theirs);
    lead(theirs.qpn, theirs.lid);
    together(card[0] == 'c' ? "met" : "met again");
}

static void again(void) {
    card = "again";
    meet();
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

// Messages all the time, with less receives than sends, and a limit to how long a send waits for one: rank 1 is stopped
// for longer.
static void stream(void) {
    enum { AHEAD = 8, LAST = 1 << 30 };
    uint64_t sent = 0, ended = 0;
    say_ready();
    for (int end = 0; rank == 0 && (!end || ended < sent);) {
        while (!end && sent - ended < AHEAD) {
            end = gone();
            words[8 * (sent % AHEAD)] = sent + (end ? LAST : 0);
            post(IBV_WR_SEND, sent, IBV_SEND_SIGNALED, &words[8 * (sent % AHEAD)], 64, 0, 0);
            sent++;
        }
        fine(sends, ended++);
    }
    for (uint64_t n = 0; rank == 1; n++) {
        post_receive(n, words);
        fine(receives, n);
        if (words[0] % LAST != n)
            wrong("message %llu is %llu", (unsigned long long)n, (unsigned long long)words[0]);
        tell("beat", 1, &n, sizeof n);
        if (words[0] >= LAST) break;
    }
    together("checked");
}

// A shared queue with one receive, and two queue pairs with a message each.
static void shared(void) {
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = rank == 1 ? ibv_create_srq(pd, &srq_init) : NULL;
    struct ibv_qp *pair[2];
    uint32_t numbers[2], others[2];
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = sends, .recv_cq = receives, .srq = srq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
        if (!(qp = pair[i] = ibv_create_qp(pd, &init))) wrong("no queue pair");
        numbers[i] = qp->qp_num;
        begin_pair();
    }
    tell("pairs", rank, numbers, sizeof numbers);
    hear("pairs", !rank, others, sizeof others);
    for (int i = 0; i < 2; i++) {
        qp = pair[i];
        lead(others[i], theirs.lid);
    }
    struct ibv_sge s = {(uintptr_t)&words[100], 64, mr->lkey};
    struct ibv_recv_wr w = {.wr_id = 1, .sg_list = &s, .num_sge = 1}, *bad;
    if (rank == 1) good(ibv_post_srq_recv(srq, &w, &bad), "post_srq_recv");
    together("led");
    for (int i = 0; rank == 0 && i < 2; i++) {
        qp = pair[i];
        words[8 * i] = 900u + (unsigned)i;
        post(IBV_WR_SEND, 20u + (unsigned)i, IBV_SEND_SIGNALED, &words[8 * i], 64, 0, 0);
    }
    ready();
    unsigned ids = 0, pairs = 0;
    s.addr = (uintptr_t)&words[200], w.wr_id = 2;
    if (rank == 1) good(ibv_post_srq_recv(srq, &w, &bad), "post_srq_recv");
    for (int n = 0; n < 2; n++) {
        struct ibv_wc wc = one(rank == 0 ? sends : receives);
        int which = wc.qp_num == numbers[0] ? 0 : wc.qp_num == numbers[1] ? 1 : -1;
        uint64_t word = words[wc.wr_id == 1 ? 100 : 200];
        if (wc.status || which < 0) wrong("status %d, queue pair %x", wc.status, wc.qp_num);
        if (rank == 1 && word != 900u + (unsigned)which)
            wrong("%llu came by queue pair %d", (unsigned long long)word, which);
        if (rank == 1 && wc.src_qp != others[which]) wrong("from queue pair %x", wc.src_qp);
        ids |= 1u << wc.wr_id, pairs |= 1u << which;
    }
    if (pairs != 3 || ids != (rank == 0 ? 3u << 20 : 3u << 1))
        wrong("completions %x of queue pairs %x", ids, pairs);
    struct ibv_wc wc;
    together("taken");
    if (ibv_poll_cq(sends, 1, &wc) || ibv_poll_cq(receives, 1, &wc)) wrong("something came twice");
    together("checked");
}

// Datagrams that go by gids, and a reply to where they came from, which the program learns after it was saved.
static void reply(void) {
    enum { HEAD = 40 }; // a global route header
    struct ibv_qp_init_attr init = {
        .send_cq = sends, .recv_cq = receives, .qp_type = IBV_QPT_UD, .cap = {8, 8, 1, 1, 0}};
    if (!(qp = ibv_create_qp(pd, &init))) wrong("no queue pair");
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11};
    good(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
    a.qp_state = IBV_QPS_RTR;
    good(ibv_modify_qp(qp, &a, IBV_QP_STATE), "RTR");
    a.qp_state = IBV_QPS_RTS;
    good(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
    struct at {
        union ibv_gid gid;
        uint32_t qpn;
    } me = {.qpn = qp->qp_num}, other;
    good(ibv_query_gid(context, 1, 0, &me.gid), "query_gid");
    for (unsigned i = 0; i < 2; i++) {
        struct ibv_sge s = {(uintptr_t)&words[16 * i], 64, mr->lkey};
        struct ibv_recv_wr w = {.wr_id = i, .sg_list = &s, .num_sge = 1}, *bad;
        good(ibv_post_recv(qp, &w, &bad), "post_recv");
    }
    tell("gid", rank, &me, sizeof me);
    hear("gid", !rank, &other, sizeof other);
    struct ibv_ah_attr way = {
        .is_global = 1, .dlid = theirs.lid, .port_num = 1, .grh = {.dgid = other.gid, .hop_limit = 9}};
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    if (!ah) wrong("no address handle");
    struct ibv_sge s = {(uintptr_t)&words[100], 16, mr->lkey};
    struct ibv_send_wr w = {.wr_id = 3,
                            .sg_list = &s,
                            .num_sge = 1,
                            .opcode = IBV_WR_SEND,
                            .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    words[100] = 50u + (unsigned)rank;
    w.wr.ud.ah = ah, w.wr.ud.remote_qpn = other.qpn, w.wr.ud.remote_qkey = 0x11;
    if (rank == 0) {
        good(ibv_post_send(qp, &w, &bad), "post_send");
        fine(sends, 3);
    }
    ready();
    if (rank == 1) {
        struct ibv_wc wc = fine(receives, 0);
        const struct ibv_grh *g = (const struct ibv_grh *)words;
        if (!(wc.wc_flags & IBV_WC_GRH) || wc.byte_len != HEAD + 16 || words[HEAD / 8] != 50 ||
            wc.src_qp != other.qpn)
            wrong("flags %x, %u bytes, %llu, of queue pair %x", wc.wc_flags, wc.byte_len,
                  (unsigned long long)words[HEAD / 8], wc.src_qp);
        if (memcmp(&g->sgid, &other.gid, 16) || memcmp(&g->dgid, &me.gid, 16))
            wrong("other gids than the program knows");
        if (!(w.wr.ud.ah = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)words, 1))) wrong("no way back");
        w.wr.ud.remote_qpn = wc.src_qp;
        good(ibv_post_send(qp, &w, &bad), "post_send");
        fine(sends, 3);
    } else {
        fine(receives, 0);
        if (words[HEAD / 8] != 51) wrong("the reply is %llu", (unsigned long long)words[HEAD / 8]);
        // By the handle that was made before.
        words[100] = 52;
        good(ibv_post_send(qp, &w, &bad), "post_send");
        fine(sends, 3);
    }
    if (rank == 1) {
        fine(receives, 1);
        if (words[16 + HEAD / 8] != 52)
            wrong("the last one is %llu", (unsigned long long)words[16 + HEAD / 8]);
    }
    together("checked");
}

static void *beats(void *nothing) {
    for (uint64_t n = 0; !gone(); n++) {
        tell("beat", 1, &n, sizeof n);
        nap();
    }
    return nothing;
}

// Rank 1 sleeps until there is an event, and is stopped when the message comes.
static void blocked(void) {
    struct ibv_cq *cq;
    void *what;
    pthread_t beating;
    if (rank == 1) {
        post_receive(1, &words[8]);
        good(ibv_req_notify_cq(receives, 0), "req_notify_cq");
        good(pthread_create(&beating, NULL, beats, NULL), "pthread_create");
    }
    say_ready();
    if (rank == 0) {
        while (!is_there("send")) nap();
        words[0] = 33;
        post(IBV_WR_SEND, 3, IBV_SEND_SIGNALED, words, 64, 0, 0);
        fine(sends, 3);
        tell("sent", 0, words, 8);
    } else {
        good(ibv_get_cq_event(channel, &cq, &what), "get_cq_event");
        ibv_ack_cq_events(cq, 1);
        fine(receives, 1);
        if (cq != receives || words[8] != 33) wrong("%llu came", (unsigned long long)words[8]);
    }
    while (!gone()) nap();
    if (rank == 1) pthread_join(beating, NULL);
    together("checked");
}

// The device goes away: all that is posted fails. What is made after a restart works.
static void vanishes(void) {
    post_receive(1, &words[8]);
    say_ready();
    struct ibv_async_event e;
    do good(ibv_get_async_event(context, &e), "get_async_event");
    while (ibv_ack_async_event(&e), e.event_type != IBV_EVENT_DEVICE_FATAL);
    struct ibv_wc wc = one(receives);
    if (wc.status != IBV_WC_WR_FLUSH_ERR || wc.wr_id != 1)
        wrong("status %d of %llu", wc.status, (unsigned long long)wc.wr_id);
    tell("seen", rank, words, 8);
    while (!gone()) nap();
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr init;
    good(ibv_query_qp(qp, &a, IBV_QP_STATE, &init), "query_qp");
    if (a.qp_state != IBV_QPS_ERR) wrong("its queue pair is in state %d", a.qp_state);
    close_all();
}

// Nothing is open while it is saved.
static void idle(void) {
    open_all(0);
    close_all();
    ready();
}

// Writes once to and fro.
static void writes(void) {
    words[1] = 11u + (unsigned)rank;
    post(IBV_WR_RDMA_WRITE, 5, IBV_SEND_SIGNALED, &words[1], 8, theirs.spare, theirs.spare_rkey);
    fine(sends, 5);
    together("written");
    if (spare[0] != 11u + (unsigned)!rank) wrong("%llu was written", (unsigned long long)spare[0]);
    together("checked");
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: edges CASE DIR\n"), 2;
    const char *name = argv[1];
    dir = argv[2];
    rank = getenv("CKPT_RANK") ? atoi(getenv("CKPT_RANK")) : 0;
    if (!strcmp(name, "stream")) rnr_retry = 1, rnr_timer = 0; // 2 * 0.66 s
    if (!strcmp(name, "idle")) idle();
    open_all(!strcmp(name, "forks"));
    if (!strcmp(name, "foreign")) {
        lead(0x2b1, 5);
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
    else if (!strcmp(name, "reply"))
        reply();
    else if (!strcmp(name, "stream"))
        stream();
    else if (!strcmp(name, "shared"))
        shared();
    else if (!strcmp(name, "blocked"))
        blocked();
    else if (!strcmp(name, "idle"))
        writes();
    else if (!strcmp(name, "small"))
        ready(), writes();
    else if (!strcmp(name, "vanishes")) {
        vanishes();
        open_all(0);
        again();
        writes();
    } else
        wrong("no such case");
    printf("rank %d: right\n", rank);
    return 0;
}
