// SPDX-License-Identifier: Apache-2.0
//
// request.c: the side that asks: posting sends, their answers, their end.
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/soft/impl.h"

// ---- the end of a send ----

void soft_send_free(struct soft_send *send) {
    free(send->frame.owned);
    free(send);
}

static void tell(const struct soft_send *send, enum ibv_wc_status status) {
    struct soft_qp *qp = send->qp;
    if (!send->signaled && status == IBV_WC_SUCCESS) return;
    struct ibv_wc wc = {.wr_id = send->id,
                        .status = status,
                        .opcode = send->code,
                        .byte_len = send->length,
                        .qp_num = qp->number};
    soft_complete(qp->send, &wc, false);
}

static void end_first(struct soft_qp *qp, enum ibv_wc_status status) {
    struct soft_send *send = STAILQ_FIRST(&qp->sends);
    STAILQ_REMOVE_HEAD(&qp->sends, behind);
    qp->waiting--;
    tell(send, status);
    soft_send_free(send);
}

void soft_flush_sends(struct soft_qp *qp) {
    while (!STAILQ_EMPTY(&qp->sends)) end_first(qp, IBV_WC_WR_FLUSH_ERR);
    qp->doomed = false;
}

// The first send has failed. What is behind it is flushed: of a reliable queue pair with all else, of another one alone.
static void fail_first(struct soft_qp *qp, enum ibv_wc_status status) {
    end_first(qp, status);
    if (qp->type == IBV_QPT_RC) {
        soft_qp_fail(qp);
        return;
    }
    qp->state = IBV_QPS_SQE;
    if (qp->link != NULL) soft_link_close(qp->link);
    soft_flush_sends(qp);
}

// A send that was bad from the start fails when all before it have ended.
static void next(struct soft_qp *qp) {
    struct soft_send *first = STAILQ_FIRST(&qp->sends);
    if (first != NULL && first->failed != IBV_WC_SUCCESS) {
        fail_first(qp, first->failed);
        return;
    }
    struct soft_frame *frame = qp->link != NULL ? STAILQ_FIRST(&qp->link->out) : NULL;
    if (frame != NULL && frame->send != NULL && frame->send->fenced && frame->sent == 0)
        soft_link_flush(qp->link);
}

void soft_link_lost(struct soft_qp *qp) {
    if (qp->type == IBV_QPT_RC) {
        if (!STAILQ_EMPTY(&qp->sends)) fail_first(qp, IBV_WC_RETRY_EXC_ERR);
        return;
    }
    while (!STAILQ_EMPTY(&qp->sends)) end_first(qp, IBV_WC_SUCCESS); // sent and lost, as may be
}

// ---- answers ----

// The fetched bytes go where the request said.
void soft_answer_begin(struct soft_link *link) {
    struct soft_send *send = NULL;
    size_t left = link->in.op == SOFT_DATA ? link->in.length : 0;
    link->left = left;
    if (link->qp != NULL) {
        STAILQ_FOREACH(send, &link->qp->sends, behind) {
            if (send->order == link->in.order) break;
        }
    }
    if (send == NULL || !send->fetches) return;
    for (int i = 0; i < send->pieces && left > 0; i++) {
        size_t n = send->piece[i].length < left ? send->piece[i].length : left;
        if (n == 0) continue;
        link->piece[link->pieces++] = (struct iovec){(void *)(uintptr_t)send->piece[i].addr, n};
        left -= n;
    }
}

void soft_answer_end(struct soft_link *link) {
    struct soft_qp *qp = link->qp;
    if (qp == NULL) return;
    struct soft_send *first = STAILQ_FIRST(&qp->sends);
    if (first == NULL || first->order != link->in.order) return; // it has been flushed
    if (link->in.status != IBV_WC_SUCCESS) {
        fail_first(qp, (enum ibv_wc_status)link->in.status);
        return;
    }
    end_first(qp, IBV_WC_SUCCESS);
    next(qp);
}

// ---- on the way out ----

bool soft_may_go(const struct soft_frame *frame) {
    const struct soft_send *send = frame->send, *before;
    if (send == NULL) return true;
    if (frame->sent > 0) return true;
    if (send->qp->state == IBV_QPS_SQD) return false;
    if (!send->fenced) return true;
    STAILQ_FOREACH(before, &send->qp->sends, behind) {
        if (before == send) break;
        if (before->fetches) return false;
    }
    return true;
}

