// SPDX-License-Identifier: Apache-2.0
//
// wire.c: sockets, and the thread that watches them.
#define _GNU_SOURCE
#include "verbs/cm/cm.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    STRANGERS = 64,            // connections that have not said who they are
    STRANGER_PATIENCE = 10000, // ms
    FLUSH_PATIENCE = 5000,
    TICK = 500,
    LONGEST_TICK = 1000,
    AT_ONCE = 16, // connections that are accepted in a turn
};

static struct cm_link *links;
static int bell = -1; // wakes the thread
static bool started, tired;
static uint64_t now, seen, stranger_patience;

uint64_t cm_patience(const char *variable, uint64_t usual) {
    const char *text = getenv(variable);
    char *end = NULL;
    unsigned long ms = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    return end && !*end && ms && ms < usual ? ms : usual;
}

// Time that a process is stopped, or not there, must not make its peers late.
static void tick(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t ms = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    if (seen && ms > seen) now += ms - seen < LONGEST_TICK ? ms - seen : LONGEST_TICK;
    seen = ms;
}

// The thread does not look at the clock while there is nothing to wait for: what begins now begins at a time of now.
uint64_t cm_now(void) {
    tick();
    return now;
}

void cm_wake(void) {
    uint64_t one = 1;
    ssize_t n = write(bell, &one, sizeof one);
    (void)n; // full: it is awake
}

static void shut(struct cm_link *l) {
    if (l->fd < 0) return;
    // The thread may hold the socket while it polls: the peer hears of the end now.
    shutdown(l->fd, SHUT_RDWR);
    close(l->fd);
    l->fd = -1;
    if (l->id && l->id->link == l) l->id->link = NULL;
    l->id = NULL;
}

// What the kernel takes of what is to be said: false, if the connection is broken.
static bool flush(struct cm_link *l) {
    while (l->out_from < l->out_to) {
        ssize_t n =
            send(l->fd, (char *)l->out + l->out_from, l->out_to - l->out_from, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
        l->out_from += (size_t)n;
    }
    l->out_from = l->out_to = 0;
    return true;
}

int cm_say(struct cm_id *id, struct cm_message *m) {
    struct cm_link *l = id->link;
    if (!l || l->kind == LINK_LISTENS) return ENOTCONN;
    if (l->out_to + sizeof *m > sizeof l->out) return ENOBUFS; // more than a connection ever says
    memcpy((char *)l->out + l->out_to, m, sizeof *m);
    l->out_to += sizeof *m;
    if (l->kind != LINK_CONNECTS && !flush(l)) return EPIPE;
    cm_wake();
    return 0;
}

// What has been said still goes out.
void cm_unlink(struct cm_id *id) {
    for (struct cm_link *l = links; l; l = l->next) {
        if (l->id != id || l->fd < 0) continue;
        if (l->kind == LINK_TALKS && l->out_from < l->out_to) {
            l->kind = LINK_FLUSHES;
            l->until = now + FLUSH_PATIENCE;
            l->id = NULL;
        } else {
            shut(l);
        }
        cm_wake();
    }
    id->link = NULL;
}

// ---- the thread -------------------------------------------------------------------------------------

static struct cm_link *add(struct cm_id *id, int fd, enum cm_link_kind kind) {
    struct cm_link *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->id = id;
    l->fd = fd;
    l->kind = kind;
    l->next = links;
    return links = l;
}

// One stranger more: when there are too many the oldest goes. Links are in the order of their making, the newest first.
static void one_more(void) {
    struct cm_link *oldest = NULL;
    int n = 0;
    for (struct cm_link *l = links; l; l = l->next)
        if (l->kind == LINK_STRANGER && l->fd >= 0) oldest = l, n++;
    if (n >= STRANGERS) shut(oldest);
}

static void accept_some(struct cm_link *l) {
    for (int i = 0; i < AT_ONCE; i++) {
        int on = 1, fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            // Without a descriptor to spare the socket stays readable: it is looked at again after a while.
            tired |= errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
            return;
        }
        one_more();
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct cm_link *s = add(l->id, fd, LINK_STRANGER);
        if (s)
            s->until = now + stranger_patience;
        else
            close(fd);
    }
}

static void connected(struct cm_link *l) {
    int e = 0;
    socklen_t n = sizeof e;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &e, &n)) e = errno;
    if (e) {
        cm_lost(l, e);
        shut(l);
        return;
    }
    l->kind = LINK_TALKS;
}

// Reads what there is. A stranger that does not begin as it must is gone at the first byte that is wrong.
static void hear(struct cm_link *l) {
    static const uint64_t magic = CM_MAGIC;
    while (l->fd >= 0) {
        ssize_t n = recv(l->fd, (char *)&l->in + l->in_bytes, sizeof l->in - l->in_bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            if (l->kind == LINK_TALKS) cm_lost(l, n < 0 ? errno : 0);
            shut(l);
            return;
        }
        l->in_bytes += (size_t)n;
        size_t known = l->in_bytes < sizeof magic ? l->in_bytes : sizeof magic;
        bool good = !memcmp(&l->in, &magic, known);
        if (good && l->in_bytes < sizeof l->in) continue;
        l->in_bytes = 0;
        if (good && l->kind == LINK_FLUSHES) continue;
        if (good && cm_hear(l, &l->in)) continue;
        if (!good && l->kind == LINK_TALKS) cm_lost(l, EPROTO);
        if (good && l->out_from < l->out_to && flush(l) && l->out_from < l->out_to) {
            l->kind = LINK_FLUSHES;
            l->until = now + FLUSH_PATIENCE;
            return;
        }
        shut(l);
    }
}

