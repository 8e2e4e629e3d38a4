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
// A request was made that will call such a function: after this is known in its slot.
void back_calls_later(void);
// Tells libckpt of all operations that it has not heard of.  0, or a negative CKPT_E code.
int ops_tell(void);
// MPI is about to end.
void ops_end(void);

#pragma GCC visibility pop

#endif
