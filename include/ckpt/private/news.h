/* SPDX-License-Identifier: Apache-2.0
 *
 * news.h: what a back tells libckpt-core.so of communicators, in memory.
 *
 * A call into Go costs some microseconds, and wakes threads of Go's that take the processor from the ranks: too much
 * for programs that make and free communicators in their inner loops.  So the back gives reserved ids to its
 * communicators, and puts what there is to say of them into a ring.  Go takes it from there when it must know: when
 * a checkpoint is asked for, when any other call comes in, and when the ring is full.  Go reads the ring on threads of
 * its own, while the program runs.
 *
 *     back:  fill a record -> put++ -> look at the pending word: when it is set, ckpt_core_comm_news
 *     Go:    set the pending word -> membarrier -> take all up to put
 *
 * One of the two sees the other, by the argument of ckpt/clock.h.  A record that is MADE belongs to who changes it
 * first: Go to TAKEN, and the communicator is then one as ckpt_vid_new makes them; or the back to GONE, and its id is
 * the back's again.  Of one that Go knows the back puts in a record that it is FREED, with its slot stale already; or
 * that it is NAMED.  vid/layout_test.go compares the layout with Go's.
 */
#ifndef CKPT_PRIVATE_NEWS_H
#define CKPT_PRIVATE_NEWS_H

#include "ckpt.h"

/* A call into Go from a thread of the program's has Go's sysmon look 60 times whether it comes back, within 10 ms: each
 * look takes a processor from a rank.  So there are few such calls. */
#define NEWS_RING 512u

enum news_state { NEWS_MADE = 1, NEWS_GONE = 2, NEWS_TAKEN = 3, NEWS_FREED = 4, NEWS_NAMED = 5 };

/* What there is to say of a communicator.  What the pointers point to stays until the record is used again. */
struct news {
    uint32_t state; /* enum news_state; atomic */
    ckpt_vid vid;   /* MADE: reserved; its slot is live as long as this is so */
    uint64_t identity;
    uint64_t calls; /* GONE, FREED: collective calls that were made on it, the last one is the freeing one */
    uint64_t real;  /* FREED: what the slot had */
    const void *descriptor; /* as for ckpt_vid_new; NAMED: the name */
    uint64_t bytes;
    const int32_t *peers, *members; /* as for ckpt_comm_describe and ckpt_comm_set_members */
    int32_t npeers, nmembers;
    int32_t room; /* peers that its counters have room for */
    int32_t unused;
};

struct news_ring {
    uint32_t put;   /* records that were ever put in; the back's */
    uint32_t taken; /* and taken out; Go's */
    struct news of[NEWS_RING];
};

/* Ids for communicators, as ckpt_vid_reserve gives them; slot.counters of each has room for so many peers. */
int ckpt_core_comm_reserve(ckpt_job *job, ckpt_vid *ids, int n, int peers);

/* Takes what is in the ring.  libckpt looks into it by itself from the first call on, until the process ends. */
int ckpt_core_comm_news(ckpt_job *job, struct news_ring *ring);

#endif
