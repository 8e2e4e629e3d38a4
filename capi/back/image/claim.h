// SPDX-License-Identifier: Apache-2.0
//
// claim.h: which drained messages belong to synchronous sends that still wait.
#ifndef CKPT_BACK_CLAIM_H
#define CKPT_BACK_CLAIM_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// ckpt_runtime_ops: synchronous, claims, judge, answered.
int back_synchronous(void *ctx);
long back_claims(void *ctx, ckpt_claim *list, long max);
void back_judge(void *ctx, ckpt_claim *list, long n);
void back_answered(void *ctx, const ckpt_claim *list, long n);

#pragma GCC visibility pop

#endif
