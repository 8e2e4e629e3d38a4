// SPDX-License-Identifier: Apache-2.0
//
// pipes.c: descriptors that the application waits on, and what is written for it to read.
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "verbs/soft/provider/provider.h"

// An end that is read is kept open here, too: writing into a pipe that nobody reads would be a signal, and events
// of what is destroyed are taken out of it again.
struct channel {
    int fd;   // the application's number
    int read; // the same pipe, by a number of ours
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
    *c = (struct channel){
        .fd = ends[0], .read = fcntl(ends[0], F_DUPFD_CLOEXEC, 0), .write = ends[1], .of_device = of_device};
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

// Takes the events of an element out of a pipe; each is of this size, and begins with its element.
void provider_forget(int fd, uint64_t element, size_t size) {
    char event[64];
    pthread_mutex_lock(&lock);
    for (struct channel *c = channels; c != NULL; c = c->next) {
        if (c->write != fd) continue;
        struct pollfd p = {.fd = c->read, .events = POLLIN};
        char *kept = NULL;
        size_t n = 0;
        while (poll(&p, 1, 0) == 1 && read(c->read, event, size) == (ssize_t)size) {
            char *more = memcmp(event, &element, sizeof element) != 0 ? realloc(kept, n + size) : NULL;
            if (more == NULL) continue;
            kept = more;
            memcpy(kept + n, event, size);
            n += size;
        }
        for (size_t at = 0; at < n; at += size)
            if (write(c->write, kept + at, size) != (ssize_t)size) break;
        free(kept);
    }
    pthread_mutex_unlock(&lock);
}

static void completion(void *of) {
    struct provider_cq *cq = of;
    uint64_t handle = (uintptr_t)&cq->cq.cq;
    // A pipe holds thousands, and a queue has one on its way at most until it is armed again.
    if (cq->channel >= 0 && write(cq->channel, &handle, sizeof handle) < 0) return;
}

static void event(void *of, enum ibv_event_type type) {
    // All objects begin with the public structure, and that with its context.
    struct provider_context *context = provider_of(*(struct ibv_context **)of);
    struct ib_uverbs_async_event_desc e = {.element = (uintptr_t)of, .event_type = type};
    if (write(context->events, &e, sizeof e) < 0) return;
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
