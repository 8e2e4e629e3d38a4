// SPDX-License-Identifier: Apache-2.0
//
// ids.c: the numbers that programs see, and the real ones.
//
// In a job whose processes know each other numbers are given out by rank, and never are real ones by intention: a
// queue pair's is rank (8 bits) | index (16 bits), so that its owner is found without a directory, and none is given
// out again soon.  A process by itself shows real numbers, so that peers outside the job can use them, as long as no
// former number is in the way.
//
// Real numbers of others are asked for once, and kept until the owner says that they are no longer good.
#include "verbs/back/lower.h"

enum { BUCKETS = 1 << 14, CACHE = 1 << 12 };

struct bucket {
    uint32_t lock;
    void *first;
};
static struct bucket mrs[BUCKETS], qps[BUCKETS], real_qps[BUCKETS];

static struct bucket *in(struct bucket *table, uint32_t number) { return &table[number * 2654435761u >> 18]; }

static uint32_t cache_lock, epoch = 1;
static struct {
    uint64_t key;
    struct verbs_who who;
} cache[CACHE];

enum { CACHE_WHO = 1, CACHE_KEY, CACHE_BACK };
#define CACHE_ID(kind, above, number) ((uint64_t)(kind) << 56 | (uint64_t)(above) << 32 | (number))

static bool cached(uint64_t key, struct verbs_who *who) {
    take(&cache_lock);
    int i = (int)(key * 0x9e3779b97f4a7c15ull >> 52);
    bool is = cache[i].key == key;
    if (is) *who = cache[i].who;
    give(&cache_lock);
    return is;
}

static void remember(uint64_t key, const struct verbs_who *who) {
    take(&cache_lock);
    int i = (int)(key * 0x9e3779b97f4a7c15ull >> 52);
    cache[i].key = key;
    cache[i].who = *who;
    give(&cache_lock);
}

void ids_clear(void) {
    memset(mrs, 0, sizeof mrs);
    memset(qps, 0, sizeof qps);
    memset(real_qps, 0, sizeof real_qps);
    memset(cache, 0, sizeof cache);
    epoch++;
}

// ---- tables -----------------------------------------------------------------------------------------

#define FIND(table, type, link, match, number)     \
    struct bucket *b = in(table, number);          \
    take(&b->lock);                                \
    struct type *found = b->first;                 \
    while (found && !(match)) found = found->link; \
    give(&b->lock)

#define ENTER(table, number, object, link)     \
    do {                                       \
        struct bucket *to = in(table, number); \
        take(&to->lock);                       \
        (object)->link = to->first;            \
        to->first = (object);                  \
        give(&to->lock);                       \
    } while (0)

#define REMOVE(table, type, number, object, link)                                   \
    do {                                                                            \
        struct bucket *to = in(table, number);                                      \
        take(&to->lock);                                                            \
        for (struct type **at = (struct type **)&to->first; *at; at = &(*at)->link) \
            if (*at == (object)) {                                                  \
                *at = (object)->link;                                               \
                break;                                                              \
            }                                                                       \
        give(&to->lock);                                                            \
    } while (0)

static struct v_mr *mr_of(uint32_t lkey) {
    FIND(mrs, v_mr, chain, found->m.lkey == lkey, lkey);
    return found;
}

struct v_qp *ids_qp_of(uint32_t number) {
    FIND(qps, v_qp, chain, found->q.qp_num == number, number);
    return found;
}

struct v_qp *ids_real_qp(uint32_t number) {
    FIND(real_qps, v_qp, real_chain, found->real_num == number, number);
    return found;
}

static uint32_t number_lock;

// Keys are index (24 bits) | how often all indices have been given out (8 bits).
static uint32_t next_key(void) {
    uint32_t n = ++root->next_key;
    return n << 8 | n >> 24;
}

void ids_mr(struct v_mr *m, bool number) {
    if (number) {
        take(&number_lock);
        m->m.lkey = m->lkey;
        m->m.rkey = m->rkey;
        if (root->fixed || m->lkey != m->rkey || mr_of(m->lkey)) {
            do m->m.lkey = next_key();
            while (!m->m.lkey || mr_of(m->m.lkey));
            m->m.rkey = m->m.lkey;
        }
        give(&number_lock);
    }
    ENTER(mrs, m->m.lkey, m, chain);
}

void ids_mw(struct v_mw *w) {
    take(&number_lock);
    w->w.rkey = w->rkey;
    if (root->fixed || mr_of(w->rkey)) w->w.rkey = next_key();
    give(&number_lock);
}

// Nobody knows the real key any more when this returns.
void ids_changed(uint64_t *asked, uint32_t rkey) {
    for (int r = 0; r < V_RANKS; r++)
        if (asked[r / 64] >> (r % 64) & 1) {
            if (r == root->rank)
                ids_answer(r, VERBS_FORGET, rkey, NULL, 0);
            else
                verbs_host.ask(r, VERBS_FORGET, rkey, NULL, 0);
        }
}

