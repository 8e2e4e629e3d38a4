// SPDX-License-Identifier: Apache-2.0
//
// objects.c: protection domains, memory, completion queues, shared receive queues, address handles.  Each X_make makes
// the real object, for a program that asks for it and again after a restart.
#include "verbs/back/lower.h"

// ---- protection domains, memory ---------------------------------------------------------------------

struct scratch {
    struct ibv_mr *mr;
    uint64_t word;
};

int pd_make(struct v_pd *p) {
    errno = 0;
    struct ibv_pd *r = real.ibv_alloc_pd(REAL_CONTEXT(CONTEXT(p->p.context)));
    if (!r) return error_number();
    p->real = (uint64_t)r;
    p->lower = 0;
    p->p.handle = r->handle;
    return 0;
}

struct ibv_mr *pd_scratch(struct v_pd *p) {
    if (!p->lower) {
        struct scratch *s = calloc(1, sizeof *s);
        if (!s) return NULL;
        s->mr = real.ibv_reg_mr_iova2((struct ibv_pd *)p->real, &s->word, 8, (uint64_t)&s->word,
                                      IBV_ACCESS_LOCAL_WRITE);
        if (!s->mr) {
            free(s);
            return NULL;
        }
        p->lower = (uint64_t)s;
    }
    return ((struct scratch *)p->lower)->mr;
}

long f_pd(const long *a) {
    struct v_pd *p = ARG(struct v_pd *, 0);
    int e = pd_make(p);
    if (!e) list_add(&root->pds, &p->node);
    return e;
}

long f_pd_end(const long *a) {
    struct v_pd *p = ARG(struct v_pd *, 0);
    if (p->lower) {
        real.ibv_dereg_mr(((struct scratch *)p->lower)->mr);
        free((void *)p->lower);
        p->lower = 0;
    }
    int e = real.ibv_dealloc_pd((struct ibv_pd *)p->real);
    if (!e) list_remove(&p->node);
    return e;
}

int mr_make(struct v_mr *m) {
    errno = 0;
    struct ibv_mr *r =
        real.ibv_reg_mr_iova2(REAL_PD(m->m.pd), m->m.addr, m->m.length, m->iova, (unsigned)m->access);
    if (!r) return error_number();
    m->real = (uint64_t)r;
    m->lkey = r->lkey;
    m->rkey = r->rkey;
    m->m.handle = r->handle;
    memset(m->asked, 0, sizeof m->asked);
    return 0;
}

long f_mr(const long *a) {
    struct v_mr *m = ARG(struct v_mr *, 0);
    int e = mr_make(m);
    if (e) return e;
    ids_mr(m, true);
    list_add(&root->mrs, &m->node);
    return 0;
}

long f_mr_end(const long *a) {
    struct v_mr *m = ARG(struct v_mr *, 0);
    ids_mr_end(m);
    int e = m->real ? real.ibv_dereg_mr((struct ibv_mr *)m->real) : 0;
    if (e)
        ids_mr(m, false);
    else
        list_remove(&m->node);
    return e;
}

// Changes a registration.  The program's keys stay.
long f_mr_again(const long *a) {
    struct v_mr *m = ARG(struct v_mr *, 0);
    struct ibv_mr *r = (struct ibv_mr *)m->real;
    struct v_mr was = *m;
    int flags = ARG(int, 1), e = 0;
    errno = 0;
    if (r)
        e = real.ibv_rereg_mr(r, flags, flags & IBV_REREG_MR_CHANGE_PD ? REAL_PD(a[2]) : NULL, ARG(void *, 3),
                              ARG(size_t, 4), ARG(int, 5));
    if (e) {
        *ARG(int *, 6) = error_number();
        return e;
    }
    if (flags & IBV_REREG_MR_CHANGE_PD) m->m.pd = ARG(struct ibv_pd *, 2);
    if (flags & IBV_REREG_MR_CHANGE_ACCESS) m->access = ARG(int, 5);
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION)
        m->m.addr = ARG(void *, 3), m->m.length = ARG(size_t, 4), m->iova = (uint64_t)m->m.addr;
    if (!r && (e = mr_make(m))) { // its memory was not there after a restart
        *m = was;
        *ARG(int *, 6) = e;
        return IBV_REREG_MR_ERR_CMD;
    }
    if (r) m->lkey = r->lkey, m->rkey = r->rkey;
    if (m->lkey != was.lkey || m->rkey != was.rkey) ids_changed(m->asked, m->m.rkey);
    return 0;
}

