// SPDX-License-Identifier: Apache-2.0
//
// tcp: what a trip over a TCP connection takes that is within one process, as verbs.c's are: bytes are written at one end,
// read at the other, and 8 bytes go back as the answer. Who reads polls, as programs on verbs do.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"

enum { LARGE = 64 << 10 };

static char bytes[LARGE];

// Both ends at once: what is written fits no buffer of the kernel, perhaps.
static void carry(int from, int to, size_t length) {
    for (size_t out = 0, in = 0; in < length;) {
        ssize_t n = out < length ? write(from, bytes + out, length - out) : 0;
        DEMAND(n >= 0 || errno == EAGAIN);
        if (n > 0) out += (size_t)n;
        n = read(to, bytes, length - in);
        DEMAND(n > 0 || (n < 0 && errno == EAGAIN));
        if (n > 0) in += (size_t)n;
    }
}

int main(int argc, char **argv) {
    struct measure m = measure_begin(argc, argv);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0);
    DEMAND(listener >= 0 && a >= 0 && bind(listener, (struct sockaddr *)&at, size) == 0);
    DEMAND(listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &size) == 0);
    DEMAND(connect(a, (struct sockaddr *)&at, size) == 0);
    int b = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    DEMAND(b >= 0 && fcntl(a, F_SETFL, O_NONBLOCK) == 0);
    DEMAND(setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    DEMAND(setsockopt(b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    MEASURE(&m, "8 bytes", 4, carry(a, b, 8); carry(b, a, 8));
    MEASURE(&m, "64 KiB", 1, carry(a, b, LARGE); carry(b, a, 8));
    return 0;
}
