// SPDX-License-Identifier: Apache-2.0
//
// stop: how long does a checkpoint stop a process, by its memory, its threads and the size of its pages?
//
//     stop DIR MIB THREADS huge|small ROUNDS
//
// The process fills MIB of memory, on huge pages or on small ones, starts threads until it has THREADS, all of which
// compute, and is saved ROUNDS times into DIR.  Between two of them it waits until the epoch is committed.  It prints, in
// milliseconds, for how long no thread of the process ran, and what the calls of MPIX_Checkpoint took; and how much of the
// memory is on huge pages, in MiB.  With more threads than processors the second is longer: the caller is one of those that
// wait for a processor when all go on.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mpix_checkpoint.h"

static void fail(const char *what) {
    char why[1000] = "";
    MPIX_Checkpoint_reason(why, sizeof why);
    fprintf(stderr, "stop: %s: %s\n", what, why);
    exit(1);
}

static volatile int over;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// When a thread was last seen to run, and the longest time for which none was, in nanoseconds.
static _Atomic int64_t last_seen, longest;

static void *compute(void *unused) {
    (void)unused;
    while (!over) {
        int64_t now = now_ns(), before = last_seen, most = longest;
        // A thread that had no turn since it took the time has an old one, and says nothing.
        if (now <= before || !atomic_compare_exchange_strong(&last_seen, &before, now)) continue;
        while (now - before > most && !atomic_compare_exchange_weak(&longest, &most, now - before)) {}
    }
    return NULL;
}

static long huge_mib(void) {
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[200];
    long kib = -1;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "AnonHugePages: %ld kB", &kib) == 1) break;
    if (f) fclose(f);
    return kib / 1024;
}

int main(int argc, char **argv) {
    if (argc != 6) fail("usage: stop DIR MIB THREADS huge|small ROUNDS");
    size_t bytes = (size_t)atol(argv[2]) << 20;
    int threads = atoi(argv[3]), rounds = atoi(argv[5]);
    char *p = mmap(NULL, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail("mmap");
    p += -(uintptr_t)p & ((2 << 20) - 1);
    if (madvise(p, bytes, strcmp(argv[4], "huge") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)) fail("madvise");
    for (size_t i = 0; i < bytes; i += 4096) memset(p + i, (int)(1 + i / 4096 % 251), 4096);
    pthread_t thread;
    for (int i = 1; i < threads; i++)
        if (pthread_create(&thread, NULL, compute, NULL)) fail("pthread_create");
    double calls[rounds], stood[rounds];
    for (int i = 1; i <= rounds; i++) {
        MPIX_CR_state_t state;
        longest = 0;
        int64_t before = now_ns();
        if (MPIX_Checkpoint(&state) || state != MPIX_CR_STATE_CHECKPOINT) fail("checkpoint");
        calls[i - 1] = (double)(now_ns() - before) / 1e6;
        stood[i - 1] = threads > 1 ? (double)longest / 1e6 : calls[i - 1];
        char name[4096];
        snprintf(name, sizeof name, "%s/epoch-%06d/manifest.json", argv[1], i);
        while (access(name, F_OK)) usleep(10000);
        usleep(50000); // the job takes note of it
    }
    printf("huge %ld\nstood", huge_mib());
    for (int i = 0; i < rounds; i++) printf(" %.2f", stood[i]);
    printf("\ncalls");
    for (int i = 0; i < rounds; i++) printf(" %.2f", calls[i]);
    puts("");
    over = 1;
    return 0;
}
