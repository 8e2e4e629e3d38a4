// SPDX-License-Identifier: Apache-2.0
//
// message.c: messages of all modes, sizes and datatypes, and the ways to receive and to wait.
//
// The first word of a message is its sender's digest, the others follow from the message's id.
#include <stdlib.h>
#include <string.h>

#include "random.h"

// ---- shapes: how the words of a message lie in memory ----

enum { PLAIN, STRIDED, PAIRS, INDEXED, WHOLE, PACKED, SHAPES };

static int shape_of(int shape, int n) {
    if (n == 0 || (shape == INDEXED && n > 3000)) return PLAIN;
    return shape == PAIRS && n % 2 ? STRIDED : shape;
}

// Where word i lies.
static size_t at(int shape, int i) {
    switch (shape) {
    case STRIDED:
        return 2 * (size_t)i;
    case PAIRS:
        return 4 * (size_t)(i / 2) + 3 * (size_t)(i & 1);
    case INDEXED:
        return (size_t)(i + i / 2);
    default:
        return (size_t)i;
    }
}

static size_t room(int n) { return 8 * (2 * (size_t)n + 4); }

static MPI_Datatype indexed(int n) {
    MPI_Datatype t;
    int *ones = need((size_t)n * sizeof(int)), *where = need((size_t)n * sizeof(int));
    for (int i = 0; i < n; i++) {
        ones[i] = 1;
        where[i] = (int)at(INDEXED, i);
    }
    MPI_Type_indexed(n, ones, where, MPI_UINT64_T, &t);
    free(ones);
    free(where);
    return t;
}

// The datatype of n words, to be used `count` times; *ours is it, too, when it must be freed.
static MPI_Datatype type_of(int shape, int n, int *count, MPI_Datatype *ours) {
    MPI_Datatype t, inner;
    *count = 1;
    *ours = MPI_DATATYPE_NULL;
    switch (shape) {
    case STRIDED:
        MPI_Type_vector(n, 1, 2, MPI_UINT64_T, &t);
        break;
    case PAIRS: {
        int ones[2] = {1, 1};
        MPI_Aint where[2] = {0, 24};
        MPI_Datatype words[2] = {MPI_UINT64_T, MPI_UINT64_T};
        MPI_Type_create_struct(2, ones, where, words, &inner);
        MPI_Type_create_resized(inner, 0, 32, &t);
        MPI_Type_free(&inner);
        *count = n / 2;
        break;
    }
    case INDEXED:
        t = indexed(n);
        break;
    case WHOLE:
        MPI_Type_contiguous(n, MPI_UINT64_T, &t);
        break;
    default:
        *count = n;
        return MPI_UINT64_T;
    }
    MPI_Type_commit(&t);
    *ours = t;
    return t;
}

static void fill(const struct msg *m, int shape, uint64_t *buf) {
    for (int i = 0; i < m->n; i++) buf[at(shape, i)] = i == 0 ? digest : mix(m->id, (uint64_t)i);
}

static void check(const struct msg *m, int shape, const uint64_t *buf) {
    for (int i = 1; i < m->n; i++)
        if (buf[at(shape, i)] != mix(m->id, (uint64_t)i))
            fail("word %d of the %d from rank %d, tag %d, mode %d, shapes %d to %d, is %llx, not %llx", i,
                 m->n, m->src, m->tag, (int)m->mode, m->out_shape, m->in_shape,
                 (unsigned long long)buf[at(shape, i)], (unsigned long long)mix(m->id, (uint64_t)i));
}

// ---- the script's messages ----

int fresh_tag(void) {
    static int tag;
    return tag = tag % 30000 + 1;
}

int some_size(int most) {
    int how = pick(&script, 16);
    int n = how < 2    ? 0
            : how < 9  ? between(&script, 1, 8)
            : how < 13 ? between(&script, 9, 500)
            : how < 15 ? between(&script, 500, 6000)
                       : between(&script, 6000, 60000);
    return n > most ? 1 + n % most : n;
}

struct msg some_msg(struct comm *c, int most_words) {
    struct msg m = {.c = c};
    int mode = pick(&script, 8);
    m.side = c->kind == INTER ? pick(&script, 2) : 0;
    m.src = pick(&script, c->n[m.side]);
    m.dst = pick(&script, c->n[1 - m.side]);
    m.tag = fresh_tag();
    m.n = some_size(most_words);
    m.id = draw(&script);
    m.mode = mode == 0 ? SYNCHRONOUS : mode == 1 && m.n <= 2000 ? BUFFERED : STANDARD;
    int derived = pick(&script, 3) == 0;
    m.out_shape = derived ? shape_of(pick(&script, SHAPES), m.n) : PLAIN;
    m.in_shape = derived ? shape_of(pick(&script, PACKED), m.n) : PLAIN;
    return m;
}

int is_src(const struct msg *m) { return m->c->who[m->side][m->src] == rank; }
int is_dst(const struct msg *m) { return m->c->who[1 - m->side][m->dst] == rank; }

// ---- MPI_Bsend's buffer ----

enum { BSEND_BUFFER = 8 << 20, BSEND_MOST = 4 << 20 };
static char *bsend_buffer;
static size_t bsend_used; // at most; receivers may be behind

