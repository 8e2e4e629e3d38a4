// SPDX-License-Identifier: Apache-2.0
//
// requests.c: the functions of ibv_qp_ex: requests are described one by one, and posted together.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/soft/provider/provider.h"

static struct provider_qp *of(struct ibv_qp_ex *qp) { return (struct provider_qp *)qp; }

static void clear(struct provider_qp *q) {
    for (uint32_t i = 0; i < q->listed; i++) free(q->list[i].inlined);
    q->listed = 0, q->wrong = 0;
}

// The request that is described now. One that there is no memory for goes nowhere, and wr_complete says so.
static struct provider_wr *last(struct ibv_qp_ex *qp) {
    static __thread struct provider_wr nothing;
    struct provider_qp *q = of(qp);
    if (q->listed > 0 && q->wrong == 0) return &q->list[q->listed - 1];
    memset(&nothing, 0, sizeof nothing);
    return &nothing;
}

static struct ibv_send_wr *add(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode) {
    struct provider_qp *q = of(qp);
    if (q->listed == q->room) {
        uint32_t room = q->room == 0 ? 16 : 2 * q->room;
        struct provider_wr *list = realloc(q->list, room * sizeof *list);
        if (list == NULL) {
            q->wrong = ENOMEM;
            return &last(qp)->wr;
        }
        q->list = list, q->room = room;
    }
    struct provider_wr *w = &q->list[q->listed++];
    memset(w, 0, sizeof *w);
    w->wr.wr_id = qp->wr_id, w->wr.send_flags = qp->wr_flags, w->wr.opcode = opcode;
    return &w->wr;
}

static void wr_start(struct ibv_qp_ex *qp) { clear(of(qp)); }
static void wr_abort(struct ibv_qp_ex *qp) { clear(of(qp)); }

static int wr_complete(struct ibv_qp_ex *qp) {
    struct provider_qp *q = of(qp);
    struct ibv_send_wr *bad;
    int rc = q->wrong;
    for (uint32_t i = 0; i < q->listed; i++) {
        q->list[i].wr.sg_list = q->list[i].piece;
        q->list[i].wr.next = i + 1 < q->listed ? &q->list[i + 1].wr : NULL;
    }
    if (rc == 0 && q->listed > 0) rc = provider_post_send(&q->qp.qp, &q->list[0].wr, &bad);
    clear(q);
    return rc;
}

static void wr_send(struct ibv_qp_ex *qp) { (void)add(qp, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm) { add(qp, IBV_WR_SEND_WITH_IMM)->imm_data = imm; }

static struct ibv_send_wr *rdma(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t at) {
    struct ibv_send_wr *wr = add(qp, opcode);
    wr->wr.rdma.rkey = rkey, wr->wr.rdma.remote_addr = at;
    return wr;
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t at) {
    (void)rdma(qp, IBV_WR_RDMA_READ, rkey, at);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t at) {
    (void)rdma(qp, IBV_WR_RDMA_WRITE, rkey, at);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t at, __be32 imm) {
    rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, at)->imm_data = imm;
}

static void atomic(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t at, uint64_t a,
                   uint64_t b) {
    struct ibv_send_wr *wr = add(qp, opcode);
    wr->wr.atomic.rkey = rkey, wr->wr.atomic.remote_addr = at;
    wr->wr.atomic.compare_add = a, wr->wr.atomic.swap = b;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t at, uint64_t compare,
                              uint64_t swap) {
    atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, at, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t at, uint64_t more) {
    atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, at, more, 0);
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
                       const struct ibv_mw_bind_info *info) {
    struct ibv_send_wr *wr = add(qp, IBV_WR_BIND_MW);
    wr->bind_mw.mw = mw, wr->bind_mw.rkey = rkey, wr->bind_mw.bind_info = *info;
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey) {
    add(qp, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey) {
    add(qp, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *list) {
    struct provider_wr *w = last(qp);
    if (n > SOFT_SGES) {
        of(qp)->wrong = EINVAL;
        return;
    }
    w->wr.num_sge = (int)n;
    if (n > 0) memcpy(w->piece, list, n * sizeof *list);
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t at, uint32_t length) {
    struct ibv_sge one = {.addr = at, .length = length, .lkey = lkey};
    wr_set_sge_list(qp, 1, &one);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_data_buf *list) {
    struct provider_wr *w = last(qp);
    size_t length = 0;
    for (size_t i = 0; i < n; i++) length += list[i].length;
    free(w->inlined);
    w->inlined = malloc(length + 1);
    if (w->inlined == NULL) {
        of(qp)->wrong = ENOMEM;
        return;
    }
    char *at = w->inlined;
    for (size_t i = 0; i < n; i++) at = (char *)memcpy(at, list[i].addr, list[i].length) + list[i].length;
    w->piece[0] = (struct ibv_sge){.addr = (uintptr_t)w->inlined, .length = (uint32_t)length};
    w->wr.num_sge = 1, w->wr.send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *at, size_t length) {
    struct ibv_data_buf one = {.addr = at, .length = length};
    wr_set_inline_data_list(qp, 1, &one);
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t number, uint32_t qkey) {
    struct ibv_send_wr *wr = &last(qp)->wr;
    wr->wr.ud.ah = ah, wr->wr.ud.remote_qpn = number, wr->wr.ud.remote_qkey = qkey;
}

void provider_wr_functions(struct ibv_qp_ex *qp) {
    qp->wr_start = wr_start, qp->wr_complete = wr_complete, qp->wr_abort = wr_abort;
    qp->wr_send = wr_send, qp->wr_send_imm = wr_send_imm;
    qp->wr_rdma_read = wr_rdma_read, qp->wr_rdma_write = wr_rdma_write,
    qp->wr_rdma_write_imm = wr_rdma_write_imm;
    qp->wr_atomic_cmp_swp = wr_atomic_cmp_swp, qp->wr_atomic_fetch_add = wr_atomic_fetch_add;
    qp->wr_bind_mw = wr_bind_mw, qp->wr_local_inv = wr_local_inv, qp->wr_send_inv = wr_send_inv;
    qp->wr_set_sge = wr_set_sge, qp->wr_set_sge_list = wr_set_sge_list;
    qp->wr_set_inline_data = wr_set_inline_data, qp->wr_set_inline_data_list = wr_set_inline_data_list;
    qp->wr_set_ud_addr = wr_set_ud_addr;
}
