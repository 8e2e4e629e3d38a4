// SPDX-License-Identifier: Apache-2.0
//
// rail_tcp.c: a connection to each process that a message asked for.
//
// An open rail is one listening socket.  Connections are made on demand, over libckpt's signals:
//
//   process 3 (has a message for 9)                         process 9
//   tcp_connect(9): signal "I listen at A" -------------->  asked(): connects to A, says hello, lists an endpoint
//   (CKPT_E_AGAIN: the sender yields and elects again)
//   welcome(): accepts, reads the hello, lists an endpoint
//
// When both ask at once, the lower process's question is the one that is answered.
//
// Bytes that the kernel has taken are not with the receiver yet.  So each message carries the number of those that were
// received the other way, and quiet, which needs that number soon, sends it alone.  A message counts as received
// once it is in the lists of match.c.
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "inside.h"

struct wire { // before each message
    uint64_t received;
    uint64_t alone; // 1: no message follows
    struct header h;
};

struct link {          // to one process
    struct endpoint e; // first
    int fd;
    pthread_mutex_t lock; // of the sending side: the next six
    char *out;            // what the kernel had no room for
    size_t from, to, room;
    uint64_t sent; // messages
    uint64_t told; // received, as the other side knows it
    // The receiving side, which poll alone writes.
    uint64_t acknowledged, received; // atomic
    struct wire in;                  // what comes in, and how much of it is here
    size_t got;
    struct message *incoming; // NULL: in is not whole yet
    bool ended;               // the other side has closed
};

struct invitation { // a signal
    struct sockaddr_in at;
    uint64_t opening;
};
struct hello {
    uint64_t opening;
    uint64_t process;
};

static struct {
    pthread_mutex_t lock; // of asked, and of making links
    int listener;         // -1: closed
    struct sockaddr_in at;
    uint64_t opening; // how often it was opened: what belongs to an earlier time is not meant any more
    bool *asked;      // a connection to that process is on its way
    struct link **links;
} tcp = {.lock = PTHREAD_MUTEX_INITIALIZER, .listener = -1};

static struct link *link_to(int process) { return __atomic_load_n(&tcp.links[process], __ATOMIC_ACQUIRE); }

// ---- sending; with the link's lock ----

static size_t to_kernel(struct link *l, struct iovec *parts, int n) {
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = (size_t)n};
    ssize_t sent = sendmsg(l->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        tmpi_die("the connection to process %d is lost: %s", l->e.base.process, strerror(errno));
    return sent < 0 ? 0 : (size_t)sent;
}

static void keep(struct link *l, const char *bytes, size_t n) {
    if (l->from == l->to) l->from = l->to = 0;
    if (l->to + n > l->room) l->out = tmpi_must(realloc(l->out, l->room = 2 * (l->to + n)));
    memcpy(l->out + l->to, bytes, n);
    l->to += n;
}

static void flush(struct link *l) {
    while (l->from < l->to) {
        size_t n = to_kernel(l, &(struct iovec){.iov_base = l->out + l->from, .iov_len = l->to - l->from}, 1);
        if (n == 0) break;
        l->from += n;
    }
}

static void push(struct link *l, const struct header *h, const void *data) {
    struct wire w = {.received = __atomic_load_n(&l->received, __ATOMIC_ACQUIRE), .alone = h == NULL};
    if (h != NULL) w.h = *h, l->sent++;
    l->told = w.received;
    struct iovec parts[2] = {{.iov_base = &w, .iov_len = sizeof w},
                             {.iov_base = (void *)(uintptr_t)data, .iov_len = w.h.bytes}};
    flush(l);
    size_t n = l->from == l->to ? to_kernel(l, parts, 2) : 0;
    for (int i = 0; i < 2; i++) {
        size_t gone = n < parts[i].iov_len ? n : parts[i].iov_len;
        if (gone < parts[i].iov_len) keep(l, (char *)parts[i].iov_base + gone, parts[i].iov_len - gone);
        n -= gone;
    }
}