static void attach(void) { MPI_Buffer_attach(bsend_buffer, BSEND_BUFFER); }

static void detach(void) {
    void *p;
    int n;
    MPI_Buffer_detach(&p, &n);
    if (p != bsend_buffer || n != BSEND_BUFFER) fail("another buffer was attached");
    bsend_used = 0;
}

static void bsend_count(const struct msg *m) {
    if (m->mode == BUFFERED) bsend_used += 8 * (size_t)m->n + 1024;
}

// Between phases: all that was sent before will be received without this rank.
void messages_flush(void) {
    if (bsend_used > BSEND_MOST || (bsend_used > 0 && pick(&own, 40) == 0)) {
        detach();
        attach();
    }
}

void messages_begin(void) {
    bsend_buffer = need(BSEND_BUFFER);
    attach();
}

void messages_end(void) {
    detach();
    free(bsend_buffer);
}

// ---- starting ----

static void *out_buffer(struct op *o, const struct msg *m, int *count, MPI_Datatype *type) {
    memset(o, 0, sizeof *o);
    o->m = *m;
    o->what = OP_SEND;
    o->held = MPI_MESSAGE_NULL;
    o->buf = need(room(m->n));
    fill(m, m->out_shape, o->buf);
    *type = type_of(m->out_shape, m->n, count, &o->type);
    if (m->out_shape == PACKED) {
        int bytes = 0, used = 0;
        MPI_Pack_size(m->n, MPI_UINT64_T, m->c->comm, &bytes);
        void *packed = need((size_t)bytes);
        MPI_Pack(o->buf, m->n, MPI_UINT64_T, packed, bytes, &used, m->c->comm);
        free(o->buf);
        o->buf = packed;
        *count = used;
        *type = MPI_PACKED;
    }
    bsend_count(m);
    return o->buf;
}

void post_send(struct op *o, const struct msg *m) {
    int count;
    MPI_Datatype type;
    void *buf = out_buffer(o, m, &count, &type);
    int (*const start[])(const void *, int, MPI_Datatype, int, int, MPI_Comm,
                         MPI_Request *) = {MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend};
    start[m->mode](buf, count, type, m->dst, m->tag, m->c->comm, &o->req);
    if (o->type != MPI_DATATYPE_NULL && pick(&own, 8) == 0)
        MPI_Type_free(&o->type); // MPI lets it go when the message is sent
}

static void in_buffer(struct op *o, const struct msg *m, int *count, MPI_Datatype *type) {
    memset(o, 0, sizeof *o);
    o->m = *m;
    o->what = OP_RECV;
    o->held = MPI_MESSAGE_NULL;
    o->buf = need(room(m->n));
    *type = type_of(m->in_shape, m->n, count, &o->type);
}

void post_recv(struct op *o, const struct msg *m, int wild) {
    int count;
    MPI_Datatype type;
    in_buffer(o, m, &count, &type);
    MPI_Irecv(o->buf, count, type, wild ? MPI_ANY_SOURCE : m->src, m->tag, m->c->comm, &o->req);
    if (o->type != MPI_DATATYPE_NULL && pick(&own, 16) == 0) MPI_Type_free(&o->type);
}

void init_send(struct op *o, const struct msg *m) {
    int count;
    MPI_Datatype type;
    void *buf = out_buffer(o, m, &count, &type);
    int (*const init[])(const void *, int, MPI_Datatype, int, int, MPI_Comm,
                        MPI_Request *) = {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init, MPI_Rsend_init};
    init[m->mode](buf, count, type, m->dst, m->tag, m->c->comm, &o->req);
    o->persistent = 1;
}

void init_recv(struct op *o, const struct msg *m) {
    int count;
    MPI_Datatype type;
    in_buffer(o, m, &count, &type);
    MPI_Recv_init(o->buf, count, type, m->src, m->tag, m->c->comm, &o->req);
    o->persistent = 1;
}

void refill(struct op *o) {
    if (o->what == OP_SEND) {
        fill(&o->m, o->m.out_shape, o->buf);
        bsend_count(&o->m);
    } else {
        memset(o->buf, 0, room(o->m.n));
    }
}

// ---- ending ----

void finish(struct op *o, const MPI_Status *st) {
    if (o->what == OP_COLL) {
        coll_finish(o);
        return;
    }
    if (o->what == OP_RECV) {
        int words;
        MPI_Get_count(st, MPI_UINT64_T, &words);
        if (words != o->m.n || st->MPI_SOURCE != o->m.src || st->MPI_TAG != o->m.tag)
            fail("%d words from %d, tag %d; expected %d from %d, tag %d", words, st->MPI_SOURCE, st->MPI_TAG,
                 o->m.n, o->m.src, o->m.tag);
        check(&o->m, o->m.in_shape, o->buf);
        fold(o->m.n ? o->buf[0] : o->m.id);
    }
    if (o->persistent) return;
    if (o->type != MPI_DATATYPE_NULL) MPI_Type_free(&o->type);
    free(o->buf);
    o->buf = NULL;
    o->what = OP_NONE;
}

