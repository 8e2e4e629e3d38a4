// SPDX-License-Identifier: Apache-2.0
//
// slots.h: giving out ids, and going through those that are given out.
#ifndef CKPT_BACK_SLOTS_H
#define CKPT_BACK_SLOTS_H

#include "back/impl/error.h"
#include "back/impl/handles.h"

#pragma GCC visibility push(hidden)

// The i-th slot of a kind that is given out, from *i on; NULL at the end.
ckpt_slot *back_next_slot(ckpt_kind kind, uint32_t *i);

// A slot of requests or messages was made live out of turn: an image has it.
void back_slot_claimed(ckpt_kind kind, uint32_t index);

// A fresh id of a request or message, CKPT_VID_NONE when memory is out.
ckpt_vid back_take_slow(ckpt_kind kind) __attribute__((cold));
static inline ckpt_vid back_take_id(ckpt_kind kind) {
    ckpt_vid v = ckpt_vid_take(back.tables, kind, back.shared);
    return __builtin_expect(v != CKPT_VID_NONE, 1) ? v : back_take_slow(kind);
}

// Gives back an id that no object got.
static inline void back_give_id(ckpt_kind kind, ckpt_vid v) {
    ckpt_vid_give(back.tables, kind, v, back.shared);
}

#pragma GCC visibility pop

#endif
