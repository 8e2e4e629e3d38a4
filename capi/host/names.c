// SPDX-License-Identifier: Apache-2.0
//
// names.c: the addresses that the application sees of its sockets, and that a restart can have them again.
//
// A socket that a restart has made again may have other addresses than before, at both ends.  The application goes on
// with those that it knows.  A socket is known by its number on the kernel's file system of sockets, so copies of a
// descriptor, and those of children, have the names too.
#include "host.h"
#include "emulation.h"
#include "fds.h"
#include "hostgo.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

// Written before the application's threads run, and not after.
static struct socket_name names[FD_MOST];
static int count;

void names_set(const struct socket_name *list, int n) {
    if (n > FD_MOST) n = FD_MOST;
    memcpy(names, list, (size_t)n * sizeof *list);
    count = n;
}

static const struct socket_name *name_of(long fd) {
    struct stat st;
    if (count == 0 || RAW2(SYS_fstat, fd, &st) < 0 || !S_ISSOCK(st.st_mode)) return NULL;
    for (int i = 0; i < count; i++)
        if (names[i].ino == st.st_ino) return &names[i];
    return NULL;
}

// getsockname and getpeername: the kernel says what is wrong with the arguments.
long sys_socket_name(struct call *c) {
    socklen_t room = 0;
    const struct socket_name *name = name_of(c->a[0]);
    if (name != NULL && !copy_in(&room, (uint64_t)c->a[2], sizeof room)) return -EFAULT;
    long r = RAW3(c->nr, c->a[0], c->a[1], c->a[2]);
    if (r < 0 || name == NULL) return r;
    bool peer = c->nr == SYS_getpeername;
    const uint8_t *bytes = peer ? name->peer : name->local;
    socklen_t n = peer ? name->peer_bytes : name->local_bytes;
    if (n == 0 || n > sizeof name->peer) return r;
    if (!copy_out((uint64_t)c->a[1], bytes, room < n ? room : n) ||
        !copy_out((uint64_t)c->a[2], &n, sizeof n))
        return -EFAULT;
    return 0;
}

// listen: connections that the application closes linger at the port for a minute, and a restart must have this port
// again.  The kernel lets it if both the new socket and those that linger have SO_REUSEADDR, and the latter have
// it from the socket that listened.  It is set behind the call, so that bind and listen fail when they would.
long sys_listen(struct call *c) {
    long r = RAW2(SYS_listen, c->a[0], c->a[1]);
    int family = 0;
    socklen_t bytes = sizeof family;
    if (r < 0 || RAW6(SYS_getsockopt, c->a[0], SOL_SOCKET, SO_DOMAIN, &family, &bytes, 0) ||
        (family != AF_INET && family != AF_INET6))
        return r;
    const int on = 1;
    RAW6(SYS_setsockopt, c->a[0], SOL_SOCKET, SO_REUSEADDR, &on, sizeof on, 0);
    return r;
}
