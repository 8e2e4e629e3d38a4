// SPDX-License-Identifier: Apache-2.0
//
// names.h: names that the program publishes.
#ifndef CKPT_BACK_NAMES_H
#define CKPT_BACK_NAMES_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Publishes the names of the saved job again.  Names that could not be published are dropped from the list.
// Returns how many these are; why names the first of them, and the reason.
int back_names_open(char *why, size_t bytes);

#pragma GCC visibility pop

#endif
