// SPDX-License-Identifier: Apache-2.0
//
// link.c: connections, and frames on them.
//
// A link is never freed while a round goes on: soft_link_close marks it, soft_link_sweep frees it.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs/soft/impl.h"
#include "verbs/soft/engine.h"

enum {
    MESSAGES_A_TURN = 64, // of one link, so that others get theirs
    BACKLOG = 4096,       // datagrams to one process; more are lost, as they may be
    HELD_MS = 5,          // how often the file is looked for that holds answers back
    STRANGERS = 64,       // connections that have not said hello
    GREET_MS = 10000,     // how long they may take
    LET_GO_MS = 200,
};
#define MS 1000000ull

// ---- making and ending ----

static struct soft_link *new_link(int fd, bool ours) {
    int one = 1;
    struct soft_link *link = calloc(1, sizeof *link);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = link};
    // Without TCP_NODELAY it is slower, and that is all.
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (link == NULL || epoll_ctl(soft.epoll, EPOLL_CTL_ADD, fd, &e) != 0) {
        free(link);
        close(fd);
        return NULL;
    }
    link->fd = fd, link->ours = ours;
    STAILQ_INIT(&link->out);
    LIST_INSERT_HEAD(&soft.links, link, others);
    return link;
}

// The first frame of a connection.
static bool greet(struct soft_link *link, uint64_t secret) {
    struct soft_frame *frame = calloc(1, sizeof *frame);
    struct soft_hello *hello = malloc(sizeof *hello);
    if (frame == NULL || hello == NULL) {
        free(frame);
        free(hello);
        return false;
    }
    *hello = (struct soft_hello){SOFT_MAGIC, SOFT_VERSION, secret};
    frame->piece[0] = (struct iovec){hello, sizeof *hello};
    frame->pieces = 1, frame->total = sizeof *hello, frame->owned = hello;
    soft_link_out(link, frame);
    return link->fd >= 0;
}

struct soft_link *soft_link_to(const struct soft_address *to) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return NULL;
    bool connecting = false;
    if (connect(fd, (const struct sockaddr *)&to->at, sizeof to->at) != 0) {
        if (errno != EINPROGRESS) {
            close(fd);
            return NULL;
        }
        connecting = true;
    }
    struct soft_link *link = new_link(fd, true);
    if (link == NULL) return NULL;
    link->to = to->at, link->connecting = connecting;
    soft_link_watch(link);
    if (greet(link, to->secret)) return link;
    soft_link_close(link);
    return NULL;
}

struct soft_link *soft_link_shared(const struct soft_address *to) {
    struct soft_link *link;
    LIST_FOREACH(link, &soft.links, others) {
        if (link->fd >= 0 && link->ours && link->qp == NULL && link->to.sin_port == to->at.sin_port &&
            link->to.sin_addr.s_addr == to->at.sin_addr.s_addr)
            return link->backlog < BACKLOG ? link : NULL;
    }
    return soft_link_to(to);
}

