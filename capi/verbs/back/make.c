// SPDX-License-Identifier: Apache-2.0
//
// make.c: after a restart all objects are made again.  The program's memory is there, and its threads are not: none
// sees an object of which the real one is missing.
//
//   step 1   devices, memory, queues, queue pairs up to INIT; from then on others are answered
//   barrier  of all ranks
//   step 2   queue pairs are connected, receives posted, completion queues armed
//   barrier
#include "verbs/back/lower.h"

#include <sys/mman.h>
#include <sys/resource.h>

bool made_again;

static const char *size_text(double bytes, char *text, size_t n) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (; bytes >= 1024 && u < 4; u++) bytes /= 1024;
    snprintf(text, n, u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
    return text;
}

static int fail(char *why, size_t bytes, int e, const char *what, unsigned number) {
    snprintf(why, bytes, "%s 0x%06x cannot be made again: %s", what, number, strerror(e));
    return e;
}

// Whether all of it is there.
static bool is_there(const struct v_mr *m) {
    enum { PAGES = 4096 };
    unsigned char in[PAGES];
    uint64_t at = (uint64_t)m->m.addr & ~4095ull, end = ((uint64_t)m->m.addr + m->m.length + 4095) & ~4095ull;
    while (at < end) {
        uint64_t n = end - at < PAGES * 4096ull ? end - at : PAGES * 4096ull;
        if (mincore((void *)at, n, in)) return false;
        at += n;
    }
    return true;
}

static int memory(struct v_mr *m, uint64_t *registered, char *why, size_t bytes) {
    int e = mr_make(m);
    *registered += m->m.length;
    if (!e) return 0;
    char size[40], all[40], limit[40];
    struct rlimit l;
    if ((e == EFAULT || e == ENOMEM) && !is_there(m)) {
        // The program has given the memory back.  Its key is good for nothing, as before.
        m->real = 0;
        m->lkey = m->rkey = 0;
        say("memory at %p, which the program had registered, is not there: its keys are good for nothing",
            m->m.addr);
        return 0;
    }
    size_text((double)m->m.length, size, sizeof size);
    if (e == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &l) == 0 && l.rlim_cur < *registered)
        snprintf(why, bytes,
                 "cannot register %s at %p, with which there would be %s: RLIMIT_MEMLOCK is %s (ulimit -l)",
                 size, m->m.addr, size_text((double)*registered, all, sizeof all),
                 size_text((double)l.rlim_cur, limit, sizeof limit));
    else
        snprintf(why, bytes, "cannot register %s at %p: %s", size, m->m.addr, strerror(e));
    return e;
}

// A device that is too small is named with what it lacks.
static int pair(struct v_qp *q, char *why, size_t bytes) {
    struct v_context *c = CONTEXT(q->q.context);
    struct ibv_device_attr d;
    const char *name = REAL_CONTEXT(c)->device->name;
    if (!real.ibv_query_device(REAL_CONTEXT(c), &d)) {
        const struct {
            const char *what;
            uint32_t has;
            int most;
        } limits[] = {{"sends", q->init.cap.max_send_wr, d.max_qp_wr},
                      {"receives", q->srq ? 0 : q->init.cap.max_recv_wr, d.max_qp_wr},
                      {"pieces a send", q->init.cap.max_send_sge, d.max_sge},
                      {"pieces a receive", q->srq ? 0 : q->init.cap.max_recv_sge, d.max_sge}};
        for (int i = 0; i < 4; i++)
            if (limits[i].most > 0 && limits[i].has > (uint32_t)limits[i].most) {
                snprintf(why, bytes, "no device here can hold queue pair 0x%06x: it has %u %s, %s allows %d",
                         q->q.qp_num, limits[i].has, limits[i].what, name, limits[i].most);
                return ENOSPC;
            }
    }
    int e = qp_make(q);
    if (!e && q->state != IBV_QPS_RESET && q->to_init) e = qp_step(q, IBV_QPS_INIT, why, bytes);
    if (e) return fail(why, bytes, e, "queue pair", q->q.qp_num);
    ids_qp(q, false);
    return 0;
}

