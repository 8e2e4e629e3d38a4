// SPDX-License-Identifier: Apache-2.0
//
// blocking.h: sends and receives of blocking calls.
#ifndef CKPT_BACK_BLOCKING_H
#define CKPT_BACK_BLOCKING_H

#include <sys/queue.h>

#include "back/request/wait.h"

#pragma GCC visibility push(hidden)

struct back_sync; // sync.h

// The send of a blocking call whose thread is held.  Once the send is complete, the call's arguments say that
// the call sends to nobody, so that a restart does not send again.
struct back_held {
    LIST_ENTRY(back_held) others;
    MPI_Request *request;
    long *dest;              // the call's argument
    struct back_sync *sync;  // NULL when the send is not synchronous
    struct back_sync *spare; // ... else what it will wait with (back_sync_spare)
};
// Completes the send of a blocking call; the thread may be held.  If dest is BACK_AWAITED afterwards, the
// call has to wait for the request whose id is in place of the tag.
int back_wait_send(MPI_Request *request, const long *dest, struct back_sync *sync, const char *call,
                   long comm, long tag);

// A receive of a blocking call.
struct back_take {
    void *buf;
    int count;
    MPI_Datatype type;
    long source, tag, comm; // canonical; virtual id
    struct back_held *send; // the same call's send, NULL when there is none
    const char *call;
};
// Receives: the drained messages first.  Returns a canonical error.
long back_take(const struct back_take *take, long status);

LIST_HEAD(back_held_list, back_held);
extern struct back_held_list back_held_sends; // of held threads, under LOCK_HELD
#pragma GCC visibility pop

#endif
