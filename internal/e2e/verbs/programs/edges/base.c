// SPDX-License-Identifier: Apache-2.0
//
// base.c: the two ranks, and how they meet.
#include "edges.h"

int rank;
const char *dir;
struct ibv_context *context;
struct ibv_pd *pd;
struct ibv_cq *sends, *receives;
struct ibv_comp_channel *channel;
struct ibv_qp *qp;
struct ibv_mr *mr, *spare_mr;
uint64_t *words;
uint64_t *spare;
struct card mine, theirs;
uint16_t lid;
union ibv_gid gid;
static int global; // peers are found by gid
static int gid_index;
uint8_t rnr_retry = 7, rnr_timer = 1;

void wrong(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "edges: rank %d: ", rank);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

void good(int e, const char *what) {
    if (e) wrong("%s: %s", what, strerror(e < 0 ? errno : e));
}

void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL); }

void tell(const char *what, int who, const void *p, size_t n) {
    char path[4096], fresh[4200];
    snprintf(path, sizeof path, "%s/%s-%d", dir, what, who);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *f = fopen(fresh, "w");
    if (!f || fwrite(p, n, 1, f) != 1 || fclose(f) || rename(fresh, path))
        wrong("%s cannot be written", path);
}

void hear(const char *what, int who, void *p, size_t n) {
    char path[4096];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s-%d", dir, what, who);
    while (!(f = fopen(path, "r"))) nap();
    if (fread(p, n, 1, f) != 1) wrong("%s is too short", path);
    fclose(f);
}

void together(const char *what) {
    char c = 1;
    tell(what, rank, &c, 1);
    hear(what, !rank, &c, 1);
}

int is_there(const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, what);
    return access(path, F_OK) == 0;
}

int gone(void) { return is_there("go"); }

void say_ready(void) {
    together("ready");
    printf("rank %d: ready\n", rank);
    fflush(stdout);
}

void ready(void) {
    say_ready();
    while (!gone()) nap();
}

void begin_pair(void) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REACH};
    good(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
}

void open_all(void) {
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
    struct ibv_port_attr port;
    good(ibv_query_port(context, 1, &port), "query_port");
    lid = port.lid;
    global = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (getenv("EDGES_GID")) gid_index = atoi(getenv("EDGES_GID"));
    good(ibv_query_gid(context, 1, gid_index, &gid), "query_gid");
    begin_pair();
}

void close_all(void) {
    good(ibv_destroy_qp(qp), "destroy_qp");
    good(ibv_destroy_cq(sends), "destroy_cq");
    good(ibv_destroy_cq(receives), "destroy_cq");
    good(ibv_destroy_comp_channel(channel), "destroy_comp_channel");
    good(ibv_dereg_mr(mr), "dereg_mr");
    good(ibv_dereg_mr(spare_mr), "dereg_mr");
    good(ibv_dealloc_pd(pd), "dealloc_pd");
    good(ibv_close_device(context), "close_device");
}

void lead(uint32_t qpn, uint16_t to, union ibv_gid at) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = qpn,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = rnr_timer,
                            .ah_attr = {.dlid = to, .port_num = 1, .is_global = (uint8_t)global}};
    a.ah_attr.grh.dgid = at;
    a.ah_attr.grh.hop_limit = 64;
    a.ah_attr.grh.sgid_index = (uint8_t)gid_index;
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

void meet(void) {
    mine = (struct card){qp->qp_num, mr->rkey, spare_mr->rkey, (uintptr_t)words, (uintptr_t)spare, lid, gid};
    tell(card, rank, &mine, sizeof mine);
    hear(card, !rank, &theirs, sizeof theirs);
    lead(theirs.qpn, theirs.lid, theirs.gid);
    together(card[0] == 'c' ? "met" : "met again");
}

void again(void) {
    card = "again";
    meet();
}

void post(enum ibv_wr_opcode op, uint64_t id, unsigned flags, void *from, uint32_t bytes, uint64_t to,
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

void post_receive(uint64_t id, void *to) {
    struct ibv_sge s = {(uintptr_t)to, 64, mr->lkey};
    struct ibv_recv_wr w = {.wr_id = id, .sg_list = &s, .num_sge = 1}, *bad;
    good(ibv_post_recv(qp, &w, &bad), "post_recv");
}

struct ibv_wc one(struct ibv_cq *cq) {
    struct ibv_wc wc;
    int n;
    while (!(n = ibv_poll_cq(cq, 1, &wc))) sched_yield();
    if (n < 0) wrong("poll_cq: %d", n);
    return wc;
}

struct ibv_wc fine(struct ibv_cq *cq, uint64_t id) {
    struct ibv_wc wc = one(cq);
    if (wc.status || wc.wr_id != id || wc.qp_num != qp->qp_num)
        wrong("completion of %llu: status %d (%s), id %llu, queue pair %x of %x", (unsigned long long)id,
              wc.status, ibv_wc_status_str(wc.status), (unsigned long long)wc.wr_id, wc.qp_num, qp->qp_num);
    return wc;
}
