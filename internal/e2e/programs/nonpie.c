// SPDX-License-Identifier: Apache-2.0
//
// A program at fixed addresses (gcc -no-pie): data, bss, function pointers, a copy of stdout, threads.
// usage: nonpie ROUNDS
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t initialised[1000] = {1, 2, 3};
static uint64_t zeroed[100000];
static uint64_t (*step)(uint64_t);
static __thread uint64_t local = 5;
static uint64_t theirs;

static uint64_t first(uint64_t v);
static uint64_t second(uint64_t v) {
    step = first;
    return v * 6364136223846793005u + 1;
}
static uint64_t first(uint64_t v) {
    step = second;
    return v * 6364136223846793005u + 1442695040888963407u;
}

static void *other(void *rounds) {
    for (int i = 0; i < *(int *)rounds; i++)
        for (int k = 0; k < 100000; k++) local = local * 2862933555777941757u + 3037000493u;
    theirs = local;
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    if ((uintptr_t)initialised > 0x40000000) {
        printf("not at a low address\n");
        return 1;
    }
    pthread_t t;
    pthread_create(&t, NULL, other, &rounds);
    step = first;
    uint64_t v = 1;
    char *heap = strdup("on the heap");
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < 100000; k++) {
            v = step(v);
            zeroed[v >> 40 & 65535] += v;
            initialised[v >> 54 & 511] ^= v;
        }
        if (i % (rounds / 10 + 1) == 0) {
            printf("%d %016lx\n", i, (unsigned long)v);
            fflush(stdout);
        }
    }
    pthread_join(t, NULL);
    for (int i = 0; i < 100000; i++) v = v * 31 + zeroed[i] + initialised[i % 1000];
    fprintf(stdout, "%s %016lx %016lx %016lx\n", heap, (unsigned long)v, (unsigned long)local,
            (unsigned long)theirs);
    return 0;
}
