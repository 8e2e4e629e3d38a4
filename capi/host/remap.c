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

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct reader {
    int fd;
    long at, n;
    char bytes[2048];
};

static int next(struct reader *r) {
    if (r->at == r->n) {
        r->n = RAW3(SYS_read, r->fd, r->bytes, sizeof r->bytes);
        r->at = 0;
        if (r->n <= 0) return r->n = 0, -1;
    }
    return (unsigned char)r->bytes[r->at++];
}

// A hexadecimal number, and the character behind it.
static uint64_t number(struct reader *r) {
    uint64_t v = 0;
    for (int c; (c = next(r)) >= 0;) {
        if (c >= '0' && c <= '9')
            v = v * 16 + (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            v = v * 16 + (uint64_t)(c - 'a' + 10);
        else
            break;
    }
    return v;
}

struct part {
    uint64_t start, end;
};

enum { PARTS = 64 };

// The mappings from start to end, which must be private memory with the same protection, without a gap.  Returns how
// many, or -EFAULT.
static int parts_of(uint64_t start, uint64_t end, struct part *list) {
    struct reader r = {.fd = (int)RAW4(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0)};
    if (r.fd < 0) return -EFAULT;
    char first[4] = "", perms[4];
    int n = 0;
    uint64_t at = start;
    while (at < end) {
        struct part p = {.start = number(&r)};
        p.end = number(&r);
        if (!p.end) break; // the end of the file
        for (int i = 0; i < 4; i++) perms[i] = (char)next(&r);
        next(&r);
        number(&r); // offset
        uint64_t device = number(&r) | number(&r), file = number(&r);
        for (int c = '\0'; c >= 0 && c != '\n';) c = next(&r);
        if (p.end <= at) continue;
        if (p.start > at || device || file || perms[3] != 'p' || n == PARTS) break;
        if (n && memcmp(first, perms, sizeof perms)) break;
        memcpy(first, perms, sizeof perms);
        list[n++] = (struct part){at, p.end < end ? p.end : end};
        at = p.end;
    }
    RAW1(SYS_close, r.fd);
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
