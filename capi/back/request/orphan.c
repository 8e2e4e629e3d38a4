// SPDX-License-Identifier: Apache-2.0
//
// orphan.c: requests that the application has freed and that libckpt still needs.
//
//   MPI_Request_free of a pending receive ────► orphan ── complete ──► message counted, id given back
//   MPI_Request_free of a cancelled send  ────►    │                             ▲
//                                              checkpoint ── restart: orphan ────┘
//
// The application gives the request up; this file's list holds it until it is complete.  Nobody else would
// count the message of the receive, nor learn whether the send was cancelled in time: if so, its message does
// not count.  An orphan keeps its id, so draining and images treat it like any request.
#include <stdlib.h>

#include "back/impl/lock.h"
#include "back/request/complete.h"
#include "back/request/orphan.h"
#include "back/request/persistent.h"

enum { FEW = 64 };

// Under LOCK_ORPHANS.
static ckpt_vid *orphans;
static int count, room, look = FEW; // look: when there are so many, all are tested

void back_adopt(ckpt_vid request) {
    back_lock(LOCK_ORPHANS);
    if (count == room) {
        ckpt_vid *grown = realloc(orphans, (size_t)(2 * room + FEW) * sizeof *orphans);
        if (grown != NULL) {
            orphans = grown;
            room = 2 * room + FEW;
        }
    }
    if (count < room) // else nobody tests it
        orphans[count++] = request;
    back_unlock(LOCK_ORPHANS);
}

int back_end_orphan(ckpt_vid vid) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, vid);
    int persistent = s->a & REQUEST_PERSISTENT, flag = 0;
    MPI_Request r = real_of(s);
    MPI_Status st;
    int rc = MPI_Test(&r, &flag, &st);
    if (!flag && rc == MPI_SUCCESS) return 0;
    back_complete_rare(s, &vid, &st, rc);
    if (persistent && vid != VID_REQUEST_NULL) { // the request is inactive now
        r = real_of(s);
        MPI_Request_free(&r);
        back_persistent_forget(s);
        ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, vid, back.shared);
    }
    return 1;
}

void back_poll_orphans(void) {
    back_lock(LOCK_ORPHANS);
    for (int i = 0; i < count;) {
        if (back_end_orphan(orphans[i]))
            orphans[i] = orphans[--count];
        else
            i++;
    }
    look = count < FEW ? FEW : 2 * count;
    back_unlock(LOCK_ORPHANS);
}

void back_orphan(ckpt_vid request) {
    back_adopt(request);
    if (count >= look) back_poll_orphans();
}
