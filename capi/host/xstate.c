// SPDX-License-Identifier: Apache-2.0
//
// xstate.c: the extended state of a thread on another processor than the one that it was saved on.
//
// The kernel keeps it in signal frames in XSAVE's standard form: 512 bytes of x87 and SSE, a header of 64 with a bit for
// each component that is in use, then the components, each at an offset that is the processor's own (CPUID leaf 13).
// In the legacy part is what the kernel says of it (struct sw).  When it does not fit the processor, rt_sigreturn takes the
// general registers, sets all others to zero, and raises a SIGSEGV that does not come again with the instruction.
//
// The offsets are not saved: frames of several processors may lie on one stack, of which each says just its
// components and its length.  These tell the layouts that there are apart.
#include "xstate.h"

#include <cpuid.h>
#include <errno.h>
#include <string.h>

enum { AVX = 2, MASKS = 5, ZMM_HIGH = 6, ZMM_MORE = 7, KEYS = 9, TILE_DATA = 18, PARTS = 20 };
#define BIT(i) (1ull << (i))
#define LEGACY 512u
#define HEADER 64u
#define SW_AT 464u // of struct sw, in the legacy part
#define MAGIC1 0x46505853u
#define MAGIC2 0x46505845u
#define NEW_KEYS 0x55555554u // PKRU of a new process: all keys but 0 are refused

struct sw {
    uint32_t magic, extended; // extended: bytes of all, with MAGIC2 at the end
    uint64_t components;
    uint32_t bytes, zero[7]; // bytes: without MAGIC2
};

struct layout {
    struct {
        uint16_t at, bytes;
    } part[PARTS];
};

static struct layout here;
static struct sw sw_here;

// Those of processors that are or were sold.  AMD's have no room for MPX.
static const struct layout layouts[] = {
    // Intel's, and AMX
    {{[2] = {576, 256},
      [3] = {960, 64},
      [4] = {1024, 64},
      [5] = {1088, 64},
      [6] = {1152, 512},
      [7] = {1664, 1024},
      [9] = {2688, 8},
      [17] = {2752, 64},
      [18] = {2816, 8192}}},
    // AMD's with AVX-512, though a hypervisor may hide that
    {{[2] = {576, 256}, [5] = {832, 64}, [6] = {896, 512}, [7] = {1408, 1024}, [9] = {2432, 8}}},
    // AMD's before it
    {{[2] = {576, 256}, [9] = {832, 8}}},
};

// The end of these components; 0: not all have a place.
static uint32_t end_of(const struct layout *l, uint64_t components) {
    uint32_t end = LEGACY + HEADER;
    for (unsigned i = 2; i < 64; i++) {
        if (!(components & BIT(i))) continue;
        if (i >= PARTS || l->part[i].bytes == 0) return 0;
        uint32_t e = l->part[i].at + l->part[i].bytes;
        if (e > end) end = e;
    }
    return end;
}

static const struct layout *layout_of(const struct sw *sw) {
    if (end_of(&here, sw->components) == sw->bytes) return &here;
    for (unsigned i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (end_of(&layouts[i], sw->components) == sw->bytes) return &layouts[i];
    return NULL;
}

uint32_t xstate_open(void) {
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    if (!(c & bit_OSXSAVE)) return LEGACY;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    uint64_t all = a | (uint64_t)d << 32;
    for (unsigned i = 2; i < PARTS; i++) {
        __cpuid_count(13, i, a, b, c, d);
        if (!(all & BIT(i)) || b + a > XSTATE_MOST) continue;
        here.part[i].at = (uint16_t)b;
        here.part[i].bytes = (uint16_t)a;
    }
    // A thread has tiles only once it has used them.
    sw_here.magic = MAGIC1;
    sw_here.components = all & ~BIT(TILE_DATA);
    sw_here.bytes = end_of(&here, sw_here.components);
    sw_here.extended = sw_here.bytes + 4;
    __cpuid_count(13, 0, a, b, c, d);
    return ((c > b ? c : b) + 4 + 63) & ~63u;
}

// What the kernel has written of such state.  false: it has x87 and SSE alone.
static bool described(const void *from, uint32_t bytes, struct sw *sw) {
    if (bytes < LEGACY + HEADER) return false;
    memcpy(sw, (const char *)from + SW_AT, sizeof *sw);
    return sw->magic == MAGIC1;
}

static uint64_t in_use(const void *from) {
    uint64_t bits;
    memcpy(&bits, (const char *)from + LEGACY, sizeof bits);
    return bits;
}

uint64_t xstate_components(const void *from, uint32_t bytes) {
    struct sw sw;
    return described(from, bytes, &sw) ? sw.components : 3;
}

bool xstate_tiles(const void *from, uint32_t bytes) {
    struct sw sw;
    return described(from, bytes, &sw) && (sw.components & in_use(from) & BIT(TILE_DATA));
}

static long legacy(void *to, const void *from) {
    memcpy(to, from, LEGACY);
    memset((char *)to + SW_AT, 0, sizeof(struct sw));
    return LEGACY;
}

long xstate_move(void *to, const void *from, uint32_t bytes) {
    struct sw sw;
    if (bytes < LEGACY) return -EINVAL;
    if (!described(from, bytes, &sw)) return legacy(to, from);
    if (sw.extended != bytes || sw.bytes < LEGACY + HEADER || sw.bytes > bytes - 4) return -EINVAL;
    if (sw.components == sw_here.components && sw.bytes == sw_here.bytes) {
        memcpy(to, from, bytes);
        return bytes;
    }
    const struct layout *there = layout_of(&sw);
    if (!there) return -ENOTSUP;
    if (sw_here.bytes == 0) return legacy(to, from); // no XSAVE
    memset(to, 0, sw_here.extended);
    memcpy(to, from, SW_AT);
    memcpy((char *)to + SW_AT, &sw_here, sizeof sw_here);
    uint64_t bits = in_use(from) & sw.components & sw_here.components;
    for (unsigned i = 2; i < PARTS; i++)
        if (bits & BIT(i))
            memcpy((char *)to + here.part[i].at, (const char *)from + there->part[i].at,
                   there->part[i].bytes < here.part[i].bytes ? there->part[i].bytes : here.part[i].bytes);
    if (sw_here.components & ~sw.components & BIT(KEYS)) {
        uint64_t keys = NEW_KEYS;
        memcpy((char *)to + here.part[KEYS].at, &keys, sizeof keys);
        bits |= BIT(KEYS);
    }
    memcpy((char *)to + LEGACY, &bits, sizeof bits);
    uint32_t magic = MAGIC2;
    memcpy((char *)to + sw_here.bytes, &magic, sizeof magic);
    return sw_here.extended;
}

void xstate_into_frame(void *to, const void *from) {
    struct sw sw, room;
    memcpy(&sw, (const char *)from + SW_AT, sizeof sw);
    memcpy(&room, (const char *)to + SW_AT, sizeof room);
    bool more = sw.magic == MAGIC1 && sw.extended <= XSTATE_MOST;
    // The thread's own, or of another thread that uses tiles as this one does.
    if (more && sw.extended == room.extended && memcmp(&sw, &room, sizeof sw) == 0) {
        memcpy(to, from, sw.extended);
        return;
    }
    if (!more || xstate_move(to, from, sw.extended) < 0) legacy(to, from);
}

void xstate_started_with(uint64_t components) {
    // Not protection keys, whose initial value allows everything, nor tiles, which no code of the lower half uses.
    const uint64_t registers = BIT(AVX) | BIT(MASKS) | BIT(ZMM_HIGH) | BIT(ZMM_MORE);
    forget_components = sw_here.components & ~components & registers;
}
