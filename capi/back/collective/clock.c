// SPDX-License-Identifier: Apache-2.0
//
// clock.c: collective calls, counted so that a checkpoint finds none of them half done.
//
// The hot path is that of ckpt/clock.h.  While a checkpoint is pending a blocking call waits before
// the real one until all members may go on, and a non-blocking one is deferred: it must never wait,
// so the application gets a request for a call that is started later.
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "back/collective/clocked.h"
#include "back/image/drain.h"
#include "back/file/file.h"
#include "back/gen/zz_collectives.h"

void back_progress(void) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, back.control, &flag, MPI_STATUS_IGNORE);
}

// In MPI_Finalize a rank may wait for the others as long as they compute, and they want the processor:
// after some turns it sleeps between them, as Open MPI does there.
static void rest(unsigned turn) {
    const struct timespec pause = {0, 100000};
    if (turn > 20 * BACK_SPIN) nanosleep(&pause, NULL);
}

static void await(ckpt_vid comm, uint64_t k, int mode, int answer) {
    for (unsigned turn = BACK_SPIN + 1; answer == CKPT_COLL_WAIT; turn++) {
        back_progress();
        if (mode == CKPT_COLL_GATED) rest(turn);
        back_turn(turn);
        answer = ckpt_coll_permitted(back.job, comm, k);
    }
}

void clocked_ask(ckpt_vid comm, uint64_t k, int mode) {
    await(comm, k, mode, ckpt_coll_call(back.job, comm, k, mode));
}

void back_gate(long comm, const char *name, int mode, ckpt_coll *call) {
    clocked_begin(back_slot(CKPT_KIND_COMM, comm), comm, name, mode, call);
}

void back_gate_return(const ckpt_coll *call, long rc) {
    if (rc != 0 && back_refused(rc))
        ckpt_coll_withdraw_at(back.job, back.tables, call);
    else
        ckpt_coll_end_at(back.job, back.tables, call);
}

void clocked_failed(ckpt_clock *clock, long comm, long rc) {
    if (clock == NULL) return;
    const ckpt_coll call = {clock, __atomic_load_n(&clock->call, __ATOMIC_RELAXED), (ckpt_vid)comm};
    back_gate_return(&call, rc);
}

// Classes that MPIs give for what they look at before they send or receive anything.  A failure on the way
// has another one: the message was too long, memory or disk ran out, a process is lost.
int back_refused(long rc) {
    switch (rc & 0xff) {
    case CANON_ERR(BUFFER):
    case CANON_ERR(COUNT):
    case CANON_ERR(TYPE):
    case CANON_ERR(TAG):
    case CANON_ERR(COMM):
    case CANON_ERR(RANK):
    case CANON_ERR(REQUEST):
    case CANON_ERR(ROOT):
    case CANON_ERR(GROUP):
    case CANON_ERR(OP):
    case CANON_ERR(TOPOLOGY):
    case CANON_ERR(DIMS):
    case CANON_ERR(ARG):
    case CANON_ERR(AMODE):
    case CANON_ERR(ASSERT):
    case CANON_ERR(BASE):
    case CANON_ERR(DISP):
    case CANON_ERR(FILE):
    case CANON_ERR(INFO):
    case CANON_ERR(INFO_KEY):
    case CANON_ERR(INFO_VALUE):
    case CANON_ERR(KEYVAL):
    case CANON_ERR(READ_ONLY):
    case CANON_ERR(RMA_SYNC):
    case CANON_ERR(SIZE):
    case CANON_ERR(UNSUPPORTED_DATAREP):
    case CANON_ERR(UNSUPPORTED_OPERATION):
    case CANON_ERR(WIN):
        return 1;
    default:
        return 0;
    }
}

// ---- deferred calls ----
// The application's request has no real one meanwhile: whoever tests it sees the flag and finds it
// not complete.  Any thread may start the call; the flag goes last, so that a thread that finds it
// gone finds the real request too.

