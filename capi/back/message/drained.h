// SPDX-License-Identifier: Apache-2.0
//
// drained.h: messages that are received before the application asks for them, or that it has matched.
//
// The real MPI gives an arriving message to a posted receive first, so a message that draining receives
// matches no posted receive.  Receives that are posted later look at the drained messages first, in the order
// in which these were matched.
#ifndef CKPT_BACK_DRAINED_H
#define CKPT_BACK_DRAINED_H

#include <sys/queue.h>

#include "back/impl/slots.h"

#pragma GCC visibility push(hidden)

// A message that was received as bytes before the application asked for it, or was matched by
// MPI_Mprobe.  source is a rank of comm (of its remote group).
struct drained {
    TAILQ_ENTRY(drained) others; // in one list at a time: the drained ones, or words (sync.c)
    ckpt_vid comm;
    int source, tag;
    int64_t bytes;
    char *data; // NULL: the real MPI still has it, as message
    MPI_Message message;
    int starved;            // draining found no memory for the message
    int counted;            // the message counts as received from its sender
    MPI_Request request;    // MPI_REQUEST_NULL: all of the message is in data
    uint64_t matched;       // order in which the application matched messages; 0: not matched
    uint64_t claim;         // id that the sender waits for, 0: the sender does not wait (claim.c)
    int sender;             // with claim: world rank of the sender
    int asked;              // the sender has asked at this checkpoint too
    struct drained *sooner; // the message that was sent or matched before this one, while claims are judged
};

// Drained messages that the application has not matched, in the order of their arrival.
TAILQ_HEAD(back_drained_list, drained);
extern struct back_drained_list back_drained_all; // under LOCK_DRAINED
void back_drained_append(struct drained *m);

// What the slot of a matched message points to.
static inline struct drained *back_matched_of(const ckpt_slot *s) {
    return (struct drained *)(uintptr_t)s->extra;
}

struct back_take; // blocking.h

// Takes the first drained message that matches and receives it; 0 when there is none.  A starved message is
// still in the real MPI: the caller receives it from *message, which is MPI_MESSAGE_NULL otherwise.
int back_drained_recv(const struct back_take *take, ckpt_mpi_status *status, int *rc, MPI_Message *message);
// Probes for the first drained message that matches, and leaves it there; 0 when there is none.
int back_drained_probe(long source, long tag, long comm, ckpt_mpi_status *status);
// Takes the first drained message that matches, for MPI_Mprobe: extra of a message's slot points to it.
struct drained *back_drained_match(long source, long tag, long comm, ckpt_mpi_status *status);
// The record of a message that the real MPI is about to match, NULL when memory is out; and then: it is
// matched.
struct drained *back_matched_begin(void);
void back_matched_end(struct drained *m, MPI_Message message, const MPI_Status *status, long comm);
void back_matched_drop(struct drained *m);
// Whether the message is in memory of ours.
int back_drained_has(const struct drained *m);
// The real MPI still has the message: returns its handle, and frees the record.
MPI_Message back_drained_give(struct drained *m);

// Receives a matched message that was drained, and frees it; 0 when the real MPI still has it.
int back_drained_mrecv(struct drained *m, void *buf, int count, MPI_Datatype type, ckpt_mpi_status *status,
                       int *rc);

// A turn of draining.  The first function matches messages of a communicator, the second receives the matched
// ones. They return how many are still to arrive, or a CKPT_E code.
int back_drained_match_all(ckpt_vid vid, MPI_Comm comm);
int back_drained_arrive(struct drained *m);
// Whether matched messages are missing in memory of ours after draining; why says which and for what reason.
int back_drained_holds(char *why, size_t bytes);

// A communicator is gone: nobody can receive its messages any more.
void back_drained_gone(ckpt_vid comm);

#pragma GCC visibility pop

#endif
