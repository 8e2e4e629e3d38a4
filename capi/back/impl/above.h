// SPDX-License-Identifier: Apache-2.0
//
// above.h: calls from a layer to a higher one.
//
// Requests and communicators belong to low layers, but higher layers make some of them: the file layer tests
// the request of a file, the collective layer starts a persistent collective.  These are all calls that go
// up; core.c says to whom.  None is on a hot path.
#ifndef CKPT_BACK_ABOVE_H
#define CKPT_BACK_ABOVE_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

struct back_coll;

struct back_above {
    // While a thread waits.
    void (*start_deferred)(void); // a checkpoint is pending: starts the calls that may start
    void (*sync_poll)(void);      // back.awaiting: looks whether receivers have taken messages

    // Of requests, by their flags.
    void (*sync_ended)(ckpt_slot *s);                              // REQUEST_SYNC: complete or freed
    void (*sync_cancelled)(ckpt_vid comm, int dest);               // MPI_Cancel was called for a send
    int (*message_start)(ckpt_vid v, ckpt_slot *s);                // MPI_Start; the real MPI's code
    long (*coll_start)(ckpt_slot *s);                              // REQUEST_COLL: the same; canonical
    void (*coll_end)(struct back_coll *c);                         // REQUEST_COLL: it is freed
    int (*file_test)(ckpt_slot *s, int *flag, MPI_Status *status); // REQUEST_ORDERED: MPI_Test

    // Of communicators.
    int (*comm_made)(ckpt_vid comm, MPI_Comm real); // by all its members; MPI's code
    void (*const *comm_gone)(ckpt_vid comm);        // freed; the list ends with NULL
    // A persistent request's own one, of an image that is being restored; 0 or a CKPT_E code.
    int (*own_comm_saved)(ckpt_vid vid, const void *descriptor, size_t bytes);
};
extern const struct back_above back_above;

#pragma GCC visibility pop

#endif
