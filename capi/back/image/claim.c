// SPDX-License-Identifier: Apache-2.0
//
// claim.c: which drained messages belong to synchronous sends that still wait (sync.c).
//
//   sender                                    receiver
//   back_claims: each send that waits ─────►  back_judge: marks the message, or finds that it was taken
//   back_answered: held: the send waits ◄───  held, taken
//                  taken: the send is complete
//   back_sync_poll: the send is complete ◄──  back_sync_taken: the application takes the message later
//
// This happens when the network is empty and all programs are stopped.  The sender holds a waiting request
// until it hears that the application has taken the message; the receiver holds the message, marked with the
// sender's id.  At the first checkpoint a send is named by the place of its message in its lane, and gets the
// id; at later checkpoints it is named by that id.  A word that was under way when the job was saved is lost,
// which does no harm: each checkpoint asks again.
//
// Nothing here takes memory: the messages are drained already, and a send that could not ask would be
// complete too early.
#include <sched.h>

#include "back/collective/clock.h"
#include "back/image/claim.h"
#include "back/image/drain.h"
#include "back/impl/status.h"
#include "back/message/blocking.h"
#include "back/message/drained.h"
#include "back/message/sync.h"
#include "back/object/comm.h"

enum { TURNS = 1000000 }; // of waiting for what is about to happen; they take seconds

int back_synchronous(void *ctx) {
    (void)ctx;
    return back.sync != 0 || back.awaiting != 0;
}

// ---- the sender ----

// A synchronous send that is asked about: a request, or a call that waits.
struct asked {
    ckpt_slot *request;
    struct back_held *call;
};

static struct back_sync *entry(const struct asked *a) {
    return a->call ? a->call->sync : back_sync_of(a->request);
}

// Whether the real MPI has completed the send: its receiver has the message, drained or in the application.
static int is_complete(const struct asked *a) {
    return a->call ? *a->call->dest == CANON_PROC_NULL : (a->request->a & REQUEST_DONE) != 0;
}

// Whether the send may have to wait: one that was cancelled or has failed is complete, whatever the receiver
// has.
static int may_be_held(const ckpt_slot *s) {
    MPI_Status st;
    int flag = 0, rc = MPI_Request_get_status(real_of(s), &flag, &st);
    return rc == MPI_SUCCESS && !(flag && STATUS_CANCELLED(&st));
}

// Whether the receiver is to be asked about the send.  The send need not be complete: draining that was given
// up may leave sends incomplete whose receivers have the messages.
static int to_ask(const struct asked *a) {
    const struct back_sync *e = entry(a);
    if (e == NULL || (a->request != NULL && back_sync_awaits(a->request))) return e != NULL;
    if (e->lane == NULL || e->unsure) return 0;
    return a->call != NULL || (a->request->clock == e->comm && may_be_held(a->request));
}

// Goes through all synchronous sends: requests, then calls.  {0} at the beginning; next_send returns 0 at the
// end.
struct sends {
    uint32_t i;
    int calls;
    struct asked at;
};

static int next_send(struct sends *x) {
    while (!x->calls) {
        x->at = (struct asked){back_next_slot(CKPT_KIND_REQUEST, &x->i), NULL};
        if (x->at.request != NULL && x->at.request->a & REQUEST_SYNC) return 1;
        x->calls = x->at.request == NULL;
    }
    x->at = (struct asked){NULL, x->at.call ? LIST_NEXT(x->at.call, others) : LIST_FIRST(&back_held_sends)};
    while (x->at.call != NULL && x->at.call->sync == NULL) x->at.call = LIST_NEXT(x->at.call, others);
    return x->at.call != NULL;
}

static long ask_all(void) {
    struct sends x = {0};
    long n = 0;
    while (next_send(&x)) {
        struct back_sync *e = entry(&x.at);
        if (e != NULL) e->asks = !to_ask(&x.at) ? 0 : e->lane == NULL ? e->id : ++back.state->serial;
        n += e != NULL && e->asks != 0;
    }
    return n;
}

