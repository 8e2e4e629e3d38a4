// SPDX-License-Identifier: Apache-2.0
//
// op.h: operations of reductions.
#ifndef CKPT_BACK_OP_H
#define CKPT_BACK_OP_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

int back_bind_op(ckpt_job *job, uint32_t index, MPI_Op op);
int back_rebuild_op(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
// Whether a reduction with a function of the application may be under way.
int back_reducing(void);

#pragma GCC visibility pop

#endif
