// SPDX-License-Identifier: Apache-2.0
//
// base.c: ids, events and messages.
#define _GNU_SOURCE
#include "ids.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, PATIENCE_MS = 120000 };

void die(const char *what) {
    fprintf(stderr, "ids: %s: %s\n", what, strerror(errno));
    exit(1);
}

void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

void step(const char *name, int result) {
    if (result)
        say("%s: %d, %s", name, result, strerrorname_np(errno));
    else
        say("%s: 0", name);
}

void good(const char *name, int result) {
    if (result) die(name);
}

channel *new_channel(void) {
    channel *c = rdma_create_event_channel();
    if (!c) die("rdma_create_event_channel");
    return c;
}

id *new_id(channel *c, enum rdma_port_space ps) {
    id *i;
    good("rdma_create_id", rdma_create_id(c, &i, NULL, ps));
    return i;
}

struct sockaddr_in address(const char *ip, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, ip, &a.sin_addr);
    return a;
}

id *listener(channel *c, enum rdma_port_space ps, int port) {
    struct sockaddr_in at = address("127.0.0.1", port);
    id *i = new_id(c, ps);
    good("rdma_bind_addr", rdma_bind_addr(i, (struct sockaddr *)&at));
    good("rdma_listen", rdma_listen(i, 0));
    return i;
}

// Events on the way of each connection are not printed.
static void awaits(channel *c, enum rdma_cm_event_type want) {
    struct rdma_cm_event *e;
    good("rdma_get_cm_event", rdma_get_cm_event(c, &e));
    if (e->event != want || e->status) {
        fprintf(stderr, "ids: %s, %d\n", rdma_event_str(e->event), e->status);
        exit(1);
    }
    rdma_ack_cm_event(e);
}

void queue_pair(id *i) {
    struct ibv_qp_init_attr a = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = i->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
        .sq_sig_all = 1};
    good("rdma_create_qp", rdma_create_qp(i, NULL, &a));
}

id *caller(channel *c, enum rdma_port_space ps, int port) {
    struct sockaddr_in to = address("127.0.0.1", port);
    id *i = new_id(c, ps);
    good("rdma_resolve_addr", rdma_resolve_addr(i, NULL, (struct sockaddr *)&to, 2000));
    awaits(c, RDMA_CM_EVENT_ADDR_RESOLVED);
    good("rdma_resolve_route", rdma_resolve_route(i, 2000));
    awaits(c, RDMA_CM_EVENT_ROUTE_RESOLVED);
    queue_pair(i);
    return i;
}

static struct rdma_conn_param param(const char *data) {
    return (struct rdma_conn_param){.private_data = data,
                                    .private_data_len = (uint8_t)(data ? strlen(data) : 0),
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
}

int calls(id *i, const char *data) {
    struct rdma_conn_param p = param(data);
    return rdma_connect(i, &p);
}

int takes(id *i, const char *data) {
    struct rdma_conn_param p = param(data);
    if (!i->qp) queue_pair(i);
    p.qp_num = i->qp->qp_num;
    return rdma_accept(i, &p);
}

id *next_status(const char *word, channel *c, enum rdma_cm_event_type want, int *status) {
    struct rdma_cm_event *e;
    good("rdma_get_cm_event", rdma_get_cm_event(c, &e));
    bool datagrams = e->id->ps == RDMA_PS_UDP;
    const char *data = datagrams ? e->param.ud.private_data : e->param.conn.private_data;
    int bytes = datagrams ? e->param.ud.private_data_len : e->param.conn.private_data_len;
    // The machine's library gives as much as the message has room for, with zeros behind.
    say("%s: %s %d \"%.*s\"", word, rdma_event_str(e->event), e->status, data ? bytes : 0, data ? data : "");
    if (e->event != want) exit(1);
    id *i = e->id;
    *status = e->status;
    rdma_ack_cm_event(e);
    return i;
}

id *next(const char *word, channel *c, enum rdma_cm_event_type want) {
    int status;
    return next_status(word, c, want, &status);
}

bool waits(channel *c, int ms) {
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    int n;
    // A checkpoint may interrupt it: then it waits anew, which is longer, and no test looks at that.
    while ((n = poll(&p, 1, ms)) < 0 && errno == EINTR) {}
    return n > 0;
}

void none(const char *word, channel *c) { say("%s: %s", word, waits(c, 100) ? "an event" : "no event"); }

void gone(id *i) {
    if (i->qp) rdma_destroy_qp(i);
    good("rdma_destroy_id", rdma_destroy_id(i));
}

// Memory of an id stays registered until the program ends.
static struct ibv_mr *memory(id *i, char filler, char **bytes) {
    *bytes = malloc(BYTES);
    memset(*bytes, filler, BYTES);
    struct ibv_mr *mr = rdma_reg_msgs(i, *bytes, BYTES);
    if (!mr) die("rdma_reg_msgs");
    return mr;
}

void ready_to_receive(id *i) {
    char *bytes;
    struct ibv_mr *mr = memory(i, 0, &bytes);
    good("rdma_post_recv", rdma_post_recv(i, bytes, bytes, BYTES, mr));
}

void sends(id *i, char filler) {
    char *bytes;
    struct ibv_wc wc;
    struct ibv_mr *mr = memory(i, filler, &bytes);
    good("rdma_post_send", rdma_post_send(i, NULL, bytes, BYTES, mr, 0));
    if (rdma_get_send_comp(i, &wc) != 1 || wc.status) die("a send");
}

void receives(id *i, char filler) {
    struct ibv_wc wc;
    if (rdma_get_recv_comp(i, &wc) != 1 || wc.status || wc.byte_len != BYTES) die("a receive");
    const char *bytes = (const char *)(uintptr_t)wc.wr_id;
    for (int n = 0; n < BYTES; n++)
        if (bytes[n] != filler) die("other bytes than were sent");
    say("got %c", filler);
}

void hold(const char *file) {
    say("ready");
    for (int n = 0; access(file, F_OK) != 0 && n < PATIENCE_MS / 20; n++)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    say("goes on");
}
