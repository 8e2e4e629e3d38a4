// SPDX-License-Identifier: Apache-2.0
//
// bsend.h: buffered sends.
#ifndef CKPT_BACK_BSEND_H
#define CKPT_BACK_BSEND_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Sends (buf, count, type, dest, tag, comm), and makes a request that is complete.  The real MPI's code.
int back_buffered_request(const long *a, MPI_Request *request);
// Waits until all buffered sends on comm are complete; on any communicator for CKPT_VID_NONE.  The thread may
// be held.
void back_buffered_wait(ckpt_vid comm, const char *call);
// The communicator is freed.
void back_buffered_gone(ckpt_vid comm);
// A turn of draining: how many buffered sends are not complete.
int back_buffered_left(void);

#pragma GCC visibility pop

#endif
