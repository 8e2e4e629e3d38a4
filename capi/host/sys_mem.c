// SPDX-License-Identifier: Apache-2.0
//
// sys_mem.c: the upper half's mappings get their addresses in the arena.
//
// These emulations call the lower libc's functions instead of raw system calls: UCX and others patch those
// functions to learn of memory that is unmapped (docs/split-process.md P25).
#include "host.h"
#include "arena.h"
#include "emulation.h"
#include "fds.h"
#include "limits.h"
#include "thread.h"

#include <asm/prctl.h>
#include <errno.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096ull
#define HUGE (2ull << 20)
#define UP(x) (((uint64_t)(x) + PAGE - 1) & ~(PAGE - 1))

static uint64_t alignment(uint64_t bytes) { return bytes >= HUGE ? HUGE : PAGE; }

static long mapped(void *p) { return p == MAP_FAILED ? -errno : (long)p; }

// Memory that the program has mapped by address where its memory is not saved.  It holds a checkpoint back.
// Under host.lock.
static struct { uint64_t start, end; } outside[32];
enum { OUTSIDE = sizeof outside / sizeof *outside };

int memory_outside(uint64_t *start, uint64_t *end) {
    int found = 0;
    lock();
    for (int i = 0; i < OUTSIDE && !found; i++)
        if (outside[i].end) *start = outside[i].start, *end = outside[i].end, found = 1;
    unlock();
    return found;
}

// Unmaps such memory, each mapping as a whole.  Other addresses there are the lower half's, and are refused.
static long unmap_outside(uint64_t start, uint64_t end) {
    long r = -EINVAL;
    lock();
    for (int i = 0; i < OUTSIDE; i++)
        if (outside[i].end == end && outside[i].start == start) {
            r = munmap((void *)start, end - start) ? -errno : 0;
            if (!r) outside[i].end = 0;
        }
    unlock();
    return r;
}

// Of a mapping of that length: what counts as data.
static uint64_t data_of(uint64_t bytes, int prot, int flags) {
    return (prot & PROT_WRITE) && (flags & MAP_TYPE) == MAP_PRIVATE ? bytes : 0;
}

long sys_mmap(struct call *c) {
    if (c->a[3] & MAP_LOCKED) asks(CKPT_ASKED_LOCKED);
    uint64_t addr = (uint64_t)c->a[0], bytes = UP(c->a[1]);
    int prot = (int)c->a[2], flags = (int)c->a[3], fd = (int)c->a[4];
    if (!(flags & MAP_ANONYMOUS) && !is_used(c, fd))
        return -EBADF; // of what keeps the number, nothing is to be seen
    if (!c->a[1]) return -EINVAL;
    if (!bytes || bytes > ARENA_END - ARENA_MMAP) return -ENOMEM;
    if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
        // A fixed address may be in the program's part of the arena, or a low one of the program's choice.
        // Elsewhere a mapping must not replace anything of the lower half.
        bool own = (addr >= ARENA_STACK && addr + bytes <= ARENA_END) || addr + bytes <= LOW_END;
        if (!own) flags = (flags & ~MAP_FIXED) | MAP_FIXED_NOREPLACE;
        lock();
        int room = own ? -1 : 0;
        while (room >= 0 && room < OUTSIDE && outside[room].end) room++;
        bool refused = room == OUTSIDE ||
                       !limits_allow(arena_free_bytes(addr, addr + bytes), data_of(bytes, prot, flags));
        long r = refused ? -ENOMEM : mapped(mmap((void *)addr, bytes, prot, flags, fd, c->a[5]));
        if (r >= 0 && room >= 0) outside[room].start = (uint64_t)r, outside[room].end = (uint64_t)r + bytes;
        if (r >= 0) arena_claim(addr, addr + bytes);
        if (r >= 0) segment_torn(addr, addr + bytes);
        unlock();
        if (r >= 0) memory_changes(c, addr, bytes, MEMORY_GONE);
        return r;
    }
    // A hint: a program may depend on it (Lisp's static space), though it need not be heeded.
    addr = addr < ARENA_END ? UP(addr) : 0;
    bool low = addr && addr + bytes <= LOW_END;
    lock();
    if (!limits_allow(bytes, data_of(bytes, prot, flags))) {
        unlock();
        return -ENOMEM;
    }
    if (flags & MAP_32BIT) {
        unlock();
        return mapped(mmap(low ? (void *)addr : NULL, bytes, prot, flags, fd, c->a[5]));
    }
    if (low || (addr >= ARENA_MMAP && addr + bytes <= ARENA_END)) {
        void *p = mmap((void *)addr, bytes, prot, flags | MAP_FIXED_NOREPLACE, fd, c->a[5]);
        if (p != MAP_FAILED) {
            arena_claim(addr, addr + bytes);
            unlock();
            return (long)p;
        }
    }
    uint64_t at = arena_reserve(bytes, alignment(bytes));
    long r = -ENOMEM;
    if (at) {
        r = mapped(mmap((void *)at, bytes, prot, flags | MAP_FIXED_NOREPLACE, fd, c->a[5]));
        if (r < 0) arena_free(at, at + bytes);
    }
    unlock();
    return r;
}

