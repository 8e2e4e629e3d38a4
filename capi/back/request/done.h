// SPDX-License-Identifier: Apache-2.0
//
// done.h: complete requests in place of real ones that no longer exist.
#ifndef CKPT_BACK_DONE_H
#define CKPT_BACK_DONE_H

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

// A done request that is being made; {0}: not begun.
struct back_done {
    struct done *d;
    MPI_Request request;
};
// Takes the memory that b needs, unless b is begun; the real MPI's code.
int back_done_begin(struct back_done *b);
// Returns the done request, with that status and error code; b is not begun any more.
MPI_Request back_done_end(struct back_done *b, const ckpt_mpi_status *status, int rc);
// b is not needed.
void back_done_drop(struct back_done *b);
// Both steps at once, for a place where nothing is lost if they fail.
int back_done_request(const ckpt_mpi_status *status, int rc, MPI_Request *request);
// What a done request was made with: fills in the status, and returns the error code.
int back_done_status(MPI_Request request, MPI_Status *status);
// Draining found the real request of s complete: the slot gets a done request instead.  ready is begun.
void back_request_done(ckpt_slot *s, const MPI_Status *status, int rc, struct back_done *ready);

#pragma GCC visibility pop

#endif