// Those with a datatype for each peer, in arrays at 3 and 7 whose lengths are 10 and 11.
enum { W_ARGS = 12 };
static int is_w(int function) {
    return function == NUMBER(IALLTOALLW) || function == NUMBER(INEIGHBOR_ALLTOALLW);
}

static struct deferred *deferred; // that have no start yet
// Guards the list, and that libckpt names no call which is not on it yet.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
// Of the one thread that starts them: calls on one communicator start in order.
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

int deferred_request_at(int function, int nargs) { return is_w(function) ? 9 : nargs - 1; }

int deferred_sound(const struct deferred *d) {
    if (d->function == NUMBER(COMM_IDUP)) {
        const ckpt_slot *s = d->nargs == IDUP_ARGS ? back_slot(CKPT_KIND_COMM, d->a[1]) : NULL;
        return s != NULL && s != back.slots[CKPT_KIND_COMM] && s->extra == 0 &&
               (MPI_Comm)(uintptr_t)s->real == MPI_COMM_NULL;
    }
    return !is_w(d->function) ||
           (d->nargs >= W_ARGS && d->a[10] >= 0 && d->a[11] >= 0 && d->a[10] + d->a[11] == d->nargs - W_ARGS);
}

struct deferred *deferred_new(int function, const long *a, int nargs) {
    struct deferred *d = malloc(sizeof *d + (size_t)nargs * sizeof(long));
    int n = nargs - W_ARGS;
    if (d == NULL) return NULL;
    *d = (struct deferred){.function = function, .nargs = nargs};
    memcpy(d->a, a, (size_t)nargs * sizeof(long));
    if (is_w(function) && n >= 0) { // a start must not fail: the other members make theirs
        d->types = malloc((size_t)(n + 1) * sizeof *d->types);
        d->real_types = malloc((size_t)(n + 1) * sizeof *d->real_types);
        if (d->types == NULL || d->real_types == NULL) {
            deferred_free(d);
            return NULL;
        }
    }
    return d;
}

void deferred_free(struct deferred *d) {
    if (d == NULL) return;
    free(d->types);
    free(d->real_types);
    free(d);
}

// From the arguments of the call itself.
static struct deferred *deferred_of_call(int function, const long *a, int comm_at) {
    if (!is_w(function)) return deferred_new(function, a, clocked_request_at(function, comm_at) + 1);
    long n = W_ARGS + a[10] + a[11], *all = malloc((size_t)n * sizeof(long));
    if (all == NULL) return NULL;
    memcpy(all, a, W_ARGS * sizeof(long));
    for (long i = 0; i < a[10]; i++) all[W_ARGS + i] = ((const ckpt_vid *)a[3])[i];
    for (long i = 0; i < a[11]; i++) all[W_ARGS + a[10] + i] = ((const ckpt_vid *)a[7])[i];
    struct deferred *d = deferred_new(function, all, (int)n);
    free(all);
    return d;
}