static void serve(struct cm_link *l, short events) {
    if (l->fd < 0) return;
    if (l->kind == LINK_LISTENS) {
        if (events) accept_some(l);
        return;
    }
    if (l->kind == LINK_CONNECTS && events) connected(l);
    if (l->fd < 0) return;
    if (l->kind != LINK_CONNECTS && l->out_from < l->out_to && !flush(l)) {
        if (l->kind == LINK_TALKS) cm_lost(l, EPIPE);
        shut(l);
        return;
    }
    if (l->kind == LINK_FLUSHES && l->out_from == l->out_to) {
        shut(l);
        return;
    }
    if (l->kind != LINK_CONNECTS && events & ~POLLOUT) hear(l);
    if (l->fd < 0 || !l->until || now < l->until) return;
    if (l->kind == LINK_TALKS || l->kind == LINK_CONNECTS) cm_lost(l, ETIMEDOUT);
    shut(l);
}

// Links that are closed are freed here alone, so that one that is polled is never another one's.
static size_t reap(bool *timed) {
    size_t n = 0;
    for (struct cm_link **p = &links; *p;) {
        struct cm_link *l = *p;
        if (l->fd < 0) {
            *p = l->next;
            free(l);
            continue;
        }
        *timed |= l->until != 0;
        n++;
        p = &l->next;
    }
    return n;
}

struct watched {
    struct pollfd *poll;
    struct cm_link **link;
    size_t room, n;
};

static bool collect(struct watched *w, size_t count) {
    if (count + 1 > w->room) {
        size_t room = 2 * count + 16;
        struct pollfd *poll = realloc(w->poll, room * sizeof *poll);
        if (poll) w->poll = poll;
        struct cm_link **link = realloc(w->link, room * sizeof *link);
        if (link) w->link = link;
        if (!poll || !link) return false;
        w->room = room;
    }
    w->n = 0;
    w->poll[w->n] = (struct pollfd){.fd = bell, .events = POLLIN};
    w->link[w->n++] = NULL;
    for (struct cm_link *l = links; l; l = l->next) {
        short events = l->kind == LINK_CONNECTS || l->out_from < l->out_to ? POLLOUT : 0;
        if (l->kind != LINK_CONNECTS && !(tired && l->kind == LINK_LISTENS)) events |= POLLIN;
        w->poll[w->n] = (struct pollfd){.fd = l->fd, .events = events};
        w->link[w->n++] = l;
    }
    return true;
}

static void *watch(void *arg) {
    struct watched w = {0};
    (void)arg;
    pthread_mutex_lock(&cm_lock);
    for (;;) {
        bool timed = false;
        size_t count = reap(&timed);
        bool ready = collect(&w, count);
        timed |= tired || !ready;
        tired = false;
        pthread_mutex_unlock(&cm_lock);
        int n = poll(w.poll, ready ? (nfds_t)w.n : 0, timed ? TICK : -1);
        pthread_mutex_lock(&cm_lock);
        tick();
        if (!ready || n < 0) continue;
        uint64_t rung;
        if (w.poll[0].revents & POLLIN && read(bell, &rung, sizeof rung) < 0) continue;
        // Those that know each other first: strangers that come now push none out that has spoken.
        for (size_t i = 1; i < w.n; i++)
            if (w.link[i]->kind != LINK_LISTENS) serve(w.link[i], w.poll[i].revents);
        for (size_t i = 1; i < w.n; i++)
            if (w.link[i]->kind == LINK_LISTENS) serve(w.link[i], w.poll[i].revents);
    }
    return NULL;
}

// A child of fork has no such thread, and connections are its parent's.
static void in_child(void) {
    cm_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    started = false;
    links = NULL;
    bell = -1;
}

// The program's signals are not for this thread.
static int start(void) {
    static bool told;
    sigset_t all, old;
    pthread_t thread;
    pthread_attr_t attr;
    if (bell < 0 && (bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) return errno;
    if (started) return 0;
    int e = told ? 0 : pthread_atfork(NULL, NULL, in_child);
    if (e) return e;
    told = true;
    if ((e = pthread_attr_init(&attr))) return e;
    sigfillset(&all);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    e = pthread_create(&thread, &attr, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (e) return e;
    stranger_patience = cm_patience("CKPT_RDMACM_SILENT_MS", STRANGER_PATIENCE);
    tick();
    started = true;
    return 0;
}

int cm_link(struct cm_id *id, int fd, enum cm_link_kind kind) {
    int e = start();
    if (e) return e;
    if (!(id->link = add(id, fd, kind))) return ENOMEM;
    cm_wake();
    return 0;
}