static void gather_some(int how, int n, MPI_Request *r, MPI_Status *st) {
    MPI_Status part[n];
    int which[n];
    for (int left = n; left > 0;) {
        int done = 0;
        if (how == 0)
            MPI_Waitsome(n, r, &done, which, part);
        else
            MPI_Testsome(n, r, &done, which, part);
        if (done == MPI_UNDEFINED) fail("%d requests are not active any more", left);
        for (int i = 0; i < done; i++) st[which[i]] = part[i];
        left -= done;
        dally();
    }
}

static void gather_any(int how, int n, MPI_Request *r, MPI_Status *st) {
    for (int left = n; left > 0;) {
        MPI_Status one;
        int which = MPI_UNDEFINED, flag = 1;
        if (how == 0)
            MPI_Waitany(n, r, &which, &one);
        else
            MPI_Testany(n, r, &which, &flag, &one);
        if (flag && which == MPI_UNDEFINED) fail("%d requests are not active any more", left);
        if (flag) {
            st[which] = one;
            left--;
        }
    }
}

static void gather_one(int how, MPI_Request *r, MPI_Status *st) {
    int flag = 0;
    if (how == 1)
        while (!flag) MPI_Test(r, &flag, st);
    if (how == 2)
        while (!flag) {
            MPI_Request_get_status(*r, &flag, st);
            dally();
        }
    if (how != 1) MPI_Wait(r, st);
}

void complete(struct op *ops, int n) {
    if (n == 0) return;
    MPI_Request r[n];
    MPI_Status st[n];
    int how = pick(&own, 8), flag = 0;
    for (int i = 0; i < n; i++) r[i] = ops[i].req;
    dally();
    switch (how) {
    case 0:
    case 1:
        gather_some(how, n, r, st);
        break;
    case 2:
    case 3:
        gather_any(how - 2, n, r, st);
        break;
    case 4:
        while (!flag) {
            MPI_Testall(n, r, &flag, st);
            dally();
        }
        break;
    case 5:
        for (int i = n - 1; i >= 0; i--) gather_one(pick(&own, 3), &r[i], &st[i]);
        break;
    default:
        MPI_Waitall(n, r, st);
    }
    for (int i = 0; i < n; i++) {
        if (!ops[i].persistent && r[i] != MPI_REQUEST_NULL) fail("a complete request is not null");
        ops[i].req = r[i];
        finish(&ops[i], &st[i]);
    }
}

// ---- blocking ----

void blocking_send(const struct msg *m) {
    struct op o;
    int count;
    MPI_Datatype type;
    void *buf = out_buffer(&o, m, &count, &type);
    int (*const send[])(const void *, int, MPI_Datatype, int, int, MPI_Comm) = {MPI_Send, MPI_Ssend,
                                                                                MPI_Bsend, MPI_Rsend};
    send[m->mode](buf, count, type, m->dst, m->tag, m->c->comm);
    finish(&o, NULL);
}

static int named(const struct msg *m, int n, const MPI_Status *st) {
    for (int i = 0; i < n; i++)
        if (m[i].src == st->MPI_SOURCE && m[i].tag == st->MPI_TAG) return i;
    fail("a message from %d with tag %d, which nobody sent", st->MPI_SOURCE, st->MPI_TAG);
}

int take(const struct msg *m, int n, int wild) {
    int from = wild ? MPI_ANY_SOURCE : m->src, count, flag = 0, i = 0, how = pick(&own, 6);
    MPI_Comm comm = m->c->comm;
    MPI_Datatype type;
    MPI_Message held = MPI_MESSAGE_NULL;
    MPI_Status st;
    struct op o;
    dally();
    switch (how) {
    case 0:
        MPI_Probe(from, m->tag, comm, &st);
        break;
    case 1:
        while (!flag) MPI_Iprobe(from, m->tag, comm, &flag, &st);
        break;
    case 2:
        MPI_Mprobe(from, m->tag, comm, &held, &st);
        break;
    case 3:
        while (!flag) MPI_Improbe(from, m->tag, comm, &flag, &held, &st);
        break;
    default: // a receive without knowing from whom: all are of one size then
        in_buffer(&o, m, &count, &type);
        if (how == 4) {
            MPI_Recv(o.buf, count, type, from, m->tag, comm, &st);
        } else {
            MPI_Irecv(o.buf, count, type, from, m->tag, comm, &o.req);
            gather_one(pick(&own, 3), &o.req, &st);
        }
        i = named(m, n, &st);
        o.m = m[i];
        finish(&o, &st);
        return i;
    }
    i = named(m, n, &st);
    in_buffer(&o, &m[i], &count, &type);
    dally();
    if (held == MPI_MESSAGE_NULL) {
        MPI_Recv(o.buf, count, type, st.MPI_SOURCE, st.MPI_TAG, comm, &st);
    } else if (pick(&own, 2)) {
        MPI_Mrecv(o.buf, count, type, &held, &st);
    } else {
        MPI_Imrecv(o.buf, count, type, &held, &o.req);
        gather_one(pick(&own, 3), &o.req, &st);
    }
    finish(&o, &st);
    return i;
}
