// SPDX-License-Identifier: Apache-2.0
//
// streams.c: N processes, each connected to each, send to each other streams of which every byte is known, in both
// directions at once.  A byte that is lost, comes twice or out of order ends the program.
//
//   streams N BYTES DIR     BYTES in each direction; DIR is where the processes find each other's ports
//
// The last quarter of each stream waits for the file DIR/end: so a test decides when the program may come to its end,
// not the speed of the machine.
//
// Connections differ: IPv4 and IPv6, by epoll without waiting and by threads that wait, with small buffers, with
// readers that pause until all buffers are full, and with one direction that ends early.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SMALL = 32768 }; // a receive buffer that the program chooses

static int rank, ranks;
static long total;
static const char *dir;

#define FAIL(...)                                    \
    do {                                             \
        fprintf(stderr, "rank %d: ", rank);          \
        fprintf(stderr, __VA_ARGS__);                \
        fprintf(stderr, " (%s)\n", strerror(errno)); \
        exit(1);                                     \
    } while (0)

struct link {
    int fd, peer, kind;
    long sent, received, to_send, to_receive;
    bool shut, ended;
    struct sockaddr_storage local, remote; // as they were in the beginning
    uint64_t digest;
    unsigned random, random_in; // of who sends, of who receives
    int pause;                  // turns in which it does not read
};

// The byte at a place of the stream between two processes.
static unsigned char byte_at(int from, int to, long at) {
    uint64_t x = (uint64_t)(at >> 3) * 0x9e3779b97f4a7c15u + (uint64_t)from * 1000003u + (uint64_t)to;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    return (unsigned char)(x >> ((at & 7) * 8));
}

static unsigned next(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static int family_of(int a, int b) { return (a + b) % 2 ? AF_INET6 : AF_INET; }

static socklen_t fill(struct sockaddr_storage *sa, int family, int port) {
    memset(sa, 0, sizeof *sa);
    if (family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)sa;
        *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return sizeof *in;
    }
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)sa;
    *in = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    in->sin6_addr = in6addr_loopback;
    return sizeof *in;
}

// Below the ports that the kernel gives to others: a restart wants this one again.
static int listen_at(int family) {
    struct sockaddr_storage sa;
    int fd = socket(family, SOCK_STREAM, 0), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); // as servers do
    for (int tries = 0; tries < 1000; tries++) {
        socklen_t n = fill(&sa, family, 20000 + (getpid() * 31 + tries * 7) % 10000);
        if (bind(fd, (struct sockaddr *)&sa, n) == 0 && listen(fd, 64) == 0) return fd;
        if (errno != EADDRINUSE) break;
    }
    FAIL("listen");
}

static int port_of(int fd) {
    struct sockaddr_storage sa;
    socklen_t n = sizeof sa;
    if (getsockname(fd, (struct sockaddr *)&sa, &n)) FAIL("getsockname");
    return ntohs(sa.ss_family == AF_INET ? ((struct sockaddr_in *)&sa)->sin_port
                                         : ((struct sockaddr_in6 *)&sa)->sin6_port);
}

static void tell_ports(int four, int six) {
    char path[4096], temp[4200];
    snprintf(path, sizeof path, "%s/port.%d", dir, rank);
    snprintf(temp, sizeof temp, "%s.new", path);
    FILE *f = fopen(temp, "w");
    if (!f || fprintf(f, "%d %d\n", port_of(four), port_of(six)) < 0 || fclose(f) || rename(temp, path))
        FAIL("tell the ports");
}

static int port_at(int peer, int family) {
    char path[4096];
    int four, six;
    snprintf(path, sizeof path, "%s/port.%d", dir, peer);
    for (;;) {
        FILE *f = fopen(path, "r");
        if (f) {
            if (fscanf(f, "%d %d", &four, &six) != 2) FAIL("%s", path);
            fclose(f);
            return family == AF_INET ? four : six;
        }
        usleep(2000);
    }
}

static void write_whole(int fd, const void *b, size_t n) {
    for (const char *at = b; n;) {
        ssize_t r = write(fd, at, n);
        if (r < 0) FAIL("write");
        at += r;
        n -= (size_t)r;
    }
}

