// SPDX-License-Identifier: Apache-2.0
//
// windows.c: memory windows, bound before the program is saved and used after it has been continued.
#include "edges.h"

enum { SLOT = 64 };

// Window i gives the words of its slot in the spare memory.
static struct ibv_mw *window(unsigned i, enum ibv_mw_type type, uint32_t *rkey) {
    struct ibv_mw *w = ibv_alloc_mw(pd, type);
    if (!w) wrong("no window: %s", strerror(errno));
    struct ibv_mw_bind_info info = {spare_mr, (uintptr_t)spare + SLOT * i, SLOT, IBV_ACCESS_REMOTE_WRITE};
    if (type == IBV_MW_TYPE_1) {
        struct ibv_mw_bind bind = {.wr_id = 30u + i, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
        good(ibv_bind_mw(qp, w, &bind), "bind_mw");
        *rkey = w->rkey;
        if (fine(sends, 30u + i).opcode != IBV_WC_BIND_MW) wrong("another completion");
        return w;
    }
    // Nobody asks for a completion of this one.
    struct ibv_send_wr wr = {.wr_id = 30u + i, .opcode = IBV_WR_BIND_MW}, *bad;
    wr.bind_mw.mw = w;
    *rkey = wr.bind_mw.rkey = ibv_inc_rkey(w->rkey);
    wr.bind_mw.bind_info = info;
    good(ibv_post_send(qp, &wr, &bad), "post_send");
    w->rkey = wr.bind_mw.rkey;
    return w;
}

static void write_by(unsigned i, uint32_t rkey, uint64_t word) {
    words[1] = word;
    post(IBV_WR_RDMA_WRITE, 40u + i, IBV_SEND_SIGNALED, &words[1], 8, theirs.spare + SLOT * i, rkey);
}

void windows(void) {
    enum { FIRST, SECOND, TAKEN, WINDOWS };
    uint32_t keys[WINDOWS];
    if (rank == 1) {
        struct ibv_mr *whole = ibv_reg_mr(pd, spare, 4096, REACH | IBV_ACCESS_MW_BIND);
        if (!whole) wrong("no memory for windows");
        good(ibv_dereg_mr(spare_mr), "dereg_mr");
        spare_mr = whole;
        window(FIRST, IBV_MW_TYPE_1, &keys[FIRST]);
        window(SECOND, IBV_MW_TYPE_2, &keys[SECOND]);
        window(TAKEN, IBV_MW_TYPE_2, &keys[TAKEN]);
        tell("keys", 1, keys, sizeof keys);
    } else {
        hear("keys", 1, keys, sizeof keys);
        for (unsigned i = 0; i < WINDOWS; i++) {
            write_by(i, keys[i], 60 + i);
            fine(sends, 40u + i);
        }
        // There is no receive for it, so it waits.
        struct ibv_sge s = {(uintptr_t)words, 8, mr->lkey};
        struct ibv_send_wr w = {.wr_id = 50,
                                .sg_list = &s,
                                .num_sge = 1,
                                .opcode = IBV_WR_SEND_WITH_INV,
                                .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        w.invalidate_rkey = keys[TAKEN];
        good(ibv_post_send(qp, &w, &bad), "post_send");
    }
    ready();
    if (rank == 1) {
        post_receive(8, &words[8]);
        struct ibv_wc wc = fine(receives, 8);
        if (!(wc.wc_flags & IBV_WC_WITH_INV) || wc.invalidated_rkey != keys[TAKEN])
            wrong("flags %x, key %x of %x", wc.wc_flags, wc.invalidated_rkey, keys[TAKEN]);
        for (unsigned i = 0; i < WINDOWS; i++)
            if (spare[i * SLOT / 8] != 60 + i)
                wrong("window %u has %llu", i, (unsigned long long)spare[i * SLOT / 8]);
    } else
        fine(sends, 50);
    together("looked");
    for (unsigned i = FIRST; i <= SECOND && rank == 0; i++) {
        write_by(i, keys[i], 80 + i);
        fine(sends, 40u + i);
    }
    together("written");
    if (rank == 1) {
        for (unsigned i = FIRST; i <= SECOND; i++)
            if (spare[i * SLOT / 8] != 80 + i)
                wrong("window %u has %llu", i, (unsigned long long)spare[i * SLOT / 8]);
        struct ibv_send_wr w = {.wr_id = 51, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        w.invalidate_rkey = keys[SECOND];
        good(ibv_post_send(qp, &w, &bad), "post_send");
        if (fine(sends, 51).opcode != IBV_WC_LOCAL_INV) wrong("another completion");
    }
    together("closed");
    if (rank == 0) {
        write_by(SECOND, keys[SECOND], 90);
        struct ibv_wc wc = one(sends);
        if (wc.status != IBV_WC_REM_ACCESS_ERR) wrong("a window that is closed: status %d", wc.status);
    }
    together("checked");
}
