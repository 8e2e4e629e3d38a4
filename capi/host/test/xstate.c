// SPDX-License-Identifier: Apache-2.0
//
// Registers that go from one processor to another, in signal frames as these write them; and registers that the program
// was started without, after a crossing.
#include "../xstate.c"

#include <stdalign.h>

#include "test.h"

// A signal frame's state: each component that is in use is filled with its number.
static uint32_t frame(uint8_t *to, const struct layout *l, uint64_t components, uint64_t used) {
    struct sw sw = {MAGIC1, end_of(l, components) + 4, components, end_of(l, components), {0}};
    CHECK(sw.bytes >= LEGACY + HEADER);
    memset(to, 0, XSTATE_MOST);
    memset(to, 0x80, SW_AT);
    memcpy(to + SW_AT, &sw, sizeof sw);
    memcpy(to + LEGACY, &used, sizeof used);
    for (unsigned i = 2; i < PARTS; i++)
        if (used & BIT(i)) memset(to + l->part[i].at, (int)i, l->part[i].bytes);
    uint32_t magic = MAGIC2;
    memcpy(to + sw.bytes, &magic, sizeof magic);
    return sw.extended;
}

static void be(const struct layout *l, uint64_t components) {
    here = *l;
    uint32_t end = end_of(l, components);
    sw_here = (struct sw){MAGIC1, end + 4, components, end, {0}};
}

enum { INTEL, AMD, OLD_AMD };
static uint8_t from[XSTATE_MOST], to[XSTATE_MOST], want[XSTATE_MOST];

static void moves(int a, uint64_t there, uint64_t used, int b, uint64_t now, uint64_t kept) {
    uint32_t bytes = frame(from, &layouts[a], there, used);
    be(&layouts[b], now);
    memset(to, 0xee, sizeof to);
    long n = xstate_move(to, from, bytes);
    SAME(n, frame(want, &layouts[b], now, kept));
    if (now & ~there & BIT(KEYS)) {
        uint64_t keys = NEW_KEYS;
        memcpy(want + layouts[b].part[KEYS].at, &keys, sizeof keys);
    }
    for (long i = 0; i < n; i++)
        if (to[i] != want[i]) {
            printf("layout %d, components %#lx, used %#lx, to %d, %#lx: byte %ld is %d, expected %d\n", a,
                   there, used, b, now, i, to[i], want[i]);
            exit(1);
        }
    CHECK(to[n] == 0xee);
    SAME(xstate_components(to, (uint32_t)n), now);
    // Into a frame of the kernel's, and where that has just this state.
    frame(to, &layouts[b], now, 0);
    xstate_into_frame(to, from);
    CHECK(memcmp(to, want, (size_t)n) == 0);
}

static void layouts_differ(void) {
    const uint64_t base = 3, avx = base | BIT(AVX), keys = avx | BIT(KEYS),
                   avx512 = avx | BIT(5) | BIT(6) | BIT(7), both = avx512 | BIT(KEYS);
    // A row: there, used, now, kept.
    moves(INTEL, both, both, INTEL, both, both);
    moves(INTEL, both, both, AMD, both, both);
    moves(AMD, both, both, INTEL, both, both);
    moves(OLD_AMD, keys, keys, AMD, both, keys);
    moves(AMD, keys, keys, OLD_AMD, keys, keys); // AVX-512 is hidden
    moves(OLD_AMD, keys, keys, INTEL, keys, keys);
    moves(INTEL, avx, avx, AMD, keys, keys); // as in a new process
    moves(INTEL, avx, base, OLD_AMD, avx, base);
    // What was in use by chance: whether the program may use it is not asked here.
    moves(AMD, avx512, base | BIT(5) | BIT(7), AMD, keys, base | BIT(KEYS));
    // Tiles that were given back, and one with MPX.
    moves(INTEL, both | BIT(17) | BIT(18), both, INTEL, both | BIT(17), both);
    moves(INTEL, keys | BIT(3) | BIT(4), keys | BIT(3), INTEL, keys, keys);
}

static void is_legacy(long n) {
    static const uint8_t none[sizeof(struct sw)];
    SAME(n, LEGACY);
    CHECK(memcmp(to, from, SW_AT) == 0 && memcmp(to + SW_AT, none, sizeof none) == 0);
}