// A reliable send waits for its answer, an unreliable one has ended.
void soft_sent(struct soft_frame *frame) {
    struct soft_send *send = frame->send;
    if (send == NULL) {
        free(frame->owned);
        free(frame);
        return;
    }
    send->queued = false;
    if (send->qp->type == IBV_QPT_RC) return;
    struct soft_qp *qp = send->qp;
    end_first(qp, IBV_WC_SUCCESS);
    next(qp);
}

// ---- posting ----

static const struct {
    enum soft_op op;
    enum ibv_wc_opcode code;
    bool imm, fetches;
} kinds[] = {
    [IBV_WR_RDMA_WRITE] = {SOFT_WRITE, IBV_WC_RDMA_WRITE, false, false},
    [IBV_WR_RDMA_WRITE_WITH_IMM] = {SOFT_WRITE, IBV_WC_RDMA_WRITE, true, false},
    [IBV_WR_SEND] = {SOFT_SEND, IBV_WC_SEND, false, false},
    [IBV_WR_SEND_WITH_IMM] = {SOFT_SEND, IBV_WC_SEND, true, false},
    [IBV_WR_RDMA_READ] = {SOFT_READ, IBV_WC_RDMA_READ, false, true},
    [IBV_WR_ATOMIC_CMP_AND_SWP] = {SOFT_SWAP, IBV_WC_COMP_SWAP, false, true},
    [IBV_WR_ATOMIC_FETCH_AND_ADD] = {SOFT_ADD, IBV_WC_FETCH_ADD, false, true},
    // What is done here goes to the other side as an empty write, so that it ends in its turn.
    [IBV_WR_LOCAL_INV] = {SOFT_WRITE, IBV_WC_LOCAL_INV, false, false},
    [IBV_WR_BIND_MW] = {SOFT_WRITE, IBV_WC_BIND_MW, false, false},
    [IBV_WR_SEND_WITH_INV] = {SOFT_SEND, IBV_WC_SEND, false, false},
};

static int check(const struct soft_qp *qp, const struct ibv_send_wr *wr) {
    if ((size_t)wr->opcode >= sizeof kinds / sizeof *kinds) return EOPNOTSUPP;
    enum soft_op op = kinds[wr->opcode].op;
    if (wr->num_sge < 0 || wr->num_sge > SOFT_SGES || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
        return EINVAL;
    if (qp->type == IBV_QPT_UD && op != SOFT_SEND) return EINVAL;
    if (qp->type == IBV_QPT_UC && op != SOFT_SEND && op != SOFT_WRITE) return EINVAL;
    bool here = wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_BIND_MW;
    if ((here && wr->num_sge > 0) || (wr->opcode == IBV_WR_SEND_WITH_INV && qp->type == IBV_QPT_UD))
        return EINVAL;
    if (qp->waiting >= qp->cap.max_send_wr) return ENOMEM;
    uint64_t length = 0;
    for (int i = 0; i < wr->num_sge; i++) length += wr->sg_list[i].length;
    if (wr->send_flags & IBV_SEND_INLINE && (kinds[wr->opcode].fetches || length > qp->cap.max_inline_data))
        return EINVAL;
    if (qp->type == IBV_QPT_UD && (length > SOFT_DATAGRAM || wr->wr.ud.ah == NULL)) return EINVAL;
    return 0;
}

// What is wrong with the pieces, as the adapter would find it when it comes to them.
static enum ibv_wc_status check_pieces(const struct soft_send *send, const struct ibv_send_wr *wr) {
    uint64_t length = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *s = &wr->sg_list[i];
        length += s->length;
        if (wr->send_flags & IBV_SEND_INLINE || s->length == 0) continue;
        if (soft_memory(s->lkey, send->qp->pd, s->addr, s->length,
                        send->fetches ? IBV_ACCESS_LOCAL_WRITE : 0) == NULL)
            return IBV_WC_LOC_PROT_ERR;
    }
    if (length > SOFT_MESSAGE) return IBV_WC_LOC_LEN_ERR;
    bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    return atomic && length != 8 ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

// For how many milliseconds the other side may be no receiver at all. It is an order of magnitude more than the
// adapter's own retries take: those of a loaded machine must not decide.
static uint32_t wait_for_peer(const struct soft_qp *qp) {
    if (qp->attr.timeout == 0) return 0;
    uint64_t ns = (4096ull << (qp->attr.timeout & 31)) * (qp->attr.retry_cnt + 1u);
    return 10000 + (uint32_t)(ns / 1000000 < 1000000 ? ns / 1000000 : 1000000);
}

static void fill_header(struct soft_send *send, const struct ibv_send_wr *wr) {
    struct soft_qp *qp = send->qp;
    struct soft_header *h = &send->frame.header;
    *h = (struct soft_header){.op = (uint8_t)kinds[wr->opcode].op,
                              .type = (uint8_t)qp->type,
                              .rnr_retry = qp->attr.rnr_retry,
                              .from = qp->number,
                              .to = qp->attr.dest_qp_num,
                              .order = send->order,
                              .length = send->length,
                              .qkey = wait_for_peer(qp),
                              .from_lid = qp->lid,
                              .to_lid = qp->attr.ah_attr.dlid};
    if (wr->send_flags & IBV_SEND_SOLICITED) h->flags |= SOFT_SOLICITED;
    if (kinds[wr->opcode].imm) h->flags |= SOFT_WITH_IMM, h->imm = wr->imm_data;
    if (wr->opcode == IBV_WR_SEND_WITH_INV) h->flags |= SOFT_INVALIDATES, h->imm = wr->invalidate_rkey;
    if (h->op == SOFT_WRITE || h->op == SOFT_READ)
        h->at = wr->wr.rdma.remote_addr, h->rkey = wr->wr.rdma.rkey;
    if (h->op == SOFT_SWAP || h->op == SOFT_ADD) {
        h->at = wr->wr.atomic.remote_addr, h->rkey = wr->wr.atomic.rkey;
        h->a = wr->wr.atomic.compare_add, h->b = wr->wr.atomic.swap;
    }
}

// What is posted inline, and datagrams, are copied: their memory may be used again at once.
static int fill_payload(struct soft_send *send, const struct ibv_send_wr *wr, bool copy) {
    struct soft_frame *frame = &send->frame;
    frame->piece[0] = (struct iovec){&frame->header, sizeof frame->header};
    frame->pieces = 1, frame->total = sizeof frame->header;
    if (send->fetches || send->length == 0 || send->failed != IBV_WC_SUCCESS) return 0;
    frame->total += send->length;
    char *at = NULL;
    if (copy) {
        at = frame->owned = malloc(send->length);
        if (at == NULL) return ENOMEM;
        frame->piece[frame->pieces++] = (struct iovec){at, send->length};
    }
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *s = &wr->sg_list[i];
        const void *from = (const void *)(uintptr_t)s->addr;
        if (!(wr->send_flags & IBV_SEND_INLINE) && s->length > 0)
            from = soft_memory(s->lkey, send->qp->pd, s->addr, s->length, 0);
        if (s->length == 0) continue;
        if (copy) {
            memcpy(at, from, s->length);
            at += s->length;
        } else {
            frame->piece[frame->pieces++] = (struct iovec){(void *)(uintptr_t)from, s->length};
        }
    }
    return 0;
}