static int tcp_send(struct endpoint *e, const struct header *h, const void *data) {
    enum { BACKLOG = 1 << 20 };
    struct link *l = (struct link *)e;
    pthread_mutex_lock(&l->lock);
    flush(l);
    bool room = l->to - l->from < BACKLOG;
    if (room) push(l, h, data);
    pthread_mutex_unlock(&l->lock);
    return room ? 0 : CKPT_E_AGAIN;
}

// ---- receiving; with progress ----

// Takes bytes of the stream, at most n, and returns how many.
static size_t take(struct link *l, const char *bytes, size_t n) {
    bool head = l->incoming == NULL;
    size_t whole = head ? sizeof l->in : l->in.h.bytes, part = whole - l->got < n ? whole - l->got : n;
    memcpy((head ? (char *)&l->in : l->incoming->data) + l->got, bytes, part);
    l->got += part;
    if (l->got < whole) return part;
    l->got = 0;
    if (head) {
        __atomic_store_n(&l->acknowledged, l->in.received, __ATOMIC_RELEASE);
        if (l->in.alone) return part;
        l->incoming = match_room(&l->in.h);
        if (l->in.h.bytes > 0) return part;
    }
    match_arrived(l->incoming);
    l->incoming = NULL;
    __atomic_store_n(&l->received, l->received + 1, __ATOMIC_RELEASE);
    return part;
}

static bool receive(struct link *l) {
    static char bytes[64 << 10];
    ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0) l->ended = true; // it is at its end, or this is found out by the next message for it
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        tmpi_die("the connection to process %d is lost: %s", l->e.base.process, strerror(errno));
    for (ssize_t at = 0; at < n;) at += (ssize_t)take(l, bytes + at, (size_t)(n - at));
    return n > 0;
}

// ---- connecting ----

static void list(int process, int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct link *l = tmpi_must(calloc(1, sizeof *l));
    l->e = (struct endpoint){.base = {.rail = rail_tcp.known, .process = process}, .send = tcp_send};
    l->fd = fd;
    pthread_mutex_init(&l->lock, NULL);
    __atomic_store_n(&tcp.links[process], l, __ATOMIC_RELEASE);
    if (ckpt_endpoint_add(tmpi.job, &l->e.base) != 0) tmpi_die("two connections to process %d", process);
}

// Whether it is this process's turn to make a connection to that one.
static bool mark(int process) {
    pthread_mutex_lock(&tcp.lock);
    bool first = !tcp.asked[process];
    tcp.asked[process] = true;
    pthread_mutex_unlock(&tcp.lock);
    return first;
}

static int tcp_connect(void *ctx, int process, ckpt_endpoint **out) {
    (void)ctx, (void)out;
    struct invitation in = {.at = tcp.at, .opening = tcp.opening};
    if (!mark(process)) return CKPT_E_AGAIN;
    int rc = ckpt_signal_send(tmpi.job, process, SIGNAL_TCP_ASK, &in, sizeof in, NULL);
    return rc != 0 ? rc : CKPT_E_AGAIN;
}

static void asked(void *ctx, int from, const void *bytes, size_t n) {
    struct invitation in;
    (void)ctx;
    if (n != sizeof in) return;
    memcpy(&in, bytes, n);
    if (in.opening != tcp.opening || (!mark(from) && tmpi.process < from)) return;
    struct hello hello = {.opening = tcp.opening, .process = (uint64_t)tmpi.process};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&in.at, sizeof in.at) != 0 ||
        send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
        tmpi_die("cannot connect to process %d: %s", from, strerror(errno));
    list(from, fd);
}

static void welcome(void) {
    int fd = accept(tcp.listener, NULL, NULL);
    if (fd < 0) return;
    struct hello hello;
    struct timeval patience = {.tv_sec = 10}; // with strangers; the hello of our own is under way
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (recv(fd, &hello, sizeof hello, MSG_WAITALL) == sizeof hello && hello.opening == tcp.opening &&
        hello.process < (uint64_t)tmpi.processes && link_to((int)hello.process) == NULL)
        list((int)hello.process, fd);
    else
        close(fd);
}

