// SPDX-License-Identifier: Apache-2.0
//
// pmix.h: a launcher that speaks PMIx, through its library, which is loaded when it is needed.
//
// All return 0, or -1 with a sentence in why, of n bytes.  One thread at a time calls them, which may be another one
// each time.  They block, the fence for as long as the other ranks take.
#ifndef CKPT_PMIX_H
#define CKPT_PMIX_H

#include <stddef.h>
#include <stdint.h>

// Connects to the launcher.  A process does so once.
int pmix_begin(uint32_t *rank, uint32_t *ranks, char *why, size_t n);
// Says something to all ranks, which they can ask for after the next fence.  The bytes are copied.
int pmix_put(const char *key, void *bytes, size_t size, char *why, size_t n);
// Waits for all ranks.
int pmix_fence(char *why, size_t n);
// What a rank has said; *bytes is the caller's, to be freed.
int pmix_get(uint32_t rank, const char *key, void **bytes, size_t *size, char *why, size_t n);
// Takes leave of the launcher.
int pmix_end(char *why, size_t n);

#endif
