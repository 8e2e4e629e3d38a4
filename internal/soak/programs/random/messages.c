// SPDX-License-Identifier: Apache-2.0
//
// messages.c: phases of messages between two ranks.
#include <stdlib.h>
#include <string.h>

#include "random.h"

// MPI_COMM_WORLD and its like, or an intercommunicator now and then.
static struct comm *any_comm(void) {
    struct comm *c = pick(&script, 6) == 0 ? some_comm_of(INTER) : NULL;
    return c ? c : some_comm();
}

// Each message is sent and received before the next.
void phase_linear(void) {
    for (int n = between(&script, 1, 14); n > 0; n--) {
        struct msg m = some_msg(any_comm(), 60000);
        if (is_src(&m) && is_dst(&m)) {
            struct op o;
            post_send(&o, &m);
            take(&m, 1, 0);
            complete(&o, 1);
        } else if (is_src(&m)) {
            blocking_send(&m);
        } else if (is_dst(&m)) {
            take(&m, 1, pick(&own, 4) == 0);
        }
    }
}

// Everything is started, then awaited.
void phase_exchange(void) {
    enum { MOST = 40 };
    struct op ops[2 * MOST];
    struct msg list[MOST];
    int n = between(&script, 4, MOST), started = 0, tags = pick(&script, 3);
    struct comm *c = any_comm();
    for (int i = 0; i < n; i++) {
        if (pick(&script, 4) == 0) c = any_comm();
        list[i] = some_msg(c, i % 8 ? 2000 : 60000);
        // Messages of one sender with the same tag must come in order.
        if (i > 0 && tags && list[i - 1].c == c) list[i].tag = list[i - 1].tag;
    }
    int order = pick(&own, 3);
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < n; i++) {
            if (is_src(&list[i]) && half == (order == 0)) post_send(&ops[started++], &list[i]);
            if (is_dst(&list[i]) && half == (order == 1)) post_recv(&ops[started++], &list[i], 0);
            if (pick(&own, 8) == 0) dally();
        }
    // Folded in the order of the script, whatever the order of starting was.
    struct op sorted[2 * MOST];
    int k = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < started; j++)
            if (ops[j].m.id == list[i].id) sorted[k++] = ops[j];
    complete(sorted, k);
}

