// SPDX-License-Identifier: Apache-2.0
//
// Waits on sockets that have timeouts, in one call after the other, until there is the file go-N in the folder of the
// argument. The kernel makes none of these calls again that a handler has interrupted.
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READ, RECV, RECVFROM, READV, WRITE, SEND, CALLS };
static const char *const names[] = {"read", "recv", "recvfrom", "readv", "write", "send"};
static const char *dir;
static int ends[2];

// Lets each call end, in its turn.
static void *helper(void *nothing) {
    char path[4096], sink[1 << 16];
    for (int i = 0; i < CALLS; i++) {
        snprintf(path, sizeof path, "%s/go-%d", dir, i);
        while (access(path, F_OK) != 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        if (i < WRITE && write(ends[1], "x", 1) != 1) return NULL;
        while (i >= WRITE && recv(ends[1], sink, sizeof sink, MSG_DONTWAIT) > 0) {}
    }
    return nothing;
}

static ssize_t call(int i) {
    static char c[1 << 16];
    struct iovec one = {c, 1};
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    while (i >= WRITE && send(ends[0], c, sizeof c, MSG_DONTWAIT) > 0) {} // it is full
    while (i >= WRITE && send(ends[0], c, 1, MSG_DONTWAIT) > 0) {}
    printf("wait %d\n", i);
    fflush(stdout);
    switch (i) {
    case READ:
        return read(ends[0], c, 1);
    case RECV:
        return recv(ends[0], c, 1, 0);
    case RECVFROM:
        return recvfrom(ends[0], c, 1, 0, (struct sockaddr *)&from, &n);
    case READV:
        return readv(ends[0], &one, 1);
    case WRITE:
        return write(ends[0], c, 1);
    default:
        return send(ends[0], c, 1, 0);
    }
}

int main(int argc, char **argv) {
    struct timeval long_time = {.tv_sec = 1000};
    pthread_t thread;
    if (argc != 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
    dir = argv[1];
    if (setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof long_time) != 0 ||
        setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &long_time, sizeof long_time) != 0 ||
        pthread_create(&thread, NULL, helper, NULL) != 0)
        return 1;
    for (int i = 0; i < CALLS; i++) {
        ssize_t n = call(i);
        printf("done %d %s %zd %s\n", i, names[i], n, n < 0 ? strerror(errno) : "");
        fflush(stdout);
    }
    return pthread_join(thread, NULL) != 0;
}
