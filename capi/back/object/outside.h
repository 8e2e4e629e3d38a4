// SPDX-License-Identifier: Apache-2.0
//
// outside.h: which communicators reach processes of other jobs.
#ifndef CKPT_BACK_OUTSIDE_H
#define CKPT_BACK_OUTSIDE_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Remembers that comm, which was made from parent, reaches processes of other jobs.  0, or -1 when memory is
// out.
int back_reaches_outside(ckpt_vid comm, ckpt_vid parent);
// Whether comm reaches processes of other jobs.
int back_is_outside(ckpt_vid comm);
// The call that made one of the communicators that exist; NULL: there is none.
const char *back_outside_call(void);
// The call on this thread that is making such a communicator; NULL: none.
extern __thread const char *back_outside_making;

#pragma GCC visibility pop

#endif
