// SPDX-License-Identifier: Apache-2.0
//
// drain.c: all programs of the job are stopped; when this is over, no adapter reads or writes their memory any more,
// every send that was posted has been executed once, and what a program has not taken yet is kept above.
//
// A drain is a number of turns.  In each, this rank takes all completions, tells the peers of its queue pairs how many
// of its sends take a receive and how long those are that wait, and hears the same.  So it knows
//
//   - which messages are on their way to it.  For those that find no receive of the program it posts one of its own,
//     and keeps the message;
//   - whether sends without a completion of their own have been executed.  Behind writes, reads and atomic operations
//     it posts a probe of the same kind, since for that the peer's permission is certain; the peer's count of messages
//     proves sends.
//
// For datagrams and unreliable connections there is no proof: they are waited for, a moment. What an unreliable connection
// has lost is known by the counts, and waited for once.
#include "verbs/back/lower.h"

#include <arpa/inet.h>
#include <time.h>

_Static_assert(sizeof(struct verbs_pair) == 40 && offsetof(struct verbs_pair, to) == 4 &&
                   offsetof(struct verbs_pair, lengths) == 24,
               "ckpt/verbs/turn.go");
_Static_assert(sizeof(struct verbs_who) <= VERBS_ANSWER_MAX, "capi/verbs.go");

static uint64_t began;
static int turns;
static bool refused; // and said

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static bool reliable(const struct v_qp *q) { return q->q.qp_type == IBV_QPT_RC; }
static bool connected(const struct v_qp *q) {
    return q->peer >= 0 && q->q.qp_type != IBV_QPT_UD &&
           (q->state == IBV_QPS_RTR || q->state == IBV_QPS_RTS || q->state == IBV_QPS_SQD);
}

size_t drain_holds(char *why, size_t bytes) {
    size_t n = 0;
    why[0] = 0;
    if (!root) return 0;
    EACH(v_qp, q, root->qps) {
        if (q->peer != V_PEER_FOREIGN || q->failed || (q->state != IBV_QPS_RTR && q->state != IBV_QPS_RTS))
            continue;
        char where[INET6_ADDRSTRLEN + 4] = "gid ";
        if (!q->attr.ah_attr.is_global ||
            !inet_ntop(AF_INET6, &q->attr.ah_attr.grh.dgid, where + 4, INET6_ADDRSTRLEN))
            snprintf(where, sizeof where, "lid %u", q->attr.ah_attr.dlid);
        if (n < bytes)
            n += (size_t)snprintf(
                why + n, bytes - n,
                "queue pair 0x%06x is connected to %s, queue pair 0x%06x, which is no process of this job\n",
                q->q.qp_num, where, q->attr.dest_qp_num);
    }
    EACH(v_context, x, root->contexts) {
        if (event_waits(x) && n < bytes)
            n += (size_t)snprintf(
                why + n, bytes - n,
                "more than %d asynchronous events of the InfiniBand device %s wait for the program\n",
                V_ASYNC, x->v.context.device->name);
    }
    EACH(v_cq, c, root->cqs) {
        if (c->overrun && n < bytes)
            n += (size_t)snprintf(why + n, bytes - n,
                                  "a completion queue of %d entries had no room for a completion\n",
                                  c->entries);
    }
    return n < bytes ? n : bytes;
}

static void poll_all(void) {
    struct ibv_wc wc[32];
    EACH(v_cq, c, root->cqs) {
        for (uint64_t before = last_completion;; before = last_completion) {
            int n = poll_real(c, 32, wc);
            for (int i = 0; i < n; i++) cq_keep(c, &wc[i]);
            if (n < 0 || before == last_completion) break;
        }
    }
    events_keep();
}

// ---- what is told ----------------------------------------------------------------------------------

struct words {
    uint8_t *p;
    size_t bytes, room;
};
static struct words told, to_self; // to other ranks, and to this one

