// SPDX-License-Identifier: Apache-2.0
//
// untold.h: communicators that libckpt has not heard of yet.
//
//   id reserved --untold_new, untold_tell--> in the ring --libckpt takes it--> known --comm_free--> libckpt's id
//        ^                                       |
//        +---------------comm_free---------------+  what there is to say of it stays in the ring
//
// ckpt/private/news.h says how libckpt takes from the ring, and why there is one.
#ifndef CKPT_BACK_UNTOLD_H
#define CKPT_BACK_UNTOLD_H

#include "ckpt/private/news.h"

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// What libckpt has to know of a new communicator.  All arrays are from malloc; members may be peers.
struct untold_comm {
    uint64_t identity;
    int32_t *words, *peers, *members; // descriptor (describe.h); world ranks
    size_t n;                         // words
    int npeers, nmembers, rank, size;
};

// An id for a real communicator of so many peers, with counters that are 0.  CKPT_VID_NONE: libckpt is to be told of it
// at once (ckpt_vid_new), since it has too many peers, or there is no reserved id.
ckpt_vid untold_new(MPI_Comm comm, const struct untold_comm *c);
// Puts it into the ring, which owns the arrays from then on.
void untold_tell(ckpt_vid vid, const struct untold_comm *c);
// Takes an id back that untold_new gave out and untold_tell was not told of.
void untold_forget(ckpt_vid vid);

// The application freed a communicator, and the real one is gone.  libckpt hears of it in time, whether it has heard of
// the communicator or not.
void comm_free(ckpt_vid vid);
// The name that people see.
void comm_name(ckpt_vid vid, const char *name);

#pragma GCC visibility pop

#endif
