// SPDX-License-Identifier: Apache-2.0
//
// Deep stacks: the main thread's grows to 6 MiB and shrinks again, a thread with a big stack of its
// own does the same, alloca and variable-length arrays included.
// usage: recursion ROUNDS
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t descend(int depth, uint64_t v) {
    volatile uint64_t frame[32];
    for (int i = 0; i < 32; i++) frame[i] = v * (uint64_t)(i + 1);
    uint64_t below = depth > 0 ? descend(depth - 1, v * 6364136223846793005u + 1442695040888963407u) : v;
    for (int i = 0; i < 32; i++)
        if (frame[i] != v * (uint64_t)(i + 1)) {
            printf("frame at depth %d is damaged\n", depth);
            exit(1);
        }
    int n = 1 + depth % 100;
    char array[n];
    memset(array, depth & 0xff, (size_t)n);
    return below ^ (frame[depth % 32] + (uint64_t)(unsigned char)array[n - 1]);
}

static int rounds;

static void *deep(void *arg) {
    uint64_t *v = arg;
    for (int i = 0; i < rounds; i++) *v = descend(60000, *v + (uint64_t)i);
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 100;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 64 << 20);
    uint64_t theirs = 7, mine = 1;
    pthread_t t;
    if (pthread_create(&t, &attr, deep, &theirs) != 0) abort();
    for (int i = 0; i < rounds; i++) mine = descend(14000 + i % 1000, mine + (uint64_t)i);
    pthread_join(t, NULL);
    printf("main %016lx thread %016lx\n", (unsigned long)mine, (unsigned long)theirs);
    return 0;
}
