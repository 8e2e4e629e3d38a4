// SPDX-License-Identifier: Apache-2.0
//
// rails.c: the rails of a runtime: their endpoints, the second pass of an election, their way through a checkpoint.
// ckpt/rail.h draws the states of a rail.  What an election decides is stated in the Go package rails too; both are
// held against the scenarios in rails/testdata.
//
// Who reads what.  ckpt_elect walks the list of a process without a lock, on any thread: an endpoint is complete
// before the release store that lists it, and one that is taken off keeps its next, so that a reader who stands on it
// goes on.  The lists of rails and endpoints change under the lock of embed_rails.  No callback is made under it:
// callbacks may switch to another task of the same thread, which would wait for the lock for ever.
//
// States change without the lock.  From Open to Draining to Closed and back they are changed by the master of a
// checkpoint alone, when all tasks wait for it; from Due to Opening by the one task whose exchange succeeds.
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed/embed.h"
#include "embed/lock.h"

#define EXPORT __attribute__((visibility("default")))

enum state { OPEN = 1, DRAINING, CLOSED, DUE, OPENING, BROKEN };

// What is known of a peer since the rail was opened.
enum { PEER_UNKNOWN, PEER_ASKED /* a task is inside connect */, PEER_NEVER /* connect said CKPT_E_NOTSUP */ };

struct owned_fd {
    int fd;
    struct owned_fd *next;
};

struct ckpt_rail {
    struct ckpt_rail_head head; // what ckpt_elect looks at; first
    ckpt_rail_ops ops;          // name is ours
    struct embed_job *job;
    unsigned long number; // in the order in which rails were registered
    struct ckpt_rail *next, *prev;
    int state;           // enum state
    int why;             // LAZY rails: the gravest reason to open it since it was open, 0: none
    char failed[160];    // why the rail is broken; written before the state is
    unsigned char *peer; // of each process, PEER_*
    struct owned_fd *fds;
    char name[64];
};

// Sizes in version 1.1 of rail.h, the least that a runtime may have.  They never change.
#define RAIL_OPS_SIZE_1_1 64
_Static_assert(sizeof(ckpt_rail_ops) >= RAIL_OPS_SIZE_1_1, "ckpt_rail_ops has lost a field");
// Compiled into runtimes (ckpt_elect), so they never change at all.
_Static_assert(offsetof(ckpt_rail, head) == 0 && sizeof(struct ckpt_rail_head) == 16,
               "struct ckpt_rail_head");
_Static_assert(sizeof(ckpt_endpoint) == 24 && offsetof(struct ckpt_routes, first) == 8,
               "what ckpt_elect reads");

#define FLAGS (CKPT_RAIL_CHECKPOINTABLE | CKPT_RAIL_ON_DEMAND | CKPT_RAIL_NODE | CKPT_RAIL_LAZY)

// ---- words ----

// One line that grows; what does not fit is cut off.
struct line {
    size_t n;
    char text[sizeof((ckpt_error *)0)->message];
};

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->n, sizeof l->text - l->n, format, args);
    va_end(args);
    l->n += n > 0 ? (size_t)n : 0;
    if (l->n > sizeof l->text - 1) l->n = sizeof l->text - 1;
}

__attribute__((format(printf, 3, 4))) static int refuse(ckpt_error *error, int code, const char *format,
                                                        ...) {
    char why[400];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    embed_say(error, code, why);
    return code;
}

// Why a callback failed, in the runtime's words; at once, on the thread of the callback.
static void failure(struct embed_job *job, int code, char *text, size_t bytes) {
    const char *why = job->ops.failure != NULL ? job->ops.failure(job->ctx) : NULL;
    if (why != NULL && *why != 0)
        snprintf(text, bytes, "%s", why);
    else
        snprintf(text, bytes, "the runtime does not say why (code %d)", code);
}

static int code_of(int rc) { return rc < 0 ? rc : CKPT_E_SYSTEM; }

static int state_of(const ckpt_rail *rail) { return __atomic_load_n(&rail->state, __ATOMIC_ACQUIRE); }
static void become(ckpt_rail *rail, enum state state) {
    __atomic_store_n(&rail->state, (int)state, __ATOMIC_RELEASE);
}

