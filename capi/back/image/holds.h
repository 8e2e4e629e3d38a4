// SPDX-License-Identifier: Apache-2.0
//
// holds.h: what keeps a rank from being saved.
#ifndef CKPT_BACK_HOLDS_H
#define CKPT_BACK_HOLDS_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Whether something keeps this rank from being saved; why says what.
int back_holds(char *why, size_t bytes);

#pragma GCC visibility pop

#endif