// Makes the call, with arguments that are no longer needed.
static long call_deferred(struct deferred *d) {
    if (d->function == NUMBER(COMM_IDUP)) return back_idup_promised(d->a);
    if (!is_w(d->function)) return back_table[d->function](d->a);
    MPI_Datatype *t = d->real_types;
    for (int i = 0; i < d->nargs - W_ARGS; i++) d->types[i] = (ckpt_vid)d->a[W_ARGS + i];
    d->a[3] = (long)d->types;
    d->a[7] = (long)(d->types + d->a[10]);
    d->real_types = NULL; // they go with the request
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

void deferred_bind(struct deferred *d, ckpt_slot *s) {
    pthread_mutex_lock(&mutex);
    bind_locked(d, s);
    pthread_mutex_unlock(&mutex);
}

// ---- what deferred calls use ----
// The application may free a datatype or an operation at once; the real call needs it.  It is freed when
// no deferred call names it any more.  An argument that only looks like its id does no harm.  In an image
// it is an object like others, and stays after a restart.

static struct kept {
    struct kept *next;
    ckpt_vid v;
    ckpt_back_fn *free_it;
} * kept;

static int named_locked(ckpt_vid v) {
    for (const struct deferred *d = deferred; d != NULL; d = d->next)
        for (int i = 0; i < d->nargs; i++)
            if (d->a[i] == (long)v) return 1;
    return 0;
}

int deferred_keeps(ckpt_vid v, ckpt_back_fn *free_it) {
    if (__builtin_expect(__atomic_load_n(&deferred, __ATOMIC_ACQUIRE) == NULL, 1)) return 0;
    pthread_mutex_lock(&mutex);
    int named = named_locked(v);
    struct kept *k = named ? malloc(sizeof *k) : NULL;
    if (k != NULL) {
        *k = (struct kept){kept, v, free_it};
        kept = k;
    }
    pthread_mutex_unlock(&mutex);
    return named; // without memory for remembering it, it is never freed
}

// Forgets a call that was started, and frees what nobody names any more.
static void forget(struct deferred *done) {
    struct kept *gone = NULL;
    pthread_mutex_lock(&mutex);
    for (struct deferred **p = &deferred; *p != NULL; p = &(*p)->next)
        if (*p == done) {
            *p = done->next;
            break;
        }
    for (struct kept **p = &kept; *p != NULL;) {
        struct kept *k = *p;
        if (named_locked(k->v)) {
            p = &k->next;
            continue;
        }
        *p = k->next;
        k->next = gone;
        gone = k;
    }
    pthread_mutex_unlock(&mutex);
    deferred_free(done);
    while (gone != NULL) {
        struct kept *k = gone;
        const long a[] = {(long)&k->v};
        gone = k->next;
        k->free_it(a);
        free(k);
    }
}

struct deferred *deferred_of(const ckpt_slot *s) {
    return (struct deferred *)(uintptr_t)s->extra;
}

long deferred_start(struct deferred *d) {
    ckpt_vid started = VID_REQUEST_NULL;
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, d->request);
    d->a[deferred_request_at(d->function, d->nargs)] = (long)&started;
    int flags = clocked_flags(d->function, d->a);
    long rc = call_deferred(d);
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
    pthread_mutex_lock(&mutex);
    for (struct deferred *d = deferred; d != NULL; d = d->next)
        if (d->comm == comm && d->k > k) d->k--;
    if (c != NULL) __atomic_sub_fetch(&c->call, 1, __ATOMIC_RELEASE);
    ckpt_coll_withdrawn(back.job, comm, k, 1);
    pthread_mutex_unlock(&mutex);
}

// The next call that may start now; NULL when there is none.
static struct deferred *next_start(ckpt_vid *comm, uint64_t *k) {
    struct deferred *d = NULL;
    pthread_mutex_lock(&mutex);
    while (d == NULL && ckpt_coll_start(back.job, comm, k)) {
        d = deferred;
        while (d != NULL && (d->comm != *comm || d->k != *k)) d = d->next;
    }
    pthread_mutex_unlock(&mutex);
    return d;
}

void back_start_deferred(void) {
    ckpt_vid comm;
    uint64_t k;
    struct deferred *d;
    if (__builtin_expect(__atomic_load_n(&deferred, __ATOMIC_ACQUIRE) == NULL, 1) ||
        pthread_mutex_trylock(&starting) != 0)
        return; // another thread is at it
    while ((d = next_start(&comm, &k)) != NULL) {
        ckpt_clock *c = ckpt_clock_of(back.tables, comm);
        long rc = deferred_start(d);
        if (rc != 0 && back_refused(rc)) {
            withdraw_deferred(c, comm, k);
            continue;
        }
        if (c != NULL) __atomic_store_n(&c->ret, k, __ATOMIC_RELEASE);
        ckpt_coll_started(back.job, comm, k);
    }
    pthread_mutex_unlock(&starting);
}