static void keep_pieces(struct soft_send *send, const struct ibv_send_wr *wr) {
    if (!send->fetches || send->failed != IBV_WC_SUCCESS) return;
    send->pieces = wr->num_sge;
    for (int i = 0; i < wr->num_sge; i++) {
        send->piece[i] = wr->sg_list[i];
        if (send->piece[i].length == 0) continue;
        void *at =
            soft_memory(wr->sg_list[i].lkey, send->qp->pd, wr->sg_list[i].addr, wr->sg_list[i].length, 0);
        send->piece[i].addr = (uintptr_t)at;
    }
}

// What a receiver gets before the data when the sender goes by gids.
static void add_route(struct soft_frame *frame, const struct ibv_global_route *way) {
    struct ibv_grh *g = &frame->route;
    *g = (struct ibv_grh){.version_tclass_flow =
                              htonl(6u << 28 | (uint32_t)way->traffic_class << 20 | way->flow_label),
                          .paylen = htons((uint16_t)frame->header.length),
                          .next_hdr = 0x1b, // InfiniBand
                          .hop_limit = way->hop_limit,
                          .dgid = way->dgid};
    soft.net.gid(soft.net.who, way->sgid_index, &g->sgid);
    if (frame->pieces > 1) frame->piece[2] = frame->piece[1];
    frame->piece[1] = (struct iovec){g, sizeof *g};
    frame->pieces++, frame->total += sizeof *g;
    frame->header.flags |= SOFT_GLOBAL, frame->header.length += sizeof *g;
}