static void begin(struct link *l, int fd, int peer) {
    *l = (struct link){.fd = fd, .peer = peer, .random = (unsigned)(rank * 7919 + peer * 104729 + 1)};
    l->random_in = l->random + 1;
    socklen_t n = sizeof l->local, m = sizeof l->remote;
    if (getsockname(fd, (struct sockaddr *)&l->local, &n) ||
        getpeername(fd, (struct sockaddr *)&l->remote, &m))
        FAIL("names");
    l->kind = (rank + peer) % 3;
    l->to_send = rank < peer && l->kind == 2 ? total / 10 : total; // this direction ends early
    l->to_receive = peer < rank && l->kind == 2 ? total / 10 : total;
    if (l->kind == 1) l->to_send = l->to_receive = total / 20; // small buffers are slow
    int one = 1, small = SMALL;
    if (l->kind == 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) FAIL("TCP_NODELAY");
    if (l->kind == 1 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small)) FAIL("SO_RCVBUF");
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one)) FAIL("SO_KEEPALIVE");
}

// What the program has set and seen of its socket stays as it is.
static void check_socket(struct link *l) {
    struct sockaddr_storage a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    socklen_t n = sizeof a, m = sizeof b;
    if (getsockname(l->fd, (struct sockaddr *)&a, &n) || memcmp(&a, &l->local, sizeof a))
        FAIL("getsockname is another one");
    // Without a connection any more there is no other end.
    if (getpeername(l->fd, (struct sockaddr *)&b, &m) ? errno != ENOTCONN
                                                      : memcmp(&b, &l->remote, sizeof b) != 0)
        FAIL("getpeername is another one");
    int v = 0;
    n = sizeof v;
    if (getsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &v, &n) || !v != (l->kind != 0))
        FAIL("TCP_NODELAY is %d", v);
    if (getsockopt(l->fd, SOL_SOCKET, SO_RCVBUF, &v, &n) || (l->kind == 1 && v != 2 * SMALL))
        FAIL("SO_RCVBUF is %d", v);
    if (getsockopt(l->fd, SOL_SOCKET, SO_KEEPALIVE, &v, &n) || !v) FAIL("SO_KEEPALIVE is %d", v);
}

// The last quarter waits for its file.  Once seen it need not be looked for again.
static bool held(const struct link *l) {
    static atomic_bool may_end;
    char path[4096];
    if (l->sent < l->to_send / 4 * 3 || atomic_load(&may_end)) return false;
    snprintf(path, sizeof path, "%s/end", dir);
    if (access(path, F_OK)) return true;
    atomic_store(&may_end, true);
    return false;
}

// Sends up to some bytes; false: it would wait.
static bool send_some(struct link *l) {
    unsigned char b[65536];
    if (held(l)) {
        usleep(1000);
        return false;
    }
    size_t n = 1 + next(&l->random) % (next(&l->random) % 8 ? 4000 : sizeof b);
    if ((long)n > l->to_send - l->sent) n = (size_t)(l->to_send - l->sent);
    for (size_t i = 0; i < n; i++) b[i] = byte_at(rank, l->peer, l->sent + (long)i);
    if (n) {
        ssize_t r = send(l->fd, b, n, MSG_NOSIGNAL);
        if (r < 0 && errno == EAGAIN) return false;
        if (r < 0) FAIL("send to %d", l->peer);
        l->sent += r;
    }
    if (l->sent == l->to_send && !l->shut) {
        if (shutdown(l->fd, SHUT_WR)) FAIL("shutdown to %d", l->peer);
        l->shut = true;
    }
    return true;
}

static bool receive_some(struct link *l) {
    unsigned char b[65536];
    ssize_t r = recv(l->fd, b, 1 + next(&l->random_in) % (next(&l->random_in) % 8 ? 4000 : sizeof b), 0);
    if (r < 0 && errno == EAGAIN) return false;
    if (r < 0) FAIL("receive from %d", l->peer);
    for (ssize_t i = 0; i < r; i++) {
        if (b[i] != byte_at(l->peer, rank, l->received + i))
            FAIL("byte %ld from %d is another one", l->received + i, l->peer);
        l->digest = l->digest * 31 + b[i];
    }
    l->received += r;
    if (r == 0) {
        if (l->received != l->to_receive)
            FAIL("the stream from %d ends at %ld of %ld", l->peer, l->received, l->to_receive);
        l->ended = true;
    }
    return true;
}

static void *sender(void *arg) {
    struct link *l = arg;
    while (!l->shut) {
        send_some(l);
        if (next(&l->random) % 64 == 0) usleep(next(&l->random) % 3000);
    }
    return NULL;
}

