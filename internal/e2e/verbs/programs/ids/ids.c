// SPDX-License-Identifier: Apache-2.0
//
// ids.c: ids of librdmacm that are refused, unanswered, ended by both, moved, misused: one line for each event and each error.
//
//     ids cases PORT            all of it within one process
//     ids server PORT FILE      with `ids client`: held half made until there is a file (held.c)
//     ids stays PORT            is connected to, and waits for the end of its peer
//     ids leaves PORT           connects, and waits to be killed
//     ids first                 what the library says first of all
#define _GNU_SOURCE
#include "ids.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int port;
static channel *server_side, *client_side;

static void connect_both(id *l, id **from, id **to) {
    *from = caller(client_side, RDMA_PS_TCP, port);
    good("rdma_connect", calls(*from, "hello"));
    *to = next("server", server_side, RDMA_CM_EVENT_CONNECT_REQUEST);
    good("rdma_accept", takes(*to, "come in"));
    next("client", client_side, RDMA_CM_EVENT_ESTABLISHED);
    next("server", server_side, RDMA_CM_EVENT_ESTABLISHED);
    (void)l;
}

static void refused(void) {
    say("-- nobody listens");
    id *i = caller(client_side, RDMA_PS_TCP, port + 1);
    step("rdma_connect", calls(i, "hello"));
    next("client", client_side, RDMA_CM_EVENT_REJECTED);
    step("rdma_connect again", calls(i, "hello"));
    gone(i);
    say("-- nobody listens for datagrams");
    i = caller(client_side, RDMA_PS_UDP, port + 1);
    step("rdma_connect", calls(i, "hello"));
    next("client", client_side, RDMA_CM_EVENT_UNREACHABLE);
    gone(i);
    say("-- the other port space");
    i = caller(client_side, RDMA_PS_UDP, port);
    step("rdma_connect", calls(i, "hello"));
    next("client", client_side, RDMA_CM_EVENT_UNREACHABLE);
    gone(i);
    say("-- rejected");
    i = caller(client_side, RDMA_PS_TCP, port);
    step("rdma_connect", calls(i, "hello"));
    id *j = next("server", server_side, RDMA_CM_EVENT_CONNECT_REQUEST);
    step("rdma_reject", rdma_reject(j, "no", 2));
    step("rdma_accept after it", takes(j, NULL));
    next("client", client_side, RDMA_CM_EVENT_REJECTED);
    gone(i);
    gone(j);
    say("-- rejected by the end of the id");
    i = caller(client_side, RDMA_PS_TCP, port);
    step("rdma_connect", calls(i, "hello"));
    gone(next("server", server_side, RDMA_CM_EVENT_CONNECT_REQUEST));
    next("client", client_side, RDMA_CM_EVENT_REJECTED);
    gone(i);
    say("-- the listener goes while a request waits");
    id *l = listener(server_side, RDMA_PS_TCP, port + 2);
    i = caller(client_side, RDMA_PS_TCP, port + 2);
    step("rdma_connect", calls(i, "hello"));
    if (!waits(server_side, 60000)) die("no request");
    gone(l);
    none("server", server_side);
    next("client", client_side, RDMA_CM_EVENT_REJECTED);
    gone(i);
}

static void ended(id *l) {
    id *i, *j;
    say("-- both disconnect at once");
    connect_both(l, &i, &j);
    step("client: rdma_disconnect", rdma_disconnect(i));
    step("server: rdma_disconnect", rdma_disconnect(j));
    next("client", client_side, RDMA_CM_EVENT_DISCONNECTED);
    next("server", server_side, RDMA_CM_EVENT_DISCONNECTED);
    step("client: once more", rdma_disconnect(i));
    step("server: once more", rdma_disconnect(j));
    none("client", client_side);
    none("server", server_side);
    gone(i);
    gone(j);
    say("-- the id goes while it is connected");
    connect_both(l, &i, &j);
    gone(i);
    next("server", server_side, RDMA_CM_EVENT_DISCONNECTED);
    gone(j);
    say("-- an id that was never connected");
    i = caller(client_side, RDMA_PS_TCP, port);
    step("rdma_disconnect", rdma_disconnect(i));
    gone(i);
}

