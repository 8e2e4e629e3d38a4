// SPDX-License-Identifier: Apache-2.0
//
// deferred.c: collective calls that were made while a checkpoint was pending, and are started later.
//
// Until then the application's request has no real request: a test of the request sees the flag and finds
// the request not complete.  Any thread may start the call.  The flag is cleared last, so that a thread
// which finds the flag cleared finds the real request, too.
#include <sched.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "back/collective/clock.h"
#include "back/collective/op.h"
#include "back/collective/clocked.h"
#include "back/collective/coll.h"
#include "back/collective/deferred.h"
#include "back/impl/lock.h"
#include "back/impl/status.h"
#include "back/object/comm.h"
#include "back/request/done.h"

// Calls with a datatype for each peer: their arguments are those of MPI_Ialltoallw.
typedef struct Ialltoallw_args w_args;
enum { W_ARGS = sizeof(w_args) / sizeof(long) };
static int is_w(int function) { return clocked_words(function).arrays; }

static struct deferred *deferred; // that have no start yet; under LOCK_DEFERRED

int back_deferred_request_at(int function) { return clocked_words(function).request; }

int back_deferred_sound(const struct deferred *d) {
    if (d->function == NUMBER(COMM_IDUP)) {
        const ckpt_slot *s =
            d->nargs == back_deferred_request_at(d->function) + 1 ? back_slot(CKPT_KIND_COMM, d->a[1]) : NULL;
        return s != NULL && s != back.slots[CKPT_KIND_COMM] && s->counters == 0 &&
               (MPI_Comm)(uintptr_t)s->real == MPI_COMM_NULL;
    }
    const w_args *p = (const void *)d->a;
    return !is_w(d->function) || (d->nargs >= W_ARGS && p->sends >= 0 && p->receives >= 0 &&
                                  (long)p->sends + p->receives == d->nargs - W_ARGS);
}

struct deferred *back_deferred_new(int function, const long *a, int nargs) {
    struct deferred *d = malloc(sizeof *d + (size_t)nargs * sizeof(long));
    int n = nargs - W_ARGS;
    if (d == NULL) return NULL;
    *d = (struct deferred){.function = function, .nargs = nargs};
    memcpy(d->a, a, (size_t)nargs * sizeof(long));
    if (is_w(function) && n >= 0) { // a start must not fail: the other members make theirs
        d->types = malloc((size_t)(n + 1) * sizeof *d->types);
        d->real_types = malloc((size_t)(n + 1) * sizeof *d->real_types);
        if (d->types == NULL || d->real_types == NULL) {
            back_deferred_free(d);
            return NULL;
        }
    }
    return d;
}

void back_deferred_free(struct deferred *d) {
    if (d == NULL) return;
    free(d->types);
    free(d->real_types);
    free(d);
}

// Makes the record from the arguments of the call itself.
static struct deferred *deferred_of_call(int function, const long *a) {
    if (!is_w(function)) return back_deferred_new(function, a, back_deferred_request_at(function) + 1);
    const w_args *p = (const void *)a;
    long n = W_ARGS + (long)p->sends + p->receives, *all = malloc((size_t)n * sizeof(long));
    if (all == NULL) return NULL;
    memcpy(all, a, W_ARGS * sizeof(long));
    for (int i = 0; i < p->sends; i++) all[W_ARGS + i] = p->sendtypes[i];
    for (int i = 0; i < p->receives; i++) all[W_ARGS + p->sends + i] = p->recvtypes[i];
    struct deferred *d = back_deferred_new(function, all, (int)n);
    free(all);
    return d;
}

// Makes the call, with arguments that are no longer needed.
static long call_deferred(struct deferred *d) {
    if (d->function == NUMBER(COMM_IDUP)) return back_idup_promised(d->a);
    if (!is_w(d->function)) return back.calls[d->function](d->a);
    MPI_Datatype *t = d->real_types;
    w_args *p = (void *)d->a;
    for (int i = 0; i < d->nargs - W_ARGS; i++) d->types[i] = (ckpt_vid)d->a[W_ARGS + i];
    p->sendtypes = d->types;
    p->recvtypes = d->types + p->sends;
    d->real_types = NULL; // they now belong to the request
    return d->function == NUMBER(IALLTOALLW) ? back_start_w(d->a, t) : back_start_neighbor_w(d->a, t);
}