// Many small messages, received late and in another order.
void phase_unexpected(void) {
    enum { MOST = 100 };
    struct comm *c = any_comm();
    struct msg m = some_msg(c, 8);
    int n = between(&script, 10, MOST), order[MOST], wait = pick(&script, 3);
    struct msg list[MOST];
    struct op ops[MOST];
    for (int i = 0; i < n; i++) {
        list[i] = m;
        list[i].mode = pick(&script, 20) ? STANDARD : SYNCHRONOUS;
        list[i].tag = fresh_tag();
        list[i].id = draw(&script);
        order[i] = i;
    }
    for (int i = n - 1; i > 0; i--) {
        int j = pick(&script, i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
    if (is_src(&m))
        for (int i = 0; i < n; i++) post_send(&ops[i], &list[i]);
    if (is_dst(&m))
        for (int i = 0; i < n; i++) {
            if (i % 16 == 0 && wait) dally();
            take(&list[order[i]], 1, 0);
        }
    if (is_src(&m)) complete(ops, n);
}

// One rank receives from all of a communicator, in the order in which messages come.
void phase_wild(void) {
    enum { EACH = 12 };
    struct comm *c = some_comm();
    struct msg m = some_msg(c, pick(&script, 4) ? 300 : 20000);
    int each = between(&script, 1, EACH), n = c->n[0];
    uint64_t base = digest, sum = 0;
    struct msg list[RANKS * EACH];
    struct op ops[EACH];
    for (int k = 0; k < each; k++) {
        uint64_t id = draw(&script);
        // One after the other: two of one sender arrive in the order in which they were sent.
        for (int i = 0; i < n; i++) {
            struct msg *x = &list[i * each + k];
            *x = m;
            x->src = i;
            x->tag = k == 0 ? m.tag : list[k - 1].tag + 1;
            x->id = mix(id, (uint64_t)i);
        }
        fresh_tag();
    }
    int me = seat(c, 0);
    if (me < 0) return;
    for (int k = 0; k < each; k++) {
        post_send(&ops[k], &list[me * each + k]);
        dally();
    }
    if (is_dst(&m))
        for (int k = 0; k < each; k++) {
            struct msg of[RANKS];
            for (int i = 0; i < n; i++) of[i] = list[i * each + k];
            for (int i = 0; i < n; i++) {
                digest = base;
                take(of, n, 1);
                sum += digest;
            }
        }
    if (is_dst(&m)) digest = mix(base, sum);
    complete(ops, each);
}

// Any source and any tag, on a communicator that nothing else uses; a barrier ends it.
void phase_any_tag(void) {
    enum { EACH = 10 };
    struct comm *c = &comms[1];
    int dst = pick(&script, size), each = between(&script, 1, EACH), synchronous = pick(&script, 3);
    uint64_t sum = 0;
    MPI_Request r[EACH];
    uint64_t out[EACH];
    for (int k = 0; k < each; k++) {
        out[k] = mix(digest, (uint64_t)k);
        (synchronous ? MPI_Isend : MPI_Issend)(&out[k], 1, MPI_UINT64_T, dst, k, c->comm, &r[k]);
    }
    if (rank == dst)
        for (int i = 0; i < size * each; i++) {
            uint64_t in = 0;
            MPI_Status st;
            MPI_Message m;
            int flag = 0, how = pick(&own, 4);
            dally();
            if (how == 0) {
                while (!flag) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c->comm, &flag, &st);
                MPI_Recv(&in, 1, MPI_UINT64_T, st.MPI_SOURCE, st.MPI_TAG, c->comm, &st);
            } else if (how == 1) {
                MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c->comm, &m, &st);
                dally();
                MPI_Mrecv(&in, 1, MPI_UINT64_T, &m, &st);
            } else {
                MPI_Recv(&in, 1, MPI_UINT64_T, MPI_ANY_SOURCE, MPI_ANY_TAG, c->comm, &st);
            }
            sum += mix(mix(in, (uint64_t)st.MPI_SOURCE), (uint64_t)st.MPI_TAG);
        }
    MPI_Waitall(each, r, MPI_STATUSES_IGNORE);
    fold(sum);
    if (pick(&script, 2)) {
        MPI_Barrier(c->comm);
    } else {
        MPI_Request b;
        int flag = 0;
        MPI_Ibarrier(c->comm, &b);
        while (!flag) {
            MPI_Test(&b, &flag, MPI_STATUS_IGNORE);
            dally();
        }
    }
}

// ---- persistent requests, kept over phases ----

enum { SETS = 4, SET = 8 };
static struct set {
    int n, mine;
    struct comm *c;
    struct op ops[2 * SET];
} sets[SETS];

static void forget(struct set *s) {
    for (int i = 0; i < s->mine; i++) {
        MPI_Request_free(&s->ops[i].req);
        if (s->ops[i].type != MPI_DATATYPE_NULL) MPI_Type_free(&s->ops[i].type);
        free(s->ops[i].buf);
    }
    s->n = s->mine = 0;
    s->c = NULL;
}

void persistent_forget(const struct comm *c) {
    for (int i = 0; i < SETS; i++)
        if (sets[i].n > 0 && (c == NULL || sets[i].c == c)) forget(&sets[i]);
}

static void make_set(struct set *s) {
    s->c = any_comm();
    s->n = between(&script, 1, SET);
    for (int i = 0; i < s->n; i++) {
        struct msg m = some_msg(s->c, 4000);
        if (m.out_shape == 5) // packed once would stay as it is
            m.out_shape = 0;
        if (m.mode == BUFFERED) // Open MPI 4.1 sends wrong bytes the second time
            m.mode = STANDARD;
        if (is_dst(&m)) init_recv(&s->ops[s->mine++], &m);
        if (is_src(&m)) init_send(&s->ops[s->mine++], &m);
    }
}

