// SPDX-License-Identifier: Apache-2.0
//
// Built twice for identity.c: liborigin.so (-DSTEP=origin_step) and libloaded.so (-DSTEP=loaded_step).
#include <stdint.h>

static __thread uint64_t calls;
static uint64_t sum;

uint64_t STEP(uint64_t v) {
    sum += ++calls;
    return v * 6364136223846793005u + 1442695040888963407u;
}
