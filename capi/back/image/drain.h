// SPDX-License-Identifier: Apache-2.0
//
// drain.h: a turn of receiving what is under way.
#ifndef CKPT_BACK_DRAIN_H
#define CKPT_BACK_DRAIN_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// A turn of draining (ckpt_runtime_ops).  Returns how much is left, or a CKPT_E code.
int back_drain(void *ctx);
// The part of a turn that is about sends: completes those that can be completed.
void back_drain_sends(void);

#pragma GCC visibility pop

#endif
