// SPDX-License-Identifier: Apache-2.0
//
// event.c: events.  A real one is acknowledged when it is taken; the front counts what the program acknowledges.
#include "verbs/back/lower.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int watch(int set, int fd) {
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) ? errno : 0;
}

int bell_make(struct v_bell *b, int real_fd) {
    b->real = real_fd;
    b->counter = eventfd(b->kept ? 1 : 0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (b->counter < 0) return errno;
    int e = watch(b->fd, b->counter);
    if (!e) e = watch(b->fd, real_fd);
    if (e) {
        close(b->counter);
        b->counter = -1;
    }
    return e;
}

void bell_end(struct v_bell *b) {
    epoll_ctl(b->fd, EPOLL_CTL_DEL, b->real, NULL);
    if (b->counter >= 0) close(b->counter);
    b->counter = b->real = -1;
}

// One more is kept; with the bell's lock.
static void ring(struct v_bell *b) {
    static const uint64_t one = 1;
    if (b->kept++ == 0 && write(b->counter, &one, sizeof one) < 0) return; // it is readable already
}

void took(struct v_bell *b) {
    uint64_t n;
    if (--b->kept == 0 && read(b->counter, &n, sizeof n) < 0) return; // it was not readable
}

int channel_make(struct v_channel *c) {
    errno = 0;
    struct ibv_comp_channel *r = real.ibv_create_comp_channel(REAL_CONTEXT(CONTEXT(c->c.context)));
    if (!r) return error_number();
    fcntl(r->fd, F_SETFL, fcntl(r->fd, F_GETFL) | O_NONBLOCK);
    int e = bell_make(&c->bell, r->fd);
    if (e)
        real.ibv_destroy_comp_channel(r);
    else
        c->real = (uint64_t)r;
    return e;
}

long f_channel(const long *a) {
    struct v_channel *c = ARG(struct v_channel *, 0);
    int e = channel_make(c);
    if (!e) list_add(&root->channels, &c->node);
    return e;
}

long f_channel_end(const long *a) {
    struct v_channel *c = ARG(struct v_channel *, 0);
    bell_end(&c->bell);
    int e = real.ibv_destroy_comp_channel((struct ibv_comp_channel *)c->real);
    if (!e) list_remove(&c->node);
    return e;
}

// Takes one real event; with the bell's lock.
static struct v_cq *take_real(struct v_channel *c) {
    struct ibv_cq *cq;
    void *mine;
    if (real.ibv_get_cq_event((struct ibv_comp_channel *)c->real, &cq, &mine)) return NULL;
    real.ibv_ack_cq_events(cq, 1);
    struct v_cq *q = mine;
    __atomic_store_n(&q->armed, 0, __ATOMIC_RELAXED);
    return q;
}

long f_event(const long *a) {
    struct v_channel *c = ARG(struct v_channel *, 0);
    struct v_cq *q = NULL;
    take(&lists_lock); // before the bell's here; nobody takes them the other way round
    take(&c->bell.lock);
    if (c->bell.kept) {
        EACH(v_cq, one, root->cqs) {
            if (!q && one->channel == c && one->events) q = one;
        }
        if (q) {
            q->events--;
            took(&c->bell);
        }
    }
    give(&lists_lock);
    if (!q) q = take_real(c);
    if (q) q->given++;
    give(&c->bell.lock);
    *ARG(struct v_cq **, 1) = q;
    return q ? 0 : EAGAIN;
}

void event_for(struct v_cq *c) {
    if (!c->armed || !c->channel) return;
    take(&c->channel->bell.lock);
    c->armed = 0;
    c->events++;
    ring(&c->channel->bell);
    give(&c->channel->bell.lock);
}

// ---- asynchronous events ----------------------------------------------------------------------------

// Takes one real event, which is the program's then; with the bell's lock. False: there is none.
static bool take_one(struct v_context *c, struct ibv_async_event *e, bool *again) {
    if (real.ibv_get_async_event(REAL_CONTEXT(c), e)) return false;
    struct ibv_async_event copy = *e;
    *again = false;
    switch (e->event_type) {
    case IBV_EVENT_DEVICE_FATAL:
        say("the InfiniBand device %s is gone: what the program has on it has failed",
            c->v.context.device->name);
        break;
    case IBV_EVENT_CQ_ERR:
        e->element.cq = &((struct v_cq *)copy.element.cq->cq_context)->q;
        break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
        struct v_srq *s = copy.element.srq->srq_context;
        if (e->event_type == IBV_EVENT_SRQ_LIMIT_REACHED) s->attr.srq_limit = 0;
        e->element.srq = &s->s;
        break;
    }
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
        struct v_qp *q = copy.element.qp->qp_context;
        if (e->event_type == IBV_EVENT_QP_LAST_WQE_REACHED) {
            *again = q->last_told;
            q->last_told = 1;
        }
        e->element.qp = &q->q;
        break;
    }
    default:
        break;
    }
    real.ibv_ack_async_event(&copy);
    return true;
}

// The same, but for what the program was told before a restart.
static bool take_async(struct v_context *c, struct ibv_async_event *e) {
    for (bool again; take_one(c, e, &again);)
        if (!again) return true;
    return false;
}

long f_async(const long *a) {
    struct v_context *c = ARG(struct v_context *, 0);
    struct ibv_async_event *e = ARG(struct ibv_async_event *, 1);
    bool got = true;
    take(&c->bell.lock);
    if (c->bell.kept) {
        *e = c->async[0];
        memmove(c->async, c->async + 1, (V_ASYNC - 1) * sizeof *c->async);
        took(&c->bell);
    } else
        got = take_async(c, e);
    uint32_t *owed = got ? v_owed(e).count : NULL;
    if (owed) __atomic_fetch_sub(owed, 1, __ATOMIC_RELAXED);
    give(&c->bell.lock);
    return got ? 0 : EAGAIN;
}

// The real object has ended: there is no event of it any more but those that the program has taken.
void events_forget(struct v_context *c, const uint32_t *owed) {
    take(&c->bell.lock);
    for (uint32_t i = 0; i < c->bell.kept;) {
        if (v_owed(&c->async[i]).count != owed) {
            i++;
            continue;
        }
        memmove(&c->async[i], &c->async[i + 1], (V_ASYNC - 1 - i) * sizeof *c->async);
        took(&c->bell);
    }
    give(&c->bell.lock);
}

void events_keep_async(void) {
    EACH(v_context, x, root->contexts) {
        take(&x->bell.lock);
        while (x->bell.kept < V_ASYNC && take_async(x, &x->async[x->bell.kept])) ring(&x->bell);
        give(&x->bell.lock);
    }
}

void events_keep(void) {
    EACH(v_channel, c, root->channels) {
        take(&c->bell.lock);
        for (struct v_cq *q; (q = take_real(c));) {
            q->events++;
            ring(&c->bell);
        }
        give(&c->bell.lock);
    }
    events_keep_async();
}

// Whether there is an event for which there is no place.
bool event_waits(struct v_context *c) {
    struct pollfd p = {.fd = c->bell.real, .events = POLLIN};
    return c->bell.kept == V_ASYNC && poll(&p, 1, 0) == 1;
}

int bells(int *list, int max) {
    int n = 0;
    if (!root) return 0;
    EACH(v_channel, c, root->channels) {
        if (n + 2 <= max) list[n++] = c->bell.real, list[n++] = c->bell.counter;
    }
    EACH(v_context, x, root->contexts) {
        if (n + 2 <= max) list[n++] = x->bell.real, list[n++] = x->bell.counter;
    }
    return n;
}
