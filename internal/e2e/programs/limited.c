// SPDX-License-Identifier: Apache-2.0
//
// Limits of memory that the program sets itself: each is refused what is above them and gets what is below, a child has
// the same, and a limit that is nothing at all hurts nobody but the program.
// usage: limited ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ul << 20)

static int wrong;

static void check(int good, const char *what, long round) {
    if (good || wrong++ > 10) return;
    printf("round %ld: %s: %s\n", round, what, strerror(errno));
}

static int set(int resource, rlim_t soft) {
    struct rlimit r;
    if (getrlimit(resource, &r)) return 0;
    r.rlim_cur = soft;
    return setrlimit(resource, &r) == 0;
}

static rlim_t soft(int resource) {
    struct rlimit r = {0, 0};
    prlimit(0, resource, NULL, &r);
    return r.rlim_cur;
}

static int gets(size_t bytes, int prot, int flags) {
    char *p = mmap(NULL, bytes, prot, MAP_ANONYMOUS | flags, -1, 0);
    if (p == MAP_FAILED) return 0;
    if (prot & PROT_WRITE) p[bytes / 2] = 1;
    munmap(p, bytes);
    return 1;
}

static int refused(size_t bytes, int prot, int flags) {
    errno = 0;
    return !gets(bytes, prot, flags) && errno == ENOMEM;
}

static void child(long round, const rlim_t limit[2]) {
    char said[64] = "", want[64];
    FILE *f = popen("ulimit -v; ulimit -d", "r");
    size_t n = f ? fread(said, 1, sizeof said - 1, f) : 0;
    said[n] = 0;
    snprintf(want, sizeof want, "%llu\n%llu\n", (unsigned long long)limit[0] >> 10,
             (unsigned long long)limit[1] >> 10);
    check(f && pclose(f) == 0 && !strcmp(said, want), "a child has other limits", round);
    pid_t pid = vfork();
    if (pid == 0) {
        struct rlimit own = {MIB, MIB};
        setrlimit(RLIMIT_DATA, &own);
        _exit(0);
    }
    check(pid > 0 && waitpid(pid, NULL, 0) == pid, "no child", round);
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    uint64_t sum = 0;
    printf("limited\n"); // stdout has its memory
    for (long round = 0; round < rounds; round++) {
        const rlim_t limit[2] = {(1500 + (unsigned)round % 7) * MIB, (200 + (unsigned)round % 5) * MIB};
        check(set(RLIMIT_AS, limit[0]) && set(RLIMIT_DATA, limit[1]), "cannot set a limit", round);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        check(soft(RLIMIT_AS) == limit[0] && soft(RLIMIT_DATA) == limit[1], "a limit has changed", round);
        check(gets(100 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE), "refused what it may have", round);
        check(gets(300 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED), "refused what is no data", round);
        check(gets(300 * MIB, PROT_NONE, MAP_PRIVATE), "refused addresses", round);
        check(refused(300 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE), "got too much data", round);
        check(refused(2000 * MIB, PROT_NONE, MAP_PRIVATE), "got too many addresses", round);
        char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *q;
        check(p != MAP_FAILED && mremap(p, MIB, 400 * MIB, MREMAP_MAYMOVE) == MAP_FAILED, "grew too much",
              round);
        q = mremap(p, MIB, 2 * MIB, MREMAP_MAYMOVE);
        check(q != MAP_FAILED && munmap(q, 2 * MIB) == 0, "cannot grow", round);
        char *at = sbrk(0);
        check(brk(at + 300 * MIB) == -1 && errno == ENOMEM && sbrk(0) == at, "brk got too much", round);
        check(brk(at + MIB) == 0 && brk(at) == 0, "brk got nothing", round);
        if (round % 8 == 0) child(round, limit);
        check(soft(RLIMIT_DATA) == limit[1], "a child has changed a limit", round);

        check(set(RLIMIT_DATA, 0) && set(RLIMIT_AS, 0), "cannot have nothing", round);
        check(refused(4096, PROT_READ | PROT_WRITE, MAP_PRIVATE), "got something of nothing", round);
        for (int i = 0; i < 400000; i++) sum = sum * 6364136223846793005u + (uint64_t)i;
        nanosleep(&(struct timespec){0, 3000000}, NULL);
        check(soft(RLIMIT_DATA) == 0 && soft(RLIMIT_AS) == 0, "nothing has become something", round);
        if (round % 50 == 49) printf("%ld %016llx\n", round, (unsigned long long)sum);
    }
    printf(wrong ? "limited: %d wrong\n" : "limited: good\n", wrong);
    return wrong != 0;
}
