// SPDX-License-Identifier: Apache-2.0
//
// clock.h: collective calls, counted so that a checkpoint finds none of them half done.
#ifndef CKPT_BACK_CLOCK_H
#define CKPT_BACK_CLOCK_H

#include "back/request/wait.h"

#pragma GCC visibility push(hidden)

// Waits until a call that all members must make together may go on.  name: of the function.
void back_gate(long comm, const char *name, int mode, ckpt_coll *call);
void back_gate_return(const ckpt_coll *call, long rc);

// Peers may need this rank's part of their communication while it waits.
void back_progress(void);

#pragma GCC visibility pop

#endif
