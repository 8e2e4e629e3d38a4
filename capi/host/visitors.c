// SPDX-License-Identifier: Apache-2.0
//
// visitors.c: connections that waited to be accepted when a checkpoint was made.
//
// The kernel gives what has come on such a connection to nobody but who accepts it, and takes none back.  So a checkpoint
// accepts them (ckpt/sockets), and has a connection of our own, the token, wait at the socket in the place of each: poll
// and the like tell the application that there is somebody, and who accepts a token gets the visitor for whom it
// stands.
#include "host.h"
#include "emulation.h"
#include "fds.h"
#include "hostgo.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

// Changed by the application's threads, and while they stand by Go.  Under the host's lock.
static struct visitor list[VISITORS_MOST];
static volatile int count;

int visitors_list(struct visitor *to, int max) {
    kmask old = block_all();
    lock();
    int n = count < max ? count : max;
    memcpy(to, list, (size_t)n * sizeof *list);
    unlock();
    set_kernel_mask(old);
    return n;
}

void visitors_set(const struct visitor *from, int n) {
    kmask old = block_all();
    lock();
    if (n > VISITORS_MOST) n = VISITORS_MOST;
    memcpy(list, from, (size_t)n * sizeof *list);
    count = n;
    unlock();
    set_kernel_mask(old);
}

static void drop(int i) {
    memmove(&list[i], &list[i + 1], (size_t)(count - i - 1) * sizeof *list);
    count--;
}

// The visitor of whom this is the token; or the first at this socket that has none.
static bool take(uint64_t listener, const void *token, uint32_t bytes, struct visitor *to) {
    lock();
    for (int i = 0; i < count; i++) {
        const struct visitor *v = &list[i];
        if (v->listener != listener ||
            (token ? v->name_bytes != bytes || memcmp(v->name, token, bytes) != 0 : v->token >= 0))
            continue;
        *to = *v;
        drop(i);
        unlock();
        return true;
    }
    unlock();
    return false;
}

static uint64_t inode(long fd) {
    struct stat st;
    return RAW2(SYS_fstat, fd, &st) == 0 && S_ISSOCK(st.st_mode) ? st.st_ino : 0;
}

static void hang_up(const struct visitor *v) {
    const struct linger at_once = {1, 0};
    RAW6(SYS_setsockopt, v->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once, 0);
    RAW1(SYS_close, v->fd);
    if (v->token >= 0) RAW1(SYS_close, v->token);
}

// A socket that listens and is closed cuts off those who wait: their tokens are, by the kernel.
void visitors_closed(void) {
    const struct timespec now = {0, 0};
    if (count == 0 || host.child || borrowed()) return;
    lock();
    for (int i = 0; i < count;) {
        struct pollfd p = {.fd = list[i].token};
        if (p.fd >= 0 && RAW6(SYS_ppoll, &p, 1, &now, NULL, 0, 0) > 0 && p.revents & (POLLHUP | POLLERR)) {
            hang_up(&list[i]);
            drop(i);
        } else {
            i++;
        }
    }
    unlock();
}

static bool tell(struct call *c, const void *name, uint32_t bytes) {
    socklen_t room;
    if (c->a[1] == 0) return true;
    return copy_in(&room, (uint64_t)c->a[2], sizeof room) &&
           copy_out((uint64_t)c->a[1], name, room < bytes ? room : bytes) &&
           copy_out((uint64_t)c->a[2], &bytes, sizeof bytes);
}

// accept and accept4, before the descriptor gets the application's number.
long visitors_accept(struct call *c) {
    if (count == 0) return blocking(c, c->nr, c->a);
    const long flags = c->nr == SYS_accept4 ? c->a[3] : 0;
    const uint64_t listener = inode(c->a[0]);
    struct visitor v;
    for (;;) {
        bool found = take(listener, NULL, 0, &v);
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        memset(&from, 0, sizeof from);
        if (!found) {
            const long a[6] = {c->a[0], (long)&from, (long)&bytes, flags};
            long fd = blocking(c, SYS_accept4, a);
            if (fd < 0) return fd;
            if (!take(listener, &from, bytes, &v)) {
                if (tell(c, &from, bytes)) return fd;
                RAW1(SYS_close, fd);
                return -EFAULT;
            }
            RAW1(SYS_close, fd);
            RAW1(SYS_close, v.token);
        }
        // A forked child has the list and not the descriptors: the visitor is its parent's.
        long status = host.child ? -EBADF : RAW2(SYS_fcntl, v.fd, F_GETFL);
        if (status < 0) continue;
        RAW3(SYS_fcntl, v.fd, F_SETFL, flags & SOCK_NONBLOCK ? status | O_NONBLOCK : status & ~O_NONBLOCK);
        RAW3(SYS_fcntl, v.fd, F_SETFD, flags & SOCK_CLOEXEC ? FD_CLOEXEC : 0);
        if (tell(c, v.peer, v.peer_bytes)) return v.fd;
        RAW1(SYS_close, v.fd);
        return -EFAULT;
    }
}
