// SPDX-License-Identifier: Apache-2.0
//
// match.c: messages meet receives.
//
// Each rank has two lists: receives that wait for a message, and messages that wait for a receive.  Both are memory
// of the program, so a checkpoint saves them like any other.  A message between two ranks of one process goes
// straight to the receiver's lists; any other is handed to a rail, and comes in by match_arrived.
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

struct tmpi_request {
    struct tmpi_request *next; // posted
    struct task *owner;
    char *data;
    size_t room;
    int source, tag; // or any
    uint32_t context;
    tmpi_status status;
    bool done; // atomic: written last, with release
};

struct messages { // of one rank
    pthread_mutex_t lock;
    struct tmpi_request *posted; // in the order of their calls
    struct message *waiting;     // in the order in which they are to be matched
    struct message *early;       // a rail brought them before one that was sent earlier
    uint32_t *sent, *expected;   // numbers of messages to and from each rank of other processes
};

static void *zeroed(struct task *t, size_t bytes) { return memset(tmpi_must(task_room(t, bytes)), 0, bytes); }

void match_start(struct task *t) {
    struct messages *m = t->messages = zeroed(t, sizeof *m);
    pthread_mutex_init(&m->lock, NULL);
    m->sent = zeroed(t, (size_t)tmpi.size * sizeof *m->sent);
    m->expected = zeroed(t, (size_t)tmpi.size * sizeof *m->expected);
}

void match_continue(struct task *t) { pthread_mutex_init(&t->messages->lock, NULL); }

// ---- matching; all with the receiver's lock ----

static bool fits(const struct tmpi_request *r, const struct header *h) {
    return r->context == h->context && (r->source == TMPI_ANY_SOURCE || r->source == h->source) &&
           (r->tag == TMPI_ANY_TAG || r->tag == h->tag);
}

static void fill(struct tmpi_request *r, const struct header *h, const void *data) {
    r->status = (tmpi_status){.source = h->source, .tag = h->tag, .bytes = h->bytes};
    size_t n = h->bytes < r->room ? h->bytes : r->room;
    if (n > 0) memcpy(r->data, data, n);
    __atomic_store_n(&r->done, true, __ATOMIC_RELEASE);
}

// Gives the message to the first receive that fits: true, or false when there is none.
static bool give(struct messages *m, const struct header *h, const void *data) {
    for (struct tmpi_request **at = &m->posted; *at != NULL; at = &(*at)->next) {
        struct tmpi_request *r = *at;
        if (!fits(r, h)) continue;
        *at = r->next;
        fill(r, h, data); // r may be gone from here on
        return true;
    }
    return false;
}

static void keep(struct message **list, struct message *message) {
    while (*list != NULL) list = &(*list)->next;
    message->next = NULL;
    *list = message;
}

struct message *match_room(const struct header *h) {
    struct task *t = tmpi.slots ? task_of(h->dest) : NULL;
    struct message *message = tmpi_must(task_room(t, sizeof *message + h->bytes));
    message->h = *h;
    return message;
}

// The message that is next from a sender, off the list of early ones.
static struct message *take_early(struct messages *m, int source) {
    for (struct message **at = &m->early; *at != NULL; at = &(*at)->next)
        if ((*at)->h.source == source && (*at)->h.number == m->expected[source]) {
            struct message *message = *at;
            *at = message->next;
            return message;
        }
    return NULL;
}

void match_arrived(struct message *message) {
    struct task *t = task_of(message->h.dest);
    struct messages *m = t->messages;
    int source = message->h.source;
    pthread_mutex_lock(&m->lock);
    keep(&m->early, message);
    while ((message = take_early(m, source)) != NULL) {
        m->expected[source]++;
        if (give(m, &message->h, message->data))
            task_free(t, message);
        else
            keep(&m->waiting, message);
    }
    pthread_mutex_unlock(&m->lock);
    task_unpark(t);
}

// ---- receiving ----

static void post(struct tmpi_request *r) {
    struct messages *m = r->owner->messages;
    pthread_mutex_lock(&m->lock);
    for (struct message **at = &m->waiting; *at != NULL; at = &(*at)->next) {
        struct message *message = *at;
        if (!fits(r, &message->h)) continue;
        *at = message->next;
        pthread_mutex_unlock(&m->lock);
        fill(r, &message->h, message->data);
        task_free(r->owner, message);
        return;
    }
    struct tmpi_request **end = &m->posted;
    while (*end != NULL) end = &(*end)->next;
    *end = r;
    pthread_mutex_unlock(&m->lock);
}