static void put(struct words *w, const void *p, size_t n) {
    if (w->bytes + n > w->room) {
        size_t room = 2 * (w->bytes + n) + 4096;
        uint8_t *more = realloc(w->p, room);
        if (!more) return; // what is missing is told in a later turn
        w->p = more;
        w->room = room;
    }
    memcpy(w->p + w->bytes, p, n);
    w->bytes += n;
}

// ---- messages that no receive waits for -------------------------------------------------------------

// A receive of our own, of that many bytes.
static struct v_message *receive_of_own(struct ibv_pd *pd, uint32_t bytes, struct ibv_sge *sge) {
    size_t all = (sizeof(struct v_message) + bytes + 4095) & ~4095ull;
    struct v_message *m = verbs_host.map(all);
    if (!m) return NULL;
    m->bytes = all;
    if (bytes) {
        errno = 0;
        struct ibv_mr *r =
            real.ibv_reg_mr_iova2(pd, m->data, bytes, (uint64_t)m->data, IBV_ACCESS_LOCAL_WRITE);
        if (!r) {
            if (!refused)
                say("no memory can be registered for a message that no receive waits for: %s",
                    strerror(error_number()));
            refused = true;
            verbs_host.unmap(m, all);
            return NULL;
        }
        m->real = (uint64_t)r;
        *sge = (struct ibv_sge){(uint64_t)m->data, bytes, r->lkey};
    }
    return m;
}

static void undo(struct v_message *m) {
    if (m->real) real.ibv_dereg_mr((struct ibv_mr *)m->real);
    verbs_host.unmap(m, m->bytes);
}

static void receive_for(struct v_qp *q, uint32_t bytes) {
    struct ibv_sge sge;
    struct v_message *m = receive_of_own(REAL_PD(q->q.pd), bytes, &sge);
    if (!m) return; // the drain does not end, and says so
    struct ibv_recv_wr w = {.wr_id = WR_ID(ID_BOUNCE, 0), .sg_list = &sge, .num_sge = bytes ? 1 : 0}, *bad;
    q->bounce = m;
    if (!REAL_QP(q)->context->ops.post_recv(REAL_QP(q), &w, &bad)) return;
    q->bounce = NULL;
    undo(m);
}

static void receive_for_srq(struct v_srq *s, uint32_t bytes) {
    struct ibv_sge sge;
    struct v_message *m = receive_of_own(REAL_PD(s->s.pd), bytes, &sge);
    if (!m) return;
    struct ibv_recv_wr w = {.wr_id = WR_ID(ID_SRQ_BOUNCE, 0), .sg_list = &sge, .num_sge = bytes ? 1 : 0},
                       *bad;
    s->bounce = m;
    if (!REAL_SRQ(s)->context->ops.post_srq_recv(REAL_SRQ(s), &w, &bad)) return;
    s->bounce = NULL;
    undo(m);
}

static void hear_some(const uint8_t *in, size_t bytes) {
    while (bytes >= sizeof(struct verbs_pair)) {
        struct verbs_pair p;
        memcpy(&p, in, sizeof p);
        in += sizeof p, bytes -= sizeof p;
        if (bytes / 4 < p.lengths) return;
        const uint8_t *lengths = in;
        in += 4ull * p.lengths, bytes -= 4ull * p.lengths;
        struct v_qp *q = ids_qp_of(p.to);
        if (!q || !connected(q) || q->attr.dest_qp_num != p.from) continue;
        q->told = 1;
        q->told_posted = p.posted;
        q->told_got = p.got;
        q->told_failed = p.failed;
        if (q->failed || p.failed || !reliable(q) || p.posted <= q->receives_done) continue;
        uint64_t waiting = p.posted - q->receives_done;
        if (q->srq) {
            q->srq->waiting += waiting;
            for (uint32_t i = 0; i < p.lengths; i++) {
                uint32_t one;
                memcpy(&one, lengths + 4ull * i, 4);
                if (one > q->srq->longest) q->srq->longest = one;
            }
            continue;
        }
        if (q->bounce || waiting <= q->receive_head - q->receive_tail) continue;
        // Receives are taken in order: after those of the program, this message is next.
        uint64_t next = q->receives_done + (q->receive_head - q->receive_tail);
        uint32_t length = 0;
        if (next < p.first || next - p.first >= p.lengths) continue;
        memcpy(&length, lengths + 4 * (next - p.first), 4);
        receive_for(q, length);
    }
}

