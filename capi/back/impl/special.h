// SPDX-License-Identifier: Apache-2.0
//
// special.h: values with a meaning of their own: ranks, tags, addresses, asserts.
#ifndef CKPT_BACK_SPECIAL_H
#define CKPT_BACK_SPECIAL_H

#include "back/impl/process.h"

// Stands for a value that the real MPI does not have.  No MPI has this rank, tag, kind or class, so the real
// MPI refuses it in its own words.
enum { BACK_NO_VALUE = -1000 };

static inline int real_rank(long rank) {
    int r = (int)rank;
    if (__builtin_expect(r >= 0, 1)) return r;
    return r == CANON_ANY_SOURCE  ? MPI_ANY_SOURCE
           : r == CANON_PROC_NULL ? MPI_PROC_NULL
           : r == CANON_ROOT      ? MPI_ROOT
                                  : BACK_NO_VALUE;
}
static inline int canon_rank(int r) {
    if (__builtin_expect(r >= 0, 1)) return r;
    return r == MPI_ANY_SOURCE  ? CANON_ANY_SOURCE
           : r == MPI_PROC_NULL ? CANON_PROC_NULL
           : r == MPI_ROOT      ? CANON_ROOT
                                : CANON_UNDEFINED;
}
static inline int real_tag(long tag) {
    return (int)tag == CANON_ANY_TAG ? MPI_ANY_TAG : (int)tag < 0 ? BACK_NO_VALUE : (int)tag;
}
static inline void *real_buf(long p) { return p == CANON_IN_PLACE ? MPI_IN_PLACE : (void *)p; }
static inline int *real_weights(long p) {
    return p == CANON_UNWEIGHTED      ? (int *)MPI_UNWEIGHTED
           : p == CANON_WEIGHTS_EMPTY ? (int *)MPI_WEIGHTS_EMPTY
                                      : (int *)p;
}
static inline int canon_topo(int t) {
    return t == MPI_CART         ? CANON_CART
           : t == MPI_GRAPH      ? CANON_GRAPH
           : t == MPI_DIST_GRAPH ? CANON_DIST_GRAPH
                                 : CANON_UNDEFINED;
}

static inline int canon_compare(int c) {
    return c == MPI_IDENT       ? CANON_IDENT
           : c == MPI_CONGRUENT ? CANON_CONGRUENT
           : c == MPI_SIMILAR   ? CANON_SIMILAR
                                : CANON_UNEQUAL;
}
static inline int real_whence(long w) {
    return w == CANON_SEEK_SET   ? MPI_SEEK_SET
           : w == CANON_SEEK_CUR ? MPI_SEEK_CUR
           : w == CANON_SEEK_END ? MPI_SEEK_END
                                 : BACK_NO_VALUE;
}
static inline int real_level(int l) {
    return l == CANON_THREAD_MULTIPLE     ? MPI_THREAD_MULTIPLE
           : l == CANON_THREAD_SERIALIZED ? MPI_THREAD_SERIALIZED
           : l == CANON_THREAD_FUNNELED   ? MPI_THREAD_FUNNELED
                                          : MPI_THREAD_SINGLE;
}
static inline int canon_level(int l) {
    return l == MPI_THREAD_MULTIPLE     ? CANON_THREAD_MULTIPLE
           : l == MPI_THREAD_SERIALIZED ? CANON_THREAD_SERIALIZED
           : l == MPI_THREAD_FUNNELED   ? CANON_THREAD_FUNNELED
                                        : CANON_THREAD_SINGLE;
}

static inline int real_lock(long l) {
    return l == CANON_LOCK_EXCLUSIVE ? MPI_LOCK_EXCLUSIVE
           : l == CANON_LOCK_SHARED  ? MPI_LOCK_SHARED
                                     : BACK_NO_VALUE;
}
static inline int real_assert(long a) {
    return (a & CANON_MODE_NOCHECK ? MPI_MODE_NOCHECK : 0) |
           (a & CANON_MODE_NOPRECEDE ? MPI_MODE_NOPRECEDE : 0) | (a & CANON_MODE_NOPUT ? MPI_MODE_NOPUT : 0) |
           (a & CANON_MODE_NOSTORE ? MPI_MODE_NOSTORE : 0) |
           (a & CANON_MODE_NOSUCCEED ? MPI_MODE_NOSUCCEED : 0);
}

#endif