static void wait_for(struct tmpi_request *r) {
    while (!__atomic_load_n(&r->done, __ATOMIC_ACQUIRE)) {
        task_park();
        embed_serve(r->owner); // then it goes on waiting
    }
    // Who filled it may still hold the lock, within which it looks at r no more.
}

void match_recv(void *data, size_t bytes, int source, int tag, int context, tmpi_status *status) {
    struct tmpi_request r = {.owner = task_self(),
                             .data = data,
                             .room = bytes,
                             .source = source,
                             .tag = tag,
                             .context = (uint32_t)context};
    embed_serve(r.owner);
    post(&r);
    wait_for(&r);
    if (status != NULL) *status = r.status;
}

// ---- sending ----

static void send_here(const struct header *h, const void *data) {
    struct task *t = task_of(h->dest);
    pthread_mutex_lock(&t->messages->lock);
    if (!give(t->messages, h, data)) {
        struct message *message = match_room(h);
        if (h->bytes > 0) memcpy(message->data, data, h->bytes);
        keep(&t->messages->waiting, message);
    }
    pthread_mutex_unlock(&t->messages->lock);
    task_unpark(t);
}

// The election.  The endpoint that was found is not kept over a switch.  A send is not left for a checkpoint: it needs
// no other rank's doing, so it ends.
static void send_there(const struct header *h, const void *data) {
    for (;;) {
        ckpt_error error = {.size = sizeof error};
        int process = process_of(h->dest); // it may be another one after a switch
        ckpt_endpoint *e = ckpt_elect(tmpi.job, process, h->bytes, CKPT_MSG_EAGER);
        int rc = e != NULL ? 0 : ckpt_route(tmpi.job, process, h->bytes, CKPT_MSG_EAGER, &e, &error);
        if (rc == 0) rc = ((struct endpoint *)e)->send((struct endpoint *)e, h, data);
        if (rc == 0) return;
        if (rc != CKPT_E_AGAIN) tmpi_die("rank %d cannot send: %s", h->source, error.message);
        task_yield(); // it is being connected, or has no room
    }
}

void match_send(const void *data, size_t bytes, int dest, int tag, int context) {
    struct task *t = task_self();
    if (dest < 0 || dest >= tmpi.size || bytes > UINT32_MAX / 2)
        tmpi_die("rank %d sends %zu bytes to rank %d of %d", t->rank, bytes, dest, tmpi.size);
    embed_serve(t);
    struct header h = {
        .bytes = (uint32_t)bytes, .source = t->rank, .dest = dest, .tag = tag, .context = (uint32_t)context};
    if (process_of(dest) == tmpi.process) return send_here(&h, data);
    h.number = t->messages->sent[dest]++;
    send_there(&h, data);
}

// ---- the program's calls ----

void tmpi_send(const void *data, size_t bytes, int dest, int tag) {
    match_send(data, bytes, dest, tag, CONTEXT_PROGRAM);
}

void tmpi_recv(void *data, size_t bytes, int source, int tag, tmpi_status *status) {
    match_recv(data, bytes, source, tag, CONTEXT_PROGRAM, status);
}

static tmpi_request make(void *data, size_t bytes, int source, int tag) {
    struct tmpi_request *r = zeroed(task_self(), sizeof *r);
    r->owner = task_self();
    r->data = data, r->room = bytes, r->source = source, r->tag = tag, r->context = CONTEXT_PROGRAM;
    return r;
}

// All sends are buffered: it is complete at once.
tmpi_request tmpi_isend(const void *data, size_t bytes, int dest, int tag) {
    match_send(data, bytes, dest, tag, CONTEXT_PROGRAM);
    tmpi_request r = make(NULL, 0, dest, tag);
    r->status = (tmpi_status){.source = tmpi_rank(), .tag = tag, .bytes = bytes};
    r->done = true;
    return r;
}

tmpi_request tmpi_irecv(void *data, size_t bytes, int source, int tag) {
    embed_serve(task_self());
    tmpi_request r = make(data, bytes, source, tag);
    post(r);
    return r;
}

void tmpi_wait(tmpi_request r, tmpi_status *status) {
    embed_serve(r->owner);
    wait_for(r);
    if (status != NULL) *status = r->status;
    task_free(r->owner, r);
}