static void hear(const uint8_t *in, size_t bytes) {
    EACH(v_srq, s, root->srqs) s->waiting = 0, s->longest = 0;
    hear_some(in, bytes);
    hear_some(to_self.p, to_self.bytes); // of the turn before
    EACH(v_srq, s, root->srqs) {
        if (!s->bounce && s->waiting > s->posted - s->done) receive_for_srq(s, s->longest);
    }
}

// ---- sends without a completion ---------------------------------------------------------------------

static bool is_send(int op) {
    return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_SEND_WITH_INV;
}

// The last operation that nothing signaled follows and that the peer's count does not prove; NULL: there is none.
static const struct v_send *unproved(struct v_qp *q) {
    for (uint64_t i = q->send_head; i > q->send_tail && i > q->send_proved; i--) {
        const struct v_send *s = &q->send[(i - 1) & q->send_mask];
        if (s->signaled) return NULL;
        if (!is_send(s->opcode)) return s;
    }
    return NULL;
}

// Whether a completion is still to come.
static bool some_signaled(const struct v_qp *q) {
    for (uint64_t i = q->send_tail; i < q->send_head; i++)
        if (q->send[i & q->send_mask].signaled) return true;
    return false;
}

static void probe(struct v_qp *q) {
    const struct v_send *s = unproved(q);
    if (!s || q->probe || q->failed || q->send_head - q->send_tail > q->send_mask) return;
    struct ibv_sge sge;
    struct ibv_send_wr w = {.wr_id = WR_ID(ID_SEND, q->send_head), .send_flags = IBV_SEND_SIGNALED}, *bad;
    uint32_t rkey = ids_rkey(q, s->rkey);
    if (s->opcode == IBV_WR_RDMA_READ || s->opcode == IBV_WR_RDMA_WRITE ||
        s->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        w.opcode = s->opcode == IBV_WR_RDMA_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
        w.wr.rdma.remote_addr = s->remote;
        w.wr.rdma.rkey = rkey;
    } else {
        struct ibv_mr *m = pd_scratch(v_of(v_pd, p, q->q.pd));
        if (!m) return;
        sge = (struct ibv_sge){(uint64_t)m->addr, 8, m->lkey};
        w.sg_list = &sge;
        w.num_sge = 1;
        w.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        w.wr.atomic.remote_addr = s->remote;
        w.wr.atomic.rkey = rkey;
    }
    struct v_send own = {.opcode = (uint8_t)w.opcode,
                         .signaled = 1,
                         .own = V_OWN,
                         .takes = q->takes_posted,
                         .remote = s->remote,
                         .rkey = s->rkey};
    q->send[q->send_head & q->send_mask] = own;
    if (REAL_QP(q)->context->ops.post_send(REAL_QP(q), &w, &bad)) return;
    q->probe = ++q->send_head;
}

// ---- what is told and what is left ------------------------------------------------------------------

static void tell(struct v_qp *q) {
    struct verbs_pair p = {.from = q->q.qp_num,
                           .to = q->attr.dest_qp_num,
                           .posted = q->takes_posted,
                           .first = q->takes_done,
                           .failed = q->failed,
                           .got = q->receives_done};
    p.lengths = (uint32_t)(q->takes_posted - q->takes_done);
    struct words *to = q->peer == root->rank ? &to_self : &told;
    put(to, &p, sizeof p);
    uint32_t n = 0;
    for (uint64_t i = q->send_tail; i < q->send_head; i++) {
        const struct v_send *s = &q->send[i & q->send_mask];
        if (!s->take) continue;
        uint32_t length = is_send(s->opcode) ? s->length : 0;
        put(to, &length, 4);
        n++;
    }
    static const uint32_t zero;
    for (; n < p.lengths; n++) put(to, &zero, 4);
}

