// SPDX-License-Identifier: Apache-2.0
//
// shortfall.h: what a file SHORTFALL holds of each rank (shortfall.c).
#ifndef CKPT_TEST_SHORTFALL_H
#define CKPT_TEST_SHORTFALL_H

struct shortfall {
    int left;   // the how manieth call fails; 0: none, below 0: all
    int failed; // how many have
    long at;    // where in the back the last one was called
    char unused[48];
};

enum { SHORTFALL_RANKS = 8, SHORTFALL_BYTES = SHORTFALL_RANKS * 64 };

#endif
