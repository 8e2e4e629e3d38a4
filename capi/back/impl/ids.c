// SPDX-License-Identifier: Apache-2.0
//
// ids.c: reserved ids of one kind, which a back gives out itself.
#include <stdlib.h>

#include "back/impl/ids.h"

// A freed id is given out again after at least this many others; until then a use of the freed id is recognized as
// stale.
enum { SPARE = 64 };

void back_ids_give(struct back_ids *ids, ckpt_vid vid) {
    if (ids->n == ids->room) {
        uint32_t room = ids->room ? 2 * ids->room : 2 * IDS_AT_A_TIME;
        ckpt_vid *grown = malloc(room * sizeof *grown);
        if (grown == NULL) return;
        for (uint32_t i = 0; i < ids->n; i++) grown[i] = ids->id[(ids->first + i) % ids->room];
        free(ids->id);
        ids->id = grown;
        ids->room = room;
        ids->first = 0;
    }
    ids->id[(ids->first + ids->n++) % ids->room] = vid;
}

ckpt_vid back_ids_take(struct back_ids *ids) {
    if (ids->n <= SPARE) {
        ckpt_vid more[IDS_AT_A_TIME];
        int n = ids->reserve(more, IDS_AT_A_TIME);
        for (int i = 0; i < n; i++) back_ids_give(ids, more[i]);
    }
    if (ids->n == 0) return CKPT_VID_NONE;
    ckpt_vid vid = ids->id[ids->first];
    ids->first = (ids->first + 1) % ids->room;
    ids->n--;
    return vid;
}
