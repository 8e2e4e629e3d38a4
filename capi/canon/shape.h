// SPDX-License-Identifier: Apache-2.0
//
// shape.h: what the arguments of the constructors of datatypes are (generated: gen/zz_shapes.h).
//
// A shape has a letter for each argument but the last, the new datatype; that of MPI_Type_indexed is
// "nIIt".  A capital letter is an array as long as the argument n or m says.
//
//   n    an integer: how long the arrays are          m    the same, a large count
//   i I  integers                                     c C  large counts
//   o    an integer: MPI_ORDER_*                      a A  addresses
//   D    integers: MPI_DISTRIBUTE_*                   t T  datatypes
//   G    integers: arguments of distributions
//
// MPI_Type_get_contents gives the integers in this order, and the large counts, the addresses and the
// datatypes each in theirs.
#ifndef CKPT_SHAPE_H
#define CKPT_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "canon/gen/zz_shapes.h"
#include "canon/mpi_canon.h"

// Sorts of arguments: sets of letters, a bit for each, since every datatype that is made is asked for all.
#define SHAPE_LETTER(letter) (UINT64_C(1) << ((letter) - 'A'))
#define SHAPE_LENGTH (SHAPE_LETTER('n') | SHAPE_LETTER('m'))
#define SHAPE_SPECIAL (SHAPE_LETTER('o') | SHAPE_LETTER('D') | SHAPE_LETTER('G')) // stand for something
#define SHAPE_INTS (SHAPE_LETTER('n') | SHAPE_LETTER('i') | SHAPE_LETTER('I') | SHAPE_SPECIAL)
#define SHAPE_COUNTS (SHAPE_LETTER('m') | SHAPE_LETTER('c') | SHAPE_LETTER('C'))
#define SHAPE_ADDRESSES (SHAPE_LETTER('a') | SHAPE_LETTER('A'))
#define SHAPE_TYPES (SHAPE_LETTER('t') | SHAPE_LETTER('T'))

// The shape of the constructor of a combiner; NULL when there is none.
static inline const char *shape_of(int combiner) {
    switch (combiner) {
#define X(name, shape)          \
    case CANON_COMBINER_##name: \
        return shape;
        CANON_SHAPES(X)
#undef X
    default:
        return NULL;
    }
}

// The same of the one with large counts.
static inline const char *shape_of_large(int combiner) {
    switch (combiner) {
#define X(name, shape)          \
    case CANON_COMBINER_##name: \
        return shape;
        CANON_LARGE_SHAPES(X)
#undef X
    default:
        return NULL;
    }
}

static inline int shape_is(char letter, uint64_t sort) { return (SHAPE_LETTER(letter) & sort) != 0; }

static inline int shape_is_array(char letter) { return letter >= 'A' && letter <= 'Z'; }

// Where the first argument of a sort stands, -1 when there is none.
static inline int shape_find(const char *shape, uint64_t sort) {
    for (int i = 0; shape[i] != 0; i++)
        if (shape_is(shape[i], sort)) return i;
    return -1;
}

// How many values of one sort the arguments hold when their arrays have n elements.
static inline int64_t shape_holds(const char *shape, uint64_t sort, int64_t n) {
    int64_t sum = 0;
    for (; *shape != 0; shape++)
        if (shape_is(*shape, sort)) sum += shape_is_array(*shape) ? n : 1;
    return sum;
}

// Replaces what stands for something among the integers of MPI_Type_get_contents.
static inline void shape_convert(const char *shape, int *v, int (*order)(int), int (*distribution)(int),
                                 int (*darg)(int)) {
    int n = 0;
    for (; *shape != 0; shape++) {
        if (!shape_is(*shape, SHAPE_INTS)) continue;
        if (*shape == 'n') n = *v > 0 ? *v : 0;
        if (*shape == 'o') *v = order(*v);
        for (int i = 0; *shape == 'D' && i < n; i++) v[i] = distribution(v[i]);
        for (int i = 0; *shape == 'G' && i < n; i++) v[i] = darg(v[i]);
        v += shape_is_array(*shape) ? n : 1;
    }
}

#endif