static void round_of(struct set *s) {
    MPI_Request r[2 * SET];
    for (int i = 0; i < s->mine; i++) {
        refill(&s->ops[i]);
        r[i] = s->ops[i].req;
    }
    if (pick(&own, 2)) {
        MPI_Startall(s->mine, r);
    } else {
        for (int i = s->mine - 1; i >= 0; i--) {
            MPI_Start(&r[i]);
            dally();
        }
    }
    complete(s->ops, s->mine);
}

void phase_persistent(void) {
    struct set *s = &sets[pick(&script, SETS)];
    if (s->n > 0 && pick(&script, 4) == 0) forget(s);
    if (s->n == 0) make_set(s);
    for (int k = between(&script, 1, 6); k > 0; k--) round_of(s);
}

// ---- others ----

// Ready sends: the receiver says when its receive is posted.
void phase_ready(void) {
    for (int n = between(&script, 1, 5); n > 0; n--) {
        struct msg m = some_msg(any_comm(), 20000);
        int go = fresh_tag();
        struct op o;
        m.mode = READY;
        if (is_src(&m) && is_dst(&m)) continue;
        if (is_dst(&m)) {
            post_recv(&o, &m, 0);
            MPI_Send(NULL, 0, MPI_BYTE, m.src, go, m.c->comm);
            complete(&o, 1);
        }
        if (is_src(&m)) {
            MPI_Recv(NULL, 0, MPI_BYTE, m.dst, go, m.c->comm, MPI_STATUS_IGNORE);
            if (pick(&own, 2)) {
                blocking_send(&m);
            } else {
                post_send(&o, &m);
                complete(&o, 1);
            }
        }
    }
}

// Around a ring, also an open one.
void phase_sendrecv(void) {
    struct comm *c = some_comm();
    int n = c->n[0], step = between(&script, 1, n), tag = fresh_tag(), open = pick(&script, 3) == 0;
    int words = 1 + some_size(20000), rounds = between(&script, 1, 8), replace = pick(&script, 2);
    int me = seat(c, 0);
    if (me < 0) return;
    int to = (me + step) % n, from = (me + n - step % n) % n;
    if (open && me + step >= n) to = MPI_PROC_NULL;
    if (open && me < step) from = MPI_PROC_NULL;
    uint64_t *out = need((size_t)words * 8), *in = need((size_t)words * 8);
    for (int r = 0; r < rounds; r++) {
        MPI_Status st;
        int got;
        for (int i = 0; i < words; i++) out[i] = mix(digest, (uint64_t)i);
        dally();
        if (replace)
            MPI_Sendrecv_replace(out, words, MPI_UINT64_T, to, tag, from, tag, c->comm, &st);
        else
            MPI_Sendrecv(out, words, MPI_UINT64_T, to, tag, in, words, MPI_UINT64_T, from, tag, c->comm, &st);
        MPI_Get_count(&st, MPI_UINT64_T, &got);
        if (st.MPI_SOURCE != from || got != (from == MPI_PROC_NULL ? 0 : words))
            fail("%d words from %d, expected %d from %d", got, st.MPI_SOURCE, words, from);
        for (int i = 0; i < got; i++) fold(replace ? out[i] : in[i]);
    }
    free(out);
    free(in);
}

// Receives that nothing is sent for.
void phase_cancel(void) {
    struct comm *c = any_comm();
    int n = between(&script, 1, 4), tag = fresh_tag();
    if (!member(c)) return;
    for (int i = 0; i < n; i++) {
        uint64_t in[4];
        MPI_Request r;
        MPI_Status st;
        int cancelled = 0;
        MPI_Irecv(in, 4, MPI_UINT64_T, MPI_ANY_SOURCE, tag, c->comm, &r);
        dally();
        MPI_Cancel(&r);
        dally();
        MPI_Wait(&r, &st);
        MPI_Test_cancelled(&st, &cancelled);
        if (!cancelled) fail("a receive without a message was not cancelled");
    }
}

