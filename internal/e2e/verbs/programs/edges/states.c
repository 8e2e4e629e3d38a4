// SPDX-License-Identifier: Apache-2.0
//
// states.c: states in which a program waits for what comes while it is stopped, or for nothing.
#include "edges.h"

// Messages all the time, with less receives than sends, and a limit to how long a send waits for one: rank 1 is stopped
// for longer.
void stream(void) {
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

// Two queue pairs to the other rank; at rank 1 with shared queues.
static struct ibv_qp *pair[2];
static struct ibv_srq *queues[2];
static uint32_t own[2], others[2];

struct ibv_srq *shared_queue(void) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    if (!srq) wrong("no shared queue");
    return srq;
}

static void two_pairs(void) {
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = {.send_cq = sends,
                                        .recv_cq = receives,
                                        .srq = queues[i],
                                        .qp_type = IBV_QPT_RC,
                                        .cap = {4, 4, 1, 1, 0}};
        if (!(qp = pair[i] = ibv_create_qp(pd, &init))) wrong("no queue pair");
        own[i] = qp->qp_num;
        begin_pair();
    }
    tell("pairs", rank, own, sizeof own);
    hear("pairs", !rank, others, sizeof others);
    for (int i = 0; i < 2; i++) {
        qp = pair[i];
        lead(others[i], theirs.lid, theirs.gid);
    }
}