void ids_mr_end(struct v_mr *m) {
    take(&lists_lock);
    REMOVE(mrs, v_mr, m->m.lkey, m, chain);
    give(&lists_lock);
    ids_changed(m->asked, m->m.rkey);
}

void ids_qp(struct v_qp *q, bool number) {
    if (number) {
        take(&number_lock);
        q->q.qp_num = q->real_num;
        if (root->fixed || ids_qp_of(q->real_num)) do {
                uint32_t index = ++root->next_qp & 0xffff;
                if (index < 2) index = (root->next_qp += 2) & 0xffff;
                q->q.qp_num = (root->fixed ? (uint32_t)root->rank << 16 : 0) | index;
            } while (ids_qp_of(q->q.qp_num));
        ENTER(qps, q->q.qp_num, q, chain);
        give(&number_lock);
    } else
        ENTER(qps, q->q.qp_num, q, chain);
    ENTER(real_qps, q->real_num, q, real_chain);
}

void ids_qp_hide(struct v_qp *q, bool hide) {
    take(&lists_lock);
    if (hide)
        REMOVE(qps, v_qp, q->q.qp_num, q, chain);
    else
        ENTER(qps, q->q.qp_num, q, chain);
    give(&lists_lock);
}

void ids_qp_end(struct v_qp *q) {
    take(&lists_lock);
    REMOVE(qps, v_qp, q->q.qp_num, q, chain);
    REMOVE(real_qps, v_qp, q->real_num, q, real_chain);
    give(&lists_lock);
}

// ---- translation ------------------------------------------------------------------------------------

uint32_t ids_lkey(uint32_t lkey) {
    FIND(mrs, v_mr, chain, found->m.lkey == lkey, lkey);
    return found ? found->lkey : ~lkey;
}

int ids_ask(int rank, int question, uint32_t id, void *answer, size_t bytes) {
    memset(answer, 0, bytes);
    if (rank == root->rank) return ids_answer(rank, question, id, answer, bytes);
    return verbs_host.ask(rank, question, id, answer, bytes);
}

// A key of the queue pair's peer.  One that nobody knows becomes one that no adapter takes.
uint32_t ids_rkey(struct v_qp *q, uint32_t rkey) {
    if (q->peer < 0) return rkey;
    if (q->rkey_v == rkey && q->rkey_epoch == __atomic_load_n(&epoch, __ATOMIC_ACQUIRE)) return q->rkey_real;
    uint32_t then = __atomic_load_n(&epoch, __ATOMIC_ACQUIRE);
    uint64_t id = CACHE_ID(CACHE_KEY, q->peer, rkey);
    struct verbs_who who = {0};
    if (!cached(id, &who)) {
        struct verbs_key key;
        if (ids_ask(q->peer, VERBS_KEY, rkey, &key, sizeof key) || !key.known) return 0;
        who.real = key.real;
        take(&cache_lock);
        bool same = then == epoch;
        give(&cache_lock);
        if (same) remember(id, &who);
    }
    q->rkey_v = rkey;
    q->rkey_real = who.real;
    q->rkey_epoch = then;
    return who.real;
}

int ids_rank_of(uint32_t qpn) {
    int r = root->fixed ? (int)(qpn >> 16) : root->rank;
    return r < (root->ranks ? root->ranks : 1) ? r : -1;
}

bool ids_who(uint32_t qpn, struct verbs_who *who) {
    int r = ids_rank_of(qpn);
    if (r < 0 || ids_ask(r, VERBS_WHO, qpn, who, sizeof *who) || !who->known) return false;
    if (who->tcp == (uint32_t)real_over_tcp) return true;
    static bool said;
    if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
        say("rank %d has its InfiniBand %s, and rank %d %s: they cannot reach each other; all ranks must have the same "
            "(CKPT_VERBS)",
            root->rank, real_over_tcp ? "over TCP" : "on an adapter", r,
            who->tcp ? "over TCP" : "on an adapter");
    return false;
}

uint32_t ids_real_qpn(uint32_t qpn) {
    struct verbs_who who;
    uint64_t id = CACHE_ID(CACHE_WHO, 0, qpn);
    if (cached(id, &who)) return who.real;
    if (!ids_who(qpn, &who)) return qpn;
    remember(id, &who);
    return who.real;
}

// The sender of a datagram, by what the adapter says of it.
bool ids_back(uint32_t number, uint16_t slid, struct verbs_who *who) {
    uint64_t id = CACHE_ID(CACHE_BACK, slid, number);
    if (cached(id, who)) return true;
    bool found = false;
    for (int r = 0; r < (root->ranks ? root->ranks : 1); r++) {
        struct verbs_who one;
        if (ids_ask(r, VERBS_BACK, number, &one, sizeof one) || !one.known) continue;
        if (found && one.real_lid != slid) continue;
        *who = one;
        found = true;
    }
    if (found) remember(id, who);
    return found;
}