static void *receiver(void *arg) {
    struct link *l = arg;
    unsigned turn = (unsigned)l->peer;
    while (!l->ended) {
        receive_some(l);
        if (++turn % 97 == 0) usleep(20000); // meanwhile buffers fill
        if (turn % 50 == 0) check_socket(l);
    }
    return NULL;
}

static void by_epoll(struct link *links, int n) {
    int set = epoll_create1(EPOLL_CLOEXEC), open = 0;
    for (int i = 0; i < n; i++) {
        if (links[i].kind == 0) continue;
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = &links[i]};
        if (fcntl(links[i].fd, F_SETFL, O_NONBLOCK) || epoll_ctl(set, EPOLL_CTL_ADD, links[i].fd, &e))
            FAIL("epoll");
        open++;
    }
    for (long turn = 0; open > 0; turn++) {
        struct epoll_event e[16];
        int got = epoll_wait(set, e, 16, 1000);
        if (got < 0 && errno != EINTR) FAIL("epoll_wait");
        for (int i = 0; i < got; i++) {
            struct link *l = e[i].data.ptr;
            if (e[i].events & EPOLLOUT && !l->shut) send_some(l);
            if (l->pause > 0)
                l->pause--;
            else if (e[i].events & (EPOLLIN | EPOLLHUP) && !l->ended)
                receive_some(l);
            if (next(&l->random) % 512 == 0) l->pause = 300;
            if (turn % 64 == 0) check_socket(l);
            if (l->shut && l->ended) {
                epoll_ctl(set, EPOLL_CTL_DEL, l->fd, NULL);
                open--;
            } else if (l->shut) {
                struct epoll_event in = {.events = EPOLLIN, .data.ptr = l};
                epoll_ctl(set, EPOLL_CTL_MOD, l->fd, &in);
            } else if (l->ended) {
                struct epoll_event out = {.events = EPOLLOUT, .data.ptr = l};
                epoll_ctl(set, EPOLL_CTL_MOD, l->fd, &out);
            }
        }
        if (turn % 32 == 0) usleep(500);
    }
    close(set);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"CKPT_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"};
    rank = -1;
    for (int i = 0; i < 3 && rank < 0; i++)
        if (getenv(names[i])) rank = atoi(getenv(names[i]));
    if (argc != 4 || rank < 0) FAIL("usage: streams N BYTES DIR");
    ranks = atoi(argv[1]);
    total = atol(argv[2]);
    dir = argv[3];
    int four = listen_at(AF_INET), six = listen_at(AF_INET6);
    tell_ports(four, six);
    struct link *links = calloc((size_t)ranks, sizeof *links);
    int n = 0;
    for (int peer = 0; peer < rank; peer++) { // to the lower ones
        struct sockaddr_storage sa;
        int family = family_of(rank, peer), fd = socket(family, SOCK_STREAM, 0);
        socklen_t len = fill(&sa, family, port_at(peer, family));
        if (fd < 0 || connect(fd, (struct sockaddr *)&sa, len)) FAIL("connect to %d", peer);
        write_whole(fd, &rank, sizeof rank);
        begin(&links[n++], fd, peer);
    }
    for (int left = ranks - 1 - rank, from[2] = {four, six}; left > 0; left--) {
        int odd = 0, even = 0, peer;
        for (int r = rank + 1; r < ranks; r++) (r + rank) % 2 ? odd++ : even++;
        for (int i = 0; i < n; i++)
            if (links[i].peer > rank) (links[i].peer + rank) % 2 ? odd-- : even--;
        int fd = accept(even > 0 ? from[0] : from[1], NULL, NULL);
        if (fd < 0 || read(fd, &peer, sizeof peer) != sizeof peer) FAIL("accept");
        begin(&links[n++], fd, peer);
    }
    puts("connected");
    fflush(stdout);
    pthread_t threads[64];
    int started = 0;
    for (int i = 0; i < n; i++)
        if (links[i].kind == 0 && (pthread_create(&threads[started++], NULL, sender, &links[i]) ||
                                   pthread_create(&threads[started++], NULL, receiver, &links[i])))
            FAIL("threads");
    by_epoll(links, n);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (int peer = 0; peer < ranks; peer++)
        for (int i = 0; i < n; i++)
            if (links[i].peer == peer)
                printf("%d to %d: %ld, from there %ld bytes, %016lx\n", rank, peer, links[i].sent,
                       links[i].received, (unsigned long)links[i].digest);
    return 0;
}
