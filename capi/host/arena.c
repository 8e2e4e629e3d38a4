// SPDX-License-Identifier: Apache-2.0
//
// arena.c: which addresses of the arena's mmap window are free.
//
// The kernel would place the upper half's mappings among the lower half's.  So every mapping of the upper
// half gets its address here.  Free ranges are kept sorted and merged, first fit from below: a program that
// maps and unmaps for days reuses the same addresses.  All of this is under host.lock.
#include "host.h"
#include "arena.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct range {
    uint64_t start, end;
};

// Free ranges, in memory of our own: the dispatcher must not call malloc (a forked child may have
// inherited a held malloc lock).
static struct range *ranges;
static size_t count, room;

static void grow(void) {
    size_t bytes = room * sizeof(*ranges);
    void *p = mmap(NULL, bytes * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return; // the caller finds no room and drops the range: a leak, not an error
    memcpy(p, ranges, bytes);
    munmap(ranges, bytes);
    ranges = p;
    room *= 2;
}

void arena_init(void) {
    room = 4096 / sizeof(*ranges);
    ranges = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ranges[0] = (struct range){ARENA_MMAP, ARENA_END};
    count = 1;
}

static void insert(size_t at, struct range r) {
    if (count == room) grow();
    if (count == room) return;
    memmove(ranges + at + 1, ranges + at, (count - at) * sizeof(*ranges));
    ranges[at] = r;
    count++;
}

static void erase(size_t at) {
    memmove(ranges + at, ranges + at + 1, (count - at - 1) * sizeof(*ranges));
    count--;
}

// First range that ends after addr.
static size_t find(uint64_t addr) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (ranges[mid].end <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool arena_claim(uint64_t start, uint64_t end) {
    if (start < ARENA_MMAP || end > ARENA_END) return false;
    size_t i = find(start);
    while (i < count && ranges[i].start < end) {
        struct range r = ranges[i];
        if (r.start < start && r.end > end) {
            ranges[i].end = start;
            insert(i + 1, (struct range){end, r.end});
            return true;
        }
        if (r.start < start) {
            ranges[i++].end = start;
        } else if (r.end > end) {
            ranges[i].start = end;
            return true;
        } else {
            erase(i);
        }
    }
    return true;
}

// Whether a part of these addresses is on the list: then what is mapped there is not the program's.
bool arena_has_free(uint64_t start, uint64_t end) {
    size_t i = find(start);
    return i < count && ranges[i].start < end;
}

uint64_t arena_free_bytes(uint64_t start, uint64_t end) {
    uint64_t sum = 0;
    for (size_t i = find(start); i < count && ranges[i].start < end; i++)
        sum +=
            (ranges[i].end < end ? ranges[i].end : end) - (ranges[i].start > start ? ranges[i].start : start);
    return sum;
}

uint64_t arena_reserve(uint64_t bytes, uint64_t align) {
    for (size_t i = 0; i < count; i++) {
        uint64_t start = (ranges[i].start + align - 1) & ~(align - 1);
        if (start + bytes <= ranges[i].end && start + bytes > start) {
            arena_claim(start, start + bytes);
            return start;
        }
    }
    return 0;
}

void arena_free(uint64_t start, uint64_t end) {
    if (start < ARENA_MMAP) start = ARENA_MMAP;
    if (end > ARENA_END) end = ARENA_END;
    if (start >= end) return;
    size_t i = find(start);
    // Drop what is free already, then merge with both neighbours.
    while (i < count && ranges[i].start <= end) {
        if (ranges[i].start < start) start = ranges[i].start;
        if (ranges[i].end > end) end = ranges[i].end;
        erase(i);
    }
    if (i > 0 && ranges[i - 1].end == start) {
        ranges[i - 1].end = end;
        return;
    }
    insert(i, (struct range){start, end});
}

// Libraries that are loaded with ckptrun, or by it, may give mmap a hint.  Such memory must not be in the
// arena (package keepout has more).  Called before anything of the program is mapped.
const char *arena_vacant(void) {
    static char why[4600];
    FILE *f = fopen("/proc/self/maps", "re");
    if (!f) {
        snprintf(why, sizeof why, "cannot read /proc/self/maps: %s", strerror(errno));
        return why;
    }
    char line[4400];
    const char *error = NULL;
    while (!error && fgets(line, sizeof line, f)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) != 2 || start >= ARENA_END || end <= ARENA + 4096) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(why, sizeof why,
                 "a library that is loaded with ckptrun has taken addresses that are kept for the "
                 "program (0x%llx to 0x%llx): %s; is there an LD_PRELOAD that ckptrun need not have?",
                 ARENA, ARENA_END, line);
        error = why;
    }
    fclose(f);
    return error;
}
