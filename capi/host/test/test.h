// SPDX-License-Identifier: Apache-2.0
//
// test.h: what the tests of single files have in common.
#ifndef TEST_H
#define TEST_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// Ends the test unless good.
#define CHECK(good)                                                   \
    do {                                                              \
        if (!(good)) {                                                \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #good); \
            exit(1);                                                  \
        }                                                             \
    } while (0)

// Ends the test unless both are the same number.
#define SAME(got, want)                                                                        \
    do {                                                                                       \
        long got_ = (long)(got), want_ = (long)(want);                                         \
        if (got_ != want_) {                                                                   \
            printf("%s:%d: %s is %ld, expected %ld\n", __FILE__, __LINE__, #got, got_, want_); \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

// xorshift64: the same sequence everywhere.
static inline uint64_t below(uint64_t n) {
    static uint64_t seed = 0x9e3779b97f4a7c15ull;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % n;
}

#endif