// The world rank of dest, to which comm sends; *mine is this rank in comm.
static int world_of(ckpt_vid comm, int dest, int *mine) {
    MPI_Comm real = real_comm(comm);
    MPI_Group group;
    int inter = 0, world = MPI_UNDEFINED;
    MPI_Comm_test_inter(real, &inter);
    MPI_Comm_rank(real, mine);
    if ((inter ? MPI_Comm_remote_group(real, &group) : MPI_Comm_group(real, &group)) != MPI_SUCCESS)
        return -1;
    if (MPI_Group_translate_ranks(group, 1, &dest, back.world, &world) != MPI_SUCCESS) world = MPI_UNDEFINED;
    MPI_Group_free(&group);
    return world == MPI_UNDEFINED ? -1 : world;
}

static ckpt_claim claim_of(const struct back_sync *e) {
    ckpt_claim c = {.id = e->asks, .rank = e->dest, .state = CKPT_CLAIM_KNOWN};
    if (e->lane == NULL) return c; // dest is a rank of the world already
    c.state = CKPT_CLAIM_NEW;
    c.comm = back_comm_identity(e->comm);
    c.later = back_sync_behind(e);
    c.tag = back_sync_tag(e);
    c.rank = world_of(e->comm, e->dest, &c.source);
    return c;
}

long back_claims(void *ctx, ckpt_claim *list, long max) {
    struct sends x = {0};
    long n = 0;
    (void)ctx;
    if (list == NULL) return ask_all();
    while (n < max && next_send(&x)) {
        const struct back_sync *e = entry(&x.at);
        if (e != NULL && e->asks != 0) list[n++] = claim_of(e);
    }
    return n;
}

// From here on the blocking call waits for a request that is made for it.
static void await_call(struct back_held *h, int rank, uint64_t id) {
    struct back_sync *e = h->spare;
    ckpt_vid vid = e == NULL ? CKPT_VID_NONE : back_take_id(CKPT_KIND_REQUEST);
    if (vid == CKPT_VID_NONE) return; // such a call holds a checkpoint back: its message was not drained
    ckpt_slot *s =
        back_set_request(vid, MPI_REQUEST_NULL, REQUEST_SEND | REQUEST_SYNC, h->sync->dest, h->sync->comm);
    s->extra = (uint64_t)(uintptr_t)e;
    e->comm = h->sync->comm;
    e->dest = rank;
    if (back_sync_await(s, e, id) != 0) {
        back_give_id(CKPT_KIND_REQUEST, vid);
        return;
    }
    h->spare = NULL;
    h->dest[0] = BACK_AWAITED;
    h->dest[1] = (long)vid;
}

// The receiver has the message, so the real MPI is about to complete the send.
static int completes(const struct asked *a) {
    for (long turn = 0; !is_complete(a) && turn < TURNS; turn++) {
        back_drain_sends();
        back_progress();
        sched_yield();
    }
    return is_complete(a);
}

static void answer(const struct asked *a, const ckpt_claim *c) {
    struct back_sync *e = entry(a);
    int held = c->state == CKPT_CLAIM_HELD;
    e->asks = 0;
    if (a->request != NULL && e->lane == NULL) {
        if (!held) back_sync_acknowledge(c->id);
        return;
    }
    if (c->state == CKPT_CLAIM_NEW || (held ? !completes(a) : !is_complete(a)))
        return; // the real MPI still has the send, and goes on with it
    if (a->call != NULL) {
        if (held) await_call(a->call, c->rank, c->id);
        back_sync_end(e);
    } else if (held) {
        MPI_Request done = real_of(a->request);
        e->dest = c->rank;
        if (back_sync_await(a->request, e, c->id) == 0) MPI_Request_free(&done);
    } else {
        back_sync_end(e);
    }
}

void back_answered(void *ctx, const ckpt_claim *list, long n) {
    struct sends x = {0};
    (void)ctx;
    while (next_send(&x)) {
        const struct back_sync *e = entry(&x.at);
        for (long i = 0; e != NULL && e->asks != 0 && i < n; i++)
            if (list[i].id == e->asks) answer(&x.at, &list[i]);
    }
}

