// SPDX-License-Identifier: Apache-2.0
//
// insn.c: lengths of x86-64 instructions (Intel SDM volume 2, appendix A; AMD APM volume 3 for XOP).
#include "insn.h"

#include <string.h>

// What follows an opcode.
enum {
    MODRM = 1,    // a ModRM byte, and what that asks for
    IMM8 = 2,     // a byte
    IMM16 = 4,    // two bytes
    IMM32 = 8,    // four bytes; two with the prefix 0x66 and without REX.W
    IMM64 = 16,   // mov to a register: eight bytes with REX.W
    OFFSET = 32,  // mov between memory and the accumulator: an address
    REL32 = 64,   // a near jump or call
    UNKNOWN = 128 // no instruction in 64-bit mode, or none that compilers make
};

// What an opcode of one byte is besides.
enum {
    PREFIX = 256,   // segments, operand and address size, lock, repeat
    ESCAPE = 512,   // REX; 0x0f, VEX, EVEX, XOP; test, whose immediate depends on ModRM
    IMPLIED = 1024, // addresses memory in a segment of choice without ModRM: string instructions, xlat
    INVALID = 2048, // no instruction in 64-bit mode, now and with any extension that is announced
};

static unsigned one_byte(uint8_t op) {
    static const uint8_t arithmetic[8] = {MODRM, MODRM, MODRM, MODRM, IMM8, IMM32, UNKNOWN, UNKNOWN};
    if (op < 0x40) return arithmetic[op & 7];
    switch (op) {
    case 0x60: // pusha, popa, bound
    case 0x61:
    case 0x62:
    case 0x82:
    case 0x9a: // far call
    case 0xce:
    case 0xd4: // aam, aad, salc
    case 0xd5:
    case 0xd6:
    case 0xea: // far jump
        return UNKNOWN;
    case 0x63: // movsxd
        return MODRM;
    case 0x69: // imul
    case 0x81:
    case 0xc7:
        return MODRM | IMM32;
    case 0x68: // push
    case 0xa9: // test
        return IMM32;
    case 0x6b:
    case 0x80:
    case 0x83:
    case 0xc0: // shifts
    case 0xc1:
    case 0xc6:
        return MODRM | IMM8;
    case 0x6a:
    case 0xa8:
    case 0xcd: // int
    case 0xeb: // jmp
        return IMM8;
    case 0xa0:
    case 0xa1:
    case 0xa2:
    case 0xa3:
        return OFFSET;
    case 0xc2: // ret
    case 0xca:
        return IMM16;
    case 0xc8: // enter
        return IMM16 | IMM8;
    case 0xe8:
    case 0xe9:
        return REL32;
    case 0xf6: // test has an immediate: insn_decode looks at ModRM
    case 0xf7:
    case 0xfe:
    case 0xff:
        return MODRM;
    }
    if (op >= 0x70 && op <= 0x7f) return IMM8; // jcc
    if (op >= 0x84 && op <= 0x8f) return MODRM;
    if (op >= 0xb0 && op <= 0xb7) return IMM8;
    if (op >= 0xb8 && op <= 0xbf) return IMM64;
    if (op >= 0xd0 && op <= 0xdf && (op < 0xd4 || op > 0xd7)) return MODRM; // shifts, x87
    if (op >= 0xe0 && op <= 0xe7) return IMM8;                              // loop, in, out
    return 0;
}

// After 0x0f; also map 1 of VEX and EVEX.
static unsigned two_bytes(uint8_t op) {
    switch (op) {
    case 0x04:
    case 0x0a:
    case 0x0c:
    case 0x36:
    case 0x7a:
    case 0x7b:
        return UNKNOWN;
    case 0x05: // syscall and others of the kernel's
    case 0x06:
    case 0x07:
    case 0x08:
    case 0x09:
    case 0x0b: // ud2
    case 0x0e:
    case 0x77: // emms
    case 0xa0: // push, pop FS and GS; cpuid
    case 0xa1:
    case 0xa2:
    case 0xa8:
    case 0xa9:
    case 0xaa:
        return 0;
    case 0x0f: // 3DNow!
    case 0x70:
    case 0x71:
    case 0x72:
    case 0x73:
    case 0xa4: // shld, shrd
    case 0xac:
    case 0xba: // bt and the like
    case 0xc2:
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return MODRM | IMM8;
    }
    if (op >= 0x24 && op <= 0x27) return UNKNOWN;
    if (op >= 0x39 && op <= 0x3f) return UNKNOWN;
    if (op >= 0x30 && op <= 0x37) return 0; // rdtsc and others
    if (op >= 0x80 && op <= 0x8f) return REL32;
    if (op >= 0xc8 && op <= 0xcf) return 0; // bswap
    return MODRM;
}

