// SPDX-License-Identifier: Apache-2.0
//
// held.c: connections between a server and a client that are held half made, or half ended; then all of them go on to their end.
#include "ids.h"

enum held {
    WAITS,    // the request waits in the channel of who listens
    TAKEN,    // it was taken, and is neither accepted nor refused
    ACCEPTED, // the client has not taken that it was
    REFUSED,  // or that it was not
    ENDED,    // the server has not taken that the client has disconnected
    RESOLVED, // the client has not taken that its address is known
    MIGRATED, // the server's id has another channel, where its event waits
    HELD
};

static const char *const words[] = {"waits", "taken", "accepted", "refused", "ended", "resolved", "migrated"};

enum { LONG = 120000 };

static void finish_server(enum held h, channel *c, id *i) {
    next(words[h], c, RDMA_CM_EVENT_ESTABLISHED);
    receives(i, (char)('a' + h));
    sends(i, (char)('A' + h));
    next(words[h], c, RDMA_CM_EVENT_DISCONNECTED);
    step("rdma_disconnect", rdma_disconnect(i));
}

static id *accepts(enum held h, channel *c) {
    id *i = next(words[h], c, RDMA_CM_EVENT_CONNECT_REQUEST);
    queue_pair(i);
    ready_to_receive(i);
    good("rdma_accept", takes(i, "come in"));
    return i;
}

void server(int port, const char *file) {
    channel *c[HELD], *other = new_channel();
    id *l[HELD], *i[HELD] = {0};
    // The client waits until somebody listens at the first port: that comes last.
    for (int h = HELD - 1; h >= 0; h--) l[h] = listener(c[h] = new_channel(), RDMA_PS_TCP, port + h);
    say("listens");
    i[TAKEN] = next(words[TAKEN], c[TAKEN], RDMA_CM_EVENT_CONNECT_REQUEST);
    i[ACCEPTED] = accepts(ACCEPTED, c[ACCEPTED]);
    i[REFUSED] = next(words[REFUSED], c[REFUSED], RDMA_CM_EVENT_CONNECT_REQUEST);
    good("rdma_reject", rdma_reject(i[REFUSED], "full", 4));
    for (enum held h = ENDED; h <= MIGRATED; h += MIGRATED - ENDED) {
        i[h] = accepts(h, c[h]);
        next(words[h], c[h], RDMA_CM_EVENT_ESTABLISHED);
        if (!waits(c[h], LONG)) die("no end");
    }
    good("rdma_migrate_id", rdma_migrate_id(i[MIGRATED], other));
    none("migrated from", c[MIGRATED]);
    if (!waits(c[WAITS], LONG)) die("no request");
    hold(file);
    i[WAITS] = accepts(WAITS, c[WAITS]);
    finish_server(WAITS, c[WAITS], i[WAITS]);
    queue_pair(i[TAKEN]);
    ready_to_receive(i[TAKEN]);
    good("rdma_accept", takes(i[TAKEN], "come in"));
    finish_server(TAKEN, c[TAKEN], i[TAKEN]);
    finish_server(ACCEPTED, c[ACCEPTED], i[ACCEPTED]);
    next("ended", c[ENDED], RDMA_CM_EVENT_DISCONNECTED);
    i[RESOLVED] = accepts(RESOLVED, c[RESOLVED]);
    finish_server(RESOLVED, c[RESOLVED], i[RESOLVED]);
    next("migrated to", other, RDMA_CM_EVENT_DISCONNECTED);
    for (int h = 0; h < HELD; h++) none("at the end", c[h]);
    for (int h = 0; h < HELD; h++) {
        gone(i[h]);
        gone(l[h]);
        rdma_destroy_event_channel(c[h]);
    }
    say("done");
}

static void finish_client(enum held h, channel *c, id *i) {
    next(words[h], c, RDMA_CM_EVENT_ESTABLISHED);
    ready_to_receive(i);
    sends(i, (char)('a' + h));
    receives(i, (char)('A' + h));
    step("rdma_disconnect", rdma_disconnect(i));
    next(words[h], c, RDMA_CM_EVENT_DISCONNECTED);
}

void client(int port, const char *file) {
    channel *c[HELD];
    id *i[HELD];
    for (int h = 0; h < HELD; h++) {
        c[h] = new_channel();
        if (h == RESOLVED) continue;
        i[h] = caller(c[h], RDMA_PS_TCP, port + h);
        ready_to_receive(i[h]);
        good("rdma_connect", calls(i[h], words[h]));
    }
    for (enum held h = ENDED; h <= MIGRATED; h += MIGRATED - ENDED) {
        next(words[h], c[h], RDMA_CM_EVENT_ESTABLISHED);
        step("rdma_disconnect", rdma_disconnect(i[h]));
    }
    struct sockaddr_in to = address("127.0.0.1", port + RESOLVED);
    i[RESOLVED] = new_id(c[RESOLVED], RDMA_PS_TCP);
    good("rdma_resolve_addr", rdma_resolve_addr(i[RESOLVED], NULL, (struct sockaddr *)&to, 2000));
    for (enum held h = ACCEPTED; h <= RESOLVED; h++)
        if (!waits(c[h], LONG)) die("no event");
    hold(file);
    for (enum held h = WAITS; h <= ACCEPTED; h++) finish_client(h, c[h], i[h]);
    next("refused", c[REFUSED], RDMA_CM_EVENT_REJECTED);
    next("ended", c[ENDED], RDMA_CM_EVENT_DISCONNECTED);
    next("resolved", c[RESOLVED], RDMA_CM_EVENT_ADDR_RESOLVED);
    good("rdma_resolve_route", rdma_resolve_route(i[RESOLVED], 2000));
    next("resolved", c[RESOLVED], RDMA_CM_EVENT_ROUTE_RESOLVED);
    queue_pair(i[RESOLVED]);
    ready_to_receive(i[RESOLVED]);
    good("rdma_connect", calls(i[RESOLVED], "resolved"));
    finish_client(RESOLVED, c[RESOLVED], i[RESOLVED]);
    next("migrated", c[MIGRATED], RDMA_CM_EVENT_DISCONNECTED);
    for (int h = 0; h < HELD; h++) {
        none("at the end", c[h]);
        gone(i[h]);
        rdma_destroy_event_channel(c[h]);
    }
    say("done");
}
