// SPDX-License-Identifier: Apache-2.0
//
// reserve.h: small pieces of memory for what must not fail.
#ifndef CKPT_BACK_RESERVE_H
#define CKPT_BACK_RESERVE_H

#include <stddef.h>

#pragma GCC visibility push(hidden)

// Zeroed memory for something small that must not be missing; NULL when even the reserve is used up.
void *back_reserve(size_t bytes);
void back_release(void *memory);

#pragma GCC visibility pop

#endif