// What a deferred call needs, taken before anybody relies on it; NULL when memory is out.
static struct deferred *prepare(int function, const long *a, int comm_at, ckpt_vid comm, uint64_t k) {
    struct deferred *d = deferred_of_call(function, a, comm_at);
    if (d == NULL) return NULL;
    d->comm = comm;
    d->k = k;
    if (back_new_request(MPI_REQUEST_NULL, REQUEST_PERSISTENT, 0, comm, &d->request) == 0)
        return d; // the request is none yet, should anybody look
    deferred_free(d);
    return NULL;
}

static void unprepare(struct deferred *d) {
    if (d != NULL) back_give_id(CKPT_KIND_REQUEST, d->request);
    deferred_free(d);
}

static long defer_locked(struct deferred *d, const long *a, int comm_at) {
    if (d->function == NUMBER(COMM_IDUP)) {
        ckpt_vid promised;
        long rc = back_promise_comm((ckpt_vid)a[0], &promised);
        if (rc != 0) {
            unprepare(d);
            return rc;
        }
        *(ckpt_vid *)a[1] = promised;
        d->a[1] = promised;
    }
    *(ckpt_vid *)a[clocked_request_at(d->function, comm_at)] = d->request;
    ckpt_slot *s = back_set_request(d->request, MPI_REQUEST_NULL, REQUEST_DEFERRED, 0, d->comm);
    bind_locked(d, s);
    return 0;
}

int clocked_deferred(int function, const long *a, int comm_at, ckpt_vid comm, uint64_t k, long *rc) {
    struct deferred *d = prepare(function, a, comm_at, comm, k);
    pthread_mutex_lock(&mutex);
    // Without memory it waits like a blocking call: a program to which that matters makes the clock give
    // up, by which it goes on.
    int mode = d != NULL ? CKPT_COLL_NONBLOCKING : CKPT_COLL_BLOCKING;
    int answer = ckpt_coll_call(back.job, comm, k, mode);
    if (answer == CKPT_COLL_DEFER) *rc = defer_locked(d, a, comm_at);
    pthread_mutex_unlock(&mutex);
    if (answer == CKPT_COLL_DEFER) return 1;
    unprepare(d);
    await(comm, k, mode, answer);
    return 0;
}

// ---- the functions that are written by hand: name, which argument is the communicator ----

#define BLOCKING(X)                                              \
    X(Alltoallw, ALLTOALLW, 8)                                   \
    X(Neighbor_alltoallw, NEIGHBOR_ALLTOALLW, 8)                 \
    X(Comm_dup, COMM_DUP, 0)                                     \
    X(Comm_dup_with_info, COMM_DUP_WITH_INFO, 0)                 \
    X(Comm_split, COMM_SPLIT, 0)                                 \
    X(Comm_split_type, COMM_SPLIT_TYPE, 0)                       \
    X(Comm_create, COMM_CREATE, 0)                               \
    X(Intercomm_merge, INTERCOMM_MERGE, 0)                       \
    X(Cart_create, CART_CREATE, 0)                               \
    X(Cart_sub, CART_SUB, 0)                                     \
    X(Graph_create, GRAPH_CREATE, 0)                             \
    X(Dist_graph_create, DIST_GRAPH_CREATE, 0)                   \
    X(Dist_graph_create_adjacent, DIST_GRAPH_CREATE_ADJACENT, 0) \
    X(Comm_spawn, COMM_SPAWN, 6)                                 \
    X(Comm_spawn_multiple, COMM_SPAWN_MULTIPLE, 6)               \
    X(Comm_accept, COMM_ACCEPT, 3)                               \
    X(Comm_connect, COMM_CONNECT, 3)                             \
    X(Win_create, WIN_CREATE, 4)                                 \
    X(Win_allocate, WIN_ALLOCATE, 4)                             \
    X(Win_allocate_shared, WIN_ALLOCATE_SHARED, 5)               \
    X(Win_create_dynamic, WIN_CREATE_DYNAMIC, 1)                 \
    X(File_open, FILE_OPEN, 0)

