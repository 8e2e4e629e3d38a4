// SPDX-License-Identifier: Apache-2.0
//
// names.h: names that the program publishes.
#ifndef CKPT_BACK_NAMES_H
#define CKPT_BACK_NAMES_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Publishes the names of the saved job again.  Those that could not be are left out of the list; says how
// many, and in why, of the first of them, which and why not.
int back_names_open(char *why, size_t bytes);

#pragma GCC visibility pop

#endif
