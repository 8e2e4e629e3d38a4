// SPDX-License-Identifier: Apache-2.0
//
// late.c: preloaded into a client whose server may not listen yet at port LATE_PORT: it waits until it does, or, with
// LATE_UNTIL, until there is that file. With LATE_HOLD it also waits where it is connected by librdmacm: it makes the file
// LATE_HOLD.held, and goes on when there is LATE_HOLD.go; with LATE_LINGER it does so where it wants to disconnect. It
// says from where to where the connection leads, before and after. With LATE_EVENT, a number, a thread that has taken an
// asynchronous event comes to look at it so many milliseconds later; with LATE_READ it is libibverbs that does, which knows
// it by its size. With LATE_GONE, a number, a thread that was told that its peer has disconnected asks for the next event only
// when the channel is destroyed, and who destroys it gives it so many milliseconds.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_cma.h>

enum { TRIES = 2400, WAIT_MS = 50 };

static void pause_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL); }

static int waits_for(const struct sockaddr *to) {
    const char *port = getenv("LATE_PORT");
    return port != NULL && to->sa_family == AF_INET &&
           ntohs(((const struct sockaddr_in *)(const void *)to)->sin_port) == atoi(port);
}

// Looks, and does not ask: a server would take that for a client.
static int listens(const char *table, unsigned port) {
    char line[512];
    unsigned at, state;
    int found = 0;
    FILE *f = fopen(table, "re");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL)
        found = sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F:] %x", &at, &state) == 2 && at == port &&
                state == 0x0a;
    if (f != NULL) fclose(f);
    return found;
}

int connect(int fd, const struct sockaddr *to, socklen_t size) {
    int (*next)(int, const struct sockaddr *, socklen_t) =
        (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    int kind = 0;
    socklen_t n = sizeof kind;
    if (!waits_for(to) || getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &n) != 0 || kind != SOCK_STREAM)
        return next(fd, to, size);
    unsigned port = ntohs(((const struct sockaddr_in *)(const void *)to)->sin_port);
    const char *until = getenv("LATE_UNTIL");
    for (int i = 0; until != NULL && i < TRIES && access(until, F_OK) != 0; i++) pause_a_little();
    if (until != NULL) return next(fd, to, size);
    for (int i = 0; i < TRIES && !listens("/proc/net/tcp", port) && !listens("/proc/net/tcp6", port); i++)
        pause_a_little();
    return next(fd, to, size);
}

// UCX loads libibverbs itself, so that it is not among what is next here.
int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    void *verbs = dlopen("libibverbs.so.1", RTLD_LAZY);
    int (*next)(struct ibv_context *, struct ibv_async_event *) =
        (int (*)(struct ibv_context *, struct ibv_async_event *))dlsym(verbs, "ibv_get_async_event");
    int rc = next(context, event);
    const char *late = getenv("LATE_EVENT");
    if (rc == 0 && late != NULL) nanosleep(&(struct timespec){.tv_nsec = atol(late) * 1000000L}, NULL);
    dlclose(verbs);
    return rc;
}

ssize_t read(int fd, void *to, size_t size) {
    ssize_t (*next)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    ssize_t n = next(fd, to, size);
    const char *late = getenv("LATE_READ");
    if (late != NULL && n == sizeof(struct ib_uverbs_async_event_desc))
        nanosleep(&(struct timespec){.tv_nsec = atol(late) * 1000000L}, NULL);
    return n;
}

static void say_way(const char *when, struct rdma_cm_id *id) {
    char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
    const struct sockaddr_in *src = (const void *)rdma_get_local_addr(id);
    const struct sockaddr_in *dst = (const void *)rdma_get_peer_addr(id);
    if (src->sin_family != AF_INET || dst->sin_family != AF_INET) return;
    fprintf(stderr, "late: %s: from %s to %s\n", when, inet_ntop(AF_INET, &src->sin_addr, from, sizeof from),
            inet_ntop(AF_INET, &dst->sin_addr, to, sizeof to));
}

static void hold(const char *variable, struct rdma_cm_id *id) {
    static int done;
    const char *name = getenv(variable);
    char path[4200];
    if (name == NULL || done++) return;
    say_way("before", id);
    snprintf(path, sizeof path, "%s.held", name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd >= 0) close(fd);
    snprintf(path, sizeof path, "%s.go", name);
    while (access(path, F_OK) != 0) pause_a_little();
    say_way("after", id);
}

static atomic_int destroyed;

int rdma_ack_cm_event(struct rdma_cm_event *event) {
    int (*next)(struct rdma_cm_event *) =
        (int (*)(struct rdma_cm_event *))dlsym(RTLD_NEXT, "rdma_ack_cm_event");
    if (event != NULL && event->event == RDMA_CM_EVENT_ESTABLISHED) hold("LATE_HOLD", event->id);
    int waits = event != NULL && event->event == RDMA_CM_EVENT_DISCONNECTED && getenv("LATE_GONE") != NULL;
    int rc = next(event);
    for (int i = 0; waits && i < TRIES && !destroyed; i++) pause_a_little();
    return rc;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
    void (*next)(struct rdma_event_channel *) =
        (void (*)(struct rdma_event_channel *))dlsym(RTLD_NEXT, "rdma_destroy_event_channel");
    const char *gone = getenv("LATE_GONE");
    next(channel);
    destroyed = 1;
    if (gone != NULL) nanosleep(&(struct timespec){.tv_nsec = atol(gone) * 1000000L}, NULL);
}

// Of an id that waits in each function: it is connected when this returns.
int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    int (*next)(struct rdma_cm_id *, struct rdma_conn_param *) =
        (int (*)(struct rdma_cm_id *, struct rdma_conn_param *))dlsym(RTLD_NEXT, "rdma_connect");
    int rc = next(id, param);
    if (rc == 0 && id->event != NULL) hold("LATE_HOLD", id);
    return rc;
}

int rdma_disconnect(struct rdma_cm_id *id) {
    int (*next)(struct rdma_cm_id *) = (int (*)(struct rdma_cm_id *))dlsym(RTLD_NEXT, "rdma_disconnect");
    hold("LATE_LINGER", id);
    return next(id);
}
