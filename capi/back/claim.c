/* SPDX-License-Identifier: Apache-2.0
 *
 * claim.c: whose messages the drained ones are, of those that were sent synchronously (sync.c).
 *
 * When the network is empty, and all programs stand, each sender tells its receivers of the synchronous
 * sends that its application has not seen complete: by their places at the first time, by the ids that
 * they had then at later ones.  The receivers mark the messages, and answer which ones the application
 * has not taken.  So nothing is lost with a word that was under way when the job was saved: each
 * checkpoint asks again.
 */
#include <stdlib.h>

#include "drain.h"
#include "sync.h"
#include "wait.h"

int back_synchronous(void *ctx) {
    (void)ctx;
    return back.sync != 0 || back.awaiting != 0;
}

/* ---- the sender ---- */

/* What was asked about, by its number in the list of claims: a request, or a call that waits. */
static struct asked {
    ckpt_slot *request;
    struct back_held *call;
    uint64_t id;
} *asked;
static long nasked, asked_room;

static void ask(const struct asked *a) {
    if (nasked == asked_room) {
        struct asked *grown = realloc(asked, (size_t)(2 * asked_room + 64) * sizeof *asked);
        if (grown == NULL)
            return; /* it completes too early, which is better than never */
        asked = grown;
        asked_room = 2 * asked_room + 64;
    }
    asked[nasked++] = *a;
}

/* Cancelled sends and those that failed are complete, whatever the receiver has. */
static int was_sent(const ckpt_slot *s) {
    MPI_Status st;
    int flag = 0, rc = MPI_Request_get_status((MPI_Request)(uintptr_t)s->real, &flag, &st);
    return rc == MPI_SUCCESS && flag && !STATUS_CANCELLED(&st);
}

static void ask_all(void) {
    uint32_t i = 0;
    nasked = 0;
    for (ckpt_slot *s; (s = next_slot(CKPT_KIND_REQUEST, &i)) != NULL;) {
        const struct back_sync *e = s->a & REQUEST_SYNC ? sync_of(s) : NULL;
        if (e == NULL)
            continue;
        if (back_sync_awaits(s))
            ask(&(struct asked){s, NULL, e->id});
        else if (e->lane != NULL && !e->unsure && s->clock == e->comm && s->a & REQUEST_DONE &&
                 was_sent(s))
            ask(&(struct asked){s, NULL, ++back.state->serial});
    }
    for (struct back_held *h = held_sends; h != NULL; h = h->next)
        if (h->sync != NULL && h->sync->lane != NULL && !h->sync->unsure &&
            *h->dest == CANON_PROC_NULL)
            ask(&(struct asked){NULL, h, ++back.state->serial});
}

static struct back_sync *entry(const struct asked *a) {
    return a->call ? a->call->sync : sync_of(a->request);
}

/* The world rank of a member that messages on comm are sent to. */
static int world_of(ckpt_vid comm, int dest, int *mine) {
    MPI_Comm real = real_comm(comm);
    int inter = 0, n = 0;
    MPI_Comm_test_inter(real, &inter);
    MPI_Comm_rank(real, mine);
    int *world = back_comm_world(real, inter, &n);
    int r = world != NULL && dest < n ? world[dest] : -1;
    free(world);
    return r;
}

static ckpt_claim claim_of(const struct asked *a) {
    const struct back_sync *e = entry(a);
    ckpt_claim c = {.id = a->id, .rank = e->dest, .state = CKPT_CLAIM_KNOWN};
    if (e->lane == NULL)
        return c; /* its receiver's rank in the world */
    c.state = CKPT_CLAIM_NEW;
    c.comm = back_comm_identity(e->comm);
    c.later = back_sync_behind(e);
    c.tag = back_sync_tag(e);
    c.rank = world_of(e->comm, e->dest, &c.source);
    return c;
}

long back_claims(void *ctx, ckpt_claim *list, long max) {
    (void)ctx;
    if (list == NULL)
        ask_all();
    for (long i = 0; i < nasked && i < max; i++)
        list[i] = claim_of(&asked[i]);
    return nasked;
}

/* The call waits for a request of its own from here on. */
static void await_call(struct back_held *h, int rank, uint64_t id) {
    struct back_sync *e = calloc(1, sizeof *e);
    ckpt_vid vid;
    if (e == NULL)
        return;
    if (back_new_request(MPI_REQUEST_NULL, REQUEST_SEND | REQUEST_SYNC, h->sync->dest,
                         h->sync->comm, &vid) != 0) {
        free(e);
        return;
    }
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, vid);
    s->extra = (uint64_t)(uintptr_t)e;
    e->comm = h->sync->comm;
    e->dest = rank;
    if (back_sync_await(s, e, id) != 0) {
        free(e);
        ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, vid, back.shared);
        return;
    }
    h->dest[0] = BACK_AWAITED;
    h->dest[1] = (long)vid;
}

