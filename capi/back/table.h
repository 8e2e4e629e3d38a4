// SPDX-License-Identifier: Apache-2.0
//
// table.h: MPI's functions, by number, with the collective ones behind the clock.
#ifndef CKPT_BACK_TABLE_H
#define CKPT_BACK_TABLE_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

ckpt_back_fn *const *back_counted_table(void);

#pragma GCC visibility pop

#endif