static int objects(char *why, size_t bytes) {
    int e = 0;
    uint64_t registered = 0;
    const char *wrong = real_without_devices();
    if (wrong) {
        snprintf(why, bytes, "no InfiniBand device here, and not over TCP either: %s", wrong);
        return ENODEV;
    }
    EACH(v_context, c, root->contexts) {
        char name[IBV_SYSFS_NAME_MAX];
        c->real = c->lower = 0;
        c->bell.lock = 0;
        if ((e = device_name(c->v.context.device->name, name, why, bytes))) return e;
        if ((e = device_open(c, name))) {
            snprintf(why, bytes, "InfiniBand device %s: %s", name, strerror(e));
            return e;
        }
    }
    EACH(v_pd, p, root->pds) {
        if ((e = pd_make(p))) return fail(why, bytes, e, "a protection domain", 0);
    }
    EACH(v_mr, m, root->mrs) {
        if ((e = memory(m, &registered, why, bytes))) return e;
        ids_mr(m, false);
    }
    EACH(v_mw, w, root->mws) {
        if ((e = mw_make(w))) return fail(why, bytes, e, "memory window", w->w.rkey);
    }
    EACH(v_channel, h, root->channels) {
        if ((e = channel_make(h))) return fail(why, bytes, e, "completion channel", (unsigned)h->c.fd);
    }
    EACH(v_cq, q, root->cqs) {
        int former = q->q.cqe;
        if ((e = cq_make(q))) {
            snprintf(why, bytes, "no device here can hold a completion queue of %d entries: %s", q->entries,
                     strerror(e));
            return e;
        }
        q->q.cqe = former;
    }
    EACH(v_srq, s, root->srqs) {
        if ((e = srq_make(s))) return fail(why, bytes, e, "shared receive queue", s->number);
    }
    EACH(v_ah, h, root->ahs) h->lower = 0;
    EACH(v_qp, qp, root->qps) {
        if ((e = pair(qp, why, bytes))) return e;
    }
    return 0;
}

static int connect_all(char *why, size_t bytes) {
    int e = 0;
    EACH(v_qp, q, root->qps) {
        // All that was sent has been executed.
        q->send_tail = q->send_proved = q->send_head;
        q->takes_done = q->takes_posted;
        q->probe = 0;
        enum ibv_qp_state s = (enum ibv_qp_state)q->state;
        if (s >= IBV_QPS_RTR && s <= IBV_QPS_SQE) e = qp_step(q, IBV_QPS_RTR, why, bytes);
        if (!e && s >= IBV_QPS_RTS && s <= IBV_QPS_SQE) e = qp_step(q, IBV_QPS_RTS, why, bytes);
        if (!e && s != IBV_QPS_RESET && !q->srq && q->receive_slots) e = post_again(q);
        if (!e && (s == IBV_QPS_ERR || q->failed)) e = qp_step(q, IBV_QPS_ERR, why, bytes);
        if (e) return *why ? e : fail(why, bytes, e, "queue pair", q->q.qp_num);
    }
    EACH(v_mw, w, root->mws) {
        if ((e = mw_bind_again(w))) return fail(why, bytes, e, "the binding of memory window", w->w.rkey);
    }
    EACH(v_multicast, m, root->multicasts) {
        if ((e = real.ibv_attach_mcast(REAL_QP(m->qp), &m->gid, m->lid)))
            return fail(why, bytes, e, "multicast group of queue pair", m->qp->q.qp_num);
    }
    EACH(v_srq, s, root->srqs) {
        struct ibv_srq_attr limit = {.srq_limit = s->attr.srq_limit};
        e = post_srq_again(s);
        if (!e && limit.srq_limit) e = real.ibv_modify_srq(REAL_SRQ(s), &limit, IBV_SRQ_LIMIT);
        if (e) return fail(why, bytes, e, "shared receive queue", s->number);
    }
    EACH(v_cq, c, root->cqs) {
        // A kernel's event may come later than its completion. What was under way when the process ended, is not.
        if (c->armed && c->head != c->tail) event_for(c);
        if (c->armed) e = REAL_CQ(c)->context->ops.req_notify_cq(REAL_CQ(c), c->armed == 2);
        if (e) return fail(why, bytes, e, "completion queue", c->q.handle);
    }
    // A program that waits for its descriptor is not to be woken by what it was told before.
    events_keep_async();
    return 0;
}

int make_again(int step, uint64_t root_at, char *why, size_t bytes) {
    if (step == 2) return connect_all(why, bytes);
    struct v_root *r = (struct v_root *)root_at;
    uint32_t sizes[8];
    v_sizes(sizes);
    if (r->magic != V_MAGIC || r->version != V_VERSION || r->bytes != sizeof *r ||
        memcmp(r->sizes, sizes, sizeof sizes)) {
        snprintf(why, bytes, "the image has InfiniBand objects of another version of libckpt");
        return EINVAL;
    }
    ids_clear();
    made_again = true;
    int e = 0;
    take(&lists_lock);
    root = r;
    give(&lists_lock);
    e = objects(why, bytes);
    return e;
}
