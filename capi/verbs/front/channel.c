// SPDX-License-Identifier: Apache-2.0
//
// channel.c: events.  What a program waits on is an epoll set of its own; the lower half puts the real descriptor into
// it, and a counter for events that are kept above.  Waiting is done here, where a thread can be stopped.
#include "verbs/front/front.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

int front_bell(struct v_bell *bell) {
    bell->real = bell->counter = -1;
    bell->fd = epoll_create1(EPOLL_CLOEXEC);
    return bell->fd < 0 ? errno : 0;
}

void front_bell_end(struct v_bell *bell) {
    if (bell->fd >= 0) close(bell->fd);
}

// Waits until there may be something: 0, or -1 with errno, EAGAIN where the program does not want to wait.
int front_wait(struct v_bell *bell) {
    int flags = fcntl(bell->fd, F_GETFL);
    if (flags < 0) return -1;
    if (flags & O_NONBLOCK) {
        errno = EAGAIN;
        return -1;
    }
    struct pollfd p = {.fd = bell->fd, .events = POLLIN};
    return poll(&p, 1, -1) < 0 ? -1 : 0;
}

API struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    struct v_channel *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    int e = front_bell(&c->bell);
    if (e) return FAILED(e, c);
    c->c.context = context;
    c->c.fd = c->bell.fd;
    long r = CROSS(V_CHANNEL, (long)c);
    if (r) {
        front_bell_end(&c->bell);
        return FAILED(r, c);
    }
    return &c->c;
}

API int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    struct v_channel *c = v_of(v_channel, c, channel);
    if (channel->refcnt) return EBUSY;
    long r = CROSS(V_CHANNEL_END, (long)c);
    if (r) return (int)r;
    front_bell_end(&c->bell);
    free(c);
    return 0;
}

API int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
    struct v_channel *c = v_of(v_channel, c, channel);
    for (;;) {
        struct v_cq *q = NULL;
        long r = CROSS(V_EVENT, (long)c, (long)&q);
        if (!r) {
            *cq = &q->q;
            *cq_context = q->q.cq_context;
            return 0;
        }
        errno = (int)r;
        if (r != EAGAIN || front_wait(&c->bell)) return -1;
    }
}

API void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n) {
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += n;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

API int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    struct v_context *c = front_context(context);
    for (;;) {
        long r = CROSS(V_ASYNC_EVENT, (long)c, (long)event);
        if (!r) return 0;
        errno = (int)r;
        if (r != EAGAIN || front_wait(&c->bell)) return -1;
    }
}

// The real event was acknowledged when it was taken. The program's object ends when it has given back what it took: until
// then its other threads may look at it.
API void ibv_ack_async_event(struct ibv_async_event *event) {
    struct v_owed owed = v_owed(event);
    if (!owed.count) return;
    pthread_mutex_lock(owed.mutex);
    __atomic_fetch_add(owed.count, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(owed.cond);
    pthread_mutex_unlock(owed.mutex);
}

void front_given_back(struct v_owed owed) {
    pthread_mutex_lock(owed.mutex);
    while ((int32_t)__atomic_load_n(owed.count, __ATOMIC_RELAXED) < 0)
        pthread_cond_wait(owed.cond, owed.mutex);
    pthread_mutex_unlock(owed.mutex);
}
