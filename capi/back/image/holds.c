// SPDX-License-Identifier: Apache-2.0
//
// holds.c: what keeps a rank from being saved.
#include <stdio.h>
#include <string.h>

#include "back/file/file.h"
#include "back/image/holds.h"
#include "back/message/blocking.h"
#include "back/message/drained.h"
#include "back/message/sync.h"
#include "back/request/orphan.h"
#include "back/request/persistent.h"
#include "back/request/posted.h"
#include "back/window/window.h"

// A synchronous send about which the receiver cannot be asked: draining would complete the send too early.
static int sync_holds(const ckpt_slot *s, char *why, size_t bytes) {
    int flag = 0;
    if (!(s->a & REQUEST_SYNC) || request_state(s) != REQ_STARTED) return 0;
    const struct back_sync *e = back_sync_of(s);
    int short_of_memory = e == NULL || e->short_of_memory;
    if (!short_of_memory && e->lane != NULL && !e->unsure && s->clock == e->comm) return 0;
    MPI_Request_get_status(real_of(s), &flag, MPI_STATUS_IGNORE);
    if (!flag)
        snprintf(why, bytes,
                 "a synchronous send (MPI_Issend, MPI_Ssend_init) to rank %d, %s, has not been received",
                 s->b,
                 short_of_memory ? "which was made when there was no memory to keep track of it"
                                 : "which was cancelled or whose communicator was freed");
    return !flag;
}

// The same for a blocking call: once its message is drained, the call needs memory to wait for the receiver.
static int held_holds(char *why, size_t bytes) {
    const struct back_held *h;
    LIST_FOREACH(h, &back_held_sends, others) {
        int flag = 0;
        if (h->sync == NULL || *h->dest < 0 || (!h->sync->short_of_memory && h->spare != NULL)) continue;
        MPI_Request_get_status(*h->request, &flag, MPI_STATUS_IGNORE);
        if (!flag)
            snprintf(why, bytes,
                     "a synchronous send (MPI_Ssend) to rank %ld has not been received, and "
                     "there is no memory to wait for it in",
                     *h->dest);
        if (!flag) return 1;
    }
    return 0;
}

// A receive that cannot be posted again, since its datatype or communicator is gone.  When the communicator
// is gone, the message is on its way: all members have freed the communicator, so its sender has sent.
// Nobody counts that message any more, so it must arrive before the job is saved.
static int posted_holds(const ckpt_slot *s, ckpt_vid vid, char *why, size_t bytes) {
    int there = 0;
    if ((s->a & REQUEST_KIND) != REQUEST_RECV || s->a & (REQUEST_DONE | REQUEST_PERSISTENT)) return 0;
    const struct posted *p = back_posted_of(vid);
    const char *gone = NULL;
    if (s->a & REQUEST_MATCHED) return 0;
    if (p == NULL || p->serial == 0)
        gone = "was posted when there was no memory to keep what it was posted with";
    else if (!back_same(CKPT_KIND_DATATYPE, p->type, p->type_generation))
        gone = "uses a datatype that was freed";
    else if (!back_same(CKPT_KIND_COMM, s->clock, p->comm_generation))
        gone = "uses a communicator that was freed";
    if (gone != NULL) MPI_Request_get_status(real_of(s), &there, MPI_STATUS_IGNORE);
    if (gone != NULL && !there) snprintf(why, bytes, "a pending receive (MPI_Irecv) %s", gone);
    return gone != NULL && !there;
}

static int persistent_holds(const ckpt_slot *s, char *why, size_t bytes) {
    const struct persistent *p = persistent_of(s);
    const char *gone = NULL;
    if (s->a & REQUEST_PARTITIONED)
        snprintf(why, bytes,
                 "a request of partitioned communication (MPI_Psend_init, MPI_Precv_init) is not "
                 "freed");
    if (s->a & REQUEST_PARTITIONED) return 1;
    if (!(s->a & REQUEST_PERSISTENT) || s->a & REQUEST_COLL) return 0;
    if (!back_same(CKPT_KIND_DATATYPE, p->a[2], p->type_generation))
        gone = "datatype";
    else if (!back_same(CKPT_KIND_COMM, p->a[5], p->comm_generation))
        gone = "communicator";
    if (gone != NULL) snprintf(why, bytes, "a persistent request uses a %s that was freed", gone);
    return gone != NULL;
}

static int request_holds(char *why, size_t bytes) {
    uint32_t i = 0;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;) {
        int flag = 0;
        if (sync_holds(s, why, bytes) || posted_holds(s, CKPT_VID(CKPT_KIND_REQUEST, i - 1), why, bytes) ||
            persistent_holds(s, why, bytes))
            return 1;
        if ((s->a & (REQUEST_GENERALIZED | REQUEST_ENDED)) == REQUEST_GENERALIZED) {
            snprintf(why, bytes, "an unfinished generalized request (MPI_Grequest_start)");
            return 1;
        }
        if (s->a & REQUEST_USER_OP && !(s->a & (REQUEST_DONE | REQUEST_DEFERRED))) {
            MPI_Request_get_status(real_of(s), &flag, MPI_STATUS_IGNORE);
            if (!flag) {
                snprintf(why, bytes,
                         "a non-blocking reduction with an operation of the program's own "
                         "is under way");
                return 1;
            }
        }
    }
    return 0;
}

int back_holds(char *why, size_t bytes) {
    back_poll_orphans(); // a complete orphan must not hold the checkpoint back
    return windows_hold(why, bytes) || back_drained_holds(why, bytes) || request_holds(why, bytes) ||
           held_holds(why, bytes) || files_hold(why, bytes);
}