void soft_link_accept(void) {
    int fd;
    while ((fd = accept4(soft.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        unsigned strangers = 0;
        struct soft_link *link;
        LIST_FOREACH(link, &soft.links, others) strangers += link->fd >= 0 && !link->ours && !link->greeted;
        if (strangers >= STRANGERS) {
            close(fd);
            continue;
        }
        link = new_link(fd, false);
        if (link == NULL) continue;
        link->greet_by = soft_now() + GREET_MS * MS;
        soft_deadline(link->greet_by);
    }
}

// The frames of sends stay with their queue pair.
static void drop_frames(struct soft_link *link) {
    struct soft_frame *frame;
    while ((frame = STAILQ_FIRST(&link->out)) != NULL) {
        STAILQ_REMOVE_HEAD(&link->out, behind);
        if (frame->send != NULL) {
            frame->send->queued = false;
        } else {
            free(frame->owned);
            free(frame);
        }
    }
    link->backlog = 0;
}

void soft_link_close(struct soft_link *link) {
    if (link->fd < 0) return;
    close(link->fd);
    link->fd = -1;
    drop_frames(link);
    if (link->ours && link->qp != NULL) link->qp->link = NULL;
}

static void lost(struct soft_link *link) {
    struct soft_qp *qp = link->qp;
    if (!link->ours) soft_request_cut(link);
    soft_link_close(link);
    if (link->ours && qp != NULL) soft_link_lost(qp);
    link->qp = NULL;
}

void soft_link_sweep(void) {
    struct soft_link *link = LIST_FIRST(&soft.links), *next;
    for (; link != NULL; link = next) {
        next = LIST_NEXT(link, others);
        if (link->fd >= 0) continue;
        LIST_REMOVE(link, others);
        free(link);
    }
}

void soft_link_watch(struct soft_link *link) {
    struct epoll_event e = {.data.ptr = link};
    if (!link->stalled) e.events |= EPOLLIN;
    if (link->want_out || link->connecting) e.events |= EPOLLOUT;
    // It was added, and changing it needs no memory.
    (void)epoll_ctl(soft.epoll, EPOLL_CTL_MOD, link->fd, &e);
}

// ---- out ----

static void want_out(struct soft_link *link, bool want) {
    if (link->want_out == want) return;
    link->want_out = want;
    soft_link_watch(link);
}

// What is left of a frame. Returns the number of pieces.
static int rest(const struct soft_frame *frame, struct iovec *v) {
    size_t skip = frame->sent;
    int n = 0;
    for (int i = 0; i < frame->pieces; i++) {
        size_t length = frame->piece[i].iov_len;
        if (skip >= length) {
            skip -= length;
            continue;
        }
        v[n++] = (struct iovec){(char *)frame->piece[i].iov_base + skip, length - skip};
        skip = 0;
    }
    return n;
}

static bool connected(struct soft_link *link) {
    int error = 0;
    socklen_t size = sizeof error;
    if (!link->connecting) return true;
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        lost(link);
        return false;
    }
    link->connecting = false;
    soft_link_watch(link);
    return true;
}

// An answer that a test keeps back.
static bool kept_back(struct soft_frame *frame) {
    uint64_t now;
    if (frame->send != NULL || (frame->due == 0 && !frame->held)) return false;
    now = soft_now();
    if (frame->held && access(soft.hold, F_OK) == 0) {
        soft_deadline(now + HELD_MS * MS);
        return true;
    }
    frame->held = false;
    if (now < frame->due) {
        soft_deadline(frame->due);
        return true;
    }
    return false;
}

void soft_link_flush(struct soft_link *link) {
    struct soft_frame *frame;
    if (!connected(link)) return;
    while ((frame = STAILQ_FIRST(&link->out)) != NULL && !kept_back(frame) && soft_may_go(frame)) {
        struct iovec v[SOFT_SGES + 1];
        struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)rest(frame, v)};
        ssize_t n = sendmsg(link->fd, &m, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN)
                want_out(link, true);
            else
                lost(link);
            return;
        }
        frame->sent += (size_t)n;
        if (frame->sent < frame->total) continue;
        STAILQ_REMOVE_HEAD(&link->out, behind);
        link->backlog--;
        soft_sent(frame);
        if (link->fd < 0) return;
    }
    want_out(link, false);
}

void soft_link_out(struct soft_link *link, struct soft_frame *frame) {
    bool first = STAILQ_EMPTY(&link->out);
    STAILQ_INSERT_TAIL(&link->out, frame, behind);
    link->backlog++;
    if (first && !link->connecting) soft_link_flush(link);
}

// An adapter has sent a datagram when it took it; here it may still wait for a connection. Who sends and ends must not
// lose it by that, as far as the other side takes it soon.
void soft_link_let_go(void) {
    uint64_t until = soft_now() + LET_GO_MS * MS, now;
    struct soft_link *link;
    LIST_FOREACH(link, &soft.links, others) {
        while (link->fd >= 0 && link->ours && link->qp == NULL && !STAILQ_EMPTY(&link->out) &&
               (now = soft_now()) < until) {
            struct pollfd p = {.fd = link->fd, .events = POLLOUT};
            if (poll(&p, 1, (int)((until - now) / MS) + 1) > 0) soft_link_flush(link);
        }
    }
}

