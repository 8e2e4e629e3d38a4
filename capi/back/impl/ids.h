// SPDX-License-Identifier: Apache-2.0
//
// ids.h: reserved ids of one kind, which a back gives out itself.
#ifndef CKPT_BACK_IDS_H
#define CKPT_BACK_IDS_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

enum { IDS_AT_A_TIME = 128 }; // that are reserved

// A ring: freed ids go to its end.  The caller has a mutex for it.
struct back_ids {
    int (*reserve)(ckpt_vid *ids, int n); // as ckpt_vid_reserve
    ckpt_vid *id;
    uint32_t room, first, n; // of the ring, the next id to give out, how many there are
};

// An id that was given back a while ago, or never given out; CKPT_VID_NONE: there is none.
ckpt_vid back_ids_take(struct back_ids *ids);
// The id is nobody's any more.  When memory is out it is lost until a restart.
void back_ids_give(struct back_ids *ids, ckpt_vid vid);

#pragma GCC visibility pop

#endif
