// SPDX-License-Identifier: Apache-2.0
//
// respond.c: the side that is asked: where the payload of a request goes, what it does, and its answer.
//
// Requests of one link are done one after the other. One that needs a receive where there is none stalls its link:
// nothing behind it is read, as an adapter refuses everything behind it (RNR).
#include <stdlib.h>
#include <string.h>

#include "verbs/soft/impl.h"
#include "verbs/soft/engine.h"

enum { GRH = 40 }; // what is before a datagram in its receive

static bool takes(const struct soft_header *in) {
    return in->op == SOFT_SEND || (in->op == SOFT_WRITE && in->flags & SOFT_WITH_IMM);
}

static bool carries(const struct soft_header *in) { return in->op == SOFT_SEND || in->op == SOFT_WRITE; }

static void answer(struct soft_link *link, enum soft_op op, uint32_t status, void *data, size_t length,
                   void *owned) {
    if (link->in.type != IBV_QPT_RC) {
        free(owned);
        return;
    }
    struct soft_frame *frame = calloc(1, sizeof *frame);
    if (frame == NULL) { // the asking side must not wait for ever
        free(owned);
        soft_link_close(link);
        return;
    }
    frame->header = (struct soft_header){
        .op = (uint8_t)op, .order = link->in.order, .status = status, .length = (uint32_t)length};
    frame->piece[0] = (struct iovec){&frame->header, sizeof frame->header};
    frame->piece[1] = (struct iovec){data, length};
    frame->pieces = length > 0 ? 2 : 1, frame->total = sizeof frame->header + length, frame->owned = owned;
    if (soft.answer_delay > 0) frame->due = soft_now() + soft.answer_delay;
    frame->held = soft.hold != NULL;
    soft_link_out(link, frame);
}

// ---- before the payload ----

// The receiver not ready timer: 0 stands for the longest time, then from 10 us in steps of about 1.4.
static uint64_t rnr_ns(uint8_t code) {
    static const uint32_t in_10us[32] = {
        65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
        256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return in_10us[code & 31] * 10000ull;
}

static bool stall(struct soft_link *link, uint64_t ns) {
    link->in.status = ns > 0 ? IBV_WC_RNR_RETRY_EXC_ERR : 0;
    link->deadline = 0;
    if (ns > 0) {
        link->deadline = soft_now() + ns;
        soft_deadline(link->deadline);
    }
    return false;
}

// A request for nobody: it is thrown away, and the asking side told after what it would have tried.
static bool nobody(struct soft_link *link) {
    link->qp = NULL, link->in.status = IBV_WC_RETRY_EXC_ERR;
    return true;
}

// A datagram, or the like, that is lost.
static bool lose(struct soft_link *link) {
    link->qp = NULL;
    return true;
}

// The payload goes into the receive. What it turns out to be bad for is in the status of the header.
static void scatter(struct soft_link *link) {
    struct soft_header *in = &link->in;
    size_t left = in->length, skip = in->type == IBV_QPT_UD && !(in->flags & SOFT_GLOBAL) ? GRH : 0;
    for (int i = 0; i < link->receive.pieces && left > 0; i++) {
        const struct ibv_sge *s = &link->receive.piece[i];
        size_t n = s->length;
        if (n == 0) continue;
        char *at = soft_memory(s->lkey, link->qp->queue->pd, s->addr, n, IBV_ACCESS_LOCAL_WRITE);
        if (at == NULL) {
            in->status = IBV_WC_REM_OP_ERR, link->pieces = 0;
            return;
        }
        size_t over = skip < n ? skip : n;
        at += over, n -= over, skip -= over;
        if (n > left) n = left;
        if (n > 0) link->piece[link->pieces++] = (struct iovec){at, n};
        left -= n;
    }
    if (left > 0) in->status = IBV_WC_REM_INV_REQ_ERR, link->pieces = 0;
}

static bool allowed(const struct soft_qp *qp, int access) {
    return ((int)qp->attr.qp_access_flags & access) == access;
}

bool soft_request_begin(struct soft_link *link) {
    struct soft_header *in = &link->in;
    struct soft_qp *qp = soft_qp_find(in->to);
    bool reliable = in->type == IBV_QPT_RC;
    link->took = false, link->qp = qp, in->status = IBV_WC_SUCCESS;
    link->left = carries(in) ? in->length : 0;
    if (qp == NULL || (uint8_t)qp->type != in->type || (soft.net.by_lid && qp->lid != in->to_lid) ||
        qp->state == IBV_QPS_ERR)
        return nobody(link);
    if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT) {
        if (!reliable) return lose(link);
        (void)stall(link, in->qkey * 1000000ull);
        in->status = IBV_WC_RETRY_EXC_ERR;
        return false;
    }
    if (in->type == IBV_QPT_UD ? in->qkey != qp->attr.qkey : in->from != qp->attr.dest_qp_num)
        return in->type == IBV_QPT_UD ? lose(link) : nobody(link);
    if (in->op == SOFT_WRITE && in->length > 0) {
        void *at = soft_memory(in->rkey, qp->pd, in->at, in->length, IBV_ACCESS_REMOTE_WRITE);
        if (at == NULL || !allowed(qp, IBV_ACCESS_REMOTE_WRITE)) {
            in->status = IBV_WC_REM_ACCESS_ERR;
            return true;
        }
        link->piece[link->pieces++] = (struct iovec){at, in->length};
    }
    if (!takes(in)) return true;
    if (!soft_queue_take(qp->queue, &link->receive)) {
        link->pieces = 0;
        if (!reliable) return lose(link);
        return stall(link, in->rnr_retry == 7 ? 0 : (in->rnr_retry + 1u) * rnr_ns(qp->attr.min_rnr_timer));
    }
    link->took = true;
    if (in->op == SOFT_SEND) scatter(link);
    return true;
}

