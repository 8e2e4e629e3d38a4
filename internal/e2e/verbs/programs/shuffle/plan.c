// SPDX-License-Identifier: Apache-2.0
//
// plan.c: the steps of each rank towards each other, by a seed.
#include <string.h>

#include "shuffle.h"

static uint64_t mix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

struct plan plan_of(uint64_t seed, int from, int to, uint32_t steps) {
    uint64_t state = seed ^ (uint64_t)(from + 1) << 32 ^ (uint64_t)(to + 1) << 48;
    struct plan p = {.steps = steps};
    p.key = mix(&state);
    p.random = state;
    return p;
}

bool plan_next(struct plan *p, struct step *s) {
    if (p->next >= p->steps) return false;
    uint64_t r = mix(&p->random);
    *s = (struct step){.op = (enum op)(r % OPS), .number = p->next++};
    s->slot = (r >> 8) % SLOTS;
    s->length = 8 + (r & 1 << 12 ? (r >> 16) % 200 : (r >> 16) % (LONGEST - 7));
    s->value = (r >> 32) % 1000;
    s->inlined = r & 1 << 13, s->quiet = r & 1 << 14;
    if (p->next == p->steps) s->op = SEND, s->quiet = false;
    if (s->op == UD_SEND && s->length > 2048) s->length = 2048;
    if (s->op == ADD || s->op == SWAP) s->length = 8;
    if (s->op == READ) s->length = 1 + (s->length - 1) % LONGEST;
    return true;
}

// Each message begins with its number, so that one that comes twice is seen, and all its bytes depend on it.
void fill(void *at, size_t n, uint64_t key, uint32_t number) {
    unsigned char *b = at;
    uint64_t word = key + number * 0xd1342543de82ef95ull;
    for (size_t i = 0; i < n; i++) {
        if (i % 8 == 0 && i > 0) word = word * 6364136223846793005ull + 1442695040888963407ull;
        b[i] = (unsigned char)(word >> i % 8 * 8);
    }
    if (n >= sizeof number) memcpy(b, &number, sizeof number);
}

bool is(const void *at, size_t n, uint64_t key, uint32_t number) {
    char want[LONGEST];
    fill(want, n, key, number);
    return memcmp(at, want, n) == 0;
}
