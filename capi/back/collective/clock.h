// SPDX-License-Identifier: Apache-2.0
//
// clock.h: collective calls, counted so that a checkpoint finds none of them half done.
#ifndef CKPT_BACK_CLOCK_H
#define CKPT_BACK_CLOCK_H

#include "back/request/wait.h"

#pragma GCC visibility push(hidden)

// Waits until a call that all members must make together may go on.  name: the function's.
void back_gate(long comm, const char *name, int mode, ckpt_coll *call);
void back_gate_return(const ckpt_coll *call, long rc);

// Drives the real MPI's communication: while this rank waits, peers may need its part.
void back_progress(void);

#pragma GCC visibility pop

#endif
