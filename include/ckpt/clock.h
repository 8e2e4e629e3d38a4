/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: collective clocks on the hot path: count a call, look at the pending
 * word.
 *
 * Each communicator, window, file and persistent collective request has one
 * clock (in ckpt_slot.clock its index).  The thread that makes a collective
 * call counts it; calls on one clock come one after the other, as MPI demands,
 * so plain stores do.  The helper reads the counts only after it has set the
 * pending word and then called membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED). So
 * for every call either the helper sees the count or the caller sees the
 * pending word, with no fence here (collclock/model/fence.pml has the proof,
 * collclock/table the test).
 *
 *     if (ckpt_coll_begin(c, pending))        2 stores, 1 load, 1 branch
 * together with end
 *         ... slow path: tell the machine call c->call, do what it answers ...
 *     PMPI_Barrier(real);
 *     ... register communicators that the call made ...
 *     if (ckpt_coll_end(c, pending))
 *         ... tell the machine that call c->ret has returned ...
 *
 * Count first, look after: never the other way round
 * (collclock/model/decide.pml).
 *
 * All functions are inline, take no lock, allocate nothing and call nothing.
 * Layout is asserted by collclock/table.
 */
#ifndef CKPT_CLOCK_H
#define CKPT_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One clock.  32 bytes, so two share a cache line.  Not saved: filled afresh on
 * restart. */
typedef struct ckpt_clock {
  uint64_t call; /* calls made; written by the calling thread */
  uint64_t ret;  /* calls that have returned (non-blocking: been started); the
                    calling thread */
  uint64_t lim;  /* calls that may start although a checkpoint is pending; the
                    helper */
  uint64_t open; /* requests of started calls that were not found complete;
                    calling threads */
} ckpt_clock;

#define CKPT_CLOCK_PAGE 1024u                   /* clocks of one page */
#define CKPT_CLOCKS_MAGIC 0x314b434f4c435043ull /* "CPCLOCK1" */
#define CKPT_CLOCKS_VERSION 1u

/* All clocks of a process.  Pages are added, never moved. */
typedef struct ckpt_clocks {
  uint64_t magic;          /* CKPT_CLOCKS_MAGIC */
  uint32_t version, bytes; /* CKPT_CLOCKS_VERSION, sizeof(ckpt_clocks) */
  ckpt_clock **pages;      /* pages[index / CKPT_CLOCK_PAGE] */
} ckpt_clocks;

/* The clock with an index that the job gave out. */
static inline ckpt_clock *ckpt_clock_at(const ckpt_clocks *t, uint32_t index) {
  return t->pages[index / CKPT_CLOCK_PAGE] + index % CKPT_CLOCK_PAGE;
}

/* Counts a collective call, which then is call c->call.  Returns 0: go on into
 * MPI; 1: a checkpoint is pending, and the machine must be asked.  Not for
 * always-gated calls (Finalize, Comm_disconnect, Intercomm_create, ...): the
 * machine's side counts those, under its lock.  pending is
 * &ckpt_tables.pending. */
static inline int ckpt_coll_begin(ckpt_clock *c, const uint32_t *pending) {
  __atomic_store_n(&c->call, c->call + 1, __ATOMIC_RELAXED);
  __atomic_signal_fence(
      __ATOMIC_SEQ_CST); /* the compiler keeps the order; the helper's
                            membarrier makes the CPU keep it */
  return __builtin_expect(__atomic_load_n(pending, __ATOMIC_RELAXED) != 0, 0);
}

/* Counts the return of that call (non-blocking: of its start).  Whatever it
 * made or freed must be registered before.  Returns 1 when the machine must be
 * told. */
static inline int ckpt_coll_end(ckpt_clock *c, const uint32_t *pending) {
  __atomic_store_n(&c->ret, c->ret + 1, __ATOMIC_RELEASE);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  return __builtin_expect(__atomic_load_n(pending, __ATOMIC_RELAXED) != 0, 0);
}

/* A thread that waits at the gate with call k looks here between two rounds of
 * MPI progress. */
static inline int ckpt_coll_permitted(const ckpt_clock *c, uint64_t k) {
  return k <= __atomic_load_n(&c->lim, __ATOMIC_ACQUIRE);
}

/* A non-blocking call left a request; a request was found complete.  Threads
 * may test requests of one clock at the same time, hence shared. */
static inline void ckpt_coll_opened(ckpt_clock *c, int shared) {
  if (shared)
    __atomic_fetch_add(&c->open, 1, __ATOMIC_RELAXED);
  else
    __atomic_store_n(&c->open, c->open + 1, __ATOMIC_RELAXED);
}

static inline void ckpt_coll_completed(ckpt_clock *c, int shared) {
  if (shared)
    __atomic_fetch_sub(&c->open, 1, __ATOMIC_RELAXED);
  else
    __atomic_store_n(&c->open, c->open - 1, __ATOMIC_RELAXED);
}

#ifdef __cplusplus
}
#endif
#endif
