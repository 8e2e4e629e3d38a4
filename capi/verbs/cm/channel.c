// SPDX-License-Identifier: Apache-2.0
//
// channel.c: event channels. A channel's descriptor is an eventfd that counts 1 while there are events.
#include "verbs/cm/cm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t cm_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t cm_acked = PTHREAD_COND_INITIALIZER;

API struct rdma_event_channel *rdma_create_event_channel(void) {
    if (cm_devices()) return NULL;
    struct cm_channel *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->last = &c->first;
    c->c.fd = eventfd(0, EFD_CLOEXEC);
    if (c->c.fd >= 0 && !sem_init(&c->more, 0, 0)) return &c->c;
    free(c);
    return NULL;
}

static bool nonblocking(const struct cm_channel *c) {
    int flags = fcntl(c->c.fd, F_GETFL);
    if (flags >= 0 && flags & O_NONBLOCK) errno = EAGAIN;
    return flags < 0 || flags & O_NONBLOCK;
}

// A thread that waits for an event of this channel would wait for ever, with the machine's library too. One that has just
// acknowledged an event may ask for the next one too late (late_for). So what was destroyed last stays.
API void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
    enum { LAST = 64 };
    static struct cm_channel *last[LAST]; // with the lock held
    static unsigned turn;
    struct cm_channel *c = CM_CHANNEL(channel), *oldest = NULL;
    pthread_mutex_lock(&cm_lock);
    if (!c->gone && !c->waiting) {
        c->gone = true;
        c->waits = !nonblocking(c);
        close(c->c.fd);
        c->c.fd = -1;
        oldest = last[turn % LAST];
        last[turn++ % LAST] = c;
    }
    pthread_mutex_unlock(&cm_lock);
    free(oldest);
}

// The descriptor follows from the list. It is never written twice, so that no call here waits.
static void settle(struct cm_channel *c, bool had) {
    uint64_t one = 1;
    ssize_t n = sizeof one;
    if (!had && c->first) n = write(c->c.fd, &one, sizeof one);
    if (had && !c->first) n = read(c->c.fd, &one, sizeof one);
    (void)n;
}

static void put(struct cm_channel *c, struct cm_event *e) {
    bool had = c->first != NULL;
    e->next = NULL;
    *c->last = e;
    c->last = &e->next;
    settle(c, had);
    if (c->waiting) sem_post(&c->more);
}

static void fill(struct cm_event *e, const struct cm_message *m) {
    if (!m) return;
    const void *data = m->private_bytes ? e->private_data : NULL;
    memcpy(e->private_data, m->private_data, m->private_bytes);
    if (m->qp_type == IBV_QPT_UD) {
        e->event.param.ud.private_data = data;
        e->event.param.ud.private_data_len = m->private_bytes;
        if (m->kind != CM_REP) return;
        e->event.param.ud.qp_num = m->qp_num;
        e->event.param.ud.qkey = m->qkey;
        return;
    }
    struct rdma_conn_param *p = &e->event.param.conn;
    p->private_data = data;
    p->private_data_len = m->private_bytes;
    p->responder_resources = m->initiator_depth;
    p->initiator_depth = m->responder_resources;
    p->flow_control = m->flow_control;
    p->retry_count = m->retry_count;
    p->rnr_retry_count = m->rnr_retry_count;
    p->srq = m->srq;
    p->qp_num = m->qp_num;
}

static struct cm_event *event_of(struct cm_id *id, struct cm_id *counted, enum rdma_cm_event_type type,
                                 int status, const struct cm_message *m) {
    struct cm_event *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->event.id = &id->id;
    e->event.event = type;
    e->event.status = status;
    e->counted = counted;
    fill(e, m);
    return e;
}

int cm_queue(struct cm_id *id, enum rdma_cm_event_type type, int status, const struct cm_message *m) {
    struct cm_event *e = event_of(id, id, type, status, m);
    if (!e) return ENOMEM;
    if (type == RDMA_CM_EVENT_ESTABLISHED && m && m->qp_type == IBV_QPT_UD)
        cm_ah(id, &e->event.param.ud.ah_attr);
    put(CM_CHANNEL(id->id.channel), e);
    return 0;
}

int cm_queue_request(struct cm_id *listener, struct cm_id *id, const struct cm_message *req) {
    struct cm_event *e = event_of(id, listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0, req);
    if (!e) return ENOMEM;
    e->event.listen_id = &listener->id;
    put(CM_CHANNEL(listener->id.channel), e);
    return 0;
}

// Takes those of an id out of its channel, to the list.
static void take_out(struct cm_id *id, struct cm_event **list) {
    struct cm_channel *c = CM_CHANNEL(id->id.channel);
    bool had = c->first != NULL;
    for (struct cm_event **p = &c->first; *p;) {
        struct cm_event *e = *p;
        if (e->counted != id && e->event.id != &id->id) {
            p = &e->next;
            continue;
        }
        *p = e->next;
        e->next = NULL;
        *list = e;
        list = &e->next;
    }
    for (c->last = &c->first; *c->last; c->last = &(*c->last)->next) {}
    settle(c, had);
}

