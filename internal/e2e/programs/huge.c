// SPDX-License-Identifier: Apache-2.0
//
// Memory in huge pages, of which few are written, in the steps that somebody asks for.
// usage: huge DIR
//
// When DIR/go-N is there, step N writes a word into some pages, and DIR/done-N then says how much of the memory was in huge
// pages, in KiB, before it, right after it and, but for the last step, when all of it was again; that may take a while. After
// the last step it prints a sum of everything.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { HUGE = 2 << 20, PAGES = 12, STEPS = 3, WORDS = HUGE / 8 };

static uint64_t *memory;

// kib is how much of memory is in huge pages.
static long kib(void) {
    char line[512], start[32];
    long n = -1;
    int here = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    snprintf(start, sizeof start, "%lx-", (unsigned long)memory);
    while (f && n < 0 && fgets(line, sizeof line, f)) {
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' '))
            here = !strncmp(line, start, strlen(start));
        if (here) sscanf(line, "AnonHugePages: %ld", &n);
    }
    if (f) fclose(f);
    return n;
}

static void nap(void) { nanosleep(&(struct timespec){0, 20000000}, NULL); }

int main(int argc, char **argv) {
    char path[4096];
    if (argc != 2) return 2;
    char *p =
        mmap(NULL, (PAGES + 1) * (size_t)HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return perror("mmap"), 1;
    // A mapping of just so much: what lies around it is given back.
    char *begin = p + (-(uintptr_t)p & (HUGE - 1)), *end = begin + PAGES * (size_t)HUGE;
    if (begin > p) munmap(p, (size_t)(begin - p));
    munmap(end, HUGE - (size_t)(begin - p));
    memory = (uint64_t *)begin;
    madvise(memory, PAGES * (size_t)HUGE, MADV_HUGEPAGE);
    for (size_t i = 0; i < PAGES * (size_t)WORDS; i++) memory[i] = (i + 1) * 0x9e3779b97f4a7c15u;
    const long all = kib();
    for (int step = 0; step <= STEPS; step++) {
        snprintf(path, sizeof path, "%s/go-%d", argv[1], step);
        while (access(path, F_OK)) nap();
        long before = kib();
        for (int n = step; n < PAGES; n += 2)
            for (int i = 0; i < step; i++)
                memory[(size_t)n * WORDS + (size_t)(n * 512 * 7 + i * 512)] += (uint64_t)step;
        long after = kib(), later = after;
        for (time_t since = time(NULL); step < STEPS && later < all && time(NULL) - since < 60; later = kib())
            nap();
        snprintf(path, sizeof path, "%s/new-%d", argv[1], step);
        FILE *f = fopen(path, "w");
        if (!f || fprintf(f, "%ld %ld %ld", before, after, later) < 0 || fclose(f)) return perror(path), 1;
        char done[4096];
        snprintf(done, sizeof done, "%s/done-%d", argv[1], step);
        if (rename(path, done)) return perror(done), 1;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < PAGES * (size_t)WORDS; i++) sum = sum * 31 + memory[i];
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
