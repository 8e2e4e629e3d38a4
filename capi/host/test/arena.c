// SPDX-License-Identifier: Apache-2.0
//
// Random operations on the free list of the arena, against a map with one byte a page.  Status 0
// when both always agreed; otherwise the first disagreement is printed with the operation's number.
//
// Most of the window is claimed at the start, so that the rest is small enough to be compared page
// by page and soon lies in pieces: once at the lower border of the window, once at the upper one.
#include "../arena.c"

#include <stdio.h>
#include <stdlib.h>

#define PAGE 4096ull
#define PAGES 2048
#define OPERATIONS 100000

static unsigned char used[PAGES]; // the model
static uint64_t base;             // address of the first page
static long step;
static size_t most; // ranges that the list had at a time

static uint64_t at(size_t page) { return base + page * PAGE; }

static void fail(const char *what, uint64_t got, uint64_t want) {
    printf("arena: operation %ld, pages from 0x%lx on: %s: 0x%lx, expected 0x%lx\n", step, base, what, got,
           want);
    exit(1);
}

// xorshift64: the same sequence everywhere.
static uint64_t seed = 0x9e3779b97f4a7c15ull;
static uint64_t below(uint64_t n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % n;
}

// The lowest aligned address at which so many pages are free.
static uint64_t first_fit(uint64_t n, uint64_t align) {
    size_t run = 0;
    for (size_t end = 1; end <= PAGES; end++) {
        run = used[end - 1] ? 0 : run + 1;
        size_t low = end - run; // the free run that ends here
        uint64_t start = (at(low) + align - 1) & ~(align - 1);
        if (run && start + n * PAGE == at(end)) return start;
    }
    return 0;
}

static void mark(uint64_t start, uint64_t end, unsigned char v) {
    for (uint64_t a = start; a < end; a += PAGE) used[(a - base) / PAGE] = v;
}

// The list is the free runs of the model: in order, merged, and nothing else.
static void compare(void) {
    size_t i = 0;
    for (size_t p = 0; p < PAGES;) {
        if (used[p]) {
            p++;
            continue;
        }
        size_t q = p;
        while (q < PAGES && !used[q]) q++;
        if (i == count) fail("a free run is not on the list", 0, at(p));
        if (ranges[i].start != at(p)) fail("start of a range", ranges[i].start, at(p));
        if (ranges[i].end != at(q)) fail("end of a range", ranges[i].end, at(q));
        i++;
        p = q;
    }
    if (i != count) fail("ranges", count, i);
    if (count > most) most = count;
}

static void reserve(void) {
    uint64_t n = 1 + below(below(8) ? 4 : 64), align = PAGE << (below(4) ? 0 : below(6));
    uint64_t want = first_fit(n, align), got = arena_reserve(n * PAGE, align);
    if (got != want) fail("reserve", got, want);
    if (got) mark(got, got + n * PAGE, 1);
}

static void claim(void) {
    size_t from = below(PAGES), to = from + 1 + below(PAGES - from < 8 ? PAGES - from : 8);
    if (!arena_claim(at(from), at(to))) fail("claim", 0, 1);
    mark(at(from), at(to), 1);
}

static void give_back(void) {
    size_t from = below(PAGES), to = from + 1 + below(PAGES - from < 8 ? PAGES - from : 8);
    arena_free(at(from), at(to));
    mark(at(from), at(to), 0);
}

static void ask(void) {
    size_t from = below(PAGES), to = from + 1 + below(PAGES - from < 8 ? PAGES - from : 8);
    bool want = memchr(used + from, 0, to - from) != NULL;
    if (arena_has_free(at(from), at(to)) != want) fail("a free part", !want, want);
}

// What reaches over the borders of the window.
static void borders(void) {
    if (arena_claim(ARENA_MMAP - PAGE, ARENA_MMAP + PAGE)) fail("claim below the window", 1, 0);
    if (arena_claim(ARENA_END - PAGE, ARENA_END + PAGE)) fail("claim above the window", 1, 0);
    arena_free(ARENA_MMAP - 2 * PAGE, ARENA_MMAP);
    arena_free(ARENA_END, ARENA_END + PAGE);
    if (arena_reserve(ARENA_END - ARENA_MMAP + PAGE, PAGE)) fail("reserve too much", 1, 0);
    if (arena_reserve(UINT64_MAX - PAGE + 1, PAGE)) fail("reserve, where the sum overflows", 1, 0);
    if (arena_reserve(0, PAGE)) fail("reserve nothing", 1, 0);
    compare();
}

// A list longer than its first piece of memory, and the whole window again after it.
static void pieces(void) {
    arena_free(at(0), at(PAGES));
    mark(at(0), at(PAGES), 0);
    compare();
    for (size_t p = 0; p < PAGES; p += 2) {
        arena_claim(at(p), at(p + 1));
        mark(at(p), at(p + 1), 1);
    }
    compare();
    uint64_t got = arena_reserve(2 * PAGE, PAGE);
    if (got) fail("reserve of two pages where only single ones are free", got, 0);
    for (size_t p = 0; p < PAGES; p += 2) arena_free(at(p), at(p + 1));
    mark(at(0), at(PAGES), 0);
    compare();
}

static void run(uint64_t first) {
    base = first;
    step = 0;
    memset(used, 0, sizeof(used));
    arena_init();
    uint64_t last = base + PAGES * PAGE;
    if (base > ARENA_MMAP) arena_claim(ARENA_MMAP, base);
    if (last < ARENA_END) arena_claim(last, ARENA_END);
    compare();
    borders();
    pieces();
    for (step = 1; step <= OPERATIONS; step++) {
        switch (below(5)) {
        case 0:
        case 1:
            reserve();
            break;
        case 2:
            claim();
            break;
        default:
            give_back();
            break;
        }
        ask();
        compare();
    }
    borders();
    pieces();
}

int main(void) {
    run(ARENA_MMAP);
    run(ARENA_END - PAGES * PAGE);
    if (most < 2 * 4096 / sizeof(struct range)) fail("ranges at most: the list never grew", most, 0);
    printf("arena: %d random operations, twice; up to %zu free ranges\n", OPERATIONS, most);
    return 0;
}
