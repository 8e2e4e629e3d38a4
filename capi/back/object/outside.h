// SPDX-License-Identifier: Apache-2.0
//
// outside.h: which communicators reach processes of other jobs.
#ifndef CKPT_BACK_OUTSIDE_H
#define CKPT_BACK_OUTSIDE_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Remembers that comm reaches some; parent is what it was made from.  0, or -1 when memory is out.
int back_reaches_outside(ckpt_vid comm, ckpt_vid parent);
// Whether it does.
int back_is_outside(ckpt_vid comm);
// The call that made one that is there; NULL: there is none.
const char *back_outside_call(void);
// The call under way on this thread that makes one; NULL: none.
extern __thread const char *back_outside_making;

#pragma GCC visibility pop

#endif
