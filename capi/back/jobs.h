// SPDX-License-Identifier: Apache-2.0
//
// jobs.h: calls that wait for processes of other jobs.
#ifndef CKPT_BACK_JOBS_H
#define CKPT_BACK_JOBS_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// The call in which this rank waits for processes of other jobs; NULL: it waits for none
// (ckpt_runtime_ops.inside).
const char *back_inside(void *ctx);
// Whether such a call, or a communicator that such a call has made, holds a checkpoint back.
int back_jobs_hold(char *why, size_t bytes);

#pragma GCC visibility pop

#endif
