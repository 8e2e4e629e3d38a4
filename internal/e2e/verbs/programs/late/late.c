// SPDX-License-Identifier: Apache-2.0
//
// late.c: preloaded into a client whose server may not listen yet at port LATE_PORT: it is asked again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { TRIES = 2400, WAIT_MS = 50 };

static int waits_for(const struct sockaddr *to) {
    const char *port = getenv("LATE_PORT");
    return port != NULL && to->sa_family == AF_INET &&
           ntohs(((const struct sockaddr_in *)(const void *)to)->sin_port) == atoi(port);
}

int connect(int fd, const struct sockaddr *to, socklen_t size) {
    int (*next)(int, const struct sockaddr *, socklen_t) =
        (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    int rc = next(fd, to, size);
    for (int i = 0; rc != 0 && errno == ECONNREFUSED && waits_for(to) && i < TRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
        rc = next(fd, to, size);
    }
    return rc;
}
