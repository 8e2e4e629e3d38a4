// SPDX-License-Identifier: Apache-2.0
//
// clocked.h: a collective call between its two counters.
//
// This header is included where the calls are (gen/zz_coll.c), so that the compiler makes one function of
// the counting and the call.  Code that runs only while a checkpoint is pending is in clock.c and
// deferred.c.
#ifndef CKPT_BACK_CLOCKED_H
#define CKPT_BACK_CLOCKED_H

#include "back/impl/error.h"
#include "back/collective/op.h"
#include "back/collective/twophase.h"
#include "back/gen/zz_nonblocking.h"
#include "back/request/request.h"

#pragma GCC visibility push(hidden)

// Asks libckpt, and waits until the k-th call on comm may go on.  It takes values, not a pointer to the call:
// a variable whose address is taken would be in memory, also on the hot path.
__attribute__((cold)) void clocked_ask(ckpt_vid comm, uint64_t k, int mode);
// Waits until the answer to such a question is no longer CKPT_COLL_WAIT.
__attribute__((cold)) void clocked_await(ckpt_vid comm, uint64_t k, int mode, int answer);
// The same for a call that must never wait.  1: the call is started later, and returns *rc now.
__attribute__((cold)) int clocked_deferred(int function, const long *a, ckpt_vid comm, uint64_t k, long *rc);

#define NUMBER(NAME) (CKPT_FN_MPI_##NAME - CKPT_FN_MPI)

// The words of a call that may be deferred: the index of the word for its request's id, the index of its
// operation (-1: it has none), and whether there are arrays of datatypes.
struct clocked_words {
    int request, op, arrays;
};
static inline struct clocked_words clocked_words(int function) {
    switch (function) {
#define X(NAME, request, op, arrays) \
    case NUMBER(NAME):               \
        return (struct clocked_words){request, op, arrays};
        NONBLOCKING_FUNCTIONS(X)
#undef X
    default: // deferred by nobody
        return (struct clocked_words){-1, -1, 0};
    }
}

// Flags that the request of a call gets besides the usual ones.
static inline int clocked_flags(int function, const long *a) {
    int op = clocked_words(function).op;
    return op >= 0 && CKPT_VID_INDEX((ckpt_vid)a[op]) >= CKPT_VID_PREDEFINED ? REQUEST_USER_OP : 0;
}

// comm is what slot s belongs to.
static inline __attribute__((always_inline)) void clocked_begin(const ckpt_slot *s, long comm,
                                                                const char *name, int mode, ckpt_coll *call) {
    int ask = ckpt_coll_count_at(back.tables, s, (ckpt_vid)comm, name, call);
    if (ask || (mode == CKPT_COLL_GATED && call->clock != NULL)) clocked_ask(call->comm, call->k, mode);
}

// The last call that the clock has counted has returned: calls on one communicator come one after the
// other, so that nothing but the clock need be kept in a register while the call lasts.
static inline __attribute__((always_inline)) void clocked_end(ckpt_clock *clock, long comm) {
    if (__builtin_expect(clock == NULL, 0)) return;
    const ckpt_coll call = {clock, __atomic_load_n(&clock->call, __ATOMIC_RELAXED), (ckpt_vid)comm};
    ckpt_coll_end_at(back.job, back.tables, &call);
}

// The same for a call that failed.  One that the real MPI refused took part in nothing: the others do not
// make it, and it is not counted.
__attribute__((cold)) void clocked_failed(ckpt_clock *clock, long comm, long rc);

// The call itself; the communicator was looked up to count it.
typedef long clocked_fn(const long *a, MPI_Comm comm);

static inline __attribute__((always_inline)) long clocked_blocking(clocked_fn *fn, const char *name,
                                                                   const long *a, int comm_at) {
    ckpt_coll call;
    const ckpt_slot *s = back_slot(CKPT_KIND_COMM, a[comm_at]);
    clocked_begin(s, a[comm_at], name, CKPT_COLL_BLOCKING, &call);
    long rc = fn(a, (MPI_Comm)(uintptr_t)s->real);
    if (__builtin_expect(rc != 0, 0))
        clocked_failed(call.clock, a[comm_at], rc);
    else
        clocked_end(call.clock, a[comm_at]);
    return rc;
}

static inline __attribute__((always_inline)) long clocked_nonblocking(clocked_fn *fn, int function,
                                                                      const char *name, const long *a,
                                                                      int comm_at) {
    ckpt_coll call;
    const ckpt_slot *s = back_slot(CKPT_KIND_COMM, a[comm_at]);
    long rc;
    if (ckpt_coll_count_at(back.tables, s, (ckpt_vid)a[comm_at], name, &call) &&
        clocked_deferred(function, a, call.comm, call.k, &rc))
        return rc;
    rc = fn(a, (MPI_Comm)(uintptr_t)s->real);
    if (__builtin_expect(rc != 0, 0)) {
        clocked_failed(call.clock, a[comm_at], rc);
        return rc;
    }
    int flags = clocked_flags(function, a);
    if (__builtin_expect(flags != 0, 0)) {
        back_slot(CKPT_KIND_REQUEST, *(ckpt_vid *)a[clocked_words(function).request])->a |= flags;
        back_calls_later();
    }
    clocked_end(call.clock, a[comm_at]);
    return rc;
}

// What the table has for a function call_NAME: its number is NUMBER(NAME), its communicator a[comm].
#define CLOCKED_BLOCKING(name, NAME, comm)                                                         \
    __attribute__((flatten)) long clocked_##name(const long *a) {                                  \
        return clocked_blocking(call_##name, "MPI_" #name, a, comm);                               \
    }                                                                                              \
    long committed_##name(const long *a) {                                                         \
        back_two_phase(a[comm], "MPI_" #name);                                                     \
        return back_two_phase_done(a[comm], clocked_blocking(call_##name, "MPI_" #name, a, comm)); \
    }
#define CLOCKED_NONBLOCKING(name, NAME, comm)                                         \
    __attribute__((flatten)) long clocked_##name(const long *a) {                     \
        return clocked_nonblocking(call_##name, NUMBER(NAME), "MPI_" #name, a, comm); \
    }

#pragma GCC visibility pop

#endif