// A long ping-pong without a pause.
void phase_burst(void) {
    struct msg m = some_msg(some_comm(), 4);
    int rounds = between(&script, 50, 300);
    if (m.src == m.dst || !(is_src(&m) || is_dst(&m))) return;
    int peer = is_src(&m) ? m.dst : m.src;
    for (int i = 0; i < rounds; i++) {
        uint64_t v = mix(digest, (uint64_t)i);
        if (is_src(&m)) MPI_Send(&v, 1, MPI_UINT64_T, peer, m.tag, m.c->comm);
        MPI_Recv(&v, 1, MPI_UINT64_T, peer, m.tag, m.c->comm, MPI_STATUS_IGNORE);
        fold(v);
        if (is_dst(&m)) MPI_Send(&v, 1, MPI_UINT64_T, peer, m.tag, m.c->comm);
    }
}

// ---- what outlives its phase ----

enum { LATER = 128 }; // at most 6 a phase, of which a rank has two ends, for 8 phases
static struct op later[LATER];
static int nlater;

void later_add(struct op *o, int due) {
    if (nlater == LATER) fail("too many operations under way");
    o->due = due;
    later[nlater++] = *o;
}

// Communicators with something under way, on all ranks alike.
static struct {
    struct comm *c;
    int until;
} busy[LATER];
static int nbusy;

static void later_comm(struct comm *c, int until) {
    if (nbusy == LATER) fail("too many communicators in use");
    c->busy++;
    busy[nbusy].c = c;
    busy[nbusy++].until = until;
}

// Messages and collectives that end some phases later; some are matched long before they are
// received.
void phase_later(void) {
    for (int n = between(&script, 1, 6); n > 0; n--) {
        struct comm *c = any_comm();
        struct msg m = some_msg(c, 20000);
        int due = phase + between(&script, 1, 8), how = pick(&script, 4), send_first = pick(&script, 2);
        struct op s, r;
        if (m.mode == BUFFERED) m.mode = STANDARD;
        if (how == 0 && c->kind != INTER) {
            coll_start(&s, c, 0);
            if (s.what == OP_COLL) later_add(&s, due);
        } else {
            int src = is_src(&m), dst = is_dst(&m);
            if (src && (send_first || how == 1)) post_send(&s, &m);
            if (dst && how == 1) {
                MPI_Status st;
                memset(&r, 0, sizeof r);
                r.m = m;
                r.what = OP_RECV;
                MPI_Mprobe(m.src, m.tag, c->comm, &r.held, &st);
            } else if (dst) {
                post_recv(&r, &m, 0);
            }
            if (src && !send_first && how != 1) post_send(&s, &m);
            if (src) later_add(&s, due);
            if (dst) later_add(&r, due);
        }
        later_comm(c, due);
        dally();
    }
}

static void receive_held(struct op *o) {
    MPI_Status st;
    uint64_t *buf = need((size_t)o->m.n * 8);
    MPI_Mrecv(buf, o->m.n, MPI_UINT64_T, &o->held, &st);
    o->buf = buf;
    o->m.in_shape = 0;
    o->type = MPI_DATATYPE_NULL;
    finish(o, &st);
}

void later_due(int all) {
    struct op ops[LATER];
    int n = 0, left = 0;
    for (int i = 0; i < nlater; i++) {
        if (!all && later[i].due > phase)
            later[left++] = later[i];
        else if (later[i].what == OP_RECV && later[i].held != MPI_MESSAGE_NULL)
            receive_held(&later[i]);
        else
            ops[n++] = later[i];
    }
    nlater = left;
    complete(ops, n);
    left = 0;
    for (int i = 0; i < nbusy; i++) {
        if (!all && busy[i].until > phase)
            busy[left++] = busy[i];
        else
            busy[i].c->busy--;
    }
    nbusy = left;
}
