// SPDX-License-Identifier: Apache-2.0
//
// posted.h: what receives were posted with, for a restart.
#ifndef CKPT_BACK_POSTED_H
#define CKPT_BACK_POSTED_H

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

// What a receive was posted with.
struct posted {
    void *buf;
    uint64_t serial;        // order of posting
    int count, source, tag; // canonical
    ckpt_vid type;
    uint32_t type_generation, comm_generation;
};

extern struct posted *back_posted_pages[CKPT_PAGES];
struct posted *back_posted_page(uint32_t page) __attribute__((cold)); // NULL when out of memory
static inline struct posted *back_posted_of(ckpt_vid request) {
    uint32_t index = CKPT_VID_INDEX(request);
    struct posted *page = back_posted_pages[index / CKPT_PAGE_SLOTS];
    if (__builtin_expect(page == NULL, 0) && (page = back_posted_page(index / CKPT_PAGE_SLOTS)) == NULL)
        return NULL;
    return page + index % CKPT_PAGE_SLOTS;
}
extern uint64_t back_posted_serial;

// Freeing a datatype that no request was made with needs no look (keep.c).
enum { BACK_RECEIVED_WITH = 1 };
static inline void back_receives_with(ckpt_slot *type) {
    if (__builtin_expect(type->b == 0, 0)) type->b = BACK_RECEIVED_WITH;
}

// Remembers what MPI_Irecv was called with (buf, count, type, source, tag, comm), for a restart.
static inline void back_posted(ckpt_vid request, const long *a, ckpt_slot *type, const ckpt_slot *comm) {
    struct posted *p = back_posted_of(request);
    if (p == NULL) return; // posted_holds (holds.c) misses it: the receive holds a checkpoint back
    back_receives_with(type);
    p->buf = (void *)a[0];
    p->serial = __builtin_expect(back.shared, 0)
                    ? __atomic_add_fetch(&back_posted_serial, 1, __ATOMIC_RELAXED)
                    : ++back_posted_serial;
    p->count = (int)a[1];
    p->source = (int)a[3];
    p->tag = (int)a[4];
    p->type = (ckpt_vid)a[2];
    p->type_generation = type->generation;
    p->comm_generation = comm->generation;
}

#pragma GCC visibility pop

#endif