#define NONBLOCKING(X)                             \
    X(Ialltoallw, IALLTOALLW, 8)                   \
    X(Ineighbor_alltoallw, INEIGHBOR_ALLTOALLW, 8) \
    X(Comm_idup, COMM_IDUP, 0)

#define BY_HAND(name, NAME, comm)                           \
    long back_##name(const long *a);                        \
    static long call_##name(const long *a, MPI_Comm real) { \
        (void)real;                                         \
        return back_##name(a);                              \
    }
BLOCKING(BY_HAND)
NONBLOCKING(BY_HAND)
BLOCKING(CLOCKED_BLOCKING)
NONBLOCKING(CLOCKED_NONBLOCKING)

// Collective calls on a window are counted by a communicator of its own.
long back_Win_fence(const long *a);
long back_Win_free(const long *a);
static long on_window(ckpt_back_fn *fn, const char *name, const long *a, ckpt_vid comm) {
    ckpt_coll call;
    back_gate(comm, name, CKPT_COLL_BLOCKING, &call);
    long rc = fn(a);
    back_gate_return(&call, rc);
    return rc;
}
static long clocked_Win_fence(const long *a) {
    return on_window(back_Win_fence, "MPI_Win_fence", a, back_window_clock(a[1]));
}
static long clocked_Win_free(const long *a) {
    ckpt_vid comm = back_window_clock(*(ckpt_vid *)a[0]);
    long rc = on_window(back_Win_free, "MPI_Win_free", a, comm);
    if (rc == 0) back_window_clock_free(comm);
    return rc;
}

// Counted like the others: an image in which only some members have freed a communicator could not be
// continued, since all of them make it again.  The counters are gone with the communicator, so libckpt
// takes the freeing for the end of the call.
static long freeing(ckpt_back_fn *fn, const char *name, const long *a) {
    ckpt_coll call;
    back_gate(*(ckpt_vid *)a[0], name, CKPT_COLL_BLOCKING, &call);
    long rc = fn(a);
    if (rc != 0) back_gate_return(&call, rc);
    return rc;
}
long back_Comm_free(const long *a);
long back_Comm_disconnect(const long *a);
static long clocked_Comm_free(const long *a) { return freeing(back_Comm_free, "MPI_Comm_free", a); }
static long clocked_Comm_disconnect(const long *a) {
    back_buffered_wait(*(ckpt_vid *)a[0], "MPI_Comm_disconnect");
    return freeing(back_Comm_disconnect, "MPI_Comm_disconnect", a);
}

ckpt_back_fn *const *back_clocked_table(void) {
    static ckpt_back_fn *table[CKPT_FN_MPI_END - CKPT_FN_MPI];
    static int made;
    if (!BACK_COUNTS) return back_table;
    if (made) // the first call is that of ckptrun, before the application runs
        return table;
    made = 1;
    memcpy(table, back_table, sizeof table);
#define PUT(name, NAME, comm) table[NUMBER(NAME)] = clocked_##name;
#define PUT_COMMITTED(name, NAME, comm) table[NUMBER(NAME)] = committed_##name;
    if (back.host->two_phase) {
        BLOCKING(PUT_COMMITTED)
        GENERATED_BLOCKING(PUT_COMMITTED)
    } else {
        BLOCKING(PUT)
        GENERATED_BLOCKING(PUT)
    }
    NONBLOCKING(PUT)
    GENERATED_NONBLOCKING(PUT)
    back_file_functions(table);
    back_meet_functions(table);
    PUT(Win_fence, WIN_FENCE, 1)
    PUT(Win_free, WIN_FREE, 0)
    PUT(Comm_free, COMM_FREE, 0)
    PUT(Comm_disconnect, COMM_DISCONNECT, 0)
    return table;
}
