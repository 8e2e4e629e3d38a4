// SPDX-License-Identifier: Apache-2.0
//
// keepout.h: what Go asks of keepout.c.
#ifndef KEEPOUT_H
#define KEEPOUT_H

#include <stdint.h>

uint64_t keepout_calls(void); // of mmap by Go's runtime so far
uint64_t keepout_hints(void); // how many of them gave a hint that was left out
// mmap of this package, without access.  The address, or (uint64_t)-1.
uint64_t keepout_map(uint64_t addr, uint64_t bytes, int flags);

#endif
