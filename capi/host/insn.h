// SPDX-License-Identifier: Apache-2.0
//
// insn.h: how long a machine instruction is, and whether it addresses memory through FS.
//
// Owns: the encoding of x86-64 instructions, as far as lengths depend on it: legacy, VEX, EVEX and XOP.
// May not know: whose code it decodes, or what is done with the answer.
#ifndef CKPT_INSN_H
#define CKPT_INSN_H

#include <stdbool.h>
#include <stdint.h>

struct insn {
    unsigned length; // bytes, 1 to 15
    int fs;          // offset of the FS prefix (0x64), -1: there is none
};

// Decodes the instruction at p; it must end at or before end.  False: the instruction is unknown or cut off.
bool insn_decode(const uint8_t *p, const uint8_t *end, struct insn *out);

#endif
