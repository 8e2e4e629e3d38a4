// SPDX-License-Identifier: Apache-2.0
//
// qp_ex.c: the functions of ibv_qp_ex make a list of work requests, which is posted as any other.
#include "verbs/front/front.h"

#define MINE struct v_qp *q = v_of(v_qp, x, x)

static struct ibv_send_wr *one_more(struct v_qp *q, enum ibv_wr_opcode op) {
    if (q->built >= (int)q->init.cap.max_send_wr) {
        q->build_error = q->build_error ? q->build_error : ENOMEM;
        return NULL;
    }
    struct ibv_send_wr *w = &q->build[q->built++];
    memset(w, 0, sizeof *w);
    w->wr_id = q->x.wr_id;
    w->send_flags = q->x.wr_flags;
    w->opcode = op;
    if (q->built > 1) w[-1].next = w;
    return w;
}

static struct ibv_send_wr *last(struct v_qp *q) {
    static struct ibv_send_wr none; // of a list that has failed already
    return q->built ? &q->build[q->built - 1] : &none;
}

static void wr_start(struct ibv_qp_ex *x) {
    MINE;
    pthread_mutex_lock(&q->q.mutex);
    q->built = q->build_error = 0;
    q->build_sges = q->build_inlined = 0;
}

static int wr_complete(struct ibv_qp_ex *x) {
    MINE;
    struct ibv_send_wr *bad;
    long r = q->build_error;
    if (!r && q->built) r = CROSS(V_SEND, (long)q, (long)q->build, (long)&bad);
    pthread_mutex_unlock(&q->q.mutex);
    return (int)r;
}

static void wr_abort(struct ibv_qp_ex *x) {
    MINE;
    pthread_mutex_unlock(&q->q.mutex);
}

static void rdma(struct v_qp *q, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr, __be32 imm) {
    struct ibv_send_wr *w = one_more(q, op);
    if (!w) return;
    w->wr.rdma.rkey = rkey;
    w->wr.rdma.remote_addr = addr;
    w->imm_data = imm;
}