static void moved(id *l) {
    id *i, *j;
    say("-- moved to another channel with an event that waits");
    channel *other = new_channel();
    connect_both(l, &i, &j);
    good("rdma_disconnect", rdma_disconnect(i));
    next("client", client_side, RDMA_CM_EVENT_DISCONNECTED);
    if (!waits(server_side, 60000)) die("no end");
    step("rdma_migrate_id", rdma_migrate_id(j, other));
    say("it has the other channel: %d", j->channel == other);
    none("the former", server_side);
    next("the other", other, RDMA_CM_EVENT_DISCONNECTED);
    gone(i);
    gone(j);
    say("-- a listener moved with a request that waits");
    i = caller(client_side, RDMA_PS_TCP, port);
    good("rdma_connect", calls(i, "hello"));
    if (!waits(server_side, 60000)) die("no request");
    step("rdma_migrate_id", rdma_migrate_id(l, other));
    none("the former", server_side);
    j = next("the other", other, RDMA_CM_EVENT_CONNECT_REQUEST);
    say("it has the other channel: %d", j->channel == other);
    good("rdma_accept", takes(j, "come in"));
    next("client", client_side, RDMA_CM_EVENT_ESTABLISHED);
    next("the other", other, RDMA_CM_EVENT_ESTABLISHED);
    gone(j);
    next("client", client_side, RDMA_CM_EVENT_DISCONNECTED);
    gone(i);
    step("back", rdma_migrate_id(l, server_side));
    say("-- a channel of its own, and back");
    i = caller(client_side, RDMA_PS_TCP, port);
    step("rdma_migrate_id", rdma_migrate_id(i, NULL));
    step("rdma_migrate_id again", rdma_migrate_id(i, NULL));
    say("it has the other channel: %d", i->channel != client_side);
    step("back", rdma_migrate_id(i, client_side));
    gone(i);
    rdma_destroy_event_channel(other);
}

static uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void on_alarm(int signal) { (void)signal; }

// A signal each time so many ms are over; 0: no more.
static void alarms(int ms, int flags) {
    struct sigaction a = {.sa_handler = on_alarm, .sa_flags = flags};
    struct itimerval each = {.it_interval.tv_usec = ms * 1000, .it_value.tv_usec = ms * 1000};
    if (ms) good("sigaction", sigaction(SIGALRM, &a, NULL));
    good("setitimer", setitimer(ITIMER_REAL, &each, NULL));
}

static void unanswered(void) {
    // Set where no thread of the library looks at the environment.
    static const char variable[] = "CKPT_RDMACM_ANSWER_MS";
    say("-- nobody answers");
    id *i = caller(client_side, RDMA_PS_TCP, port);
    setenv(variable, "300", 1);
    step("rdma_connect", calls(i, "hello"));
    alarms(50, SA_RESTART);
    next("client", client_side, RDMA_CM_EVENT_UNREACHABLE);
    alarms(0, 0);
    unsetenv(variable);
    id *j = next("server", server_side, RDMA_CM_EVENT_CONNECT_REQUEST);
    step("rdma_accept too late", takes(j, NULL));
    next("server", server_side, RDMA_CM_EVENT_REJECTED);
    gone(i);
    gone(j);
    say("-- a server that is none of ours says nothing");
    struct sockaddr_in at = address("127.0.0.1", port + 4);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1)) die("a socket");
    i = caller(client_side, RDMA_PS_TCP, port + 4);
    setenv(variable, "1000", 1);
    usleep(800000); // in which the library has nothing to do: it does not count
    uint64_t began = now_ms();
    step("rdma_connect", calls(i, "hello"));
    next("client", client_side, RDMA_CM_EVENT_UNREACHABLE);
    say("it waited: %d", now_ms() - began >= 1000);
    unsetenv(variable);
    gone(i);
    close(fd);
    say("-- the client does not take the answer");
    i = caller(client_side, RDMA_PS_TCP, port);
    step("rdma_connect", calls(i, "hello"));
    j = next("server", server_side, RDMA_CM_EVENT_CONNECT_REQUEST);
    setenv(variable, "300", 1);
    step("rdma_accept", takes(j, "come in"));
    next("server", server_side, RDMA_CM_EVENT_UNREACHABLE);
    unsetenv(variable);
    gone(j);
    gone(i);
    struct rdma_cm_event *e;
    alarms(50, 0);
    step("rdma_get_cm_event, interrupted", rdma_get_cm_event(client_side, &e));
    alarms(0, 0);
    fcntl(client_side->fd, F_SETFL, O_NONBLOCK);
    step("rdma_get_cm_event of what has gone", rdma_get_cm_event(client_side, &e));
    fcntl(client_side->fd, F_SETFL, 0);
}

// Ids that have a channel of their own wait in each function.
static void waiting(void) {
    struct sockaddr_in here = address("127.0.0.1", port), nobody = address("127.0.0.1", port + 1);
    id *i = new_id(NULL, RDMA_PS_TCP);
    say("-- ids that wait in each function");
    step("rdma_resolve_addr", rdma_resolve_addr(i, NULL, (struct sockaddr *)&nobody, 100));
    step("rdma_resolve_route", rdma_resolve_route(i, 100));
    queue_pair(i);
    step("rdma_connect where nobody listens", calls(i, NULL));
    gone(i);
    i = new_id(NULL, RDMA_PS_TCP);
    good("rdma_resolve_addr", rdma_resolve_addr(i, NULL, (struct sockaddr *)&here, 100));
    good("rdma_resolve_route", rdma_resolve_route(i, 100));
    queue_pair(i);
    setenv("CKPT_RDMACM_ANSWER_MS", "300", 1);
    step("rdma_connect where nobody answers", calls(i, NULL));
    unsetenv("CKPT_RDMACM_ANSWER_MS");
    gone(i);
    gone(next("server", server_side, RDMA_CM_EVENT_CONNECT_REQUEST));
}

