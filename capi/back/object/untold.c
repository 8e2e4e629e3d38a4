// SPDX-License-Identifier: Apache-2.0
//
// untold.c: communicators that libckpt has not heard of yet (untold.h draws their life).
#include <stdlib.h>

#include "back/impl/handles.h"
#include "back/impl/ids.h"
#include "back/impl/lock.h"
#include "back/object/untold.h"

// To tell libckpt of a communicator at once is little beside making one of so many members, and reserved ids have
// counters for all of MPI_COMM_WORLD.
enum { MOST_PEERS = 1024 };

// In the slot of a communicator that libckpt hears of by the ring; 0: it was told at once, or comes from an image.
enum { OURS = 1 };

// All below: under LOCK_NEWS, when back.shared.
static struct news_ring ring;
static int listening; // libckpt knows the ring

static void lock(void) {
    if (back.shared) back_lock(LOCK_NEWS);
}

static void unlock(void) {
    if (back.shared) back_unlock(LOCK_NEWS);
}

// ---- ids ----

static int reserve(ckpt_vid *vids, int n) {
    listening = ckpt_core_comm_news(back.job, &ring) == 0;
    return ckpt_core_comm_reserve(back.job, vids, n, back.size);
}

static struct back_ids ids = {.reserve = reserve};

// The slot of an id, live or not.  That of a reserved id keeps its counters.
static ckpt_slot *slot_of(ckpt_vid vid) {
    uint32_t i = CKPT_VID_INDEX(vid);
    return back.tables->pages[CKPT_KIND_COMM][i / CKPT_PAGE_SLOTS] + i % CKPT_PAGE_SLOTS;
}

static void give_id(ckpt_vid vid) {
    ckpt_slot *s = slot_of(vid);
    s->real = 0;
    s->generation++;
    back_ids_give(&ids, vid);
}

ckpt_vid untold_new(MPI_Comm comm, const struct untold_comm *c) {
    if (back.size > MOST_PEERS || c->npeers > back.size) return CKPT_VID_NONE;
    lock();
    ckpt_vid vid = back_ids_take(&ids);
    unlock();
    if (vid == CKPT_VID_NONE) return CKPT_VID_NONE;
    ckpt_slot *s = slot_of(vid);
    memset(ckpt_comm_of(s), 0, sizeof(ckpt_comm_counters) + (size_t)c->npeers * sizeof(ckpt_bookmark));
    s->real = TO_REAL(comm);
    s->clock = OURS;
    s->rank = c->rank;
    s->size = c->size;
    s->generation++;
    return vid;
}

void untold_forget(ckpt_vid vid) {
    lock();
    give_id(vid);
    unlock();
}

// ---- the ring ----

static void empty(struct news *r) {
    free((void *)r->descriptor);
    if (r->members != r->peers) free((void *)r->members);
    free((void *)r->peers);
}

// Records are used again in the order in which libckpt takes them.
static void put(struct news record) {
    if (ring.put - __atomic_load_n(&ring.taken, __ATOMIC_ACQUIRE) == NEWS_RING)
        ckpt_core_comm_news(back.job, &ring);
    struct news *r = &ring.of[ring.put % NEWS_RING];
    empty(r);
    *r = record;
    __atomic_store_n(&ring.put, ring.put + 1, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); // the rest is done by libckpt's membarrier
    if (back_pending()) ckpt_core_comm_news(back.job, &ring);
}

void untold_tell(ckpt_vid vid, const struct untold_comm *c) {
    lock();
    put((struct news){.state = NEWS_MADE,
                      .vid = vid,
                      .identity = c->identity,
                      .descriptor = c->words,
                      .bytes = 4 * c->n,
                      .peers = c->peers,
                      .members = c->members,
                      .npeers = c->npeers,
                      .nmembers = c->nmembers,
                      .room = back.size});
    unlock();
}

// 1: libckpt has not heard of the communicator yet, and will hear that it is gone.
static int gone(ckpt_vid vid, uint64_t calls) {
    // What libckpt has taken is not MADE any more.
    for (uint32_t i = ring.put, taken = __atomic_load_n(&ring.taken, __ATOMIC_ACQUIRE); i-- != taken;) {
        struct news *r = &ring.of[i % NEWS_RING];
        uint32_t made = NEWS_MADE;
        if (r->vid != vid || __atomic_load_n(&r->state, __ATOMIC_RELAXED) != NEWS_MADE) continue;
        r->calls = calls;
        return __atomic_compare_exchange_n(&r->state, &made, NEWS_GONE, 0, __ATOMIC_ACQ_REL,
                                           __ATOMIC_RELAXED);
    }
    return 0;
}

void comm_free(ckpt_vid vid) {
    lock();
    ckpt_slot *s = slot_of(vid);
    uint64_t real = s->real, calls = s->counters ? ckpt_comm_of(s)->clock.call : 0;
    if (gone(vid, calls)) {
        give_id(vid);
    } else if (s->clock == OURS) {
        s->real = 0;
        s->generation++;
        put((struct news){.state = NEWS_FREED, .vid = vid, .real = real, .calls = calls});
    } else {
        ckpt_vid_free(back.job, vid);
    }
    unlock();
}

void comm_name(ckpt_vid vid, const char *name) {
    lock();
    char *copy = listening ? strdup(name) : NULL;
    if (copy != NULL)
        put((struct news){.state = NEWS_NAMED, .vid = vid, .descriptor = copy, .bytes = strlen(copy)});
    else
        ckpt_vid_set_name(back.job, vid, name);
    unlock();
}
