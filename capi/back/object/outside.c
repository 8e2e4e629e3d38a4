// SPDX-License-Identifier: Apache-2.0
//
// outside.c: which communicators reach processes of other jobs.
//
// Whether the processes at the other end of MPI_Comm_connect are of this job cannot matter: the two ends know nothing
// of each other, not how many communicators the other one has made, so what they make has no identity that is equal at
// both.  Each end therefore has a side: the ranks that made the call together.  All others are strangers to it, of whom
// nothing is counted, in that communicator and in those that are made from it.
#include <stdlib.h>

#include "back/impl/handles.h"
#include "back/impl/lock.h"
#include "back/object/outside.h"

static struct outside {
    ckpt_vid comm;
    uint32_t generation;
    const char *call; // that made the communicator, or the one that it was made from
    char *side;       // by rank in the world: 1 for those of this side
} * outside;
static size_t noutside;

static int is_live(const struct outside *o) {
    const ckpt_slot *s = back_slot(CKPT_KIND_COMM, o->comm);
    return s != back.tables->pages[CKPT_KIND_COMM][0] && s->generation == o->generation;
}

static const struct outside *find(ckpt_vid comm) {
    for (size_t i = 0; i < noutside; i++)
        if (outside[i].comm == comm && is_live(&outside[i])) return &outside[i];
    return NULL;
}

static const char *call_of(ckpt_vid comm) {
    const struct outside *o = find(comm);
    return o != NULL ? o->call : NULL;
}

// side NULL: nobody is of this side.
static void strange(int *world, int n, const char *side) {
    for (int i = 0; i < n; i++)
        if (world[i] >= 0 && (side == NULL || !side[world[i]])) world[i] = -1;
}

void back_outside_strangers(ckpt_vid parent, int *local, int nlocal, int *remote, int nremote) {
    if (back_outside_making != NULL) {
        strange(remote, nremote, NULL);
        return;
    }
    back_lock(LOCK_OUTSIDE);
    const struct outside *o = find(parent);
    if (o != NULL) {
        strange(local, nlocal, o->side);
        strange(remote, nremote, o->side);
    }
    back_unlock(LOCK_OUTSIDE);
}

__thread const char *back_outside_making;

int back_reaches_outside(ckpt_vid comm, ckpt_vid parent, const int *local, int nlocal) {
    char *side = calloc((size_t)back.size, 1);
    if (side == NULL) return -1;
    for (int i = 0; i < nlocal; i++)
        if (local[i] >= 0) side[local[i]] = 1;
    back_lock(LOCK_OUTSIDE);
    const struct outside *from = back_outside_making ? NULL : find(parent);
    const char *call = back_outside_making ? back_outside_making : from ? from->call : NULL;
    if (from != NULL) memcpy(side, from->side, (size_t)back.size); // local may be a part of it
    size_t i = 0;
    while (i < noutside && is_live(&outside[i])) i++;
    if (i == noutside) {
        struct outside *grown = realloc(outside, (noutside + 1) * sizeof *outside);
        if (grown == NULL) {
            back_unlock(LOCK_OUTSIDE);
            free(side);
            return -1;
        }
        outside = grown;
        outside[i].side = NULL;
        noutside++;
    }
    free(outside[i].side);
    outside[i] = (struct outside){comm, back_slot(CKPT_KIND_COMM, comm)->generation,
                                  call ? call : "MPI_Intercomm_create", side};
    back_unlock(LOCK_OUTSIDE);
    return 0;
}

int back_is_outside(ckpt_vid comm) {
    back_lock(LOCK_OUTSIDE);
    const char *call = call_of(comm);
    back_unlock(LOCK_OUTSIDE);
    return call != NULL;
}

const char *back_outside_call(void) {
    const char *call = NULL;
    back_lock(LOCK_OUTSIDE);
    for (size_t i = 0; i < noutside && call == NULL; i++)
        if (is_live(&outside[i])) call = outside[i].call;
    back_unlock(LOCK_OUTSIDE);
    return call;
}