long sys_munmap(struct call *c) {
    uint64_t addr = (uint64_t)c->a[0], bytes = UP(c->a[1]);
    if ((addr & (PAGE - 1)) || !bytes) return -EINVAL;
    if (!in_upper(addr)) return unmap_outside(addr, addr + bytes);
    lock();
    long r = munmap((void *)addr, bytes) ? -errno : 0;
    if (!r) arena_free(addr, addr + bytes);
    if (!r) segment_torn(addr, addr + bytes);
    unlock();
    if (!r) memory_changes(c, addr, bytes, MEMORY_GONE);
    return r;
}

long sys_mremap(struct call *c) {
    uint64_t addr = (uint64_t)c->a[0], old = UP(c->a[1]), new = UP(c->a[2]);
    int flags = (int)c->a[3];
    if (!new || (addr & (PAGE - 1))) return -EINVAL;
    memory_changes(c, addr, old, MEMORY_MOVE);
    lock();
    if (new > old && !limits_allow(new - old, new - old)) { // of the program's own, nearly all is data
        unlock();
        return -ENOMEM;
    }
    segment_torn(addr, addr + (old ? old : PAGE));
    long r;
    if (flags & MREMAP_FIXED) {
        uint64_t to = (uint64_t)c->a[4];
        r = in_upper(to) ? remap_to(addr, old, new, flags, to) : -EINVAL;
        if (r >= 0) {
            if (!(flags & MREMAP_DONTUNMAP)) arena_free(addr, addr + old);
            arena_claim(to, to + new);
            segment_torn(to, to + new);
        }
        unlock();
        if (r >= 0) memory_changes(c, to, new, MEMORY_GONE);
        return r;
    }
    // In place first: the kernel grows only into free addresses, and those are ours to give.
    r = flags & MREMAP_DONTUNMAP ? -ENOMEM : remap_in_place(addr, old, new);
    if (r >= 0) {
        if (new < old)
            arena_free(addr + new, addr + old);
        else
            arena_claim(addr + old, addr + new);
    } else if (r == -ENOMEM && (flags & MREMAP_MAYMOVE)) {
        uint64_t to = arena_reserve(new, alignment(new));
        if (to) {
            r = remap_to(addr, old, new, flags | MREMAP_FIXED, to);
            if (r < 0)
                arena_free(to, to + new);
            else if (old && !(flags & MREMAP_DONTUNMAP))
                arena_free(addr, addr + old);
        }
    }
    unlock();
    return r;
}

long sys_brk(struct call *c) {
    uint64_t want = (uint64_t)c->a[0];
    lock();
    if (want < ARENA_BRK || want > ARENA_BRK_END) {
        unlock();
        return (long)host.brk;
    }
    uint64_t from = UP(host.brk), to = UP(want);
    bool ok = true;
    if (to > from)
        ok = limits_allow(to - from, to - from) &&
             mmap((void *)from, to - from, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED;
    else if (to < from)
        munmap((void *)to, from - to);
    if (ok) host.brk = want;
    unlock();
    if (ok && to < from) memory_changes(c, to, from - to, MEMORY_GONE);
    return (long)host.brk;
}

long sys_arch_prctl(struct call *c) {
    switch (c->a[0]) {
    case ARCH_SET_FS: // the FS base itself changes on the way up
        c->t->upper_fs = (uint64_t)c->a[1];
        return 0;
    case ARCH_GET_FS:
        *(uint64_t *)c->a[1] = c->t->upper_fs;
        return 0;
    case ARCH_SET_GS: // the gate needs it
    case ARCH_GET_GS:
        return -EPERM;
    default:
        return RAW2(SYS_arch_prctl, c->a[0], c->a[1]);
    }
}
