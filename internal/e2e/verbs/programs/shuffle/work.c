// SPDX-License-Identifier: Apache-2.0
//
// work.c: does the plan, and checks that each step of the others has happened once.
//
// Of what is reliable each message must come once and in order, whatever is posted must complete, and in the end
// words and windows must hold what the plans say. Of what is unreliable no message may come twice.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shuffle.h"

// Sends of one queue pair that have not completed: those that are quiet complete with a later one.
struct flight {
    uint32_t posted, done;
    struct step step[SLOTS];
    unsigned quiet; // in a row
};

struct peer {
    struct plan out, in; // in: as far as reliable messages have come
    bool have, over_out, over_in, bye_out, bye_in;
    struct step step; // the next one, when have
    struct flight flight[2];
    uint32_t swaps;
    int64_t last_uc, last_ud; // numbers that came last
};

static struct {
    struct fabric *f;
    struct peer peer[RANKS];
    struct flight ud;
    unsigned lazy, random;
    // Receives that are not posted again at once, so that others find none.
    struct {
        int peer, at;
        enum transport t;
    } late[RANKS * RECEIVES * 3];
    int lates;
    uint64_t counts[OPS], received, lost;
} w;

enum { BYE = UINT32_MAX };

// ---- sending ----

static struct flight *flight_of(int peer, enum transport t) {
    return t == UD ? &w.ud : &w.peer[peer].flight[t];
}

static enum transport transport_of(enum op op) {
    return op == UD_SEND ? UD : op == UC_SEND || op == UC_WRITE ? UC : RC;
}

