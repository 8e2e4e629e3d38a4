/* SPDX-License-Identifier: Apache-2.0
 *
 * vid.h: virtual ids on the hot path: look-up, and the ids of requests and messages.
 *
 * All functions are inline, take no lock, allocate nothing and call nothing.
 */
#ifndef CKPT_VID_H
#define CKPT_VID_H

#include "ckpt.h"

/* The slot of a live object of this kind, else the slot of the kind's null handle: the runtime then
 * reports the bad handle in its own words. */
static inline ckpt_slot *ckpt_vid_slot(const ckpt_tables *t, ckpt_kind kind, ckpt_vid vid) {
    ckpt_slot **pages = t->pages[kind];
    uint32_t index = CKPT_VID_INDEX(vid);
    ckpt_slot *page = pages[index / CKPT_PAGE_SLOTS];
    if (__builtin_expect(CKPT_VID_KIND(vid) == (uint32_t)kind && page != NULL, 1)) {
        ckpt_slot *slot = page + index % CKPT_PAGE_SLOTS;
        if (__builtin_expect(slot->generation & 1, 1)) return slot;
    }
    return pages[0];
}

static inline uint64_t ckpt_vid_real(const ckpt_job *job, ckpt_kind kind, ckpt_vid vid) {
    return ckpt_vid_slot(job->tables, kind, vid)->real;
}

/* Takes a free slot of a kind whose ids C gives out, and makes it live.  Returns its id, or
 * CKPT_VID_NONE when there is none: call ckpt_vid_grow and try again.  shared: other threads may
 * take or give at the same time. */
static inline ckpt_vid ckpt_vid_take(ckpt_tables *t, ckpt_kind kind, int shared) {
    uint64_t *list = &t->free[kind];
    uint64_t head = __atomic_load_n(list, __ATOMIC_ACQUIRE), next;
    ckpt_slot *slot;
    do {
        uint32_t index = (uint32_t)head & 0x0fffffffu;
        if (index == 0) return CKPT_VID_NONE;
        slot = t->pages[kind][index / CKPT_PAGE_SLOTS] + index % CKPT_PAGE_SLOTS;
        /* The count above the index makes a stale next harmless: the exchange then fails. */
        next = ((head >> 28) + 1) << 28 | __atomic_load_n(&slot->next, __ATOMIC_RELAXED);
        if (!shared) {
            *list = next;
            break;
        }
    } while (!__atomic_compare_exchange_n(list, &head, next, 1, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    slot->generation++;
    return CKPT_VID(kind, (uint32_t)head & 0x0fffffffu);
}

/* Gives a slot back; its id is stale from now on. */
static inline void ckpt_vid_give(ckpt_tables *t, ckpt_kind kind, ckpt_vid vid, int shared) {
    uint64_t *list = &t->free[kind];
    uint32_t index = CKPT_VID_INDEX(vid);
    ckpt_slot *slot = t->pages[kind][index / CKPT_PAGE_SLOTS] + index % CKPT_PAGE_SLOTS;
    uint64_t head = __atomic_load_n(list, __ATOMIC_RELAXED), next;
    slot->real = 0;
    slot->generation++;
    do {
        __atomic_store_n(&slot->next, head & 0x0fffffffu, __ATOMIC_RELAXED);
        next = ((head >> 28) + 1) << 28 | index;
        if (!shared) {
            *list = next;
            break;
        }
    } while (!__atomic_compare_exchange_n(list, &head, next, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/* Counts a message of a communicator (slot of a live one).  peer is a rank of it. */
static inline void ckpt_count(uint64_t *counter, int shared) {
    if (shared)
        __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    else
        ++*counter;
}

static inline ckpt_comm_counters *ckpt_comm_of(const ckpt_slot *slot) {
    return (ckpt_comm_counters *)(uintptr_t)slot->counters;
}

static inline void ckpt_sent(const ckpt_slot *comm, int peer, int shared) {
    ckpt_count(&ckpt_comm_of(comm)->peer[peer].sent, shared);
}

static inline void ckpt_received(const ckpt_slot *comm, int peer, int shared) {
    ckpt_count(&ckpt_comm_of(comm)->peer[peer].received, shared);
}

#endif
