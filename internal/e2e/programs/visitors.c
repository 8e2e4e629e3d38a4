// SPDX-License-Identifier: Apache-2.0
//
// visitors.c: a server that listens and does not accept for a while, and clients that are connected to it meanwhile, have
// written, and perhaps closed.
//
//   visitors DIR     CKPT_RANK 0 is the server, 1 and 2 are clients; DIR has the ports, and what a test decides: DIR/late
//                    lets client 2 connect once more, DIR/accept has the server accept all
//
// Each prints a line for a connection, with the address of the client: the server's lines, in order, must be those of
// client 1 and then those of client 2.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOCKETS = 3, EACH = 4, LATE = 1 }; // IPv4, IPv6, and one that is closed without accept
enum { STAYS, ENDS, CUT, LONG };          // what a client does with a connection

static const char *dir;

#define FAIL(...)                                    \
    do {                                             \
        fprintf(stderr, __VA_ARGS__);                \
        fprintf(stderr, " (%s)\n", strerror(errno)); \
        exit(1);                                     \
    } while (0)

static char *path(const char *name) {
    static char text[4200];
    snprintf(text, sizeof text, "%s/%s", dir, name);
    return text;
}

static void await(const char *name) {
    while (access(path(name), F_OK)) usleep(5000);
}

static void make(const char *name) {
    FILE *f = fopen(path(name), "w");
    if (!f || fclose(f)) FAIL("%s", name);
}

static const char *show(const struct sockaddr_storage *sa) {
    static char text[100];
    char ip[64] = "?";
    const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
    if (sa->ss_family == AF_INET)
        inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip);
    else
        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof ip);
    snprintf(text, sizeof text, "%s port %d", ip,
             ntohs(sa->ss_family == AF_INET ? in->sin_port : in6->sin6_port));
    return text;
}

static socklen_t home(struct sockaddr_storage *sa, int family, int port) {
    memset(sa, 0, sizeof *sa);
    sa->ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)sa;
        in->sin_port = htons((uint16_t)port);
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)sa;
    in6->sin6_port = htons((uint16_t)port);
    in6->sin6_addr = in6addr_loopback;
    return sizeof *in6;
}

static int family_of(int i) { return i == 1 ? AF_INET6 : AF_INET; }

// What a client writes on a connection: many bytes for LONG, which fill more than one buffer of a page.
static size_t words(char *to, size_t bytes, int rank, int i, int n) {
    size_t at = (size_t)snprintf(to, bytes, "rank %d socket %d connection %d ", rank, i, n);
    if (n % 4 == LONG)
        for (int k = 0; k < 3000; k++) at += (size_t)snprintf(to + at, bytes - at, "%d,", k * k);
    return at;
}

static unsigned sum(const char *text, size_t n) {
    unsigned s = 0;
    while (n--) s = s * 31 + (unsigned char)*text++;
    return s;
}

static char buffer[65536];

// ---- the server --------------------------------------------------------------------------------

static void visitor(int i, int fd, const struct sockaddr_storage *from) {
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    size_t got = 0, want = (size_t)-1;
    int r, n, of, error = 0;
    bool cut = getpeername(fd, (struct sockaddr *)&peer, &bytes) != 0;
    if (cut && errno != ENOTCONN) FAIL("getpeername");
    if (!cut && strcmp(show(&peer), strdup(show(from)))) FAIL("getpeername is %s", show(&peer));
    while (got < want) {
        ssize_t k = recv(fd, buffer + got, sizeof buffer - got, 0);
        if (k <= 0) FAIL("a visitor has %zu bytes of %zu", got, want);
        got += (size_t)k;
        buffer[got] = 0;
        if (want == (size_t)-1 && sscanf(buffer, "rank %d socket %d connection %d", &r, &of, &n) == 3 &&
            of == i) {
            static char copy[65536];
            want = words(copy, sizeof copy, r, i, n);
        }
    }
    char more;
    if (n % 4 == ENDS && recv(fd, &more, 1, 0) != 0) FAIL("no end");
    if (n % 4 == CUT && (recv(fd, &more, 1, 0) >= 0 || errno != ECONNRESET)) FAIL("not cut off");
    if (n % 4 == CUT) error = 1;
    if (cut && !error) FAIL("no name");
    printf("%s %u\n", show(from), sum(buffer, got));
    if ((n % 4 == STAYS || n % 4 == LONG) && send(fd, "seen", 4, 0) != 4) FAIL("answer");
    close(fd);
}