static void misused(void) {
    struct sockaddr_in here = address("127.0.0.1", port), free_port = address("127.0.0.1", port + 3),
                       nowhere = address("192.0.2.1", port), elsewhere = address("192.0.2.2", 0);
    char much[200];
    id *i;
    say("-- mistakes");
    step("a port space", rdma_create_id(client_side, &i, NULL, RDMA_PS_IPOIB));
    i = new_id(client_side, RDMA_PS_TCP);
    step("bind to a port that is taken", rdma_bind_addr(i, (struct sockaddr *)&here));
    step("bind to another host's address", rdma_bind_addr(i, (struct sockaddr *)&elsewhere));
    step("resolve from another host's address",
         rdma_resolve_addr(i, (struct sockaddr *)&elsewhere, (struct sockaddr *)&here, 100));
    step("resolve an address without a way", rdma_resolve_addr(i, NULL, (struct sockaddr *)&nowhere, 100));
    step("route before the address", rdma_resolve_route(i, 100));
    step("connect before the route", calls(i, NULL));
    step("accept what nobody asked", rdma_accept(i, NULL));
    step("reject what nobody asked", rdma_reject(i, NULL, 0));
    step("bind", rdma_bind_addr(i, (struct sockaddr *)&free_port));
    step("bind again", rdma_bind_addr(i, (struct sockaddr *)&free_port));
    say("its port: %d", ntohs(rdma_get_src_port(i)) == port + 3);
    gone(i);
    i = caller(client_side, RDMA_PS_TCP, port);
    memset(much, 'x', sizeof much);
    much[57] = 0;
    step("57 bytes of private data", calls(i, much));
    much[56] = 0;
    step("56 bytes of private data", calls(i, much));
    id *j = next("server", server_side, RDMA_CM_EVENT_CONNECT_REQUEST);
    step("listen", rdma_listen(j, 1));
    gone(j);
    next("client", client_side, RDMA_CM_EVENT_REJECTED);
    gone(i);
}

static void cases(void) {
    server_side = new_channel();
    client_side = new_channel();
    id *l = listener(server_side, RDMA_PS_TCP, port);
    refused();
    ended(l);
    moved(l);
    unanswered();
    waiting();
    misused();
    gone(l);
    none("client", client_side);
    none("server", server_side);
    say("done");
}

static void stays(void) {
    server_side = new_channel();
    id *l = listener(server_side, RDMA_PS_TCP, port);
    say("listens");
    id *i = next("server", server_side, RDMA_CM_EVENT_CONNECT_REQUEST);
    good("rdma_accept", takes(i, "come in"));
    next("server", server_side, RDMA_CM_EVENT_ESTABLISHED);
    next("server", server_side, RDMA_CM_EVENT_DISCONNECTED);
    step("rdma_disconnect", rdma_disconnect(i));
    none("server", server_side);
    gone(i);
    gone(l);
    say("done");
}

static void leaves(void) {
    client_side = new_channel();
    id *i = caller(client_side, RDMA_PS_TCP, port);
    good("rdma_connect", calls(i, "hello"));
    next("client", client_side, RDMA_CM_EVENT_ESTABLISHED);
    say("connected");
    for (;;) pause();
}

static void first(void) {
    int n = -1;
    channel *c = rdma_create_event_channel();
    say("rdma_create_event_channel: %s", c ? "a channel" : strerrorname_np(errno));
    struct ibv_context **all = rdma_get_devices(&n);
    say("rdma_get_devices: %s", all ? "a list" : strerrorname_np(errno));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    port = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(what, "cases") && argc == 3)
        cases();
    else if (!strcmp(what, "server") && argc == 4)
        server(port, argv[3]);
    else if (!strcmp(what, "client") && argc == 4)
        client(port, argv[3]);
    else if (!strcmp(what, "stays") && argc == 3)
        stays();
    else if (!strcmp(what, "leaves") && argc == 3)
        leaves();
    else if (!strcmp(what, "first") && argc == 2)
        first();
    else {
        fprintf(
            stderr,
            "usage: ids cases PORT | server PORT FILE | client PORT FILE | stays PORT | leaves PORT | first\n");
        return 2;
    }
    return 0;
}
