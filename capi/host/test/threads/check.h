// SPDX-License-Identifier: Apache-2.0
//
// check.h: what Go asks of check.c.
#ifndef CHECK_H
#define CHECK_H

#include <stddef.h>
#include <stdint.h>

int check_threads(const void *p, size_t bytes, char *why, size_t whybytes);
// The bytes written; 0: there is no room.  spent: with the processor time of each, as is written now.
size_t sample_threads(void *buffer, size_t bytes, unsigned timers, int spent);

#endif