static void wr_rdma_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr) {
    MINE;
    rdma(q, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}
static void wr_rdma_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, __be32 imm) {
    MINE;
    rdma(q, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}
static void wr_rdma_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr) {
    MINE;
    rdma(q, IBV_WR_RDMA_READ, rkey, addr, 0);
}
static void wr_send(struct ibv_qp_ex *x) {
    MINE;
    one_more(q, IBV_WR_SEND);
}
static void wr_send_imm(struct ibv_qp_ex *x, __be32 imm) {
    MINE;
    struct ibv_send_wr *w = one_more(q, IBV_WR_SEND_WITH_IMM);
    if (w) w->imm_data = imm;
}
static void atomic(struct v_qp *q, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr, uint64_t a,
                   uint64_t b) {
    struct ibv_send_wr *w = one_more(q, op);
    if (!w) return;
    w->wr.atomic.rkey = rkey;
    w->wr.atomic.remote_addr = addr;
    w->wr.atomic.compare_add = a;
    w->wr.atomic.swap = b;
}
static void wr_cmp_swp(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap) {
    MINE;
    atomic(q, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}
static void wr_fetch_add(struct ibv_qp_ex *x, uint32_t rkey, uint64_t addr, uint64_t add) {
    MINE;
    atomic(q, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void wr_bind_mw(struct ibv_qp_ex *x, struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *info) {
    MINE;
    struct ibv_send_wr *w = one_more(q, IBV_WR_BIND_MW);
    if (!w) return;
    w->bind_mw.mw = mw;
    w->bind_mw.rkey = rkey;
    w->bind_mw.bind_info = *info;
}
static void wr_local_inv(struct ibv_qp_ex *x, uint32_t rkey) {
    MINE;
    struct ibv_send_wr *w = one_more(q, IBV_WR_LOCAL_INV);
    if (w) w->invalidate_rkey = rkey;
}
static void wr_send_inv(struct ibv_qp_ex *x, uint32_t rkey) {
    MINE;
    struct ibv_send_wr *w = one_more(q, IBV_WR_SEND_WITH_INV);
    if (w) w->invalidate_rkey = rkey;
}

static void wr_set_ud_addr(struct ibv_qp_ex *x, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey) {
    MINE;
    struct ibv_send_wr *w = last(q);
    w->wr.ud.ah = ah;
    w->wr.ud.remote_qpn = qpn;
    w->wr.ud.remote_qkey = qkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *list) {
    MINE;
    if (!q->built || n > q->init.cap.max_send_sge) {
        if (!q->build_error) q->build_error = EINVAL;
        return;
    }
    struct ibv_sge *to = q->build_sge + (size_t)(q->built - 1) * q->init.cap.max_send_sge;
    memcpy(to, list, n * sizeof *list);
    last(q)->sg_list = to;
    last(q)->num_sge = (int)n;
}

static void wr_set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t addr, uint32_t length) {
    const struct ibv_sge one = {.addr = addr, .length = length, .lkey = lkey};
    wr_set_sge_list(x, length ? 1 : 0, &one);
}

// Inline data may change once these return, so they are copied.
static void wr_set_inline_data_list(struct ibv_qp_ex *x, size_t n, const struct ibv_data_buf *list) {
    MINE;
    const uint32_t most = q->init.cap.max_inline_data;
    uint8_t *to = q->build_inline + (size_t)(q->built ? q->built - 1 : 0) * most;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (!q->built || list[i].length > most - bytes) {
            if (!q->build_error) q->build_error = q->built ? ENOMEM : EINVAL;
            return;
        }
        memcpy(to + bytes, list[i].addr, list[i].length);
        bytes += list[i].length;
    }
    const struct ibv_sge one = {.addr = (uintptr_t)to, .length = (uint32_t)bytes};
    last(q)->send_flags |= IBV_SEND_INLINE;
    wr_set_sge_list(x, bytes ? 1 : 0, &one);
}

static void wr_set_inline_data(struct ibv_qp_ex *x, void *addr, size_t length) {
    const struct ibv_data_buf one = {addr, length};
    wr_set_inline_data_list(x, 1, &one);
}

int front_build(struct v_qp *q) {
    const struct ibv_qp_cap *cap = &q->init.cap;
    size_t n = cap->max_send_wr ? cap->max_send_wr : 1;
    if (!q->init.cap.max_send_sge) q->init.cap.max_send_sge = 1;
    size_t sges = n * cap->max_send_sge * sizeof(struct ibv_sge);
    q->build = calloc(1, n * sizeof *q->build + sges + n * cap->max_inline_data);
    if (!q->build) return ENOMEM;
    q->build_sge = (struct ibv_sge *)(q->build + n);
    q->build_inline = (uint8_t *)q->build_sge + sges;
    struct ibv_qp_ex *x = &q->x;
    x->wr_start = wr_start;
    x->wr_complete = wr_complete;
    x->wr_abort = wr_abort;
    x->wr_rdma_write = wr_rdma_write;
    x->wr_rdma_write_imm = wr_rdma_write_imm;
    x->wr_rdma_read = wr_rdma_read;
    x->wr_send = wr_send;
    x->wr_send_imm = wr_send_imm;
    x->wr_atomic_cmp_swp = wr_cmp_swp;
    x->wr_atomic_fetch_add = wr_fetch_add;
    x->wr_bind_mw = wr_bind_mw;
    x->wr_local_inv = wr_local_inv;
    x->wr_send_inv = wr_send_inv;
    x->wr_set_ud_addr = wr_set_ud_addr;
    x->wr_set_sge = wr_set_sge;
    x->wr_set_sge_list = wr_set_sge_list;
    x->wr_set_inline_data = wr_set_inline_data;
    x->wr_set_inline_data_list = wr_set_inline_data_list;
    return 0;
}

API struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
    struct v_qp *q = v_of(v_qp, q, qp);
    return q->ex ? &q->x : NULL;
}
