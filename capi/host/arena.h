// SPDX-License-Identifier: Apache-2.0
//
// arena.h: the addresses of the upper half, and which of them are free (arena.c, sys_mem.c).
#ifndef ARENA_H
#define ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/private/gate.h"

// Begins with the gate page.  Package ckpt/snapshot knows these addresses too; its layout_test.go compares.
#define ARENA CKPT_ARENA_BASE
#define ARENA_TABLES (ARENA + (16ull << 20)) // vid tables, mapped by Go; never saved
#define ARENA_STACK (ARENA + (256ull << 20)) // main stack lies below ARENA_STACK_END
#define ARENA_STACK_END (ARENA + (512ull << 20))
#define ARENA_BRK (ARENA + (1ull << 30)) // brk window
#define ARENA_BRK_END (ARENA + (65ull << 30))
#define ARENA_MMAP (ARENA + (128ull << 30)) // everything else
#define ARENA_END CKPT_ARENA_END
// A non-PIE program and MAP_32BIT mappings lie below this; nothing of the lower half does.
#define LOW_END CKPT_LOW_END

static inline bool in_upper(uint64_t ip) { return (ip >= ARENA && ip < ARENA_END) || ip < LOW_END; }

// ---- arena.c: the mmap window; all but arena_vacant under host.lock ------------------------------
void arena_init(void);
uint64_t arena_reserve(uint64_t bytes, uint64_t align); // 0 when full; caller maps it
bool arena_claim(uint64_t start, uint64_t end);         // takes a fixed range out of the free list
void arena_free(uint64_t start, uint64_t end);
bool arena_has_free(uint64_t start, uint64_t end);
uint64_t arena_free_bytes(uint64_t start, uint64_t end);
const char *arena_vacant(void); // NULL, or a sentence about what lies in the arena

// ---- remap.c: mremap with the kernel's results; under host.lock ------------------------------------
long remap_in_place(uint64_t addr, uint64_t old, uint64_t new);
long remap_to(uint64_t addr, uint64_t old, uint64_t new, int flags,
              uint64_t to); // flags: MREMAP_FIXED is set

// ---- sys_mem.c ---------------------------------------------------------------------------------
int memory_outside(uint64_t *start, uint64_t *end); // of struct host_ops

#endif
