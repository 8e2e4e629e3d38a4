// SPDX-License-Identifier: Apache-2.0
//
// work.h: what the programs of these tests do between their calls, the same for the same seed.
#ifndef CKPT_TEST_WORK_H
#define CKPT_TEST_WORK_H

#include <stdint.h>
#include <time.h>

static uint64_t mix(uint64_t h, uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdull;
    return h ^ h >> 33;
}

// Computes for up to us microseconds.
static void work(uint64_t seed, unsigned us) {
    struct timespec t, n;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long end = t.tv_sec * 1000000ll + t.tv_nsec / 1000 + (long long)(mix(seed, 77) % (us + 1));
    do clock_gettime(CLOCK_MONOTONIC, &n);
    while (n.tv_sec * 1000000ll + n.tv_nsec / 1000 < end);
}

#endif
