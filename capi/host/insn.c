// SPDX-License-Identifier: Apache-2.0
//
// insn.c: lengths of x86-64 instructions (Intel SDM volume 2, appendix A; AMD APM volume 3 for XOP).
#include "insn.h"

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

struct reader {
    const uint8_t *at, *end;
    bool cut; // the bytes end before the instruction does
};

static uint8_t next(struct reader *r) {
    if (r->at < r->end) return *r->at++;
    r->cut = true;
    return 0;
}

static void skip(struct reader *r, unsigned bytes) {
    if (r->end - r->at < (long)bytes)
        r->cut = true;
    else
        r->at += bytes;
}

// VEX, EVEX and XOP name the opcode map in their second byte.
static unsigned extended(struct reader *r, uint8_t first) {
    if (first == 0xc5) {
        next(r);
        return two_bytes(next(r)) & ~(unsigned)REL32;
    }
    uint8_t second = next(r), third = next(r);
    unsigned map = second & (first == 0x62 ? 7 : 0x1f);
    // Fixed bits of EVEX; with other values this belongs to another instruction set.
    if (first == 0x62 && ((second & 8) || !(third & 4))) return UNKNOWN;
    if (first == 0x62) next(r);
    uint8_t op = next(r);
    switch (map) {
    case 1: {
        unsigned flags = two_bytes(op);
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

// ModRM, SIB and displacement.  Returns the reg field.
static unsigned mod_rm(struct reader *r) {
    uint8_t m = next(r);
    unsigned mod = m >> 6, rm = m & 7, displacement = mod == 1 ? 1 : mod == 2 ? 4 : 0;
    if (mod == 3) return m >> 3 & 7;
    if (rm == 4) {
        if ((next(r) & 7) == 5 && mod == 0) displacement = 4;
    } else if (rm == 5 && mod == 0) {
        displacement = 4;
    }
    skip(r, displacement);
    return m >> 3 & 7;
}

bool insn_decode(const uint8_t *p, const uint8_t *end, struct insn *out) {
    struct reader r = {p, end, false};
    bool operand16 = false, address32 = false, wide = false;
    out->fs = -1;
    uint8_t op;
    for (bool prefix = true; prefix;) {
        op = next(&r);
        switch (op) {
        case 0x64:
            out->fs = (int)(r.at - p) - 1;
            break;
        case 0x66:
            operand16 = true;
            break;
        case 0x67:
            address32 = true;
            break;
        case 0x26: // segments, lock, repeat
        case 0x2e:
        case 0x36:
        case 0x3e:
        case 0x65:
        case 0xf0:
        case 0xf2:
        case 0xf3:
            break;
        default:
            prefix = false;
        }
        if (r.cut || r.at - p > 15) return false;
    }
    if ((op & 0xf0) == 0x40) { // REX
        wide = op & 8;
        op = next(&r);
    }
    unsigned flags;
    bool legacy = false;
    if (op == 0xc4 || op == 0xc5 || op == 0x62 || (op == 0x8f && r.at < end && (*r.at & 0x1f) >= 8)) {
        flags = extended(&r, op);
    } else if (op == 0x0f) {
        op = next(&r);
        flags = op == 0x38 ? MODRM : op == 0x3a ? MODRM | IMM8 : two_bytes(op);
        if (op == 0x38 || op == 0x3a) next(&r);
    } else {
        legacy = true;
        flags = one_byte(op);
    }
    if (flags & UNKNOWN) return false;
    if (flags & MODRM) {
        unsigned reg = mod_rm(&r);
        if (legacy && (op == 0xf6 || op == 0xf7) && reg < 2) flags |= op == 0xf6 ? IMM8 : IMM32;
    }
    if (flags & IMM8) skip(&r, 1);
    if (flags & IMM16) skip(&r, 2);
    if (flags & IMM32) skip(&r, operand16 && !wide ? 2 : 4);
    if (flags & IMM64) skip(&r, wide ? 8 : operand16 ? 2 : 4);
    if (flags & OFFSET) skip(&r, address32 ? 4 : 8);
    if (flags & REL32) {
        if (operand16 && !wide) return false; // makers of processors differ here
        skip(&r, 4);
    }
    out->length = (unsigned)(r.at - p);
    return !r.cut && out->length <= 15;
}
