// SPDX-License-Identifier: Apache-2.0
//
// Memory that comes, grows, moves and goes: mmap, mremap, mprotect, madvise, munmap of the middle,
// brk, malloc of all sizes, while two threads do the same. Every block carries a pattern.
// usage: memory ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 64, PAGE = 4096 };

struct block {
    uint64_t *at;
    size_t bytes;
    uint64_t seed;
    int heap, split; // split: several mappings, which mremap does not take
};

static void fail(int line) {
    fprintf(stderr, "line %d: %s\n", line, strerror(errno));
    exit(1);
}

static uint64_t next(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

static void fill(struct block *b) {
    uint64_t s = b->seed;
    for (size_t i = 0; i < b->bytes / 8; i += 64) b->at[i] = next(&s);
}

static void check(const struct block *b, size_t bytes) {
    uint64_t s = b->seed;
    for (size_t i = 0; i < bytes / 8; i += 64)
        if (b->at[i] != next(&s)) {
            printf("block of %zu bytes differs at %zu\n", b->bytes, i * 8);
            exit(1);
        }
}

static void release(struct block *b) {
    if (b->heap)
        free(b->at);
    else if (munmap(b->at, b->bytes) != 0)
        fail(__LINE__);
    b->at = NULL;
}

static void acquire(struct block *b, uint64_t r) {
    b->heap = r % 3 == 0;
    b->seed = r | 1;
    b->split = 0;
    if (b->heap) {
        b->bytes = 8 * (1 + r % 20000);
        b->at = malloc(b->bytes);
    } else {
        b->bytes = PAGE * (1 + r % 300);
        b->at = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b->at == MAP_FAILED) fail(__LINE__);
    }
    fill(b);
}

static void change(struct block *b, uint64_t r) {
    check(b, b->bytes);
    if (b->heap) {
        size_t bytes = 8 * (1 + r % 30000), kept = bytes < b->bytes ? bytes : b->bytes;
        b->at = realloc(b->at, bytes);
        check(b, kept);
        b->bytes = bytes;
        fill(b);
        return;
    }
    switch (b->split ? 1 + r % 3 : r % 4) {
    case 0: { // grow or shrink, perhaps elsewhere
        size_t bytes = PAGE * (1 + r / 4 % 400), kept = bytes < b->bytes ? bytes : b->bytes;
        b->at = mremap(b->at, b->bytes, bytes, MREMAP_MAYMOVE);
        if (b->at == MAP_FAILED) fail(__LINE__);
        check(b, kept);
        b->bytes = bytes;
        fill(b);
        break;
    }
    case 1: // forbid and allow again
        if (mprotect(b->at, b->bytes, PROT_NONE) != 0 || mprotect(b->at, b->bytes, PROT_READ) != 0)
            fail(__LINE__);
        check(b, b->bytes);
        if (mprotect(b->at, b->bytes, PROT_READ | PROT_WRITE) != 0) fail(__LINE__);
        break;
    case 2: // give the pages back: they read as zero
        if (madvise(b->at, b->bytes, MADV_DONTNEED) != 0) fail(__LINE__);
        for (size_t i = 0; i < b->bytes / 8; i += 512)
            if (b->at[i] != 0) fail(__LINE__);
        fill(b);
        break;
    case 3: // a hole in the middle, and a new mapping in it
        if (b->bytes >= 3 * PAGE) {
            char *middle = (char *)b->at + b->bytes / PAGE / 2 * PAGE;
            if (munmap(middle, PAGE) != 0) fail(__LINE__);
            if (mmap(middle, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
                middle)
                fail(__LINE__);
            b->split = 1;
            fill(b);
        }
    }
}

// Where a program's own data must be, without MAP_FIXED: the space of Lisp's constants, say.
static struct block wanted[2];

static void want(struct block *b, uintptr_t at, int flags) {
    b->bytes = 16 * PAGE;
    b->seed = at | 1;
    b->at = mmap((void *)at, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (b->at != (void *)at) fail(__LINE__);
    fill(b);
}

static int rounds;

static void *churn(void *arg) {
    uint64_t s = (uint64_t)(uintptr_t)arg * 88172645463325252u, *digest = malloc(sizeof *digest);
    struct block blocks[BLOCKS] = {{0}};
    *digest = 0;
    for (int i = 0; i < rounds; i++) {
        struct block *b = &blocks[next(&s) % BLOCKS];
        uint64_t r = next(&s);
        if (b->at == NULL)
            acquire(b, r);
        else if (r % 5 == 0)
            release(b);
        else
            change(b, r / 5);
        *digest = *digest * 31 + (b->at ? b->bytes + b->at[0] : 0);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].at != NULL) {
            check(&blocks[i], blocks[i].bytes);
            release(&blocks[i]);
        }
    return digest;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 1000;
    // Two private copies of a file mapping, one written to.
    FILE *f = tmpfile();
    for (int i = 0; i < 3 * PAGE; i++) putc(i % 251, f);
    fflush(f);
    unsigned char *map = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(f), 0);
    if (map == MAP_FAILED) fail(__LINE__);
    map[PAGE + 7] = 255;
    char *top = sbrk(0);
    want(&wanted[0], 0x50000000, MAP_32BIT);
    want(&wanted[1], 0x50100000, 0);
    // What is there stays there.
    char *other = mmap(wanted[1].at, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (other == MAP_FAILED || other == (char *)wanted[1].at || munmap(other, PAGE) != 0) fail(__LINE__);

    pthread_t t[2];
    for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, churn, (void *)(uintptr_t)(i + 2));
    uint64_t *mine = churn((void *)1);
    printf("digest %016lx", (unsigned long)*mine);
    for (int i = 0; i < 2; i++) {
        void *theirs;
        pthread_join(t[i], &theirs);
        printf(" %016lx", *(unsigned long *)theirs);
    }
    printf("\n");
    for (int i = 0; i < 2; i++) {
        check(&wanted[i], wanted[i].bytes);
        release(&wanted[i]);
    }
    unsigned sum = 0;
    for (int i = 0; i < 3 * PAGE; i++) sum = sum * 31 + map[i];
    printf("private file map %08x at 7 %d\n", sum, map[PAGE + 7]);
    if (sbrk(1 << 20) == (void *)-1 || (char *)sbrk(0) < top) printf("brk failed\n");
    memset((char *)sbrk(0) - (1 << 20), 1, 1 << 20);
    return 0;
}
