// SPDX-License-Identifier: Apache-2.0
//
// done.h: requests that are complete, for what the real MPI has no request of any more.
#ifndef CKPT_BACK_DONE_H
#define CKPT_BACK_DONE_H

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

// One that is to be complete; {0}: it is not begun.
struct back_done {
    struct done *d;
    MPI_Request request;
};
// Takes the memory that it needs, unless it is begun; the real MPI's code.
int back_done_begin(struct back_done *b);
// It is complete, with that status and error code; b may begin another one.
MPI_Request back_done_end(struct back_done *b, const ckpt_mpi_status *status, int rc);
// It is not needed.
void back_done_drop(struct back_done *b);
// Both steps at once, where nothing is lost when that fails.
int back_done_request(const ckpt_mpi_status *status, int rc, MPI_Request *request);
// What it was completed with: the error code is returned.
int back_done_status(MPI_Request request, MPI_Status *status);
// What draining makes of a request that is complete; ready is begun.
void back_request_done(ckpt_slot *s, const MPI_Status *status, int rc, struct back_done *ready);

#pragma GCC visibility pop

#endif
