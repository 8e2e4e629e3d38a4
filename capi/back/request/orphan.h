// SPDX-License-Identifier: Apache-2.0
//
// orphan.h: receives that were freed before they were complete, and sends that were cancelled and freed.
#ifndef CKPT_BACK_ORPHAN_H
#define CKPT_BACK_ORPHAN_H

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

// Makes the request an orphan: its id and its slot are ours from now on.
void back_adopt(ckpt_vid request);
// Called by MPI_Request_free: makes the request an orphan, and tests the other orphans now and then.
void back_orphan(ckpt_vid request);
// Tests all orphans, and frees those that are complete.
void back_poll_orphans(void);

// Tests a request whose status nobody wants; 1 when it is complete.
int back_end_orphan(ckpt_vid request);

#pragma GCC visibility pop

#endif
