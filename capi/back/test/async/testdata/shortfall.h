// SPDX-License-Identifier: Apache-2.0
//
// shortfall.h: what a file SHORTFALL holds of each rank (shortfall.c).
#ifndef CKPT_TEST_SHORTFALL_H
#define CKPT_TEST_SHORTFALL_H

enum {
    SHORTFALL_RANKS = 8,
    SHORTFALL_DEPTH = 4,     // callers that make a place
    SHORTFALL_PLACES = 1024, // of a rank
    SHORTFALL_NEW = -1,      // left: the first call from each place at which none has failed yet
};

// Addresses in the back: behind the call of the allocator, behind the call of that function, ...; 0: none.
struct shortfall_place {
    long caller[SHORTFALL_DEPTH];
};

struct shortfall {
    int left;   // the how manieth call fails; 0: none; SHORTFALL_NEW
    int failed; // how many have
    int places; // at which one has
    int last;   // one of them
    char unused[48];
};

// The file: all ranks' numbers, then all ranks' places.
struct shortfalls {
    struct shortfall rank[SHORTFALL_RANKS];
    struct shortfall_place place[SHORTFALL_RANKS][SHORTFALL_PLACES];
};

#endif