// A datagram is sent or lost, and has ended either way.
static void go_datagram(struct soft_send *send, const struct ibv_send_wr *wr, soft_route *route) {
    struct soft_qp *qp = send->qp;
    struct soft_header *h = &send->frame.header;
    struct soft_address to;
    struct soft_link *link = NULL;
    const struct ibv_ah_attr *way = route(wr->wr.ud.ah);
    if (send->failed != IBV_WC_SUCCESS) {
        qp->state = IBV_QPS_SQE;
        tell(send, send->failed);
        soft_send_free(send);
        return;
    }
    h->to_lid = way->dlid;
    h->to = wr->wr.ud.remote_qpn;
    h->qkey = wr->wr.ud.remote_qkey & 1u << 31 ? qp->attr.qkey : wr->wr.ud.remote_qkey;
    tell(send, IBV_WC_SUCCESS);
    if (soft.net.find(soft.net.who, way, h->to, &to) == 0) link = soft_link_shared(&to);
    if (link == NULL) {
        soft_send_free(send);
        return;
    }
    // The frame goes on alone, and the send was allocated with the frame in it.
    struct soft_frame *frame = malloc(sizeof *frame);
    if (frame != NULL) {
        *frame = send->frame;
        frame->piece[0].iov_base = &frame->header, frame->send = NULL;
        send->frame.owned = NULL;
        if (way->is_global) add_route(frame, &way->grh);
        soft_link_out(link, frame);
    }
    soft_send_free(send);
}

static void go_connected(struct soft_send *send) {
    struct soft_qp *qp = send->qp;
    qp->doomed = qp->doomed || send->failed != IBV_WC_SUCCESS;
    STAILQ_INSERT_TAIL(&qp->sends, send, behind);
    qp->waiting++;
    if (qp->doomed) {
        if (STAILQ_FIRST(&qp->sends) == send) fail_first(qp, send->failed);
        return;
    }
    if (qp->link == NULL) {
        struct soft_address to;
        if (soft.net.find(soft.net.who, &qp->attr.ah_attr, qp->attr.dest_qp_num, &to) == 0)
            qp->link = soft_link_to(&to);
        if (qp->link == NULL) {
            soft_link_lost(qp);
            return;
        }
        qp->link->qp = qp;
    }
    send->queued = true;
    soft_link_out(qp->link, &send->frame);
}

static void flushed(struct soft_qp *qp, const struct ibv_send_wr *wr) {
    struct ibv_wc wc = {.wr_id = wr->wr_id,
                        .status = IBV_WC_WR_FLUSH_ERR,
                        .opcode = kinds[wr->opcode].code,
                        .qp_num = qp->number};
    soft_complete(qp->send, &wc, false);
}

static int post(struct soft_qp *qp, const struct ibv_send_wr *wr, soft_route *route) {
    if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD && qp->state != IBV_QPS_SQE &&
        qp->state != IBV_QPS_ERR)
        return EINVAL;
    int rc = check(qp, wr);
    if (rc != 0) return rc;
    if (qp->state == IBV_QPS_SQE || qp->state == IBV_QPS_ERR) {
        flushed(qp, wr);
        return 0;
    }
    struct soft_send *send = calloc(1, sizeof *send);
    if (send == NULL) return ENOMEM;
    send->qp = qp, send->id = wr->wr_id, send->code = kinds[wr->opcode].code;
    send->fetches = kinds[wr->opcode].fetches, send->order = ++qp->order;
    send->signaled = qp->all_signaled || wr->send_flags & IBV_SEND_SIGNALED;
    send->fenced = wr->send_flags & IBV_SEND_FENCE;
    send->frame.send = send;
    for (int i = 0; i < wr->num_sge; i++) send->length += wr->sg_list[i].length;
    send->failed = check_pieces(send, wr);
    if (wr->opcode == IBV_WR_BIND_MW) send->failed = soft_window_bind(wr, qp->pd);
    if (wr->opcode == IBV_WR_LOCAL_INV && !soft_window_invalidate(wr->invalidate_rkey, qp->pd))
        send->failed = IBV_WC_MW_BIND_ERR;
    fill_header(send, wr);
    keep_pieces(send, wr);
    rc = fill_payload(send, wr, qp->type == IBV_QPT_UD || wr->send_flags & IBV_SEND_INLINE);
    if (rc != 0)
        soft_send_free(send);
    else if (qp->type == IBV_QPT_UD)
        go_datagram(send, wr, route);
    else
        go_connected(send);
    return rc;
}

int soft_qp_send(struct soft_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad, soft_route *route) {
    int rc = 0;
    pthread_mutex_lock(&soft.lock);
    for (; wr != NULL; wr = wr->next) {
        rc = post(qp, wr, route);
        if (rc == 0) continue;
        *bad = wr;
        break;
    }
    pthread_mutex_unlock(&soft.lock);
    return rc;
}
