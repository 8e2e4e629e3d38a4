// SPDX-License-Identifier: Apache-2.0
//
// counts.h: how many messages were sent to and received from each peer.
//
// Bookmarks: a message counts as sent when its send is posted, as received when its receive is
// complete; the difference is what the network holds.
#ifndef CKPT_BACK_COUNTS_H
#define CKPT_BACK_COUNTS_H

#include "back/impl/process.h"

// comm is what back_slot found; a slot that is not a communicator's has no counters.
static inline void back_count_sent(const ckpt_slot *comm, int dest) {
    if (BACK_COUNTS && __builtin_expect(dest >= 0 && comm->counters != 0, 1))
        ckpt_sent(comm, dest, back.shared);
}
static inline void back_count_received(const ckpt_slot *comm, const MPI_Status *s) {
    if (BACK_COUNTS && __builtin_expect(s->MPI_SOURCE >= 0 && comm->counters != 0, 1))
        ckpt_received(comm, s->MPI_SOURCE, back.shared);
}

#endif