static void answer(const struct asked *a, const ckpt_claim *c) {
    struct back_sync *e = entry(a);
    int held = c->state == CKPT_CLAIM_HELD;
    if (a->call != NULL) {
        if (held)
            await_call(a->call, c->rank, c->id);
        back_sync_end(e);
    } else if (e->lane == NULL) {
        if (!held)
            back_sync_acknowledge(c->id);
    } else if (held) {
        MPI_Request done = (MPI_Request)(uintptr_t)a->request->real;
        e->dest = c->rank;
        if (back_sync_await(a->request, e, c->id) == 0)
            MPI_Request_free(&done);
    } else {
        back_sync_end(e);
    }
}

void back_answered(void *ctx, const ckpt_claim *list, long n) {
    (void)ctx;
    for (long i = 0; i < n; i++)
        for (long k = 0; k < nasked; k++)
            if (asked[k].id == list[i].id) {
                answer(&asked[k], &list[i]);
                break;
            }
    nasked = 0;
}

/* ---- the receiver ---- */

struct known {
    ckpt_vid comm;
    uint64_t identity;
};

/* All messages that the application has not taken; those of a lane in the order in which they were sent:
 * those that it has matched were before the others. */
struct kept {
    struct drained **message;
    long n;
    struct known *comm;
    long ncomms;
};

static int by_match(const void *x, const void *y) {
    const struct drained *a = *(struct drained *const *)x, *b = *(struct drained *const *)y;
    return a->matched < b->matched ? -1 : a->matched > b->matched;
}

static void gather(struct kept *k) {
    uint32_t i = 0;
    long n = back.drained, comms = 0;
    while (next_slot(CKPT_KIND_MESSAGE, &i) != NULL)
        n++;
    for (i = 0; next_slot(CKPT_KIND_COMM, &i) != NULL;)
        comms++;
    *k = (struct kept){.message = malloc((size_t)(n + 1) * sizeof(struct drained *)),
                       .comm = malloc((size_t)(comms + 1) * sizeof(struct known))};
    if (k->message == NULL || k->comm == NULL)
        return;
    i = 0;
    for (ckpt_slot *s; (s = next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;)
        if (((struct drained *)(uintptr_t)s->extra)->data != NULL)
            k->message[k->n++] = (struct drained *)(uintptr_t)s->extra;
    qsort(k->message, (size_t)k->n, sizeof *k->message, by_match);
    for (struct drained *m = drained_first; m != NULL; m = m->next)
        k->message[k->n++] = m;
    i = 0;
    for (ckpt_slot *s; (s = next_slot(CKPT_KIND_COMM, &i)) != NULL;)
        if (s->extra != 0) {
            ckpt_vid v = CKPT_VID(CKPT_KIND_COMM, i - 1);
            k->comm[k->ncomms++] = (struct known){v, back_comm_identity(v)};
        }
}

static struct drained *known(const struct kept *k, const ckpt_claim *c) {
    for (long i = 0; i < k->n; i++)
        if (k->message[i]->claim == c->id && k->message[i]->sender == c->rank)
            return k->message[i];
    return NULL;
}

/* One that has a claim already is passed over: it cannot have two, and a request that nobody answers would
 * never be complete. */
static struct drained *placed(const struct kept *k, const ckpt_claim *c) {
    ckpt_vid comm = VID_COMM_NULL;
    uint64_t later = c->later;
    for (long i = 0; i < k->ncomms; i++)
        if (k->comm[i].identity == c->comm)
            comm = k->comm[i].comm;
    for (long i = k->n; i-- > 0 && comm != VID_COMM_NULL;) {
        struct drained *m = k->message[i];
        if (m->comm != comm || m->source != c->source || m->tag != c->tag)
            continue;
        if (later > 0)
            later--;
        else if (m->claim == 0)
            return m;
    }
    return NULL;
}

static void judge_all(const struct kept *k, ckpt_claim *list, long n, int state) {
    for (long i = 0; i < n; i++) {
        if (list[i].state != state)
            continue;
        struct drained *m = state == CKPT_CLAIM_KNOWN ? known(k, &list[i]) : placed(k, &list[i]);
        if (m != NULL) {
            m->claim = list[i].id;
            m->sender = list[i].rank;
            m->asked = 1;
        }
        list[i].state = m != NULL ? CKPT_CLAIM_HELD : CKPT_CLAIM_TAKEN;
    }
}

void back_judge(void *ctx, ckpt_claim *list, long n) {
    (void)ctx;
    struct kept k;
    gather(&k);
    judge_all(&k, list, n, CKPT_CLAIM_KNOWN);
    for (long i = 0; i < k.n; i++) { /* whoever does not ask any more has freed its request */
        struct drained *m = k.message[i];
        m->claim = m->asked ? m->claim : 0;
        m->asked = 0;
    }
    judge_all(&k, list, n, CKPT_CLAIM_NEW);
    for (long i = 0; i < k.n; i++)
        k.message[i]->asked = 0;
    free(k.message);
    free(k.comm);
}