// ---- lists ----

// The order of election: priority, then registration.
static bool before(const ckpt_rail *a, const ckpt_rail *b) {
    if (a->ops.priority != b->ops.priority) return a->ops.priority > b->ops.priority;
    return a->number < b->number;
}

// Of a list that others may add to.
static ckpt_rail *rail_at(ckpt_rail *const *link) { return __atomic_load_n(link, __ATOMIC_ACQUIRE); }

// The rail's endpoint to the process; NULL: none is listed.
static ckpt_endpoint *listed(const ckpt_rail *rail, int process) {
    ckpt_endpoint **link = &rail->job->rails.routes.first[process], *e;
    while ((e = __atomic_load_n(link, __ATOMIC_ACQUIRE)) != NULL && e->rail != rail) link = &e->next;
    return e;
}

// CKPT_E_STATE: the rail has one to this process already.
static int list(struct embed_rails *rails, ckpt_endpoint *endpoint) {
    int rc = 0;
    embed_lock(&rails->lock);
    ckpt_endpoint **link = &rails->routes.first[endpoint->process];
    while (*link != NULL && before((*link)->rail, endpoint->rail)) link = &(*link)->next;
    if (*link != NULL && (*link)->rail == endpoint->rail) {
        rc = CKPT_E_STATE;
    } else {
        __atomic_store_n(&endpoint->next, *link, __ATOMIC_RELAXED);
        __atomic_store_n(link, endpoint, __ATOMIC_RELEASE);
    }
    embed_unlock(&rails->lock);
    return rc;
}

// Takes off the list of a process the endpoint, or with NULL that of the rail, if it is there.
static void unlist(struct embed_rails *rails, int process, const ckpt_endpoint *endpoint,
                   const ckpt_rail *rail) {
    embed_lock(&rails->lock);
    ckpt_endpoint **link = &rails->routes.first[process];
    while (*link != NULL && *link != endpoint && (*link)->rail != rail) link = &(*link)->next;
    if (*link != NULL) __atomic_store_n(link, (*link)->next, __ATOMIC_RELEASE);
    embed_unlock(&rails->lock);
}

static void unlist_all(ckpt_rail *rail) {
    struct embed_rails *rails = &rail->job->rails;
    for (int p = 0; p < rails->routes.processes; p++) unlist(rails, p, NULL, rail);
}

static void insert(struct embed_rails *rails, ckpt_rail *rail) {
    embed_lock(&rails->lock);
    rail->number = rails->registered++;
    ckpt_rail *behind = NULL, *next = rails->first;
    for (; next != NULL && before(next, rail); next = next->next) behind = next;
    rail->prev = behind;
    rail->next = next;
    *(next != NULL ? &next->prev : &rails->last) = rail;
    __atomic_store_n(behind != NULL ? &behind->next : &rails->first, rail, __ATOMIC_RELEASE);
    embed_unlock(&rails->lock);
}

static void take_out(struct embed_rails *rails, ckpt_rail *rail) {
    embed_lock(&rails->lock);
    *(rail->next != NULL ? &rail->next->prev : &rails->last) = rail->prev;
    __atomic_store_n(rail->prev != NULL ? &rail->prev->next : &rails->first, rail->next, __ATOMIC_RELEASE);
    embed_unlock(&rails->lock);
}

static void release(ckpt_rail *rail) {
    for (struct owned_fd *o = rail->fds, *next; o != NULL; o = next) {
        next = o->next;
        free(o);
    }
    free(rail->peer);
    free(rail);
}

// ---- registration ----