// An id that goes: requests that nobody has taken are refused.
void cm_unqueue(struct cm_id *id) {
    struct cm_event *list = NULL, *e;
    take_out(id, &list);
    while ((e = list)) {
        list = e->next;
        if (e->event.listen_id == &id->id) cm_drop(CM_ID(e->event.id));
        free(e);
    }
}

void cm_move(struct cm_id *id, struct cm_channel *to) {
    struct cm_event *list = NULL, *e;
    take_out(id, &list);
    while ((e = list)) {
        list = e->next;
        if (e->event.listen_id) e->event.id->channel = &to->c;
        put(to, e);
    }
}

static struct cm_event *take(struct cm_channel *c) {
    struct cm_event *e = c->first;
    if (!e) return NULL;
    if (!(c->first = e->next)) c->last = &c->first;
    settle(c, true);
    e->next = NULL;
    e->counted->given++;
    if (e->event.listen_id) CM_ID(e->event.listen_id)->waits--;
    return e;
}

static void give_back(struct cm_event *e) {
    pthread_mutex_lock(&cm_lock);
    e->counted->acked++;
    pthread_cond_broadcast(&cm_acked);
    pthread_mutex_unlock(&cm_lock);
    free(e);
}

API int rdma_ack_cm_event(struct rdma_cm_event *event) {
    if (!event) return cm_fail(EINVAL);
    give_back((struct cm_event *)event);
    return 0;
}

static void waits_no_more(void *channel) {
    pthread_mutex_lock(&cm_lock);
    ((struct cm_channel *)channel)->waiting--;
    pthread_mutex_unlock(&cm_lock);
}

// Waits, without the lock, until there may be an event: 0, or -1 with errno. As the machine's library, it goes on after a
// handler with SA_RESTART, which poll does not, ends with EINTR after others, and can be cancelled.
static int await(struct cm_channel *c) {
    int r;
    pthread_cleanup_push(waits_no_more, c);
    r = nonblocking(c) ? -1 : sem_wait(&c->more);
    pthread_cleanup_pop(1);
    return r;
}

// A call of a channel that was destroyed. The machine's library finds no such descriptor, in memory that was freed. rping's
// server ends the process with an error then, if its thread for events is slow to come back while the process ends well. Had
// the call come in time, it would wait: so it does, for as long as a process takes to end.
static int late_for(const struct cm_channel *c) {
    enum { LONGEST = 1 }; // s
    if (c->waits) nanosleep(&(struct timespec){.tv_sec = LONGEST}, NULL);
    return cm_fail(EBADF);
}

API int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    struct cm_channel *c = CM_CHANNEL(channel);
    if (!event) return cm_fail(EINVAL);
    for (;;) {
        pthread_mutex_lock(&cm_lock);
        bool gone = c->gone;
        struct cm_event *e = gone ? NULL : take(c);
        if (!e && !gone) c->waiting++;
        pthread_mutex_unlock(&cm_lock);
        if (gone) return late_for(c);
        if (e && !cm_deliver(e)) {
            *event = &e->event;
            return 0;
        }
        if (e) {
            give_back(e);
            continue;
        }
        if (await(c)) return -1;
    }
}

// An id that has a channel of its own does nothing without waiting for what becomes of it.
int cm_complete(struct cm_id *id) {
    if (!id->sync) return 0;
    if (id->id.event) rdma_ack_cm_event(id->id.event);
    id->id.event = NULL;
    int r = rdma_get_cm_event(id->id.channel, &id->id.event);
    if (r) return r;
    int status = id->id.event->status;
    if (!status) return 0;
    if (id->id.event->event == RDMA_CM_EVENT_REJECTED) return cm_fail(ECONNREFUSED);
    return cm_fail(status < 0 ? -status : status);
}

API const char *rdma_event_str(enum rdma_cm_event_type event) {
#define NAME(e) [RDMA_CM_EVENT_##e] = "RDMA_CM_EVENT_" #e
    static const char *const names[] = {
        NAME(ADDR_RESOLVED),   NAME(ADDR_ERROR),       NAME(ROUTE_RESOLVED), NAME(ROUTE_ERROR),
        NAME(CONNECT_REQUEST), NAME(CONNECT_RESPONSE), NAME(CONNECT_ERROR),  NAME(UNREACHABLE),
        NAME(REJECTED),        NAME(ESTABLISHED),      NAME(DISCONNECTED),   NAME(DEVICE_REMOVAL),
        NAME(MULTICAST_JOIN),  NAME(MULTICAST_ERROR),  NAME(ADDR_CHANGE),    NAME(TIMEWAIT_EXIT),
    };
#undef NAME
    unsigned i = (unsigned)event;
    return i < sizeof names / sizeof *names && names[i] ? names[i] : "UNKNOWN EVENT";
}
