// SPDX-License-Identifier: Apache-2.0
//
// traps.h: which system calls of the upper half are emulated, and by whom.
#ifndef TRAPS_H
#define TRAPS_H

#include "emulation.h"

#define TRAPS 468u

struct trap {
    emulation fn;
    bool when;        // the filter looks at an argument too (trap.c)
    bool restartable; // a handler with SA_RESTART makes the kernel issue the call again
};
extern const struct trap traps[TRAPS];

// Advice of madvise that the filter looks for, and what of CKPT_ASKED it is (missing.c).
enum { ADVICES = 8 };
struct advice {
    long advice;
    uint32_t asked;
};
extern const struct advice advices[ADVICES];

#endif
