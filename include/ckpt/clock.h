/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: collective calls on the hot path: count the call, look at the pending word.
 *
 * Calls on one communicator come one after the other, as MPI demands, so plain stores count them.
 * libckpt reads the counts only after it has set the pending word and then called
 * membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED).  So for every call either libckpt sees the count or
 * the caller sees the pending word, with no fence here: collclock/model/fence.pml has the proof,
 * the test of package ckpt races these functions with the reader.
 *
 *     ckpt_coll call;
 *     int answer = ckpt_coll_begin(job, comm, "MPI_Barrier", CKPT_COLL_BLOCKING, &call);
 *     while (answer == CKPT_COLL_WAIT)             never, unless a checkpoint is pending
 *         ... let MPI make progress ..., answer = ckpt_coll_permitted(job, comm, call.k);
 *     PMPI_Barrier(real);
 *     ... register communicators that the call made ...
 *     ckpt_coll_end(job, &call);
 *
 * Count first, look after, never the other way round (collclock/model/decide.pml).
 *
 * All functions are inline.  They take no lock, allocate nothing, and call nothing unless a
 * checkpoint is pending.
 */
#ifndef CKPT_CLOCK_H
#define CKPT_CLOCK_H

#include "ckpt/vid.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A call between begin and end.  clock is NULL when the call is on no communicator of the job: then it
 * counts nothing.  Freeing the communicator ends the call; there must be no ckpt_coll_end after it. */
typedef struct ckpt_coll {
    ckpt_clock *clock;
    uint64_t k; /* it is the k-th on its communicator (since the last restart) */
    ckpt_vid comm;
} ckpt_coll;

/* CKPT_PENDING_*, 0 while no checkpoint is asked for. */
static inline uint32_t ckpt_pending(const ckpt_tables *t) {
    return (uint32_t)__builtin_expect(__atomic_load_n(&t->pending, __ATOMIC_RELAXED), 0);
}

static inline ckpt_clock *ckpt_clock_of(const ckpt_tables *t, ckpt_vid comm) {
    const ckpt_slot *s = ckpt_vid_slot(t, CKPT_KIND_COMM, comm); /* the null handle has no counters */
    return s->counters ? &ckpt_comm_of(s)->clock : NULL;
}

/* Counts a collective call on comm, whose slot is s, by the thread that makes it; name is that of the
 * function, a constant, for people who ask what a rank is doing.  1: a checkpoint is pending, and
 * ckpt_coll_call must be asked before the call goes on. */
static inline int ckpt_coll_count_at(const ckpt_tables *t, const ckpt_slot *s, ckpt_vid comm,
                                     const char *name, ckpt_coll *call) {
    ckpt_clock *c = s->counters ? &ckpt_comm_of(s)->clock : NULL;
    call->clock = c;
    call->comm = comm;
    call->k = 0;
    if (__builtin_expect(c == NULL, 0)) return 0;
    call->k = c->call + 1;
    c->name = name;
    __atomic_store_n(&c->call, call->k, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the compiler keeps the order; the reader's membarrier
                                                makes the processor keep it */
    return (int)__builtin_expect(ckpt_pending(t) != 0, 0);
}

static inline int ckpt_coll_count(const ckpt_job *job, ckpt_vid comm, const char *name, ckpt_coll *call) {
    return ckpt_coll_count_at(job->tables, ckpt_vid_slot(job->tables, CKPT_KIND_COMM, comm), comm, name,
                              call);
}

/* Counts it, and asks when that is needed (CKPT_COLL_GATED: always).  Returns CKPT_COLL_ENTER, or what
 * ckpt_coll_call answers. */
static inline int ckpt_coll_begin(ckpt_job *job, ckpt_vid comm, const char *name, int mode, ckpt_coll *call) {
    int ask = ckpt_coll_count(job, comm, name, call);
    if (ask || (mode == CKPT_COLL_GATED && call->clock != NULL))
        return ckpt_coll_call(job, comm, call->k, mode);
    return CKPT_COLL_ENTER;
}

/* The call has returned (a non-blocking one: was started); what it made or freed is registered.
 * t is job->tables, for a caller that has it at hand. */
static inline void ckpt_coll_end_at(ckpt_job *job, const ckpt_tables *t, const ckpt_coll *call) {
    if (__builtin_expect(call->clock == NULL, 0)) return;
    __atomic_store_n(&call->clock->ret, call->k, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (ckpt_pending(t)) ckpt_coll_returned(job, call->comm, call->k);
}

/* In the place of ckpt_coll_end_at, for a call that failed before it took part in anything, as one with
 * wrong arguments does: the other members do not make it, so it is not counted. */
static inline void ckpt_coll_withdraw_at(ckpt_job *job, const ckpt_tables *t, const ckpt_coll *call) {
    if (__builtin_expect(call->clock == NULL, 0)) return;
    __atomic_store_n(&call->clock->call, call->k - 1, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (ckpt_pending(t)) ckpt_coll_withdrawn(job, call->comm, call->k, 0);
}

/* For a runtime that is saved with its program, in the place of ckpt_coll_permitted: asks again for a call that was told
 * to wait.  A checkpoint may have been made meanwhile, and after a restart calls are counted from 0, elsewhere. */
static inline int ckpt_coll_again(ckpt_job *job, int mode, ckpt_coll *call) {
    if (call->clock == NULL) return CKPT_COLL_ENTER;
    call->clock = ckpt_clock_of(job->tables, call->comm);
    if (call->clock == NULL) return CKPT_COLL_ENTER;
    uint64_t made = __atomic_load_n(&call->clock->call, __ATOMIC_RELAXED);
    if (made < call->k) {
        call->k = made + 1;
        __atomic_store_n(&call->clock->call, call->k, __ATOMIC_RELAXED);
    }
    return ckpt_coll_call(job, call->comm, call->k, mode);
}

static inline void ckpt_coll_end(ckpt_job *job, const ckpt_coll *call) {
    ckpt_coll_end_at(job, job->tables, call);
}

#ifdef __cplusplus
}
#endif
#endif
