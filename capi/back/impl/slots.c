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

ckpt_slot *back_next_slot(ckpt_kind kind, uint32_t *i) {
    if (*i < CKPT_VID_PREDEFINED && kind != CKPT_KIND_COMM) *i = CKPT_VID_PREDEFINED;
    for (; *i / CKPT_PAGE_SLOTS < CKPT_PAGES; ++*i) {
        ckpt_slot *page = back.tables->pages[kind][*i / CKPT_PAGE_SLOTS];
        if (page == NULL) return NULL;
        if (page[*i % CKPT_PAGE_SLOTS].generation & 1 && *i != 0) return &page[(*i)++ % CKPT_PAGE_SLOTS];
    }
    return NULL;
}
