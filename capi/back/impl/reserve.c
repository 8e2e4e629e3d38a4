// SPDX-License-Identifier: Apache-2.0
//
// reserve.c: small pieces of memory for what must not fail.
//
// A little is kept of each message that is matched, each request that is complete, and each synchronous send
// that is under way.  The memory for that comes from malloc, and from some pieces of our own when malloc has
// none.  So a checkpoint that finds no memory for the messages themselves still knows of each of them, and
// the job can go on.
#include <stdlib.h>
#include <string.h>

#include "back/impl/lock.h"
#include "back/impl/reserve.h"

enum { PIECES = 1024, PIECE = 256 };

union piece {
    union piece *next; // while it is free
    max_align_t aligned;
    char bytes[PIECE];
};

static union piece pieces[PIECES], *freed;
static int used; // how many pieces were ever given out: the first ones

static void *take(void) {
    back_lock(LOCK_RESERVE);
    union piece *p = freed;
    if (p != NULL)
        freed = p->next;
    else if (used < PIECES)
        p = &pieces[used++];
    back_unlock(LOCK_RESERVE);
    return p;
}

void *back_reserve(size_t bytes) {
    void *p = calloc(1, bytes);
    if (__builtin_expect(p == NULL && bytes <= PIECE, 0) && (p = take()) != NULL) memset(p, 0, bytes);
    return p;
}

void back_release(void *memory) {
    union piece *p = memory;
    if (__builtin_expect(p < pieces || p >= pieces + PIECES, 1)) {
        free(p);
        return;
    }
    back_lock(LOCK_RESERVE);
    p->next = freed;
    freed = p;
    back_unlock(LOCK_RESERVE);
}
