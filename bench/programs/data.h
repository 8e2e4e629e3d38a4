// SPDX-License-Identifier: Apache-2.0
//
// data.h: memory with a content that is known, to be saved and to be found right afterwards.
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include <stddef.h>
#include <stdint.h>

// No two words alike, so nothing can be compressed.
static inline uint64_t random_word(uint64_t i) // splitmix64
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

// The words of a rank, which no other rank has.
static inline uint64_t first_word(int rank) { return (uint64_t)rank << 40; }

static inline uint64_t sum(const uint64_t *words, size_t n) {
    uint64_t s = 0;
    for (size_t i = 0; i < n; i++) s = (s ^ words[i]) * 0x100000001b3u;
    return s;
}

// What sum says of n random words from first on, without the memory for them.
static inline uint64_t sum_of_random(uint64_t first, size_t n) {
    uint64_t s = 0;
    for (size_t i = 0; i < n; i++) s = (s ^ random_word(first + i)) * 0x100000001b3u;
    return s;
}

#endif
