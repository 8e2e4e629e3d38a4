// SPDX-License-Identifier: Apache-2.0
//
// calls.h: what the generated functions (gen) are made of, and what they give in return.
#ifndef CKPT_BACK_CALLS_H
#define CKPT_BACK_CALLS_H

#include "back/collective/op.h"
#include "back/collective/persist.h"
#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/object/comm.h"
#include "back/object/type.h"
#include "back/request/request.h"
#include "back/tools.h"

#pragma GCC visibility push(hidden)

// MPI's functions, by number - CKPT_FN_MPI (zz_table.c).
extern ckpt_back_fn *const back_table[CKPT_FN_MPI_END - CKPT_FN_MPI];
// The same functions; the collective ones pass the clock, and the blocking ones a barrier too (zz_clocked.c).
extern ckpt_back_fn *const back_clocked_table[CKPT_FN_MPI_END - CKPT_FN_MPI];
extern ckpt_back_fn *const back_committed_table[CKPT_FN_MPI_END - CKPT_FN_MPI];
// Gives MPI's predefined objects their ids (zz_constants.c).
int back_bind_constants(ckpt_job *job);

#pragma GCC visibility pop

#endif
