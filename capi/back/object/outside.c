// SPDX-License-Identifier: Apache-2.0
//
// outside.c: which communicators reach processes of other jobs.
#include <stdlib.h>

#include "back/impl/handles.h"
#include "back/impl/lock.h"
#include "back/object/outside.h"

static struct outside {
    ckpt_vid comm;
    uint32_t generation;
    const char *call; // that made the communicator, or the one that it was made from
} * outside;
static size_t noutside;

static int is_live(const struct outside *o) {
    const ckpt_slot *s = back_slot(CKPT_KIND_COMM, o->comm);
    return s != back.tables->pages[CKPT_KIND_COMM][0] && s->generation == o->generation;
}

static const char *call_of(ckpt_vid comm) {
    for (size_t i = 0; i < noutside; i++)
        if (outside[i].comm == comm && is_live(&outside[i])) return outside[i].call;
    return NULL;
}

__thread const char *back_outside_making;

int back_reaches_outside(ckpt_vid comm, ckpt_vid parent) {
    back_lock(LOCK_OUTSIDE);
    const char *call = back_outside_making ? back_outside_making : call_of(parent);
    size_t i = 0;
    while (i < noutside && is_live(&outside[i])) i++;
    if (i == noutside) {
        struct outside *grown = realloc(outside, (noutside + 1) * sizeof *outside);
        if (grown == NULL) {
            back_unlock(LOCK_OUTSIDE);
            return -1;
        }
        outside = grown;
        noutside++;
    }
    outside[i] = (struct outside){comm, back_slot(CKPT_KIND_COMM, comm)->generation,
                                  call ? call : "MPI_Intercomm_create"};
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