static void bind_locked(struct deferred *d, ckpt_slot *s) {
    s->real = TO_REAL(MPI_REQUEST_NULL);
    s->extra = (uint64_t)(uintptr_t)d;
    struct deferred **end = &deferred;
    while (*end != NULL) end = &(*end)->next;
    d->next = NULL;
    __atomic_store_n(end, d, __ATOMIC_RELEASE);
}

void back_deferred_bind(struct deferred *d, ckpt_slot *s) {
    back_lock(LOCK_DEFERRED);
    bind_locked(d, s);
    back_unlock(LOCK_DEFERRED);
}

// ---- what deferred calls use ----
// The application may free a datatype or an operation at once, but the real call needs this object.  So the
// object is freed when no deferred call names it any more.  An argument that only looks like the object's id
// does no harm.  In an image the object is like others, and it stays after a restart.

struct kept {
    LIST_ENTRY(kept) others;
    ckpt_vid v;
    ckpt_back_fn *free_it;
};
LIST_HEAD(kept_list, kept);
static struct kept_list kept = LIST_HEAD_INITIALIZER(kept);

static int named_locked(ckpt_vid v) {
    for (const struct deferred *d = deferred; d != NULL; d = d->next)
        for (int i = 0; i < d->nargs; i++)
            if (d->a[i] == (long)v) return 1;
    return 0;
}

// 1 when v is freed later by that function, since a call that is not started uses it.
static int keeps(ckpt_vid v, ckpt_back_fn *free_it) {
    if (__builtin_expect(__atomic_load_n(&deferred, __ATOMIC_ACQUIRE) == NULL, 1)) return 0;
    back_lock(LOCK_DEFERRED);
    int named = named_locked(v);
    struct kept *k = named ? malloc(sizeof *k) : NULL;
    if (k != NULL) {
        *k = (struct kept){.v = v, .free_it = free_it};
        LIST_INSERT_HEAD(&kept, k, others);
    }
    back_unlock(LOCK_DEFERRED);
    return named; // when there was no memory to remember the object, it is never freed
}

long clocked_Type_free(const long *a) {
    return keeps(*(ckpt_vid *)a[0], back_Type_free) ? 0 : back_Type_free(a);
}

// Forgets a call that was started, and frees what nobody names any more.
static void forget(struct deferred *done) {
    struct kept_list gone = LIST_HEAD_INITIALIZER(gone);
    struct kept *k;
    back_lock(LOCK_DEFERRED);
    for (struct deferred **p = &deferred; *p != NULL; p = &(*p)->next)
        if (*p == done) {
            *p = done->next;
            break;
        }
    for (struct kept *next = LIST_FIRST(&kept); (k = next) != NULL;) {
        next = LIST_NEXT(k, others);
        if (named_locked(k->v)) continue;
        LIST_REMOVE(k, others);
        LIST_INSERT_HEAD(&gone, k, others);
    }
    back_unlock(LOCK_DEFERRED);
    back_deferred_free(done);
    while ((k = LIST_FIRST(&gone)) != NULL) {
        const long a[] = {(long)&k->v};
        LIST_REMOVE(k, others);
        k->free_it(a);
        free(k);
    }
}

struct deferred *back_deferred_of(const ckpt_slot *s) {
    return (struct deferred *)(uintptr_t)s->extra;
}

long back_deferred_start(struct deferred *d) {
    ckpt_vid started = VID_REQUEST_NULL;
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, d->request);
    d->a[back_deferred_request_at(d->function)] = (long)&started;
    int flags = clocked_flags(d->function, d->a);
    long rc = call_deferred(d);
    // The others make their part of the call, so this one waits for memory rather than to leave it out.
    for (int tries = 0; d->function == NUMBER(COMM_IDUP) && rc == CANON_ERR(NO_MEM) && tries < 1000;
         tries++) {
        sched_yield();
        rc = call_deferred(d);
    }
    s->extra = 0;
    if (rc == 0 && started != VID_REQUEST_NULL) {
        ckpt_slot *t = back_slot(CKPT_KIND_REQUEST, started);
        s->real = t->real;
        s->extra = t->extra;
        flags |= t->a;
        ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, started, back.shared);
    } else {                                   // the call was said to be good: its request tells
        MPI_Request failed = MPI_REQUEST_NULL; // complete, when there is no memory for saying how
        back_done_request(&canon_empty, rc != 0 ? back_real_class((int)(rc & 0xff)) : MPI_ERR_OTHER, &failed);
        s->real = TO_REAL(failed);
        flags = REQUEST_DONE;
    }
    __atomic_store_n(&s->a, flags, __ATOMIC_RELEASE);
    forget(d);
    return rc;
}