// The tables of what the functions above say, and of the bytes that follow a ModRM byte: SIB and displacement.
// A library of an MPI has up to ten million instructions, all of which may have to be looked at when it is
// loaded.
static uint16_t first[256];
static uint8_t second[256], after_modrm[256];

// The most frequent instructions, by their first byte behind REX, and by the one after 0x0f: the number of bytes
// of the immediate operand, and whether there is a ModRM byte.
#define WITH_MODRM 0x10
#define RARE 0xff // has prefixes, or a length that depends on them or on ModRM's reg field
static uint8_t common[256], common_0f[256];

static uint8_t common_of(unsigned flags) {
    if (flags & ~(unsigned)(MODRM | IMM8 | IMM16 | IMM32 | REL32)) return RARE;
    return (uint8_t)((flags & MODRM ? WITH_MODRM : 0) + (flags & IMM8 ? 1 : 0) + (flags & IMM16 ? 2 : 0) +
                     (flags & (IMM32 | REL32) ? 4 : 0));
}

__attribute__((constructor)) static void make_tables(void) {
    static const uint8_t prefixes[] = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3};
    static const uint8_t escapes[] = {0x0f, 0x62, 0x8f, 0xc4, 0xc5, 0xf6, 0xf7};
    static const uint8_t implied[] = {0x6e, 0x6f, 0xa4, 0xa5, 0xa6, 0xa7, 0xac, 0xad, 0xd7};
    // Not 0xd5, which is a prefix of APX.
    static const uint8_t invalid[] = {0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37,
                                      0x3f, 0x60, 0x61, 0x82, 0x9a, 0xce, 0xd4, 0xd6, 0xea};
    for (unsigned i = 0; i < 256; i++) {
        first[i] = (uint16_t)(one_byte((uint8_t)i) | ((i & 0xf0) == 0x40 ? ESCAPE : 0));
        second[i] = (uint8_t)two_bytes((uint8_t)i);
        unsigned mod = i >> 6, rm = i & 7;
        after_modrm[i] = (uint8_t)((mod == 1                            ? 1
                                    : mod == 2 || (mod == 0 && rm == 5) ? 4
                                                                        : 0) +
                                   (mod != 3 && rm == 4));
    }
    for (unsigned i = 0; i < sizeof prefixes; i++) first[prefixes[i]] = PREFIX;
    for (unsigned i = 0; i < sizeof escapes; i++) first[escapes[i]] |= ESCAPE;
    for (unsigned i = 0; i < sizeof implied; i++) first[implied[i]] |= IMPLIED;
    for (unsigned i = 0; i < sizeof invalid; i++) first[invalid[i]] |= INVALID;
    for (unsigned i = 0; i < 256; i++) {
        common[i] = common_of(first[i]);
        common_0f[i] = i == 0x38 || i == 0x3a ? RARE : common_of(second[i]);
    }
}

unsigned insn_common(const uint8_t *p) {
    const uint8_t *at = p;
    // Before 0x0f these are part of the opcode.
    bool sse = *at == 0x66 || *at == 0xf2 || *at == 0xf3;
    at += sse;
    at += (*at & 0xf0) == 0x40;
    uint8_t form;
    if (*at == 0x0f) {
        form = common_0f[at[1]];
        at += 2;
        if (sse && (form & 0xf) == 4) return 0; // a jump, whose length depends on 0x66
    } else {
        form = sse ? RARE : common[*at];
        at += 1;
    }
    if (form == RARE) return 0;
    if (form & WITH_MODRM) {
        uint8_t m = *at++;
        at += after_modrm[m] + ((m & 0xc7) == 0x04 && (*at & 7) == 5 ? 4 : 0);
    }
    return (unsigned)(at - p) + (form & 0xf);
}

