// SPDX-License-Identifier: Apache-2.0
//
// twophase.h: two-phase commit; these do nothing unless it is chosen.
#ifndef CKPT_BACK_TWOPHASE_H
#define CKPT_BACK_TWOPHASE_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// back_two_phase: the barrier in front of a blocking collective call.  back_two_phase_made: what that needs
// on a communicator whose members have just made it.
void back_two_phase(long comm, const char *call);
long back_two_phase_done(long comm, long rc); // what the call returned; returns it
int back_two_phase_made(ckpt_vid comm, MPI_Comm real);
void back_two_phase_freed(ckpt_vid comm);

#pragma GCC visibility pop

#endif
