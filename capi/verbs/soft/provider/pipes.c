// SPDX-License-Identifier: Apache-2.0
//
// pipes.c: descriptors that the application waits on, and what is written for it to read.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "verbs/soft/provider/provider.h"

// An end that is read is kept open here, too: writing into a pipe that nobody reads would be a signal, and events
// of what is destroyed are taken out of it again.
struct channel {
    int fd;   // the application's number
    int read; // the same pipe, opened by us: reads of it never wait, whatever the application wants of its own
    int write;
    bool of_device; // events that are of no object come here
    struct channel *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct channel *channels;

static bool same(int a, int b) {
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

// Channels that the application has closed: libibverbs closes them without a word.
static void drop_closed(void) {
    for (struct channel **at = &channels; *at != NULL;) {
        struct channel *c = *at;
        if (same(c->fd, c->read)) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        close(c->read);
        close(c->write);
        free(c);
    }
}

int provider_events(int *fd, bool of_device) {
    int ends[2];
    struct channel *c = malloc(sizeof *c);
    if (c == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        free(c);
        return -1;
    }
    char name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
    *c = (struct channel){.fd = ends[0],
                          .read = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC),
                          .write = ends[1],
                          .of_device = of_device};
    if (c->read < 0 || fcntl(c->write, F_SETFL, O_NONBLOCK) != 0) {
        if (c->read >= 0) close(c->read);
        close(ends[0]);
        close(ends[1]);
        free(c);
        return -1;
    }
    pthread_mutex_lock(&lock);
    drop_closed();
    c->next = channels;
    channels = c;
    pthread_mutex_unlock(&lock);
    *fd = c->fd;
    return c->write;
}

int provider_channel(int fd) {
    int write = -1;
    pthread_mutex_lock(&lock);
    for (struct channel *c = channels; c != NULL && write < 0; c = c->next)
        if (c->fd == fd) write = c->write;
    pthread_mutex_unlock(&lock);
    return write;
}

// Each event begins with its element. What is of others goes to the end again: there is room, for who writes has the lock.
unsigned provider_forget(int fd, uint64_t element, size_t size) {
    char event[64];
    unsigned forgotten = 0;
    pthread_mutex_lock(&lock);
    for (struct channel *c = channels; c != NULL; c = c->next) {
        int kept = 0; // bytes
        if (c->write != fd || ioctl(c->read, FIONREAD, &kept) != 0) continue;
        for (size_t n = (size_t)kept / size; n > 0 && read(c->read, event, size) == (ssize_t)size; n--)
            if (memcmp(event, &element, sizeof element) == 0)
                forgotten++;
            else if (write(c->write, event, size) != (ssize_t)size)
                break;
    }
    pthread_mutex_unlock(&lock);
    return forgotten;
}

// Writes an event, and counts it. By what libibverbs has read it could not be counted: between its read and its call
// to us the element may be ended by another thread.
static void tell(int fd, const void *event, size_t size, unsigned *sent) {
    pthread_mutex_lock(&lock);
    ++*sent;
    if (write(fd, event, size) != (ssize_t)size) --*sent;
    pthread_mutex_unlock(&lock);
}

static void completion(void *of) {
    struct provider_cq *cq = of;
    uint64_t handle = (uintptr_t)&cq->cq.cq;
    // A pipe holds thousands, and a queue has one on its way at most until it is armed again.
    if (cq->channel >= 0) tell(cq->channel, &handle, sizeof handle, &cq->told);
}

static unsigned *sent_of(void *of, enum ibv_event_type type) {
    switch (type) {
    case IBV_EVENT_CQ_ERR:
        return &((struct provider_cq *)of)->events_sent;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return &((struct provider_srq *)of)->events_sent;
    default:
        return &((struct provider_qp *)of)->events_sent;
    }
}

static void event(void *of, enum ibv_event_type type) {
    // All objects begin with the public structure, and that with its context.
    struct provider_context *context = provider_of(*(struct ibv_context **)of);
    struct ib_uverbs_async_event_desc e = {.element = (uintptr_t)of, .event_type = type};
    tell(context->events, &e, sizeof e, sent_of(of, type));
}

static void lost(void) {
    struct ib_uverbs_async_event_desc e = {.event_type = IBV_EVENT_DEVICE_FATAL};
    pthread_mutex_lock(&lock);
    drop_closed();
    for (struct channel *c = channels; c != NULL; c = c->next)
        if (c->of_device && write(c->write, &e, sizeof e) < 0) break;
    pthread_mutex_unlock(&lock);
}

const struct soft_tell provider_tell = {.completion = completion, .event = event, .lost = lost};