// Copies the runtime's ops into ours, as far as both know them.
static int take(ckpt_rail_ops *ops, const ckpt_rail_ops *from, ckpt_error *error) {
    size_t size = from->size;
    if (size < RAIL_OPS_SIZE_1_1)
        return refuse(
            error, CKPT_E_VERSION,
            "the runtime's ckpt_rail_ops has %zu bytes, and version 1.1 of rail.h has %d: its size is not set",
            size, RAIL_OPS_SIZE_1_1);
    memset(ops, 0, sizeof *ops);
    memcpy(ops, from, size < sizeof *ops ? size : sizeof *ops);
    for (size_t i = sizeof *ops; i < size; i++)
        if (((const char *)from)[i] != 0)
            return refuse(
                error, CKPT_E_VERSION,
                "the runtime uses a part of ckpt_rail_ops (at byte %zu) that this libckpt does not know: "
                "it was compiled against a newer ckpt.h than %d.%d",
                i, CKPT_API_MAJOR, CKPT_API_MINOR);
    if (ops->name == NULL || *ops->name == 0) return refuse(error, CKPT_E_ARG, "a rail must have a name");
    if ((ops->flags & ~(unsigned)FLAGS) != 0)
        return refuse(error, CKPT_E_VERSION, "rail %s: this libckpt does not know flag %#x", ops->name,
                      ops->flags & ~(unsigned)FLAGS);
    if ((ops->flags & CKPT_RAIL_CHECKPOINTABLE) == 0 && (ops->close == NULL || ops->reopen == NULL))
        return refuse(error, CKPT_E_ARG,
                      "rail %s: close and reopen must be there, unless it is CKPT_RAIL_CHECKPOINTABLE",
                      ops->name);
    if ((ops->flags & CKPT_RAIL_ON_DEMAND) != 0 && ops->connect == NULL)
        return refuse(error, CKPT_E_ARG, "rail %s: CKPT_RAIL_ON_DEMAND needs connect", ops->name);
    return 0;
}

// The table that stays in place from the first rail on.
static int make_routes(struct embed_job *job, ckpt_error *error) {
    struct embed_rails *rails = &job->rails;
    if (__atomic_load_n(&job->seen.routes, __ATOMIC_ACQUIRE) != NULL) return 0;
    int processes = job->ops.ranks != NULL ? job->ops.ranks(job->ctx) : 0;
    if (processes <= 0)
        return refuse(error, CKPT_E_ARG, "the runtime says that the job has %d processes", processes);
    ckpt_endpoint **first = calloc((size_t)processes, sizeof *first);
    if (first == NULL) return refuse(error, CKPT_E_SYSTEM, "no memory for ways to %d processes", processes);
    embed_lock(&rails->lock);
    if (job->seen.routes == NULL) {
        rails->routes = (struct ckpt_routes){processes, first};
        __atomic_store_n(&job->seen.routes, &rails->routes, __ATOMIC_RELEASE);
        first = NULL;
    }
    embed_unlock(&rails->lock);
    free(first);
    return 0;
}

EXPORT int ckpt_rail_register(ckpt_job *seen, const ckpt_rail_ops *from, void *ctx, ckpt_rail **out,
                              ckpt_error *error) {
    ckpt_rail_ops ops;
    if (seen == NULL || from == NULL || out == NULL)
        return refuse(error, CKPT_E_ARG,
                      "ckpt_rail_register needs a job, the rail's ops and a place for the rail");
    *out = NULL;
    struct embed_job *job = embed_of(seen);
    int rc = take(&ops, from, error);
    if (rc == 0) rc = make_routes(job, error);
    if (rc != 0) return rc;
    ckpt_rail *rail = calloc(1, sizeof *rail);
    if (rail == NULL || (rail->peer = calloc((size_t)job->rails.routes.processes, 1)) == NULL) {
        free(rail);
        return refuse(error, CKPT_E_SYSTEM, "no memory for rail %s", ops.name);
    }
    rail->head.gate = ops.gate;
    rail->head.ctx = ctx;
    rail->ops = ops;
    snprintf(rail->name, sizeof rail->name, "%s", ops.name);
    rail->ops.name = rail->name;
    rail->job = job;
    become(rail, OPEN);
    insert(&job->rails, rail);
    *out = rail;
    return 0;
}

EXPORT int ckpt_rail_unregister(ckpt_job *seen, ckpt_rail *rail) {
    if (seen == NULL || rail == NULL || rail->job != embed_of(seen)) return CKPT_E_ARG;
    struct embed_rails *rails = &rail->job->rails;
    int state = state_of(rail);
    if (rails->held || (state != OPEN && state != DUE && state != BROKEN)) return CKPT_E_STATE;
    unlist_all(rail);
    take_out(rails, rail);
    for (struct owned_fd *o = rail->fds; o != NULL; o = o->next) embed_ignore_fd(rail->job, o->fd, false);
    release(rail);
    return 0;
}

