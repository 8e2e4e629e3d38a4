// SPDX-License-Identifier: Apache-2.0
//
// drained.h: messages that are received before the application asks for them, or that it has matched.
//
// The real MPI gives an arriving message to a posted receive first, so a message that draining receives
// itself matches none of those; receives that are posted later look at the drained messages first, in the
// order in which they were matched.
#ifndef CKPT_BACK_DRAINED_H
#define CKPT_BACK_DRAINED_H

#include "back/impl/slots.h"

#pragma GCC visibility push(hidden)

// A message that was received as bytes before the application asked for it, or was matched by
// MPI_Mprobe.  source is a rank of comm (of its remote group).
struct drained {
    struct drained *next;
    ckpt_vid comm;
    int source, tag;
    int64_t bytes;
    char *data; // NULL: the real MPI still has it, as message
    MPI_Message message;
    int starved;            // there was no memory for it when it was to be drained
    int counted;            // among those that are received from its sender
    MPI_Request request;    // MPI_REQUEST_NULL: all of it is there
    uint64_t matched;       // by the application: the order of it
    uint64_t claim;         // id that its sender waits for, 0: it does not (claim.c)
    int sender;             // in the world, for that
    int asked;              // ... which it has said at this checkpoint too
    struct drained *sooner; // the one that was sent or matched before it, while claims are judged
};

// Those that the application has not matched, in the order of their arrival.
extern struct drained *back_drained_first;
void back_drained_append(struct drained *m);

// What the slot of a matched message points to.
static inline struct drained *back_matched_of(const ckpt_slot *s) {
    return (struct drained *)(uintptr_t)s->extra;
}

struct back_take; // blocking.h

// Takes the first drained message that matches and receives it; 0 when there is none.  Where memory was out
// when it was to be drained the real MPI still has it: it is to be received from *message then, which is
// MPI_MESSAGE_NULL otherwise.
int back_drained_recv(const struct back_take *take, ckpt_mpi_status *status, int *rc, MPI_Message *message);
// Tells about it and leaves it there.
int back_drained_probe(long source, long tag, long comm, ckpt_mpi_status *status);
// Takes it for MPI_Mprobe: what the extra of a message's slot points to.
struct drained *back_drained_match(long source, long tag, long comm, ckpt_mpi_status *status);
// A message that the real MPI is to match: what is kept of it, NULL when memory is out; then, matched.
struct drained *back_matched_begin(void);
void back_matched_end(struct drained *m, MPI_Message message, const MPI_Status *status, long comm);
void back_matched_drop(struct drained *m);
// Whether it is in memory of ours.
int back_drained_has(const struct drained *m);
// The real MPI has it: gives its handle, and forgets the rest.
MPI_Message back_drained_give(struct drained *m);

// Receives a matched message that was drained, and frees it; 0 when the real MPI still has it.
int back_drained_mrecv(struct drained *m, void *buf, int count, MPI_Datatype type, ckpt_mpi_status *status,
                       int *rc);

// A turn of draining: messages of that communicator are matched; those that are matched arrive.  How many are
// still to arrive, or a CKPT_E code.
int back_drained_match_all(ckpt_vid vid, MPI_Comm comm);
int back_drained_arrive(struct drained *m);
// Why messages that are matched are not in memory of ours, when that was to be; 0: they are.
int back_drained_holds(char *why, size_t bytes);

// A communicator is gone: nobody can receive its messages any more.
void back_drained_gone(ckpt_vid comm);

#pragma GCC visibility pop

#endif