// The deadline of a stalled link has come: the request is not done, nor what is behind it.
void soft_request_refuse(struct soft_link *link) {
    uint32_t status = link->in.status;
    link->stalled = false;
    link->left = carries(&link->in) ? link->in.length : 0;
    link->pieces = link->at = 0, link->begun = true;
    link->qp = NULL, link->in.status = status;
    soft_link_watch(link);
    soft_link_in(link);
}

// ---- after the payload ----

static void received(const struct soft_link *link, const struct soft_qp *qp) {
    const struct soft_header *in = &link->in;
    struct ibv_wc wc = {.wr_id = link->receive.id,
                        .status = in->status == IBV_WC_REM_INV_REQ_ERR ? IBV_WC_LOC_LEN_ERR
                                  : in->status == IBV_WC_REM_OP_ERR    ? IBV_WC_LOC_PROT_ERR
                                                                       : IBV_WC_SUCCESS,
                        .opcode = in->op == SOFT_SEND ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
                        .byte_len =
                            in->length + (in->type == IBV_QPT_UD && !(in->flags & SOFT_GLOBAL) ? GRH : 0),
                        .qp_num = qp->number,
                        .src_qp = in->from,
                        .slid = in->from_lid,
                        .wc_flags = (in->flags & SOFT_WITH_IMM ? IBV_WC_WITH_IMM : 0u) |
                                    (in->flags & SOFT_GLOBAL ? IBV_WC_GRH : 0u)};
    if (in->flags & SOFT_INVALIDATES)
        wc.wc_flags |= IBV_WC_WITH_INV, wc.invalidated_rkey = in->imm;
    else
        wc.imm_data = in->imm;
    soft_complete(qp->receive, &wc, in->flags & SOFT_SOLICITED);
}

static void read_for(struct soft_link *link) {
    struct soft_header *in = &link->in;
    void *at = NULL;
    if (in->length > 0) {
        at = soft_memory(in->rkey, link->qp->pd, in->at, in->length, IBV_ACCESS_REMOTE_READ);
        if (at == NULL || !allowed(link->qp, IBV_ACCESS_REMOTE_READ)) in->status = IBV_WC_REM_ACCESS_ERR;
    }
    if (in->status == IBV_WC_SUCCESS) answer(link, SOFT_DATA, IBV_WC_SUCCESS, at, in->length, NULL);
}

static void change_for(struct soft_link *link) {
    struct soft_header *in = &link->in;
    uint64_t *at = soft_memory(in->rkey, link->qp->pd, in->at, sizeof *at, IBV_ACCESS_REMOTE_ATOMIC);
    if (in->at % sizeof *at != 0)
        in->status = IBV_WC_REM_INV_REQ_ERR;
    else if (at == NULL || !allowed(link->qp, IBV_ACCESS_REMOTE_ATOMIC))
        in->status = IBV_WC_REM_ACCESS_ERR;
    uint64_t *old = in->status == IBV_WC_SUCCESS ? malloc(sizeof *old) : NULL;
    if (old == NULL) {
        if (in->status == IBV_WC_SUCCESS) in->status = IBV_WC_REM_OP_ERR;
        return;
    }
    if (in->op == SOFT_ADD) {
        *old = __atomic_fetch_add(at, in->a, __ATOMIC_SEQ_CST);
    } else {
        *old = in->a;
        __atomic_compare_exchange_n(at, old, in->b, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    answer(link, SOFT_DATA, IBV_WC_SUCCESS, old, sizeof *old, old);
}

void soft_request_end(struct soft_link *link) {
    struct soft_header *in = &link->in;
    struct soft_qp *qp = link->qp;
    bool fetch = in->op == SOFT_READ || in->op == SOFT_SWAP || in->op == SOFT_ADD, took = link->took;
    link->took = false; // all of it is there, whatever becomes of the link
    if (qp != NULL) {
        if (in->flags & SOFT_INVALIDATES && in->status == IBV_WC_SUCCESS &&
            !soft_window_invalidate(in->imm, qp->pd))
            in->status = IBV_WC_REM_ACCESS_ERR;
        if (in->op == SOFT_READ)
            read_for(link);
        else if (fetch)
            change_for(link);
    }
    if (qp == NULL || !fetch || in->status != IBV_WC_SUCCESS)
        answer(link, SOFT_ACK, in->status, NULL, 0, NULL);
    // After the answer: who has received all may end, and this thread with it, while an adapter would still answer.
    if (qp != NULL && took) received(link, qp);
    link->qp = NULL;
    if (qp == NULL || in->status == IBV_WC_SUCCESS || qp->type != IBV_QPT_RC) return;
    // A request that it may not do ends the queue pair that was asked, too.
    soft.tell.event(qp->of,
                    in->status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
    soft_qp_fail(qp);
}

// The connection has ended in the middle of a request. Its receive is used up, and nobody knows what is in it.
void soft_request_cut(struct soft_link *link) {
    if (link->qp == NULL || !link->took) return;
    link->qp->torn = true, link->qp->torn_receive = link->receive;
    link->took = false;
}

void soft_queue_filled(struct soft_queue *queue) {
    struct soft_link *link;
    LIST_FOREACH(link, &soft.links, others) {
        if (queue->head == queue->tail) break;
        if (link->fd < 0 || !link->stalled || link->qp == NULL || link->qp->queue != queue) continue;
        link->stalled = false;
        soft_link_watch(link);
        soft_link_in(link);
    }
}
