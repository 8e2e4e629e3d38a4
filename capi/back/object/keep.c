// SPDX-License-Identifier: Apache-2.0
//
// keep.c: datatypes that were freed while a request would still need them in a restart.
//
//   MPI_Type_free ── a pending receive or a persistent request uses the datatype? ── no ──► freed
//                         │ yes                                                              ▲
//                         ▼                                                                  │
//                       kept ── look: none of these requests is left ────────────────────────┘
//
// The real MPI keeps what it needs of a freed datatype, but a restart posts the receive again, with the
// datatype's id.  So the datatype is kept, though the application cannot name it any more.  This file holds
// the list of kept datatypes, and gives each up when a look finds no request that uses it.  It looks through
// all requests when another datatype is freed that was ever received with, and when a checkpoint is made; the
// calls that receive do nothing for this.
#include <stdlib.h>

#include "back/impl/lock.h"
#include "back/object/fresh.h"
#include "back/object/keep.h"
#include "back/request/persistent.h"
#include "back/request/posted.h"

// What is known of a datatype's use, in b of its slot.
enum { KEPT = BACK_RECEIVED_WITH + 1, NEEDED };

// The list, under LOCK_PERSISTENT.
static ckpt_vid *kept;
static int count, room, unseen; // unseen: how many of the kept ones were freed after the last look

static int is_kept(ckpt_vid v) {
    for (int i = 0; i < count; i++)
        if (kept[i] == v) return 1;
    return 0;
}

static int append(ckpt_vid v) {
    if (count == room) {
        ckpt_vid *grown = realloc(kept, (size_t)(2 * room + 16) * sizeof *kept);
        if (grown == NULL) return 0;
        kept = grown;
        room = 2 * room + 16;
    }
    kept[count++] = v;
    return 1;
}

// The slot of the datatype with which a restart would post the request again; NULL when it would not.
static ckpt_slot *type_of(const ckpt_slot *s, ckpt_vid request) {
    ckpt_vid v;
    uint32_t generation;
    if (s->a & (REQUEST_COLL | REQUEST_PARTITIONED)) return NULL;
    if (s->a & REQUEST_PERSISTENT) {
        const struct persistent *p = persistent_of(s);
        if (p == NULL) return NULL;
        v = p->a[2];
        generation = p->type_generation;
    } else {
        const struct posted *p = back_posted_of(request);
        if ((s->a & REQUEST_KIND) != REQUEST_RECV || s->a & (REQUEST_DONE | REQUEST_MATCHED) || p == NULL)
            return NULL;
        v = p->type;
        generation = p->type_generation;
    }
    return back_same(CKPT_KIND_DATATYPE, v, generation) ? back_slot(CKPT_KIND_DATATYPE, v) : NULL;
}

// Frees the kept datatypes that no request needs any more.
static void look_locked(void) {
    uint32_t i = 0;
    for (int k = 0; k < count; k++) back_slot(CKPT_KIND_DATATYPE, kept[k])->b = KEPT;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;) {
        ckpt_slot *type = type_of(s, CKPT_VID(CKPT_KIND_REQUEST, i - 1));
        if (type != NULL && type->b == KEPT) type->b = NEEDED;
    }
    for (int k = 0; k < count;) {
        MPI_Datatype type = real_type(kept[k]);
        if (back_slot(CKPT_KIND_DATATYPE, kept[k])->b == NEEDED) {
            k++;
            continue;
        }
        MPI_Type_free(&type);
        fresh_free(kept[k]);
        kept[k] = kept[--count];
    }
    unseen = 0;
}

// A look takes a time that grows with the largest number of requests that ever existed at once.  So with many
// requests one look serves several datatypes.
static int pages(void) {
    int n = 1;
    while (n < 64 && back.tables->pages[CKPT_KIND_REQUEST][n] != NULL) n++;
    return n;
}

long back_keep_type(ckpt_vid v, int *keeps) {
    long rc = 0;
    *keeps = 0;
    if (!BACK_COUNTS || back_slot(CKPT_KIND_DATATYPE, v)->b == 0 || CKPT_VID_INDEX(v) < CKPT_VID_PREDEFINED)
        return 0;
    back_lock(LOCK_PERSISTENT);
    if (is_kept(v)) {
        rc = CANON_ERR(TYPE); // freed twice
    } else {
        *keeps = 1; // for good, when there is no memory to remember the datatype
        if (append(v) && ++unseen >= pages()) look_locked();
    }
    back_unlock(LOCK_PERSISTENT);
    return rc;
}

void back_keep_look(void) {
    back_lock(LOCK_PERSISTENT);
    if (count > 0) look_locked();
    back_unlock(LOCK_PERSISTENT);
}

int back_keep_has(const ckpt_slot *s, ckpt_vid request) {
    const ckpt_slot *type = count > 0 ? type_of(s, request) : NULL;
    return type != NULL && type->b == NEEDED;
}

int back_keep_again(ckpt_vid v) {
    back_lock(LOCK_PERSISTENT);
    int live = back_slot(CKPT_KIND_DATATYPE, v) != back.tables->pages[CKPT_KIND_DATATYPE][0];
    int known = live && CKPT_VID_INDEX(v) >= CKPT_VID_PREDEFINED;
    if (known && !is_kept(v) && !append(v)) known = -1;
    back_unlock(LOCK_PERSISTENT);
    return known;
}
