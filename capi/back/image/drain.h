// SPDX-License-Identifier: Apache-2.0
//
// drain.h: a turn of receiving what is under way.
#ifndef CKPT_BACK_DRAIN_H
#define CKPT_BACK_DRAIN_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// How much is left, or a CKPT_E code (ckpt_runtime_ops).
int back_drain(void *ctx);
// Completes the sends that can be completed; what back_drain does of them.
void back_drain_sends(void);

#pragma GCC visibility pop

#endif
