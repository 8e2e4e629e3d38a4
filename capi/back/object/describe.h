// SPDX-License-Identifier: Apache-2.0
//
// describe.h: descriptors: the recipes from which objects are made again.
//
// Little-endian words, no padding; the first word is the version (1).  They are part of images.
//
//   window        version, flavor, id of its communicator, base and bytes (2 words each), unit of
//                 displacement, whether epochs of MPI_Win_fence and of MPI_Win_lock_all are open,
//                 name and hints (bytes, then these in whole words), attached memory: count, base
//                 and bytes of each; shared memory: address, rank, number of ranks, and when that
//                 is not 0 one more than that of offsets (2 words each)
//   communicator  version, kind (0 intra, 1 inter, 2 not made yet: nothing follows but the identity, and
//                 the deferred call that makes it is among the requests; 4 more: a persistent request has
//                 it for itself), topology, identity (2 words),
//                 members: count, world ranks in order; remote members: count, world ranks
//                 cart: ndims, dims, periods
//                 graph: nodes, edges, index, edges
//                 dist_graph: indegree, outdegree, weighted, sources, weights, destinations, weights
//
//   datatype      version, combiner, counts of integers, addresses (2 words each), datatypes (ids),
//                 then these: what MPI_Type_get_contents gives
//
//   operation     version, commutes, user function (2 words), thunk of the front (2 words)
//
//   file          version, communicator (id), mode (file.h), atomicity, position (2 words, -1: where the view begins), position
//                 of the shared pointer (2 words, -1: not used by this rank), displacement (2 words),
//                 element type, file type (ids), function that began a split collective (0: none),
//                 its status: source, tag, cancelled, bytes (2 words); then name, representation,
//                 hints of opening, hints of the view: a count of bytes, and these, padded
//
//   port          version, what the program calls it, what the MPI below called it last: a count of bytes,
//                 and these with a NUL, padded; hints
#ifndef CKPT_BACK_DESCRIBE_H
#define CKPT_BACK_DESCRIBE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "canon/info.h"

enum { DESCRIBE_VERSION = 1 };

struct writer {
    int32_t *word;
    size_t n, capacity;
    int failed; // out of memory: what was written is incomplete
};

static inline void put(struct writer *w, int64_t value) {
    if (w->n == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 64;
        int32_t *grown = realloc(w->word, capacity * sizeof(int32_t));
        if (grown == NULL) {
            w->failed = 1;
            return;
        }
        w->word = grown;
        w->capacity = capacity;
    }
    w->word[w->n++] = (int32_t)value;
}

static inline void put64(struct writer *w, uint64_t value) {
    put(w, (int32_t)value);
    put(w, (int32_t)(value >> 32));
}

// Padded to whole words.
static inline void put_bytes(struct writer *w, const char *bytes, size_t n) {
    put(w, (int64_t)n);
    for (size_t i = 0; i < n; i += 4) {
        int32_t word = 0;
        memcpy(&word, bytes + i, n - i < 4 ? n - i : 4);
        put(w, word);
    }
}

static inline void put_ints(struct writer *w, const int *v, int n) {
    for (int i = 0; i < n; i++) put(w, v[i]);
}

// Reads beyond the end give 0 and set failed.
struct reader {
    const int32_t *word;
    size_t n, at;
    int failed;
    int short_of_memory; // with failed: memory was out, so the descriptor may be sound
};

static inline int32_t get(struct reader *r) {
    if (r->at >= r->n) {
        r->failed = 1;
        return 0;
    }
    int32_t v;
    memcpy(&v, (const char *)r->word + 4 * r->at++, 4);
    return v;
}

static inline uint64_t get64(struct reader *r) {
    uint64_t low = (uint32_t)get(r);
    return low | (uint64_t)(uint32_t)get(r) << 32;
}

// The next n words as an array inside the descriptor; NULL when there are not so many.
static inline const int *get_ints(struct reader *r, int n) {
    if (n < 0 || (size_t)n > r->n - r->at) {
        r->failed = 1;
        return NULL;
    }
    r->at += (size_t)n;
    return (const int *)(r->word + r->at - n);
}

// Bytes that put_bytes wrote, copied to new memory, with a NUL after them; NULL when there are none.
static inline char *get_bytes(struct reader *r, size_t *n) {
    int32_t bytes = get(r);
    const int *words = bytes < 0 ? NULL : get_ints(r, (int)(((uint32_t)bytes + 3) / 4));
    char *copy = words != NULL && bytes > 0 ? malloc((size_t)bytes + 1) : NULL;
    *n = 0;
    if (bytes < 0 || (bytes > 0 && copy == NULL)) {
        r->failed = 1;
        r->short_of_memory |= words != NULL && bytes > 0;
        return NULL;
    }
    if (copy != NULL) {
        memcpy(copy, words, (size_t)bytes);
        copy[bytes] = 0;
        *n = (size_t)bytes;
    }
    return copy;
}

// A string, which was written with its NUL.
static inline char *get_string(struct reader *r) {
    size_t n;
    char *s = get_bytes(r, &n);
    if (s != NULL && strlen(s) + 1 == n) return s;
    r->failed = 1;
    free(s);
    return NULL;
}

// The content of an info; NULL for none.
static inline char *get_content(struct reader *r) {
    size_t n;
    char *s = get_bytes(r, &n);
    if (s == NULL || info_bytes_within(s, n) == n) return s;
    r->failed = 1;
    free(s);
    return NULL;
}

// Starts reading; the words of a descriptor are aligned.
static inline struct reader reader_of(const void *descriptor, size_t bytes) {
    struct reader r = {descriptor, bytes / 4, 0, 0, 0};
    if (get(&r) != DESCRIBE_VERSION) r.failed = 1;
    return r;
}

#endif