void embed_rails_end(struct embed_job *job) {
    struct embed_rails *rails = &job->rails;
    __atomic_store_n(&job->seen.routes, NULL, __ATOMIC_RELEASE);
    for (ckpt_rail *r = rails->first, *next; r != NULL; r = next) {
        next = r->next;
        release(r);
    }
    free(rails->routes.first);
    memset(rails, 0, sizeof *rails);
}

EXPORT int ckpt_endpoint_add(ckpt_job *seen, ckpt_endpoint *endpoint) {
    if (seen == NULL || endpoint == NULL || endpoint->rail == NULL) return CKPT_E_ARG;
    ckpt_rail *rail = endpoint->rail;
    struct embed_rails *rails = &rail->job->rails;
    if (rail->job != embed_of(seen) || (unsigned)endpoint->process >= (unsigned)rails->routes.processes)
        return CKPT_E_ARG;
    int due = DUE;
    // The rail has opened itself.
    if (__atomic_compare_exchange_n(&rail->state, &due, OPENING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        memset(rail->peer, PEER_UNKNOWN, (size_t)rails->routes.processes);
        rail->why = 0;
        become(rail, OPEN);
    } else if (due == CLOSED || due == BROKEN) {
        return CKPT_E_STATE;
    }
    return list(rails, endpoint);
}

EXPORT void ckpt_endpoint_remove(ckpt_job *seen, ckpt_endpoint *endpoint) {
    if (seen == NULL || endpoint == NULL) return;
    struct embed_rails *rails = &embed_of(seen)->rails;
    if ((unsigned)endpoint->process < (unsigned)rails->routes.processes)
        unlist(rails, endpoint->process, endpoint, NULL);
}

EXPORT int ckpt_rail_fd(ckpt_rail *rail, int fd) {
    if (rail == NULL || fd < 0) return CKPT_E_ARG;
    struct embed_rails *rails = &rail->job->rails;
    struct owned_fd *own = malloc(sizeof *own);
    if (own == NULL) return CKPT_E_SYSTEM;
    int rc = embed_ignore_fd(rail->job, fd, true);
    if (rc != 0) {
        free(own);
        return rc;
    }
    own->fd = fd;
    embed_lock(&rails->lock);
    const struct owned_fd *o = rail->fds;
    while (o != NULL && o->fd != fd) o = o->next;
    if (o == NULL) {
        own->next = rail->fds;
        rail->fds = own;
        own = NULL;
    }
    embed_unlock(&rails->lock);
    free(own);
    return 0;
}

// ---- opening ----

// Calls reopen; the rail is OPENING.
static int open_again(ckpt_rail *rail, int why) {
    memset(rail->peer, PEER_UNKNOWN, (size_t)rail->job->rails.routes.processes);
    int rc = rail->ops.reopen(rail->head.ctx, why);
    if (rc == 0) {
        rail->why = 0;
        become(rail, OPEN);
        return 0;
    }
    failure(rail->job, rc, rail->failed, sizeof rail->failed);
    unlist_all(rail);
    become(rail, BROKEN);
    return code_of(rc);
}

// ---- the second pass ----

enum answer { FOUND, WAIT /* asks no further rail */, LATER /* when no other rail has one */, PASSED };

__attribute__((format(printf, 3, 4))) static enum answer pass(struct line *why, const ckpt_rail *rail,
                                                              const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    add(why, "%s%s: %s", why->n > 0 ? "; " : "", rail->name, text);
    return PASSED;
}

static enum answer pass_unreachable(struct line *why, const ckpt_rail *rail) {
    return pass(why, rail, rail->ops.flags & CKPT_RAIL_NODE ? "not on this node" : "cannot reach it");
}

// Lists what connect has made, if connect has not done so, and puts into *out what is listed.
static bool have(ckpt_rail *rail, int process, ckpt_endpoint *made, ckpt_endpoint **out) {
    if (made != NULL && (made->rail != rail || made->process != process)) return false;
    if (made != NULL && list(&rail->job->rails, made) == 0)
        *out = made;
    else // crossed: the other side's was listed meanwhile
        *out = listed(rail, process);
    return *out != NULL;
}

static enum answer dial(ckpt_rail *rail, int process, ckpt_endpoint **out, struct line *why) {
    unsigned char known = PEER_UNKNOWN, *peer = &rail->peer[process];
    if (!__atomic_compare_exchange_n(peer, &known, PEER_ASKED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return known == PEER_ASKED ? WAIT : pass_unreachable(why, rail);
    // Another task that asked before may have made it since we looked: it was listed before the peer was unknown again.
    ckpt_endpoint *made = listed(rail, process);
    int rc = made != NULL ? 0 : rail->ops.connect(rail->head.ctx, process, &made);
    enum answer answer = WAIT;
    if (rc == 0) {
        answer = have(rail, process, made, out) ? FOUND : pass(why, rail, "connect gave no endpoint to it");
    } else if (rc == CKPT_E_NOTSUP) {
        answer = pass_unreachable(why, rail);
    } else if (rc != CKPT_E_AGAIN) {
        char text[160];
        failure(rail->job, rc, text, sizeof text);
        answer = pass(why, rail, "connect failed: %s", text);
    }
    // After the endpoint is listed.
    __atomic_store_n(peer, rc == CKPT_E_NOTSUP ? PEER_NEVER : PEER_UNKNOWN, __ATOMIC_RELEASE);
    return answer;
}

static enum answer ask(ckpt_rail *rail, int process, size_t bytes, int kind, ckpt_endpoint **out,
                       struct line *why) {
    int state = state_of(rail);
    if (state == BROKEN) return pass(why, rail, "broken: %s", rail->failed);
    if (rail->head.gate != NULL && !rail->head.gate(rail->head.ctx, bytes, kind))
        return pass(why, rail, "gate closed for %zu byte%s", bytes, bytes == 1 ? "" : "s");
    if (state == DUE) {
        if (!__atomic_compare_exchange_n(&rail->state, &state, OPENING, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            return WAIT; // another task opens it
        if (open_again(rail, rail->why) != 0) return pass(why, rail, "broken: %s", rail->failed);
        if ((*out = listed(rail, process)) != NULL) return FOUND;
        state = OPEN;
    }
    if (state == OPENING) return rail->ops.flags & CKPT_RAIL_LAZY ? WAIT : LATER;
    if (state == CLOSED) return LATER;
    if ((rail->ops.flags & CKPT_RAIL_ON_DEMAND) == 0) return pass(why, rail, "no endpoint");
    if (state == DRAINING)
        return __atomic_load_n(&rail->peer[process], __ATOMIC_ACQUIRE) == PEER_NEVER
                   ? pass_unreachable(why, rail)
                   : LATER;
    return dial(rail, process, out, why);
}

EXPORT int ckpt_route(ckpt_job *seen, int process, size_t bytes, int kind, ckpt_endpoint **out,
                      ckpt_error *error) {
    if (seen == NULL || out == NULL)
        return refuse(error, CKPT_E_ARG, "ckpt_route needs a job and a place for the endpoint");
    *out = NULL;
    if (seen->tables != NULL &&
        __atomic_load_n(&seen->tables->attention, __ATOMIC_RELAXED) & CKPT_ATTEND_SIGNAL)
        embed_signals_take(embed_of(seen)); // and no more: the runtime is not told of requests here
    const struct ckpt_routes *routes = __atomic_load_n(&seen->routes, __ATOMIC_ACQUIRE);
    if (routes == NULL)
        return refuse(error, CKPT_E_PEER, "no route to process %d: the runtime has registered no rail",
                      process);
    if ((unsigned)process >= (unsigned)routes->processes)
        return refuse(error, CKPT_E_ARG, "there is no process %d: the job has %d", process,
                      routes->processes);
    // A signal's handler, or another task, may have listed one since the caller looked.
    if ((*out = ckpt_elect(seen, process, bytes, kind)) != NULL) return 0;

    struct line why;
    why.n = 0;
    bool later = false;
    struct embed_rails *rails = &embed_of(seen)->rails;
    for (ckpt_rail *r = rail_at(&rails->first); r != NULL; r = rail_at(&r->next))
        switch (ask(r, process, bytes, kind, out, &why)) {
        case FOUND:
            return 0;
        case WAIT:
            return CKPT_E_AGAIN;
        case LATER:
            later = true;
            break;
        case PASSED:
            break;
        }
    if (later) return CKPT_E_AGAIN;
    struct line all = {0};
    add(&all, "no route to process %d: %s", process,
        why.n > 0 ? why.text : "the runtime has registered no rail");
    embed_say(error, CKPT_E_PEER, all.text);
    return CKPT_E_PEER;
}

// ---- a checkpoint ----

int embed_rails_quiet(struct embed_job *job, ckpt_error *error) {
    struct embed_rails *rails = &job->rails;
    int all = 1, failed = 0;
    for (ckpt_rail *r = rail_at(&rails->first); r != NULL; r = rail_at(&r->next)) {
        // A rail that is registered meanwhile drains from now on.
        if (r->state == OPEN) become(r, DRAINING);
        if (r->state == DUE) become(r, CLOSED);
    }
    rails->held = true;
    for (ckpt_rail *r = rail_at(&rails->first); r != NULL; r = rail_at(&r->next)) {
        if (r->state == OPENING) all = 0; // a task that sends is inside reopen
        if (r->state != DRAINING || r->ops.quiet == NULL) continue;
        int rc = r->ops.quiet(r->head.ctx);
        if (rc == 0) all = 0;
        if (rc >= 0 || failed != 0) continue; // all are asked: each turn may bring the others on
        char text[300];
        failure(job, rc, text, sizeof text);
        failed = refuse(error, rc, "rail %s: quiet: %s", r->name, text);
    }
    return failed != 0 ? failed : all;
}

int embed_rails_close(struct embed_job *job, ckpt_error *error) {
    int failed = 0;
    for (ckpt_rail *r = rail_at(&job->rails.first); r != NULL; r = rail_at(&r->next)) {
        if ((r->state != DRAINING && r->state != OPEN) || r->ops.flags & CKPT_RAIL_CHECKPOINTABLE) continue;
        unlist_all(r);
        become(r, CLOSED);
        int rc = r->ops.close(r->head.ctx);
        // Closed or not, it is opened again with those that were: reopen is collective.
        if (rc == 0 || failed != 0) continue;
        char text[300];
        failure(job, rc, text, sizeof text);
        failed = refuse(error, code_of(rc), "rail %s cannot be closed: %s", r->name, text);
    }
    return failed;
}

// Descriptors that the rail had before a restart are none any more; their numbers may be others'.
static void forget_fds(ckpt_rail *rail) {
    embed_lock(&rail->job->rails.lock);
    struct owned_fd *gone = rail->fds;
    rail->fds = NULL;
    embed_unlock(&rail->job->rails.lock);
    for (struct owned_fd *next; gone != NULL; gone = next) {
        next = gone->next;
        free(gone);
    }
}

int embed_rails_reopen(struct embed_job *job, int why, ckpt_error *error) {
    struct embed_rails *rails = &job->rails;
    struct line reasons = {0};
    int open = 0, failed = 0;
    for (ckpt_rail *r = rails->last; r != NULL; r = r->prev) {
        if (why == CKPT_WHY_RESTARTED) forget_fds(r);
        int rc = 0;
        if (r->state == DRAINING) {
            become(r, OPEN);
        } else if (r->state == CLOSED || r->state == BROKEN) {
            if (r->ops.flags & CKPT_RAIL_LAZY) {
                if (r->why != CKPT_WHY_RESTARTED) r->why = why;
                become(r, DUE);
            } else {
                become(r, OPENING);
                rc = open_again(r, why);
            }
        }
        if (rc == 0) {
            open++;
        } else {
            if (failed == 0) failed = rc;
            pass(&reasons, r, "%s", r->failed);
        }
    }
    rails->held = false;
    if (open > 0 || failed == 0) return 0;
    struct line all = {0};
    add(&all, "no rail could be opened: %s", reasons.text);
    embed_say(error, failed, all.text);
    return failed;
}
