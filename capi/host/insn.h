// SPDX-License-Identifier: Apache-2.0
//
// insn.h: how long a machine instruction is, and whether it addresses memory through FS.
//
// Owns: the encoding of x86-64 instructions, as far as their lengths go: legacy, VEX, EVEX and XOP.
// May not know: whose code it looks at, or what is done with the answer.
#ifndef CKPT_INSN_H
#define CKPT_INSN_H

#include <stdbool.h>
#include <stdint.h>

struct insn {
    unsigned length; // bytes, 1 to 15
    int fs;          // where its FS prefix (0x64) stands, -1: it has none
};

// Decodes the instruction at p, which ends before end.  False: it is none that is known, or is cut off.
bool insn_decode(const uint8_t *p, const uint8_t *end, struct insn *out);

#endif