bool ids_leads_to(const struct ibv_ah_attr *a, const struct verbs_who *who) {
    if (!a->is_global) return a->dlid == who->lid;
    for (uint32_t i = 0; i < who->gids; i++)
        if (!memcmp(&a->grh.dgid, who->gid[i], 16)) return true;
    return false;
}

int ids_translate(struct ibv_ah_attr *a, const struct verbs_who *who, const struct way *from) {
    int to = -1;
    // An address is there once for each type.
    for (int i = 0; a->is_global && i < (int)who->gids; i++)
        if (!memcmp(&a->grh.dgid, who->gid[i], 16) && (to < 0 || who->type[i] == from->type)) to = i;
    if (!a->is_global && who->ethernet) { // the program has begun on another kind of device
        a->is_global = 1;
        a->grh = (struct ibv_global_route){.hop_limit = 64};
        to = 0;
    }
    if (to >= 0) memcpy(&a->grh.dgid, who->real_gid[to], 16);
    // Where gids lead to peers a program may say anything for a lid.
    if (a->dlid == who->lid || (from->ethernet && to >= 0)) a->dlid = who->real_lid;
    return to;
}

_Static_assert(sizeof(struct verbs_who) <= VERBS_ANSWER_MAX, "an answer");

// ---- answers ----------------------------------------------------------------------------------------

static void describe(struct v_qp *q, struct verbs_who *who) {
    struct v_context *c = CONTEXT(q->q.context);
    struct v_device *d = (struct v_device *)c->v.context.device;
    int port = q->to_init & IBV_QP_PORT ? q->attr.port_num : 1;
    if (port > V_PORTS || !c->lower) return;
    const struct v_port *p = &d->port[port];
    const struct ports *now = (const struct ports *)c->lower;
    who->gids = p->gids;
    who->lid = p->lid;
    who->real_lid = now->lid[port];
    who->ethernet = now->ethernet[port];
    who->mtu = now->mtu[port];
    who->rd_atomics = (uint16_t)(now->rd_atomics > 0 && now->rd_atomics < 0xffff ? now->rd_atomics : 0xffff);
    memcpy(who->gid, p->gid, sizeof who->gid);
    memcpy(who->real_gid, now->gid[port], sizeof who->real_gid);
    memcpy(who->type, p->gid_type, sizeof who->type);
    memcpy(who->real_type, now->gid_type[port], sizeof who->real_type);
}

// Called on any thread, also while the program is stopped.  An object is not freed meanwhile: its end takes the
// lists' lock.
int ids_answer(int from, int question, uint32_t id, void *answer, size_t bytes) {
    if (!root) return ENOENT;
    if (question == VERBS_FORGET) {
        take(&cache_lock);
        for (int i = 0; i < CACHE; i++)
            if (cache[i].key == CACHE_ID(CACHE_KEY, from, id)) cache[i].key = 0;
        epoch++;
        give(&cache_lock);
        return 0;
    }
    take(&lists_lock);
    if (question == VERBS_KEY && bytes >= sizeof(struct verbs_key)) {
        struct verbs_key *k = answer;
        struct v_mr *m = mr_of(id);
        uint64_t *asked = NULL;
        if (m && m->m.rkey == id) {
            k->real = m->rkey;
            asked = m->asked;
        }
        EACH(v_mw, w, root->mws) {
            if (asked || !w->bound || w->w.rkey != id) continue;
            k->real = w->rkey;
            asked = w->asked;
        }
        k->known = asked != NULL;
        if (asked && from < V_RANKS) asked[from / 64] |= 1ull << (from % 64);
    } else if (question == VERBS_READY && bytes >= sizeof(struct verbs_ready)) {
        struct verbs_ready *r = answer;
        struct v_qp *q = ids_qp_of(id);
        if (q) {
            r->known = 1;
            r->receives =
                (uint32_t)(q->srq ? q->srq->posted - q->srq->done : q->receive_head - q->receive_tail);
            r->draining = draining;
            r->done = q->receives_done;
        }
    } else if ((question == VERBS_WHO || question == VERBS_BACK) && bytes >= sizeof(struct verbs_who)) {
        struct verbs_who *w = answer;
        struct v_qp *q = question == VERBS_WHO ? ids_qp_of(id) : ids_real_qp(id);
        if (q) {
            describe(q, w);
            w->known = 1;
            w->tcp = real_over_tcp;
            w->real = question == VERBS_WHO ? q->real_num : q->q.qp_num;
        }
    }
    give(&lists_lock);
    return 0;
}
