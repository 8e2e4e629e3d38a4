// SPDX-License-Identifier: Apache-2.0
//
// orphan.h: receives that were freed before they were complete, and sends that were cancelled and freed.
#ifndef CKPT_BACK_ORPHAN_H
#define CKPT_BACK_ORPHAN_H

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

// Such a one: its id and its slot are ours from now on.
void back_adopt(ckpt_vid request);
// As it is called by the application; tests the others now and then.
void back_orphan(ckpt_vid request);
// Gives away those that are complete.
void back_poll_orphans(void);

// Tests a request, of which nobody needs to know more than that it is complete; 1 when it is.
int back_end_orphan(ckpt_vid request);

#pragma GCC visibility pop

#endif