// A shared queue with one receive, and two queue pairs with a message each.
void shared(void) {
    struct ibv_srq *srq = rank == 1 ? shared_queue() : NULL;
    queues[0] = queues[1] = srq;
    two_pairs();
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
        int which = wc.qp_num == own[0] ? 0 : wc.qp_num == own[1] ? 1 : -1;
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

enum { HEAD = 40 }; // before a datagram

// The header says from which gid to which: it is a global route header, or one of IPv4 behind 20 bytes.
static int leads(const void *header, const union ibv_gid *from, const union ibv_gid *to) {
    const struct ibv_grh *g = header;
    const uint8_t *ip = (const uint8_t *)header + HEAD - 20;
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (memcmp(from, mapped, sizeof mapped)) return !memcmp(&g->sgid, from, 16) && !memcmp(&g->dgid, to, 16);
    return *ip == 0x45 && !memcmp(ip + 12, from->raw + 12, 4) && !memcmp(ip + 16, to->raw + 12, 4);
}

// Datagrams that go by gids, and a reply to where they came from, which the program learns after it was saved.
void reply(void) {
    uint8_t index = (uint8_t)(getenv("EDGES_GID") ? atoi(getenv("EDGES_GID")) : 0);
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
    good(ibv_query_gid(context, 1, index, &me.gid), "query_gid");
    for (unsigned i = 0; i < 2; i++) {
        struct ibv_sge s = {(uintptr_t)&words[16 * i], 64, mr->lkey};
        struct ibv_recv_wr w = {.wr_id = i, .sg_list = &s, .num_sge = 1}, *bad;
        good(ibv_post_recv(qp, &w, &bad), "post_recv");
    }
    tell("gid", rank, &me, sizeof me);
    hear("gid", !rank, &other, sizeof other);
    struct ibv_ah_attr way = {.is_global = 1,
                              .dlid = theirs.lid,
                              .port_num = 1,
                              .grh = {.dgid = other.gid, .sgid_index = index, .hop_limit = 9}};
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
        if (!(wc.wc_flags & IBV_WC_GRH) || wc.byte_len != HEAD + 16 || words[HEAD / 8] != 50 ||
            wc.src_qp != other.qpn)
            wrong("flags %x, %u bytes, %llu, of queue pair %x", wc.wc_flags, wc.byte_len,
                  (unsigned long long)words[HEAD / 8], wc.src_qp);
        if (!leads(words, &other.gid, &me.gid)) wrong("other gids than the program knows");
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

// Of two shared queues, one has told that it has few receives, and nobody has heard it yet; the other will.
void limit(void) {
    for (int i = 0; i < 2 && rank == 1; i++) {
        queues[i] = shared_queue();
        for (unsigned n = 0; n < 4; n++) {
            struct ibv_sge s = {(uintptr_t)&words[8 * n], 64, mr->lkey};
            struct ibv_recv_wr w = {.wr_id = n, .sg_list = &s, .num_sge = 1}, *bad;
            good(ibv_post_srq_recv(queues[i], &w, &bad), "post_srq_recv");
        }
        good(ibv_modify_srq(queues[i], &(struct ibv_srq_attr){.srq_limit = 3}, IBV_SRQ_LIMIT), "modify_srq");
    }
    two_pairs();
    together("led");
    for (int i = 0; i < 2; i++) {
        qp = pair[i];
        for (unsigned n = 0; n < 2 && rank == 0; n++) {
            post(IBV_WR_SEND, n, IBV_SEND_SIGNALED, words, 64, 0, 0);
            fine(sends, n);
        }
        if (i == 0) ready();
    }
    for (int i = 0; i < 2 && rank == 1; i++) {
        struct ibv_async_event e;
        struct ibv_srq_attr a;
        good(ibv_get_async_event(context, &e), "get_async_event");
        if (e.event_type != IBV_EVENT_SRQ_LIMIT_REACHED || e.element.srq != queues[i])
            wrong("event %d of queue %d", e.event_type, i);
        ibv_ack_async_event(&e);
        good(ibv_query_srq(queues[i], &a), "query_srq");
        if (a.srq_limit) wrong("a limit of %u that has been told", a.srq_limit);
    }
    struct pollfd p = {.fd = context->async_fd, .events = POLLIN};
    if (rank == 1 && poll(&p, 1, 0)) wrong("another event");
    together("checked");
}

// More events than are kept for a program that takes none.
void events(void) {
    enum { MANY = 20 };
    struct ibv_qp *all[MANY];
    struct ibv_srq *srq = shared_queue();
    for (int i = 0; i < MANY; i++) {
        struct ibv_qp_init_attr init = {
            .send_cq = sends, .recv_cq = receives, .srq = srq, .qp_type = IBV_QPT_RC, .cap = {1, 0, 1, 0, 0}};
        if (!(qp = all[i] = ibv_create_qp(pd, &init))) wrong("no queue pair");
        begin_pair();
        good(ibv_modify_qp(qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE), "ERR");
    }
    say_ready();
    while (!is_there("take")) nap();
    for (int i = 0; i < MANY; i++) {
        struct ibv_async_event e;
        good(ibv_get_async_event(context, &e), "get_async_event");
        if (e.event_type != IBV_EVENT_QP_LAST_WQE_REACHED || e.element.qp != all[i])
            wrong("event %d is %d", i, e.event_type);
        ibv_ack_async_event(&e);
    }
    tell("taken", rank, words, 8);
    while (!gone()) nap();
}

static void *beats(void *nothing) {
    for (uint64_t n = 0; !gone(); n++) {
        tell("beat", 1, &n, sizeof n);
        nap();
    }
    return nothing;
}

// Rank 1 sleeps until there is an event, and is stopped when the message comes.
void blocked(void) {
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
void vanishes(void) {
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
    open_all();
    again();
    writes();
}

// Nothing is open while it is saved.
void idle(void) {
    open_all();
    close_all();
    ready();
}

// Writes once to and fro.
void writes(void) {
    words[1] = 11u + (unsigned)rank;
    post(IBV_WR_RDMA_WRITE, 5, IBV_SEND_SIGNALED, &words[1], 8, theirs.spare, theirs.spare_rkey);
    fine(sends, 5);
    together("written");
    if (spare[0] != 11u + (unsigned)!rank) wrong("%llu was written", (unsigned long long)spare[0]);
    together("checked");
}
