// SPDX-License-Identifier: Apache-2.0
//
// remap.c: mremap of memory that is one mapping to the program and several to the kernel.
//
// The kernel joins mappings that are made beside each other, and mremap works on one of them only.  Under ckptrun a
// mapping may differ from its neighbour in what the program does not see: it was restored, waits for pages of an image,
// has huge pages, or is followed (internal/written).  Then the kernel answers EFAULT, and here the parts are moved one by
// one.  Nothing here may call malloc: a forked child may have inherited a held lock.
#include "host.h"
#include "arena.h"
#include "lower.h"
#include "machine.h"
#include "maps.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct part {
    uint64_t start, end;
};

enum { PARTS = 64 };

// The mappings from start to end, which must be private memory with the same protection, without a gap.  Returns how
// many, or -EFAULT.
static int parts_of(uint64_t start, uint64_t end, struct part *list) {
    struct maps r;
    if (!maps_open(&r)) return -EFAULT;
    char first[4] = "";
    int n = 0;
    uint64_t at = start;
    for (struct mapping m; at < end && maps_next(&r, &m);) {
        if (m.end <= at) continue;
        if (m.start > at || m.file || m.perms[3] != 'p' || n == PARTS) break;
        if (n && memcmp(first, m.perms, sizeof first)) break;
        memcpy(first, m.perms, sizeof first);
        list[n++] = (struct part){at, m.end < end ? m.end : end};
        at = m.end;
    }
    maps_close(&r);
    return at >= end && n > 1 ? n : -EFAULT;
}

// The library's function would not do: UCX puts one in its place that loses the address.
static long remap(uint64_t addr, uint64_t old, uint64_t new, int flags, uint64_t to) {
    return RAW6(SYS_mremap, addr, old, new, flags, to, 0);
}

static long stretch_parts(uint64_t addr, uint64_t old, uint64_t new) {
    struct part list[PARTS];
    int n = parts_of(addr, addr + old, list);
    if (n < 0) return n;
    long r = 0;
    if (new < old)
        r = RAW2(SYS_munmap, addr + new, old - new);
    else if (new > old) {
        const struct part *last = &list[n - 1];
        r = remap(last->start, last->end - last->start, addr + new - last->start, 0, 0);
    }
    return r < 0 ? r : (long)addr;
}

static long move_parts(uint64_t addr, uint64_t old, uint64_t new, int flags, uint64_t to) {
    struct part list[PARTS];
    int n = parts_of(addr, addr + old, list);
    if (n < 0) return n;
    if (addr < to + new &&to < addr + old) return -EINVAL;
    if (new < old) { // as the kernel does: what is too much goes first
        RAW2(SYS_munmap, addr + new, old - new);
        while (list[n - 1].start >= addr + new) n--;
        list[n - 1].end = addr + new;
    }
    for (int i = 0; i < n; i++) {
        uint64_t from = list[i].start, bytes = list[i].end - from;
        long r = remap(from, bytes, i < n - 1 ? bytes : addr + new - from, flags, to + (from - addr));
        if (r >= 0) continue;
        while (i-- > 0) {
            from = list[i].start, bytes = list[i].end - from;
            if (remap(to + (from - addr), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, from) < 0)
                die(1, "memory at %#lx was moved in part, and could not be moved back", (long)from);
        }
        return r;
    }
    return (long)to;
}

long remap_in_place(uint64_t addr, uint64_t old, uint64_t new) {
    long r = remap(addr, old, new, 0, 0);
    return r == -EFAULT ? stretch_parts(addr, old, new) : r;
}

long remap_to(uint64_t addr, uint64_t old, uint64_t new, int flags, uint64_t to) {
    long r = remap(addr, old, new, flags, to);
    return r == -EFAULT ? move_parts(addr, old, new, flags, to) : r;
}
