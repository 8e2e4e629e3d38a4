// SPDX-License-Identifier: Apache-2.0
//
// keepout.c: the mmap that Go's runtime calls.  Hidden: the rest of the process has the C library's.
//
// No header of mmap, which would give it the C library's visibility.
#include "keepout.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ckpt/private/gate.h"

enum { FIXED = 0x10, FIXED_NOREPLACE = 0x100000 }; // MAP_FIXED, MAP_FIXED_NOREPLACE

static uint64_t calls, hints;

static int theirs(uint64_t start, uint64_t bytes) {
    uint64_t end = start + bytes;
    return end < start || start < CKPT_LOW_END || (start < CKPT_ARENA_END && end > CKPT_ARENA_BASE);
}

__attribute__((visibility("hidden"))) void *mmap(void *addr, size_t bytes, int prot, int flags, int fd,
                                                 long offset) {
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (addr && !(flags & (FIXED | FIXED_NOREPLACE)) && theirs((uint64_t)addr, bytes)) {
        __atomic_fetch_add(&hints, 1, __ATOMIC_RELAXED);
        addr = NULL;
    }
    return (void *)syscall(SYS_mmap, addr, bytes, prot, flags, fd, offset);
}

uint64_t keepout_calls(void) { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }

uint64_t keepout_hints(void) { return __atomic_load_n(&hints, __ATOMIC_RELAXED); }

uint64_t keepout_map(uint64_t addr, uint64_t bytes, int flags) {
    return (uint64_t)mmap((void *)addr, bytes, 0, flags, -1, 0);
}