static const char *waits_for(struct v_qp *q, uint64_t *count) {
    uint64_t now = now_ns();
    bool quiet = now - last_completion > 20000000ull || now - began > 100000000ull;
    if (q->bounce) return *count = 1, "receives of messages are not over";
    if (q->send_head != q->send_tail && !(q->failed && now - began > 2000000000ull)) {
        *count = q->send_head - q->send_tail;
        if (some_signaled(q) || unproved(q)) return "sends have not been acknowledged";
        if (reliable(q) && !q->failed) {
            if (connected(q) && turns > 1 && !q->told) return NULL; // the peer is gone
            if (!q->told || q->told_got < q->takes_posted) return "sends have not been acknowledged";
        } else if (!quiet)
            return "datagrams are under way";
        // Proved.  What completions tell about is freed when one comes.
    }
    if (q->failed) return NULL;
    if (q->q.qp_type == IBV_QPT_UD && q->state >= IBV_QPS_RTR)
        return *count = 0, quiet ? NULL : "datagrams are under way";
    if (!connected(q) || q->told_failed) return NULL;
    if (!q->told) return *count = 0, turns > 1 ? NULL : "its peer has not been heard";
    uint64_t due = reliable(q) ? q->told_posted : q->told_posted - q->lost;
    if (q->told_posted < q->lost || due <= q->receives_done) return NULL;
    *count = due - q->receives_done;
    // Those of an unreliable one come late on a slow machine, or never.
    bool never = !reliable(q) && now - last_completion > 1000000000ull;
    return never ? NULL : "messages have not arrived";
}

int drain_turn(int first, const void *in, size_t bytes, void **out, size_t *out_bytes, int *left, char *why,
               size_t why_bytes) {
    *out = NULL;
    *out_bytes = 0;
    *left = 0;
    why[0] = 0;
    if (!root) return 0;
    if (first) {
        draining = true;
        began = last_completion = now_ns();
        turns = 0;
        refused = false;
        to_self.bytes = 0;
        EACH(v_qp, q, root->qps) q->told = q->told_failed = 0, q->told_posted = q->told_got = 0;
    }
    turns++;
    poll_all();
    hear(in, bytes);
    EACH(v_qp, q, root->qps) {
        if (q->q.qp_type != IBV_QPT_UD && q->state == IBV_QPS_RTS) probe(q);
    }
    poll_all();
    told.bytes = to_self.bytes = 0;
    EACH(v_qp, q, root->qps) {
        if (connected(q)) tell(q);
        uint64_t n = 0;
        const char *what = waits_for(q, &n);
        if (!what) continue;
        if (!(*left)++) {
            char to[40] = "";
            if (q->peer >= 0) snprintf(to, sizeof to, " to rank %d", q->peer);
            snprintf(why, why_bytes, "queue pair 0x%06x%s: %llu %s", q->q.qp_num, to, (unsigned long long)n,
                     what);
        }
    }
    EACH(v_srq, s, root->srqs) {
        if (s->bounce && !(*left)++) snprintf(why, why_bytes, "a shared receive queue still receives");
    }
    *out = told.p;
    *out_bytes = told.bytes;
    return 0;
}

// A receive of our own must not stay in a queue of a program that goes on.
void drain_end(void) {
    if (!root) return;
    for (uint64_t start = now_ns(); now_ns() - start < 10000000000ull; sched_yield()) {
        bool some = false;
        EACH(v_qp, q, root->qps) some = some || (q->bounce && !q->failed);
        EACH(v_srq, s, root->srqs) some = some || s->bounce;
        if (!some) break;
        poll_all();
    }
    EACH(v_qp, q, root->qps) {
        if (q->told) q->lost = q->told_posted > q->receives_done ? q->told_posted - q->receives_done : 0;
    }
    draining = false;
}