// The k-th call on comm was refused when it was to start.  Those behind it move up.
static void withdraw_deferred(ckpt_clock *c, ckpt_vid comm, uint64_t k) {
    back_lock(LOCK_DEFERRED);
    for (struct deferred *d = deferred; d != NULL; d = d->next)
        if (d->comm == comm && d->k > k) d->k--;
    if (c != NULL) __atomic_sub_fetch(&c->call, 1, __ATOMIC_RELEASE);
    ckpt_coll_withdrawn(back.job, comm, k, 1);
    back_unlock(LOCK_DEFERRED);
}

// The next call that may start now; NULL when there is none.
static struct deferred *next_start(ckpt_vid *comm, uint64_t *k) {
    struct deferred *d = NULL;
    back_lock(LOCK_DEFERRED);
    while (d == NULL && ckpt_coll_start(back.job, comm, k)) {
        d = deferred;
        while (d != NULL && (d->comm != *comm || d->k != *k)) d = d->next;
    }
    back_unlock(LOCK_DEFERRED);
    return d;
}

void back_start_deferred(void) {
    ckpt_vid comm;
    uint64_t k;
    struct deferred *d;
    if (__builtin_expect(__atomic_load_n(&deferred, __ATOMIC_ACQUIRE) == NULL, 1) ||
        !back_trylock(LOCK_STARTING))
        return; // another thread is doing it
    while ((d = next_start(&comm, &k)) != NULL) {
        ckpt_clock *c = ckpt_clock_of(back.tables, comm);
        long rc = back_deferred_start(d);
        if (rc != 0 && back_refused(rc)) {
            withdraw_deferred(c, comm, k);
            continue;
        }
        if (c != NULL) __atomic_store_n(&c->ret, k, __ATOMIC_RELEASE);
        ckpt_coll_started(back.job, comm, k);
    }
    back_unlock(LOCK_STARTING);
}

// Allocates what a deferred call needs, before anybody relies on the call; NULL when memory is exhausted.
static struct deferred *prepare(int function, const long *a, ckpt_vid comm, uint64_t k) {
    struct deferred *d = deferred_of_call(function, a);
    if (d == NULL) return NULL;
    d->comm = comm;
    d->k = k;
    ckpt_vid promised = VID_COMM_NULL;
    int idup = function == NUMBER(COMM_IDUP);
    if (!idup || back_promise_comm((ckpt_vid)a[0], &promised) == 0) {
        if (back_new_request(MPI_REQUEST_NULL, REQUEST_PERSISTENT, 0, comm, &d->request) == 0) {
            if (idup) d->a[1] = promised;
            return d; // the request is none yet, should anybody look
        }
    }
    if (idup) back_comm_unborn((ckpt_vid)a[0], promised);
    back_deferred_free(d);
    return NULL;
}

static void unprepare(struct deferred *d) {
    if (d == NULL) return;
    back_give_id(CKPT_KIND_REQUEST, d->request);
    if (d->function == NUMBER(COMM_IDUP)) back_comm_unborn((ckpt_vid)d->a[0], (ckpt_vid)d->a[1]);
    back_deferred_free(d);
}

static long defer_locked(struct deferred *d, const long *a) {
    if (d->function == NUMBER(COMM_IDUP)) *(ckpt_vid *)a[1] = (ckpt_vid)d->a[1];
    *(ckpt_vid *)a[back_deferred_request_at(d->function)] = d->request;
    ckpt_slot *s = back_set_request(d->request, MPI_REQUEST_NULL, REQUEST_DEFERRED, 0, d->comm);
    bind_locked(d, s);
    back_calls_later();
    return 0;
}

int clocked_deferred(int function, const long *a, ckpt_vid comm, uint64_t k, long *rc) {
    struct deferred *d = prepare(function, a, comm, k);
    back_lock(LOCK_DEFERRED);
    // Without memory the call waits like a blocking one.  If this stops the program, the clock gives the epoch
    // up, and the program goes on.
    int mode = d != NULL ? CKPT_COLL_NONBLOCKING : CKPT_COLL_BLOCKING;
    int answer = ckpt_coll_call(back.job, comm, k, mode);
    if (answer == CKPT_COLL_DEFER) *rc = defer_locked(d, a);
    back_unlock(LOCK_DEFERRED);
    if (answer == CKPT_COLL_DEFER) return 1;
    unprepare(d);
    clocked_await(comm, k, mode, answer);
    return 0;
}
