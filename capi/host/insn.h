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

#define INSN_MOST 15 // bytes of the longest instruction

struct insn {
    unsigned length; // bytes, 1 to 15
    int fs;          // offset of the FS prefix (0x64), -1: there is none
    bool memory;     // addresses memory, in a segment that a prefix could name
    bool invalid;    // where insn_decode is false: what is there can be no instruction of a 64-bit program
};

// Decodes the instruction at p; it must end at or before end.  False: it is unknown, invalid or cut off.
bool insn_decode(const uint8_t *p, const uint8_t *end, struct insn *out);

// The length of the instruction at p, where 2 * INSN_MOST bytes can be read, if it is of a frequent form without
// an FS prefix; 0: ask insn_decode.
unsigned insn_common(const uint8_t *p);

#endif
