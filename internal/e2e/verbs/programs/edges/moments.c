// SPDX-License-Identifier: Apache-2.0
//
// moments.c: moments that are hard to save.
#include "edges.h"

// Sends that nobody waits for, behind writes that have no completion, and an addition behind all.
void late(void) {
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
void event(void) {
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
void numbers(void) {
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
void forks(void) {
    for (int i = 0; i < WORDS; i++) words[i] = 77u * (unsigned)i;
    ready();
    for (int i = 0; i < WORDS; i++)
        if (words[i] != 77u * (unsigned)i) wrong("word %d is %llu", i, (unsigned long long)words[i]);
    together("checked");
}

// Additions all the time: the sum in rank 1's image is the one that rank 0's image knows.
void adds(void) {
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