// ---- completion queues ------------------------------------------------------------------------------

// Room for what a drain adds: it takes completions all the time.
enum { OURS = 32 };

int cq_make(struct v_cq *c) {
    errno = 0;
    struct ibv_comp_channel *channel = c->channel ? (struct ibv_comp_channel *)c->channel->real : NULL;
    struct ibv_context *rc = REAL_CONTEXT(CONTEXT(c->q.context));
    struct ibv_cq *r = real.ibv_create_cq(rc, c->entries + OURS, c, channel, c->vector);
    if (!r) r = real.ibv_create_cq(rc, c->entries, c, channel, c->vector); // as many as the device has
    if (!r) return error_number();
    c->real = (uint64_t)r;
    c->q.handle = r->handle;
    c->q.cqe = c->entries > r->cqe - OURS ? c->entries : r->cqe - OURS;
    if (c->q.cqe > (int)c->capacity - OURS) c->q.cqe = (int)c->capacity - OURS;
    return 0;
}

long f_cq(const long *a) {
    struct v_cq *c = ARG(struct v_cq *, 0);
    int e = c->entries > LIMITS(c->q.context)->max_cqe ? EINVAL : cq_make(c);
    if (!e) list_add(&root->cqs, &c->node);
    return e;
}

long f_cq_resize(const long *a) {
    struct v_cq *c = ARG(struct v_cq *, 0);
    struct ibv_wc **ring = ARG(struct ibv_wc **, 2), *former = c->kept;
    uint32_t capacity = ARG(uint32_t, 3), n = 0;
    if (ARG(int, 1) > LIMITS(c->q.context)->max_cqe) return EINVAL;
    take(&c->lock);
    cq_keep_all(c); // what nobody has polled must have room, and the real queue is longer
    int e = c->head - c->tail > (uint32_t)ARG(int, 1) ? EINVAL
                                                      : real.ibv_resize_cq(REAL_CQ(c), ARG(int, 1) + OURS);
    if (!e) {
        for (; c->tail != c->head; c->tail++) (*ring)[n++] = former[c->tail & (c->capacity - 1)];
        c->kept = *ring;
        c->capacity = capacity;
        c->tail = 0;
        c->head = n;
        c->entries = c->q.cqe = ARG(int, 1);
        *ring = former;
    }
    give(&c->lock);
    return e;
}

long f_cq_end(const long *a) {
    struct v_cq *c = ARG(struct v_cq *, 0);
    int e = real.ibv_destroy_cq(REAL_CQ(c));
    if (e) return e;
    events_forget(CONTEXT(c->q.context), &c->q.async_events_completed);
    if (c->channel) { // its events go with it
        take(&c->channel->bell.lock);
        for (; c->events; c->events--) took(&c->channel->bell);
        give(&c->channel->bell.lock);
    }
    list_remove(&c->node);
    return 0;
}

// ---- shared receive queues --------------------------------------------------------------------------

int srq_make(struct v_srq *s) {
    struct ibv_srq_init_attr init = {.srq_context = s, .attr = s->attr};
    init.attr.max_wr += 1; // for a receive of our own
    if (!init.attr.max_sge) init.attr.max_sge = 1;
    init.attr.srq_limit = 0;
    errno = 0;
    struct ibv_srq *r = real.ibv_create_srq(REAL_PD(s->s.pd), &init);
    if (!r) { // as many as the device has
        init.attr = s->attr;
        init.attr.srq_limit = 0;
        r = real.ibv_create_srq(REAL_PD(s->s.pd), &init);
    }
    if (!r) return error_number();
    s->real = (uint64_t)r;
    s->s.handle = r->handle;
    return 0;
}

long f_srq(const long *a) {
    struct v_srq *s = ARG(struct v_srq *, 0);
    int e = s->attr.max_wr > (uint32_t)LIMITS(s->s.context)->max_srq_wr ? EINVAL : srq_make(s);
    if (!e) list_add(&root->srqs, &s->node);
    return e;
}

