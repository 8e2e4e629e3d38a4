// SPDX-License-Identifier: Apache-2.0
//
// outside.h: which communicators reach processes of other jobs.
#ifndef CKPT_BACK_OUTSIDE_H
#define CKPT_BACK_OUTSIDE_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Of the members of a communicator that is being made from parent, those who do not know how it is made on this
// side become strangers: their ranks in the world become -1, as those of processes of other jobs are.
void back_outside_strangers(ckpt_vid parent, int *local, int nlocal, int *remote, int nremote);
// Remembers that comm, which was made from parent and has the local members, reaches processes of other jobs.  0, or
// -1 when memory is out.
int back_reaches_outside(ckpt_vid comm, ckpt_vid parent, const int *local, int nlocal);
// Whether comm reaches processes of other jobs.
int back_is_outside(ckpt_vid comm);
// The call that made one of the communicators that exist; NULL: there is none.
const char *back_outside_call(void);
// The call on this thread that is making such a communicator; NULL: none.
extern __thread const char *back_outside_making;

#pragma GCC visibility pop

#endif