static const enum ibv_wr_opcode opcodes[OPS] = {
    [SEND] = IBV_WR_SEND,
    [SEND_IMM] = IBV_WR_SEND_WITH_IMM,
    [WRITE] = IBV_WR_RDMA_WRITE,
    [WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
    [READ] = IBV_WR_RDMA_READ,
    [ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
    [SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
    [UC_SEND] = IBV_WR_SEND,
    [UC_WRITE] = IBV_WR_RDMA_WRITE,
    [UD_SEND] = IBV_WR_SEND,
};

// Where a peer keeps what this rank reaches.
static uint64_t there(int peer, size_t offset) {
    return w.f->card[peer].memory + offsetof(struct memory, of) + (size_t)w.f->rank * sizeof(struct window) +
           offset;
}

static bool post(int p, const struct step *s) {
    struct fabric *f = w.f;
    enum transport t = transport_of(s->op);
    struct flight *fl = flight_of(p, t);
    if (fl->posted - fl->done == SLOTS) return false;
    uint32_t at = fl->posted % SLOTS;
    char *from = f->memory->out[t == UD ? 0 : p][t][at];
    bool checked = s->op == READ || s->op == SWAP || s->op == ADD;
    bool quiet = s->quiet && !checked && s->number != BYE && fl->quiet < SIGNAL_EVERY;
    struct ibv_sge piece[2] = {{(uintptr_t)from, s->length, f->mr->lkey}};
    struct ibv_send_wr wr = {.wr_id = id_of(false, t, p, at),
                             .sg_list = piece,
                             .num_sge = 1,
                             .opcode = opcodes[s->op]},
                       *bad;
    if (!checked) fill(from, s->length, w.peer[p].out.key, s->number);
    if (s->length > 64) { // in two pieces
        piece[0].length = 24;
        piece[1] = (struct ibv_sge){(uintptr_t)from + 24, s->length - 24, f->mr->lkey};
        wr.num_sge = 2;
    }
    if (!quiet) wr.send_flags |= IBV_SEND_SIGNALED;
    if (s->inlined && !checked && s->length <= 128) wr.send_flags |= IBV_SEND_INLINE;
    if (s->op == SEND_IMM || s->op == WRITE_IMM) wr.imm_data = htonl(s->number);
    wr.wr.rdma.rkey = f->card[p].rkey;
    if (s->op == WRITE || s->op == WRITE_IMM)
        wr.wr.rdma.remote_addr = there(p, offsetof(struct window, written) + s->slot * LONGEST);
    if (s->op == UC_WRITE)
        wr.wr.rdma.remote_addr = there(p, offsetof(struct window, uc_written) + s->slot * LONGEST);
    if (s->op == READ) wr.wr.rdma.remote_addr = there(p, offsetof(struct window, read));
    if (s->op == ADD || s->op == SWAP) {
        wr.wr.atomic.rkey = f->card[p].rkey;
        wr.wr.atomic.remote_addr = s->op == ADD ? f->card[p].memory + offsetof(struct memory, added)
                                                : there(p, offsetof(struct window, swapped));
        wr.wr.atomic.compare_add = s->op == ADD ? s->value : w.peer[p].swaps;
        wr.wr.atomic.swap = w.peer[p].swaps + 1;
    }
    if (s->op == SWAP) w.peer[p].swaps++;
    if (t == UD) wr.wr.ud.ah = f->ah[p], wr.wr.ud.remote_qpn = f->card[p].ud, wr.wr.ud.remote_qkey = 0x1234;
    fl->step[at] = *s, fl->step[at].value = s->op == SWAP ? w.peer[p].swaps - 1 : s->value;
    fl->posted++, fl->quiet = quiet ? fl->quiet + 1 : 0;
    int rc = ibv_post_send(t == UD ? f->ud : f->qp[p][t], &wr, &bad);
    if (rc != 0) wrong("rank %d: post_send to %d: %s", f->rank, p, strerror(rc));
    return true;
}

static void sent(int p, enum transport t, uint32_t at) {
    struct flight *fl = flight_of(p, t);
    const char *got = w.f->memory->out[t == UD ? 0 : p][t][at];
    const struct step *s = &fl->step[at];
    uint64_t word;
    if ((at + SLOTS - fl->done % SLOTS) % SLOTS >= fl->posted - fl->done)
        wrong("rank %d: slot %u towards %d completes, which is not posted", w.f->rank, at, p);
    memcpy(&word, got, sizeof word);
    // A swap that is done twice finds its own value.
    if (s->op == SWAP && word != s->value)
        wrong("rank %d: swap %lu at %d found %lu", w.f->rank, s->value, p, word);
    if (s->op == READ) {
        struct plan theirs = plan_of(0, p, w.f->rank, 0);
        if (!is(got, s->length, theirs.key, 0)) wrong("rank %d: read wrong bytes of %d", w.f->rank, p);
    }
    while (fl->done % SLOTS != at) fl->done++; // those before it have happened
    fl->done++;
}

// ---- receiving ----

static bool takes(enum op op) { return op == SEND || op == SEND_IMM || op == WRITE_IMM; }

static void came_reliably(int p, const struct ibv_wc *wc, const char *at) {
    struct peer *peer = &w.peer[p];
    struct step s;
    uint32_t number = 0;
    if (peer->over_in) { // all its plan has come
        if (peer->bye_in || !is(at, 16, peer->in.key, BYE))
            wrong("rank %d: more from %d than it sends", w.f->rank, p);
        peer->bye_in = true;
        return;
    }
    do
        if (!plan_next(&peer->in, &s)) wrong("rank %d: more from %d than it sends", w.f->rank, p);
    while (!takes(s.op));
    peer->over_in = peer->in.next == peer->in.steps;
    memcpy(&number, at, sizeof number);
    bool imm = wc->wc_flags & IBV_WC_WITH_IMM;
    if ((wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) != (s.op == WRITE_IMM) || wc->byte_len != s.length ||
        imm != (s.op != SEND) || (imm && ntohl(wc->imm_data) != s.number) ||
        (s.op != WRITE_IMM && !is(at, s.length, peer->in.key, s.number)))
        wrong(
            "rank %d: message %u (%u bytes, imm %u, opcode %d) of %d came where %u (%u bytes, op %d) was due",
            w.f->rank, number, wc->byte_len, imm ? ntohl(wc->imm_data) : 0, wc->opcode, p, s.number, s.length,
            s.op);
}

static void came_unreliably(int p, int64_t *last, const char *at, uint32_t length) {
    struct plan theirs = w.peer[p].in;
    uint32_t number;
    memcpy(&number, at, sizeof number);
    if (!is(at, length, theirs.key, number))
        wrong("rank %d: wrong bytes in message %u of %d", w.f->rank, number, p);
    if ((int64_t)number <= *last)
        wrong("rank %d: message %u of %d comes after %ld", w.f->rank, number, p, *last);
    *last = number;
}

// Of a number of the card: whose it is.
static int whose(uint32_t number, enum transport t) {
    for (int p = 0; p < w.f->ranks; p++)
        if (number == (t == RC ? w.f->mine.rc[p] : t == UC ? w.f->mine.uc[p] : w.f->card[p].ud)) return p;
    wrong("rank %d: a message of queue pair 0x%x, which is unknown", w.f->rank, number);
}

static void again(int peer, enum transport t, int at) {
    w.random = w.random * 1103515245 + 12345;
    if (w.lazy == 0 || (w.random >> 16) % w.lazy == 0) {
        fabric_receive(w.f, peer, t, at);
        return;
    }
    w.late[w.lates].peer = peer, w.late[w.lates].at = at, w.late[w.lates++].t = t;
}

static void post_late(void) {
    while (w.lates > 0) {
        w.lates--;
        fabric_receive(w.f, w.late[w.lates].peer, w.late[w.lates].t, w.late[w.lates].at);
    }
}

static void handle(const struct ibv_wc *wc) {
    struct fabric *f = w.f;
    enum transport t = wc->wr_id >> 40 & 0xff;
    int peer = wc->wr_id >> 32 & 0xff;
    uint32_t at = (uint32_t)wc->wr_id;
    if (wc->status != IBV_WC_SUCCESS)
        wrong("rank %d: %s (peer %d, transport %d)", f->rank, ibv_wc_status_str(wc->status), peer, t);
    if (!(wc->wr_id >> 48)) {
        sent(peer, t, at);
        return;
    }
    w.received++;
    const char *in = f->memory->in[t == UD          ? 2 * RANKS
                                   : t == UC        ? RANKS + peer
                                   : f->srq != NULL ? 0
                                                    : peer][at];
    int from = whose(t == UD ? wc->src_qp : wc->qp_num, t);
    if (t == RC)
        came_reliably(from, wc, in);
    else if (t == UC)
        came_unreliably(from, &w.peer[from].last_uc, in, wc->byte_len);
    else
        came_unreliably(from, &w.peer[from].last_ud, in + GRH, wc->byte_len - GRH);
    again(peer, t, (int)at);
}

static int poll_all(void) {
    struct ibv_wc wc[8];
    int n, all = 0;
    while ((n = ibv_poll_cq(w.f->cq, 8, wc)) > 0) {
        for (int i = 0; i < n; i++) handle(&wc[i]);
        all += n;
    }
    if (n < 0) wrong("rank %d: poll_cq: %d", w.f->rank, n);
    return all;
}

// Waits for the channel; what came before it was armed is polled first.
static void sleep_on_events(void) {
    struct ibv_cq *cq;
    void *mine;
    int rc = ibv_req_notify_cq(w.f->cq, 0);
    if (rc != 0) wrong("rank %d: req_notify_cq: %s", w.f->rank, strerror(rc));
    if (poll_all() > 0) return;
    struct pollfd p = {.fd = w.f->channel->fd, .events = POLLIN};
    if (poll(&p, 1, 50) <= 0) return; // receives that were held back must be posted
    if (ibv_get_cq_event(w.f->channel, &cq, &mine) != 0)
        wrong("rank %d: get_cq_event: %s", w.f->rank, strerror(errno));
    if (cq != w.f->cq || mine != w.f) wrong("rank %d: an event of another queue", w.f->rank);
    ibv_ack_cq_events(cq, 1);
}

// ---- the whole ----

static bool go_on(int p) {
    struct peer *peer = &w.peer[p];
    if (!peer->have) peer->have = plan_next(&peer->out, &peer->step);
    if (!peer->have) {
        peer->over_out = true;
        return false;
    }
    if (!post(p, &peer->step)) return false;
    // For tests of the checks: the first of this kind is done twice.
    const char *twice = getenv("SHUFFLE_TWICE");
    if (twice != NULL && (int)peer->step.op == atoi(twice)) {
        (void)unsetenv("SHUFFLE_TWICE");
        if (peer->step.op == SWAP) w.peer[p].swaps--;
        if (!post(p, &peer->step)) wrong("there is no room");
    }
    w.counts[peer->step.op]++;
    peer->have = false;
    return true;
}

// All have done all, and what is here shows it.
static void check(uint64_t seed, uint32_t steps) {
    static char model[SLOTS][LONGEST];
    uint64_t sum = 0;
    for (int p = 0; p < w.f->ranks; p++) {
        struct plan plan = plan_of(seed, p, w.f->rank, steps);
        struct step s;
        uint64_t swaps = 0;
        memset(model, 0, sizeof model);
        while (plan_next(&plan, &s)) {
            if (s.op == WRITE || s.op == WRITE_IMM) fill(model[s.slot], s.length, plan.key, s.number);
            if (s.op == ADD) sum += s.value;
            if (s.op == SWAP) swaps++;
        }
        const struct window *mine = &w.f->memory->of[p];
        if (memcmp(mine->written, model, sizeof model) != 0)
            wrong("rank %d: the window of %d is wrong", w.f->rank, p);
        if (mine->swapped != swaps)
            wrong("rank %d: %lu swaps of %d, not %lu", w.f->rank, mine->swapped, p, swaps);
    }
    if (w.f->memory->added != sum)
        wrong("rank %d: the sum is %lu, not %lu", w.f->rank, w.f->memory->added, sum);
    printf("rank %d: %lu sends %lu writes %lu reads %lu adds %lu swaps, sum %lu: right\n", w.f->rank,
           w.counts[SEND] + w.counts[SEND_IMM], w.counts[WRITE] + w.counts[WRITE_IMM], w.counts[READ],
           w.counts[ADD], w.counts[SWAP], sum);
}

static bool all(bool (*is_so)(const struct peer *)) {
    for (int p = 0; p < w.f->ranks; p++)
        if (!is_so(&w.peer[p])) return false;
    return true;
}

static bool landed(const struct peer *p) {
    return p->over_out && p->over_in && p->flight[RC].posted == p->flight[RC].done;
}

static bool parted(const struct peer *p) {
    return p->bye_in && p->bye_out && p->flight[RC].posted == p->flight[RC].done;
}

void work(struct fabric *f, uint64_t seed, uint32_t steps, unsigned pace, unsigned lazy) {
    bool checked = false;
    w.f = f, w.lazy = lazy;
    for (int p = 0; p < f->ranks; p++) {
        w.peer[p] = (struct peer){.out = plan_of(seed, f->rank, p, steps),
                                  .in = plan_of(seed, p, f->rank, steps),
                                  .last_uc = -1,
                                  .last_ud = -1};
    }
    for (unsigned turn = 0; !checked || !all(parted); turn++) {
        int did = poll_all();
        for (int p = 0; p < f->ranks; p++) did += go_on(p);
        if (did == 0 || turn % 64 == 0) post_late();
        if (pace > 0) nanosleep(&(struct timespec){.tv_nsec = pace * 1000L}, NULL);
        if (did == 0 && f->events) sleep_on_events();
        if (!checked && all(landed)) {
            check(seed, steps);
            checked = true;
        }
        for (int p = 0; checked && p < f->ranks; p++) {
            struct step bye = {.op = SEND, .number = BYE, .length = 16};
            if (!w.peer[p].bye_out) w.peer[p].bye_out = post(p, &bye);
        }
    }
}