static bool tcp_poll(void) {
    if (tcp.listener < 0) return false;
    struct pollfd fds[tmpi.processes + 1];
    struct link *links[tmpi.processes + 1];
    int n = 0;
    fds[n++] = (struct pollfd){.fd = tcp.listener, .events = POLLIN};
    for (int i = 0; i < tmpi.processes; i++) {
        struct link *l = link_to(i);
        if (l == NULL || l->ended) continue;
        pthread_mutex_lock(&l->lock);
        fds[n] = (struct pollfd){.fd = l->fd, .events = (short)(POLLIN | (l->from < l->to ? POLLOUT : 0))};
        pthread_mutex_unlock(&l->lock);
        links[n++] = l;
    }
    if (poll(fds, (nfds_t)n, 0) <= 0) return false;
    bool moved = false;
    if (fds[0].revents != 0) welcome(), moved = true;
    for (int i = 1; i < n; i++) {
        if (fds[i].revents & POLLOUT) {
            pthread_mutex_lock(&links[i]->lock);
            flush(links[i]);
            pthread_mutex_unlock(&links[i]->lock);
        }
        if (fds[i].revents & ~POLLOUT) moved |= receive(links[i]);
    }
    return moved;
}

// ---- the rail ----

// Where this process can be reached: the first address that is not the loopback's, if there is one.
static void find_address(struct sockaddr_in *at) {
    struct ifaddrs *all = NULL;
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (getifaddrs(&all) != 0) return;
    for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
        if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET && (i->ifa_flags & IFF_UP) &&
            !(i->ifa_flags & IFF_LOOPBACK)) {
            at->sin_addr = ((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr;
            break;
        }
    freeifaddrs(all);
}

static bool tcp_open(void) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    socklen_t length = sizeof tcp.at;
    if (tcp.links == NULL) {
        tcp.links = tmpi_must(calloc((size_t)tmpi.processes, sizeof(struct link *)));
        tcp.asked = tmpi_must(calloc((size_t)tmpi.processes, sizeof *tcp.asked));
        ckpt_signal_handle(tmpi.job, SIGNAL_TCP_ASK, asked, NULL);
    }
    tcp.opening++;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&tcp.at, &length) != 0)
        return false;
    find_address(&tcp.at);
    tcp.listener = fd;
    // Nobody asks a process that is not there yet: it would take the question for an old one.
    return ckpt_barrier(tmpi.job, TAG_TCP_OPEN, NULL) == 0;
}

static int tcp_quiet(void *ctx) {
    (void)ctx;
    bool quiet = !tcp_poll();
    for (int i = 0; i < tmpi.processes; i++) {
        struct link *l = link_to(i);
        if (l == NULL) continue;
        pthread_mutex_lock(&l->lock);
        flush(l);
        if (l->told != l->received) push(l, NULL, NULL);
        if (l->from < l->to || l->acknowledged != l->sent) quiet = false;
        pthread_mutex_unlock(&l->lock);
    }
    return quiet;
}

static int tcp_close(void *ctx) {
    (void)ctx;
    for (int i = 0; i < tmpi.processes; i++) {
        struct link *l = tcp.links[i];
        tcp.links[i] = NULL, tcp.asked[i] = false;
        if (l == NULL) continue;
        close(l->fd);
        free(l->out);
        free(l);
    }
    if (tcp.listener >= 0) close(tcp.listener);
    tcp.listener = -1;
    return 0;
}

// Whatever the reason: who wants to send asks again, and names the new address.
static int tcp_reopen(void *ctx, int why) {
    (void)ctx, (void)why;
    return tcp_open() ? 0 : CKPT_E_SYSTEM;
}

struct rail rail_tcp = {.ops = {.size = sizeof(ckpt_rail_ops),
                                .name = "tcp",
                                .priority = PRIORITY_TCP,
                                .flags = CKPT_RAIL_ON_DEMAND,
                                .connect = tcp_connect,
                                .quiet = tcp_quiet,
                                .close = tcp_close,
                                .reopen = tcp_reopen},
                        .open = tcp_open,
                        .poll = tcp_poll};
