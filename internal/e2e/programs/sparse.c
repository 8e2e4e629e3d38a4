// SPDX-License-Identifier: Apache-2.0
//
// Memory that is shared, large and nearly empty, as that of databases and of heaps which several processes use: what was written
// is there, the rest is zeros, and none of it is made real by somebody who looks at all of it.
// usage: sparse ROUNDS DIR
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BYTES (1ul << 30)
enum { PAGE = 4096, PAGES = BYTES / PAGE, MOST = 3000, WORDS = PAGE / sizeof(uint64_t) };

enum { NAMELESS, MEMFD, POSIX, ON_DISK, KINDS };
static const char *kinds[KINDS] = {"nameless memory", "a memfd", "POSIX shared memory", "a file"};

static int wrong;

static void check(int good, const char *what, int kind, long round) {
    if (good || wrong++ > 10) return;
    printf("round %ld: %s: %s: %s\n", round, kinds[kind], what, strerror(errno));
}

static uint64_t value(int kind, long n) { return ((uint64_t)n + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)kind; }

// page is where the n-th page that is written lies, in the first half: some side by side, most far apart, no two the same.
static size_t page(long n) { return (size_t)(n / 3) * 20011 % (PAGES / 8) * 4 + (size_t)(n % 3); }

static long kib(const char *what) {
    char line[128];
    long n = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, what, strlen(what))) n = atol(line + strlen(what));
    if (f) fclose(f);
    return n;
}

static int opened(int kind, const char *dir, char name[128]) {
    switch (kind) {
    case NAMELESS:
        return -1;
    case MEMFD:
        return memfd_create("sparse", 0);
    case POSIX:
        snprintf(name, 128, "/libckpt-sparse-%d", getpid());
        return shm_open(name, O_RDWR | O_CREAT, 0600);
    }
    snprintf(name, 128, "%s/sparse.dat", dir);
    return open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    char name[KINDS][128] = {""};
    uint64_t *at[KINDS], sum = 0;
    for (int k = 0; k < KINDS; k++) {
        int fd = opened(k, argc > 2 ? argv[2] : ".", name[k]);
        // The file on the disk is shorter than what is mapped of it.
        check(k == NAMELESS || (fd >= 0 && ftruncate(fd, k == ON_DISK ? BYTES / 2 : BYTES) == 0),
              "cannot make it", k, -1);
        at[k] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
        if (at[k] == MAP_FAILED) {
            perror(kinds[k]);
            return 1;
        }
        if (k != MEMFD && fd >= 0) close(fd);
    }
    for (long round = 0; round < rounds; round++) {
        long n = round % MOST;
        for (int k = 0; k < KINDS; k++) {
            uint64_t *p = at[k] + page(n) * WORDS;
            *p = value(k, n), p[WORDS - 1] = *p ^ (uint64_t)round;
            nanosleep(&(struct timespec){0, 500000}, NULL);
            for (long i = n - 40 < 0 ? 0 : n - 40; i <= n; i++) {
                p = at[k] + page(i) * WORDS;
                check(*p == value(k, i) && p[1] == 0, "a page is not what it was", k, round);
                sum = sum * 31 + *p + p[WORDS - 1];
            }
        }
        long has = kib("RssShmem:");
        check(has >= 0 && has <= 3 * 4 * (MOST + 64), "much more of it is real than was written", NAMELESS,
              round);
        struct stat st;
        check(stat(name[ON_DISK], &st) == 0 && st.st_size == BYTES / 2, "has another size", ON_DISK, round);
        check(st.st_blocks * 512l <= PAGE * 16l * (MOST + 64), "takes much more than was written", ON_DISK,
              round);
        if (round % 50 == 49) printf("%ld %016llx\n", round, (unsigned long long)sum);
    }
    shm_unlink(name[POSIX]);
    printf(wrong ? "sparse: %d wrong\n" : "sparse: good\n", wrong);
    return wrong != 0;
}
