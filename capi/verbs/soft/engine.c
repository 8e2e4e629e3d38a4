// SPDX-License-Identifier: Apache-2.0
//
// engine.c: the adapter of this process, and who makes progress.
//
// An application that polls makes progress by its polls. The thread sleeps meanwhile: two threads that wake up
// for each message are twice the switches. It begins when nobody has polled for a while, or at once when a
// queue is armed.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "verbs/soft/impl.h"
#include "verbs/soft/engine.h"

enum { POLLED_MS = 4, GONE_MS = 20, EVENTS = 32 };
#define MS 1000000ull

struct soft_adapter soft = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll = -1, .listener = -1, .wake = -1};

uint64_t soft_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

// For tests: a device that is pulled out.
static void look_whether_gone(void) {
    static uint64_t next;
    uint64_t now = soft_now();
    if (soft.lost || now < next) return;
    next = now + GONE_MS * MS;
    if (access(soft.gone, F_OK) != 0) return;
    soft.lost = true;
    soft_qp_fail_all();
    soft.tell.lost();
}

int soft_limit(const char *name, int most) {
    const char *less = getenv(name);
    int n = less != NULL ? atoi(less) : most;
    return n > 0 && n < most ? n : most;
}

// What an event is of: NULL is the listener, &soft the wake-up of the thread, else a link.
void soft_round(int wait) {
    struct epoll_event e[EVENTS];
    int n = epoll_wait(soft.epoll, e, EVENTS, wait);
    for (int i = 0; i < n; i++) {
        if (e[i].data.ptr == NULL) {
            soft_link_accept();
        } else if (e[i].data.ptr != &soft) {
            struct soft_link *link = e[i].data.ptr;
            if (link->fd >= 0 && e[i].events & EPOLLOUT) soft_link_flush(link);
            if (link->fd >= 0 && e[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) soft_link_in(link);
        }
    }
    if (soft.next != 0) {
        uint64_t now = soft_now();
        if (now >= soft.next) soft_link_tick(now);
    }
    if (soft.gone != NULL) look_whether_gone();
    if (!LIST_EMPTY(&soft.late)) soft_events_late();
    soft_link_sweep();
}

void soft_asked(void) { soft.polled = soft_now(); }

static void wake(void) {
    uint64_t one = 1;
    if (write(soft.wake, &one, sizeof one) < 0) return; // it is readable already
}

void soft_waits(void) {
    soft.polled = 0;
    if (soft.asleep) wake();
    soft.asleep = false;
}

void soft_deadline(uint64_t at) {
    if (soft.next != 0 && soft.next <= at) return;
    soft.next = at;
    wake(); // the thread may be waiting for longer
}

// The thread waits outside the lock and reads inside it. An event that a poller takes meanwhile is gone then.
static void *progress(void *none) {
    struct epoll_event e;
    pthread_mutex_lock(&soft.lock);
    for (;;) {
        uint64_t now = soft_now();
        bool busy = soft.polled != 0 && now - soft.polled < POLLED_MS * MS;
        int wait = 1000;
        if (soft.next != 0) wait = now >= soft.next ? 0 : (int)((soft.next - now) / MS) + 1;
        soft.asleep = busy;
        pthread_mutex_unlock(&soft.lock);
        if (busy) {
            struct pollfd woken = {.fd = soft.wake, .events = POLLIN};
            (void)poll(&woken, 1, POLLED_MS / 2);
        } else {
            (void)epoll_wait(soft.epoll, &e, 1, wait > 1000 ? 1000 : wait);
        }
        pthread_mutex_lock(&soft.lock);
        uint64_t drained;
        if (read(soft.wake, &drained, sizeof drained) < 0 && errno != EAGAIN) break;
        if (!busy || soft.polled == 0) soft_round(0);
    }
    pthread_mutex_unlock(&soft.lock);
    return none;
}

static int watch(int fd, void *what) {
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(soft.epoll, EPOLL_CTL_ADD, fd, &e) != 0 ? errno : 0;
}

static int listen_here(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = soft.net.listen};
    socklen_t size = sizeof at;
    int one = 1;
    soft.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (soft.listener < 0 || setsockopt(soft.listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(soft.listener, (struct sockaddr *)&at, size) != 0 || listen(soft.listener, SOMAXCONN) != 0 ||
        getsockname(soft.listener, (struct sockaddr *)&at, &size) != 0)
        return errno;
    soft.port = ntohs(at.sin_port);
    return 0;
}

static int start_thread(void) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    // No signal of the application is taken by this thread.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, progress, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) pthread_detach(thread);
    return rc;
}

static void close_one(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static int start(const struct soft_net *net, const struct soft_tell *tell) {
    soft.net = *net, soft.tell = *tell;
    const char *delay = getenv("CKPTSOFT_ANSWER_DELAY_MS");
    soft.answer_delay = delay != NULL ? strtoull(delay, NULL, 10) * MS : 0;
    soft.hold = getenv("CKPTSOFT_HOLD");
    soft.gone = getenv("CKPTSOFT_GONE");
    soft.hold_events = getenv("CKPTSOFT_HOLD_EVENTS");
    soft.most_wrs = (uint32_t)soft_limit("CKPTSOFT_MOST_WRS", SOFT_WRS);
    soft.heeds_memlock = getenv("CKPTSOFT_MEMLOCK") != NULL;
    int rc;
    soft.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (soft.epoll < 0) return errno;
    soft.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (soft.wake < 0) return errno;
    if ((rc = listen_here()) != 0 || (rc = watch(soft.listener, NULL)) != 0 ||
        (rc = watch(soft.wake, &soft)) != 0)
        return rc;
    return start_thread();
}

uint16_t soft_port(void) { return soft.port; }
uint32_t soft_most_wrs(void) { return soft.most_wrs; }

int soft_start(const struct soft_net *net, const struct soft_tell *tell) {
    pthread_mutex_lock(&soft.lock);
    int rc = 0;
    if (soft.epoll < 0) {
        rc = start(net, tell);
        if (rc != 0) {
            close_one(&soft.listener);
            close_one(&soft.wake);
            close_one(&soft.epoll);
        }
    }
    pthread_mutex_unlock(&soft.lock);
    return rc;
}