// VEX, EVEX and XOP name the opcode map in their second byte.
static unsigned extended(const uint8_t **p, uint8_t op) {
    if (op == 0xc5) {
        *p += 2;
        return second[(*p)[-1]] & ~(unsigned)REL32;
    }
    uint8_t payload = (*p)[0], more = (*p)[1];
    *p += 2;
    unsigned map = payload & (op == 0x62 ? 7 : 0x1f);
    // Fixed bits of EVEX; with other values this belongs to another instruction set.
    if (op == 0x62 && ((payload & 8) || !(more & 4))) return UNKNOWN;
    if (op == 0x62) ++*p;
    uint8_t code = *(*p)++;
    switch (map) {
    case 1: {
        unsigned flags = second[code];
        return flags & REL32 ? MODRM : flags; // kmov and the like
    }
    case 2:
    case 5:
    case 6:
        return MODRM;
    case 3:
    case 8: // XOP from here on
        return MODRM | IMM8;
    case 9:
        return MODRM;
    case 10:
        return MODRM | IMM32;
    }
    return UNKNOWN;
}

// The most bytes that decode reads: 15 prefixes, REX, three bytes of EVEX, opcode, ModRM, SIB.
#define READS (2 * INSN_MOST)

// Decodes what is at p, where READS bytes can be read.  False: no instruction that is known.
static bool decode(const uint8_t *p, struct insn *out) {
    out->invalid = false;
    const uint8_t *at = p;
    bool operand16 = false, address32 = false, wide = false;
    int fs = -1;
    uint8_t op = *at++;
    unsigned flags = first[op];
    while (flags & PREFIX) {
        if (op == 0x64) fs = (int)(at - p) - 1;
        operand16 |= op == 0x66;
        address32 |= op == 0x67;
        if (at - p > 15) return false;
        op = *at++;
        flags = first[op];
    }
    if (flags & ESCAPE) {
        if ((op & 0xf0) == 0x40) { // REX
            wide = op & 8;
            op = *at++;
            flags = first[op];
            if (flags & PREFIX) return false; // a REX that another prefix follows is none
        }
        if (op == 0x0f) {
            op = *at++;
            flags = op == 0x38 ? MODRM : op == 0x3a ? MODRM | IMM8 : second[op];
            if (op == 0x38 || op == 0x3a) at++;
            // maskmov; and what is no more than a few bits of ModRM, monitor for one.
            if (op == 0xf7 || op == 0x01) flags |= IMPLIED;
        } else if (op == 0xc4 || op == 0xc5 || op == 0x62 || (op == 0x8f && (*at & 0x1f) >= 8)) {
            flags = extended(&at, op);
            if (at[-1] == 0xf7) flags |= IMPLIED;
        } else if ((op == 0xf6 || op == 0xf7) && (*at >> 3 & 7) < 2) {
            flags |= op == 0xf6 ? IMM8 : IMM32;
        }
    }
    if (flags & UNKNOWN) {
        out->invalid = flags & INVALID;
        return false;
    }
    bool memory = flags & (OFFSET | IMPLIED);
    if (flags & MODRM) {
        uint8_t m = *at++;
        memory |= m < 0xc0;
        // Without a base register there is a displacement of four bytes.
        if ((m & 0xc7) == 0x04 && (*at & 7) == 5) at += 4;
        at += after_modrm[m];
    }
    if (flags & (IMM8 | IMM16 | IMM32 | IMM64 | OFFSET | REL32)) {
        if (flags & IMM8) at += 1;
        if (flags & IMM16) at += 2;
        if (flags & IMM32) at += operand16 && !wide ? 2 : 4;
        if (flags & IMM64) at += wide ? 8 : operand16 ? 2 : 4;
        if (flags & OFFSET) at += address32 ? 4 : 8;
        if (flags & REL32) {
            if (operand16 && !wide) return false; // makers of processors differ here
            at += 4;
        }
    }
    *out = (struct insn){.length = (unsigned)(at - p), .fs = fs, .memory = memory};
    return out->length <= 15;
}

bool insn_decode(const uint8_t *p, const uint8_t *end, struct insn *out) {
    if (end - p >= READS) return decode(p, out);
    uint8_t copy[2 * READS] = {0};
    out->invalid = false;
    if (end <= p) return false;
    memcpy(copy, p, (size_t)(end - p));
    return decode(copy, out) && out->length <= (unsigned)(end - p);
}