// ---- the receiver ----

// All messages that the application has not taken, linked by `sooner`, the last one first.  Messages of one
// lane are in the order in which they were sent: those that the application has matched were sent before the
// others.
static struct drained *in_order(struct drained *a, struct drained *b) {
    struct drained *first = NULL, **end = &first;
    while (a != NULL && b != NULL) {
        struct drained **from = a->matched > b->matched ? &a : &b, *m = *from;
        *from = m->sooner;
        *end = m;
        end = &m->sooner;
    }
    *end = a != NULL ? a : b;
    return first;
}

// Sorts a chain of n.
static struct drained *sorted(struct drained *m, long n) {
    struct drained *half = m;
    if (n < 2) return m;
    for (long i = 1; i < n / 2; i++) half = half->sooner;
    struct drained *rest = half->sooner;
    half->sooner = NULL;
    return in_order(sorted(m, n / 2), sorted(rest, n - n / 2));
}

static struct drained *last_kept(void) {
    struct drained *last = NULL;
    uint32_t i = 0;
    long n = 0;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;) {
        struct drained *m = back_matched_of(s);
        if (m->data != NULL) {
            m->sooner = last;
            last = m;
            n++;
        }
    }
    last = sorted(last, n);
    struct drained *m;
    TAILQ_FOREACH(m, &back_drained_all, others) {
        m->sooner = last;
        last = m;
    }
    return last;
}

static struct drained *known(struct drained *last, const ckpt_claim *c) {
    for (struct drained *m = last; m != NULL; m = m->sooner)
        if (m->claim == c->id && m->sender == c->rank) return m;
    return NULL;
}

static ckpt_vid comm_of(uint64_t identity) {
    uint32_t i = 0;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_COMM, &i)) != NULL;)
        if (s->counters != 0 && back_comm_identity(CKPT_VID(CKPT_KIND_COMM, i - 1)) == identity)
            return CKPT_VID(CKPT_KIND_COMM, i - 1);
    return VID_COMM_NULL;
}

// The message at the claimed place of its lane.  A message that has a claim already is passed over: it cannot
// have two, and a request that nobody answers would never be complete.
static struct drained *placed(struct drained *last, const ckpt_claim *c, ckpt_vid comm) {
    uint64_t later = c->later;
    for (struct drained *m = last; m != NULL && comm != VID_COMM_NULL; m = m->sooner) {
        if (m->comm != comm || m->source != c->source || m->tag != c->tag) continue;
        if (later > 0)
            later--;
        else if (m->claim == 0)
            return m;
    }
    return NULL;
}

static void judge_all(struct drained *last, ckpt_claim *list, long n, int state) {
    uint64_t identity = 0;
    ckpt_vid comm = VID_COMM_NULL; // of that identity: many claims have the same
    for (long i = 0; i < n; i++) {
        if (list[i].state != state) continue;
        if (state == CKPT_CLAIM_NEW && (comm == VID_COMM_NULL || identity != list[i].comm)) {
            identity = list[i].comm;
            comm = comm_of(identity);
        }
        struct drained *m = state == CKPT_CLAIM_KNOWN ? known(last, &list[i]) : placed(last, &list[i], comm);
        if (m != NULL && m->data == NULL) continue; // matched, but not received; the same holds for its send
        if (m != NULL) {
            m->claim = list[i].id;
            m->sender = list[i].rank;
            m->asked = 1;
        }
        list[i].state = m != NULL ? CKPT_CLAIM_HELD : CKPT_CLAIM_TAKEN;
    }
}

void back_judge(void *ctx, ckpt_claim *list, long n) {
    struct drained *last = last_kept();
    (void)ctx;
    judge_all(last, list, n, CKPT_CLAIM_KNOWN);
    for (struct drained *m = last; m != NULL; m = m->sooner) {
        m->claim = m->asked ? m->claim : 0; // a sender that does not ask any more has freed the request
        m->asked = 0;
    }
    judge_all(last, list, n, CKPT_CLAIM_NEW);
    for (struct drained *m = last; m != NULL; m = m->sooner) m->asked = 0;
}