long f_srq_modify(const long *a) {
    struct v_srq *s = ARG(struct v_srq *, 0);
    int e = real.ibv_modify_srq(REAL_SRQ(s), ARG(struct ibv_srq_attr *, 1), ARG(int, 2));
    if (!e && ARG(int, 2) & IBV_SRQ_LIMIT) s->attr.srq_limit = ARG(struct ibv_srq_attr *, 1)->srq_limit;
    return e;
}

long f_srq_query(const long *a) {
    struct v_srq *s = ARG(struct v_srq *, 0);
    struct ibv_srq_attr *attr = ARG(struct ibv_srq_attr *, 1);
    int e = real.ibv_query_srq(REAL_SRQ(s), attr);
    if (e) return e;
    attr->max_wr = s->attr.max_wr;
    attr->max_sge = s->attr.max_sge;
    return 0;
}

long f_srq_end(const long *a) {
    struct v_srq *s = ARG(struct v_srq *, 0);
    int e = real.ibv_destroy_srq(REAL_SRQ(s));
    if (e) return e;
    events_forget(CONTEXT(s->s.context), &s->s.events_completed);
    messages_drop(&s->kept);
    list_remove(&s->node);
    return 0;
}

// ---- address handles --------------------------------------------------------------------------------
//
// The program's names a port.  Ranks that had the same one may have others after a restart, so there is a real
// handle for each rank that it is used for, made at the first use.

struct real_ah {
    struct real_ah *next;
    int rank; // -1: of nobody in the job
    struct ibv_ah *ah;
};

static uint32_t ah_lock;

static struct real_ah *ah_make(struct v_ah *h, int rank, const struct ibv_ah_attr *attr) {
    struct real_ah *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    struct ibv_ah_attr copy = *attr;
    r->rank = rank;
    if (copy.is_global)
        copy.grh.sgid_index = device_gid_index(CONTEXT(h->a.context), copy.port_num, copy.grh.sgid_index);
    r->ah = real.ibv_create_ah(REAL_PD(h->a.pd), &copy);
    if (!r->ah) {
        free(r);
        return NULL;
    }
    r->next = (struct real_ah *)h->lower;
    h->lower = (uint64_t)r;
    return r;
}

struct ibv_ah *ah_to(struct v_ah *h, uint32_t qpn) {
    int rank = ids_rank_of(qpn);
    take(&ah_lock);
    struct real_ah *r = (struct real_ah *)h->lower;
    while (r && r->rank != rank) r = r->next;
    if (!r) {
        struct ibv_ah_attr attr = h->attr;
        struct verbs_who who;
        bool job = rank >= 0 && ids_who(qpn, &who) && ids_leads_to(&attr, &who);
        struct v_context *c = CONTEXT(h->a.context);
        struct way from = device_way(c, &attr);
        char why[200];
        int to = job ? ids_translate(&attr, &who, &from) : -1;
        if (job && device_no_way(c, &from, &who, to, why, sizeof why))
            say("datagrams to queue pair 0x%06x do not come to it: %s", qpn, why);
        r = ah_make(h, job ? rank : -1, &attr);
    }
    give(&ah_lock);
    return r ? r->ah : NULL;
}

// Made now for one rank, since the program wants to hear of mistakes here.
long f_ah(const long *a) {
    struct v_ah *h = ARG(struct v_ah *, 0);
    errno = 0;
    take(&ah_lock);
    struct real_ah *r = ah_make(h, -1, &h->attr);
    give(&ah_lock);
    // A peer's address of former times may be nobody's now: it is translated when it is known whom it is for.
    if (!r && !made_again) return error_number();
    list_add(&root->ahs, &h->node);
    return 0;
}

long f_ah_end(const long *a) {
    struct v_ah *h = ARG(struct v_ah *, 0);
    for (struct real_ah *r = (struct real_ah *)h->lower, *next; r; r = next) {
        next = r->next;
        real.ibv_destroy_ah(r->ah);
        free(r);
    }
    h->lower = 0;
    list_remove(&h->node);
    return 0;
}
