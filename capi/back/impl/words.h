// SPDX-License-Identifier: Apache-2.0
//
// words.h: 64-bit little-endian words of a section of an image, written one by one and read with care.
//
// What is read may be damaged.  The first wrong word sets failed; what is read after that means nothing.
// Nothing here allocates.
#ifndef CKPT_BACK_WORDS_H
#define CKPT_BACK_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ckpt/tables.h"

// ---- writing ----

// Bytes for which there is no room are only counted.
struct out {
    char *p;
    size_t n, room;
};

// n words, at any alignment.
struct words {
    const void *at;
    size_t n;
};

// Padded with zeros to a word.
static inline void out_bytes(struct out *o, const void *from, size_t n) {
    size_t padded = (n + 7) & ~(size_t)7;
    if (o->n + padded <= o->room) {
        memset(o->p + o->n + n, 0, padded - n);
        if (n > 0) memcpy(o->p + o->n, from, n);
    }
    o->n += padded;
}

static inline void out(struct out *o, int64_t v) { out_bytes(o, &v, 8); }

static inline void out_words(struct out *o, const struct words *w) { out_bytes(o, w->at, 8 * w->n); }

// How many, and the virtual ids.
static inline void out_ids(struct out *o, const ckpt_vid *ids, size_t n) {
    out(o, (int64_t)n);
    for (size_t i = 0; i < n; i++) out(o, ids[i]);
}

// ---- reading ----

struct in {
    const char *p;
    size_t left;
    int failed;
    int short_of_memory; // with failed: memory was out, so the image may be sound
};

static inline int64_t in(struct in *x) {
    int64_t v;
    if (x->left < 8) {
        x->failed = 1;
        return 0;
    }
    memcpy(&v, x->p, 8);
    x->p += 8;
    x->left -= 8;
    return v;
}

// A word that must lie between low and high.
static inline int64_t in_range(struct in *x, int64_t low, int64_t high) {
    int64_t v = in(x);
    if (v < low || v > high) {
        x->failed = 1;
        return low;
    }
    return v;
}

// A virtual id of one of these kinds of objects: bit k stands for kind k.
static inline ckpt_vid in_vid(struct in *x, uint32_t kinds) {
    ckpt_vid v = (ckpt_vid)in_range(x, 0, UINT32_MAX);
    if (!(kinds >> CKPT_VID_KIND(v) & 1)) x->failed = 1;
    return v;
}

// At most so many items can follow, of at least `words` words each.
static inline int64_t in_count(struct in *x, size_t words) {
    return in_range(x, 0, (int64_t)(x->left / (8 * words)));
}

// The address of the next n bytes, and skips their padding; NULL when there are not so many.
static inline const void *in_bytes(struct in *x, size_t n) {
    const char *at = x->p;
    size_t padded = (n + 7) & ~(size_t)7;
    if (x->failed || padded > x->left) {
        x->failed = 1;
        return NULL;
    }
    x->p += padded;
    x->left -= padded;
    return at;
}

static inline struct words in_words(struct in *x, int64_t n) {
    struct words w = {NULL, 0};
    if (n >= 0 && (uint64_t)n <= x->left / 8) {
        w.at = in_bytes(x, 8 * (size_t)n);
        w.n = x->failed ? 0 : (size_t)n;
    } else {
        x->failed = 1;
    }
    return w;
}

static inline int64_t word_of(const struct words *w, size_t i) {
    int64_t v;
    memcpy(&v, (const char *)w->at + 8 * i, 8);
    return v;
}

// How many, and the virtual ids, all of these kinds.
static inline struct words in_ids(struct in *x, uint32_t kinds) {
    int64_t n = in_count(x, 1);
    struct in ids = *x;
    struct words w = in_words(x, n);
    for (int64_t i = 0; i < n && !ids.failed; i++) in_vid(&ids, kinds);
    x->failed |= ids.failed;
    return w;
}

#endif