// ---- in ----

// Reads up to n bytes: more than 0, or 0 when there is nothing now or the link is lost.
static size_t take_in(struct soft_link *link, struct iovec *v, int pieces) {
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)pieces};
    ssize_t n;
    do n = recvmsg(link->fd, &m, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0) return (size_t)n;
    if (n == 0 || errno != EAGAIN) lost(link);
    return 0;
}

// Who does not begin as another adapter of this job would is nobody to talk to.
static bool hello_in(struct soft_link *link) {
    struct soft_hello hello;
    while (link->got < sizeof hello) {
        struct iovec v = {(char *)&link->in + link->got, sizeof hello - link->got};
        size_t n = take_in(link, &v, 1);
        if (n == 0) return false;
        link->got += n;
    }
    memcpy(&hello, &link->in, sizeof hello);
    link->got = 0;
    link->greeted =
        hello.magic == SOFT_MAGIC && hello.version == SOFT_VERSION && hello.secret == soft.net.secret;
    if (!link->greeted) lost(link);
    return link->greeted;
}

static bool header_in(struct soft_link *link) {
    while (link->got < sizeof link->in) {
        struct iovec v = {(char *)&link->in + link->got, sizeof link->in - link->got};
        size_t n = take_in(link, &v, 1);
        if (n == 0) return false;
        link->got += n;
    }
    return true;
}

static bool payload_in(struct soft_link *link) {
    static char nowhere[64 << 10];
    while (link->left > 0) {
        struct iovec sink = {nowhere, link->left < sizeof nowhere ? link->left : sizeof nowhere};
        bool placed = link->at < link->pieces;
        size_t n =
            placed ? take_in(link, link->piece + link->at, link->pieces - link->at) : take_in(link, &sink, 1);
        if (n == 0) return false;
        link->left -= n;
        while (placed && n > 0) {
            struct iovec *v = &link->piece[link->at];
            size_t step = v->iov_len < n ? v->iov_len : n;
            v->iov_base = (char *)v->iov_base + step, v->iov_len -= step, n -= step;
            if (v->iov_len == 0) link->at++;
        }
    }
    return true;
}

// Whether the bytes can be a header at all.
static bool sound(const struct soft_link *link) {
    const struct soft_header *in = &link->in;
    return in->length <= SOFT_MESSAGE && (link->ours ? in->op == SOFT_ACK || in->op == SOFT_DATA
                                                     : in->op >= SOFT_SEND && in->op <= SOFT_ADD);
}

void soft_link_in(struct soft_link *link) {
    if (link->connecting && !connected(link)) return;
    if (link->stalled) { // nothing is read, so this is its end
        lost(link);
        return;
    }
    if (!link->ours && !link->greeted && !hello_in(link)) return;
    for (int i = 0; i < MESSAGES_A_TURN; i++) {
        if (!header_in(link)) return;
        if (!link->begun) {
            if (!sound(link)) {
                lost(link);
                return;
            }
            link->pieces = link->at = 0, link->left = 0;
            if (link->ours) {
                soft_answer_begin(link);
            } else if (!soft_request_begin(link)) {
                link->stalled = true;
                soft_link_watch(link);
                return;
            }
            link->begun = true;
        }
        if (!payload_in(link)) return;
        link->begun = false, link->got = 0;
        if (link->ours)
            soft_answer_end(link);
        else
            soft_request_end(link);
        if (link->fd < 0) return;
    }
}

// ---- deadlines ----

void soft_link_tick(uint64_t now) {
    struct soft_link *link;
    soft.next = 0;
    LIST_FOREACH(link, &soft.links, others) {
        if (link->fd < 0) continue;
        if (!link->ours && !link->greeted) {
            if (now >= link->greet_by)
                lost(link);
            else
                soft_deadline(link->greet_by);
            continue;
        }
        if (link->stalled && link->deadline != 0) {
            if (now >= link->deadline)
                soft_request_refuse(link);
            else
                soft_deadline(link->deadline);
        }
        if (link->fd >= 0 && !link->ours && !STAILQ_EMPTY(&link->out)) soft_link_flush(link);
    }
}
