// SPDX-License-Identifier: Apache-2.0
//
// slots.c: the slots of the tables.
#include "back/impl/slots.h"

ckpt_vid back_take_slow(ckpt_kind kind) {
    while (ckpt_vid_grow(back.job, kind) == 0) {
        ckpt_vid v = ckpt_vid_take(back.tables, kind, back.shared);
        if (v != CKPT_VID_NONE) return v;
    }
    return CKPT_VID_NONE;
}

static uint16_t known[2][CKPT_PAGES]; // of requests, of messages, by page; 0: not known

static uint16_t *known_of(ckpt_kind kind, uint32_t page) { return &known[kind == CKPT_KIND_MESSAGE][page]; }

// With threads, one may have taken a slot and not have counted its generation yet, while others have taken those
// behind it.  That many slots of generation 0 are in use at most: a thread for each, all stopped between the same two
// instructions of ckpt_vid_take.
enum { UNCOUNTED = 512 };

// How many slots of a page may have been given out.  Of requests and messages those that never were are taken from
// low to high (vid/memory.go and relink in image/load.c link them so), and their generation is 0: behind the first
// of them, past all that an image brought, there are no others.  To look at 4096 slots takes 5 us, as long as to
// duplicate a communicator, and each MPI_Comm_free does it.
static uint32_t given_out(ckpt_kind kind, uint32_t number, const ckpt_slot *page) {
    if (kind != CKPT_KIND_REQUEST && kind != CKPT_KIND_MESSAGE) return CKPT_PAGE_SLOTS;
    uint16_t *here = known_of(kind, number);
    uint32_t n = __atomic_load_n(here, __ATOMIC_RELAXED), first = number == 0 ? CKPT_VID_PREDEFINED : 1;
    if (n == 0)
        for (n = CKPT_PAGE_SLOTS; n > first && page[n - 1].generation == 0;) n--;
    int uncounted = back.shared ? UNCOUNTED : 0;
    for (uint32_t at = n; at < CKPT_PAGE_SLOTS; at++) {
        if (__atomic_load_n(&page[at].generation, __ATOMIC_RELAXED) != 0)
            n = at + 1;
        else if (uncounted-- == 0)
            break;
    }
    __atomic_store_n(here, (uint16_t)n, __ATOMIC_RELAXED);
    return n;
}

void back_slot_claimed(ckpt_kind kind, uint32_t index) {
    __atomic_store_n(known_of(kind, index / CKPT_PAGE_SLOTS), 0, __ATOMIC_RELAXED);
}

ckpt_slot *back_next_slot(ckpt_kind kind, uint32_t *i) {
    if (*i < CKPT_VID_PREDEFINED && kind != CKPT_KIND_COMM) *i = CKPT_VID_PREDEFINED;
    for (uint32_t number; (number = *i / CKPT_PAGE_SLOTS) < CKPT_PAGES; *i = (number + 1) * CKPT_PAGE_SLOTS) {
        ckpt_slot *page = back.tables->pages[kind][number];
        if (page == NULL) return NULL;
        for (uint32_t at = *i % CKPT_PAGE_SLOTS, end = given_out(kind, number, page); at < end; at++) {
            if (!(page[at].generation & 1) || (number == 0 && at == 0)) continue;
            *i = number * CKPT_PAGE_SLOTS + at + 1;
            return &page[at];
        }
    }
    return NULL;
}
