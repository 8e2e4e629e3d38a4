// SPDX-License-Identifier: Apache-2.0
//
// handles.h: virtual ids, and the real handles that they stand for.
#ifndef CKPT_BACK_HANDLES_H
#define CKPT_BACK_HANDLES_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

#define TO_REAL(handle) ((uint64_t)(uintptr_t)(handle))

// ckpt_vid_slot, with two loads less for the ids of the first page.
static inline ckpt_slot *back_slot(ckpt_kind kind, long vid) {
    uint32_t i = (ckpt_vid)vid - CKPT_VID(kind, 0);
    ckpt_slot *slot = back.slots[kind] + i;
    if (__builtin_expect(i < CKPT_PAGE_SLOTS && slot->generation & 1, 1)) return slot;
    return ckpt_vid_slot(back.tables, kind, (ckpt_vid)vid);
}

// Whether an id still names the object that it named when its slot had this generation.  back_slot gives the
// slot of the null handle for an id that was freed, and that slot may have the same generation.
static inline int back_same(ckpt_kind kind, ckpt_vid vid, uint32_t generation) {
    const ckpt_slot *s = back_slot(kind, vid);
    return s != back.tables->pages[kind][0] && s->generation == generation;
}
static inline MPI_Comm real_comm(long v) { return (MPI_Comm)(uintptr_t)back_slot(CKPT_KIND_COMM, v)->real; }
static inline MPI_Datatype real_type(long v) {
    return (MPI_Datatype)(uintptr_t)back_slot(CKPT_KIND_DATATYPE, v)->real;
}
static inline MPI_Op real_op(long v) { return (MPI_Op)(uintptr_t)back_slot(CKPT_KIND_OP, v)->real; }

static inline MPI_Win real_win(long v) { return (MPI_Win)(uintptr_t)back_slot(CKPT_KIND_WIN, v)->real; }
static inline MPI_File real_file(long v) { return (MPI_File)(uintptr_t)back_slot(CKPT_KIND_FILE, v)->real; }

#pragma GCC visibility pop

#endif