static void no_sense(void) {
    const uint64_t avx = 7;
    be(&layouts[INTEL], avx);
    uint32_t n = frame(from, &layouts[INTEL], avx, avx);
    SAME(xstate_move(to, from, n), n);
    for (uint32_t i = 0; i < n; i++)
        CHECK(xstate_move(to, from, i) == (i < LEGACY + HEADER && i >= LEGACY ? (long)LEGACY : -EINVAL));
    struct sw sw;
    for (int i = 0; i < 4; i++) {
        static const struct sw bad[] = {{MAGIC1, 0, avx, 832, {0}},
                                        {MAGIC1, 836, avx, 836, {0}},
                                        {MAGIC1, 836, avx, 0, {0}},
                                        {MAGIC1, UINT32_MAX, avx, 832, {0}}};
        memcpy(from + SW_AT, &bad[i], sizeof bad[i]);
        SAME(xstate_move(to, from, n), -EINVAL);
        frame(to, &layouts[INTEL], avx, avx);
        xstate_into_frame(to, from);
        is_legacy(LEGACY);
    }
    // Of no processor that is known.
    n = frame(from, &layouts[INTEL], avx, avx);
    sw = (struct sw){MAGIC1, n, avx | BIT(19), n - 4, {0}};
    memcpy(from + SW_AT, &sw, sizeof sw);
    SAME(xstate_move(to, from, n), -ENOTSUP);
    // From a processor without XSAVE, and to one.
    memset(from + SW_AT, 0x77, sizeof sw);
    is_legacy(xstate_move(to, from, LEGACY));
    n = frame(from, &layouts[AMD], avx, avx);
    here = (struct layout){0};
    sw_here = (struct sw){0};
    is_legacy(xstate_move(to, from, n));
    CHECK(!xstate_tiles(from, n));
    n = frame(from, &layouts[INTEL], avx | BIT(17) | BIT(18), avx | BIT(18));
    CHECK(xstate_tiles(from, n));
}

// ---- what is forgotten --------------------------------------------------------------------------

static long got;
// Leaves the upper half of YMM5 in use, as no compiled code does, and XMM5.
static long uses(const long *a) {
    got = a[0];
    if (forget_components & BIT(AVX)) __asm__ volatile("vpcmpeqd %%ymm5, %%ymm5, %%ymm5" ::: "xmm5");
    return -7;
}
static long other(const long *a) { return a[0] + 1; }

static void forgets(void) {
    memset(&here, 0, sizeof here);
    CHECK(xstate_open() >= LEGACY);
    const struct sw real = sw_here;
    xstate_started_with(real.components);
    SAME(forget_components, 0);
    xstate_started_with(3);
    SAME(forget_components, real.components & (BIT(AVX) | BIT(5) | BIT(6) | BIT(7)));
    if (!(real.components & BIT(AVX))) {
        printf("xstate: this processor has no AVX: nothing can be forgotten\n");
        return;
    }
    static long (*functions[FORGET_LIMIT])(const long *);
    for (unsigned i = 0; i < FORGET_LIMIT; i++) functions[i] = i % 2 ? uses : other;
    forget_functions = functions;
    for (unsigned i = 0; i < FORGET_LIMIT; i++) {
        long arg = 1000 + i, result;
        alignas(32) uint32_t ymm[8];
        uint32_t mxcsr = 0x3f80, after;
        const void *call = forget_calls + (size_t)i * FORGET_BYTES;
        long preserved = 0x1234567890;
        __asm__ volatile(
            "ldmxcsr %[mxcsr]\n\tmov %[preserved], %%rbx\n\tmov %%rsp, %%r12\n\t"
            "sub $256, %%rsp\n\tand $-16, %%rsp\n\t" // over the red zone
            "vpcmpeqd %%ymm5, %%ymm5, %%ymm5\n\t"
            "call *%[call]\n\t"
            "mov %%r12, %%rsp\n\tmov %%rbx, %[preserved]\n\tvmovdqu %%ymm5, %[ymm]\n\tvzeroupper\n\t"
            "stmxcsr %[after]"
            : "=a"(result), [ymm] "=m"(ymm), [after] "=m"(after), [preserved] "+r"(preserved)
            : [call] "r"(call), "D"(&arg), [mxcsr] "m"(mxcsr)
            : "rbx", "r12", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1",
              "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
              "xmm13", "xmm14", "xmm15");
        uint32_t usual = 0x1f80;
        __asm__ volatile("ldmxcsr %0" ::"m"(usual));
        SAME(result, i % 2 ? -7 : arg + 1);
        if (i % 2) SAME(got, arg);
        SAME(after, mxcsr);
        SAME(preserved, 0x1234567890);
        for (int k = 0; k < 8; k++) SAME(ymm[k], k < 4 ? UINT32_MAX : 0); // XMM5 may have a result
    }
    printf("xstate: %d calls, components %#lx forgotten\n", FORGET_LIMIT, forget_components);
}

int main(void) {
    layouts_differ();
    no_sense();
    forgets();
    return 0;
}