static void serve(void) {
    int ln[SOCKETS];
    for (int i = 0; i < SOCKETS; i++) {
        struct sockaddr_storage at;
        socklen_t bytes = home(&at, family_of(i), 0);
        int type = SOCK_STREAM | (i == 1 ? SOCK_NONBLOCK : 0);
        if ((ln[i] = socket(family_of(i), type, 0)) < 0 || bind(ln[i], (struct sockaddr *)&at, bytes) ||
            listen(ln[i], 100) || getsockname(ln[i], (struct sockaddr *)&at, &bytes))
            FAIL("listen");
        char name[20], tmp[4200];
        snprintf(tmp, sizeof tmp, "%s", path("new"));
        FILE *f = fopen(tmp, "w");
        snprintf(name, sizeof name, "port%d", i);
        if (!f || fprintf(f, "%d", ntohs(((struct sockaddr_in *)&at)->sin_port)) < 0 || fclose(f) ||
            rename(tmp, path(name)))
            FAIL("%s", name);
    }
    struct pollfd quiet = {.fd = ln[0], .events = POLLIN};
    await("connected2");
    await("accept");
    int left[2] = {2 * EACH + LATE, 2 * EACH + LATE};
    int set = epoll_create1(0);
    if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, ln[1], &(struct epoll_event){.events = EPOLLIN}))
        FAIL("epoll");
    for (int i = 0; i < 2; i++)
        while (left[i] > 0) {
            struct epoll_event e;
            if ((i == 0 ? poll(&quiet, 1, 60000) : epoll_wait(set, &e, 1, 60000)) != 1)
                FAIL("nobody comes, %d are left", left[i]);
            do {
                struct sockaddr_storage from;
                socklen_t bytes = sizeof from;
                int fd = i == 0 ? accept(ln[0], (struct sockaddr *)&from, &bytes)
                                : accept4(ln[1], (struct sockaddr *)&from, &bytes, SOCK_CLOEXEC);
                if (fd < 0 && i == 1 && errno == EAGAIN) break;
                if (fd < 0) FAIL("accept");
                if (bytes != (i == 0 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)))
                    FAIL("a name of %u bytes", bytes);
                visitor(i, fd, &from);
                left[i]--;
            } while (i == 1);
        }
    if (poll(&quiet, 1, 0) != 0) FAIL("too many have come");
    close(ln[2]);
}

// ---- a client ----------------------------------------------------------------------------------

static int fds[SOCKETS][EACH + LATE];

static void visit(int rank, int i, int n) {
    char name[20];
    int port = 0;
    snprintf(name, sizeof name, "port%d", i);
    await(name);
    FILE *f = fopen(path(name), "r");
    if (!f || fscanf(f, "%d", &port) != 1) FAIL("%s", name);
    fclose(f);
    struct sockaddr_storage at;
    socklen_t bytes = home(&at, family_of(i), port);
    int fd = socket(family_of(i), SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, bytes)) FAIL("connect");
    size_t len = words(buffer, sizeof buffer, rank, i, n);
    if (send(fd, buffer, len, 0) != (ssize_t)len) FAIL("send");
    bytes = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &bytes)) FAIL("getsockname");
    if (i < 2) printf("%d %s %u\n", i, show(&at), sum(buffer, len));
    fds[i][n] = -1;
    if (i == 2 || n % 4 == STAYS || n % 4 == LONG) {
        fds[i][n] = fd;
        return;
    }
    const struct linger at_once = {1, 0};
    if (n % 4 == CUT) {
        // What was sent has arrived before the connection is cut.
        for (int left = 1; ioctl(fd, SIOCOUTQ, &left) == 0 && left > 0;) usleep(1000);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    close(fd);
}

static void client(int rank) {
    if (rank == 2) await("connected1");
    for (int n = 0; n < EACH; n++)
        for (int i = 0; i < 2; i++) visit(rank, i, n);
    visit(rank, 2, 0);
    if (rank == 2) {
        make("almost");
        await("late");
        for (int i = 0; i < 2; i++) visit(rank, i, EACH);
    }
    make(rank == 1 ? "connected1" : "connected2");
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < EACH + (rank == 2 ? LATE : 0); n++) {
            char answer[4];
            if (fds[i][n] >= 0 && (recv(fds[i][n], answer, 4, MSG_WAITALL) != 4 || memcmp(answer, "seen", 4)))
                FAIL("connection %d of socket %d has no answer", n, i);
        }
    char c;
    if (recv(fds[2][0], &c, 1, 0) > 0) FAIL("an answer of a socket that is closed");
}

int main(int argc, char **argv) {
    const char *rank = getenv("CKPT_RANK");
    if (argc < 2 || !rank) return 2;
    dir = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (atoi(rank) == 0)
        serve();
    else
        client(atoi(rank));
    printf("done\n");
    return 0;
}
