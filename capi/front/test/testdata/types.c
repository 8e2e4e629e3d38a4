// SPDX-License-Identifier: Apache-2.0
//
// types.c: datatypes made of each other at random, many of them freed while others need them, saved
// ("save" as argument) in the middle, and used on: each live one packs the same bytes as when it was
// made, and so does one made again from its contents.  Prints "types: ok" on rank 0, with ", restarted"
// after a restart.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

enum { LIVE = 40, STEPS = 600, LARGEST = 1 << 12, ROOM = 1 << 18 };

static struct {
    MPI_Datatype type; // MPI_DATATYPE_NULL: none
    unsigned long hash;
} types[LIVE];

static unsigned long seed = 88172645463325252ul;

static unsigned below(unsigned n) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)(seed >> 20) % n;
}

// What the type takes out of a buffer whose bytes all differ from their neighbours.
static unsigned long packed(MPI_Datatype type) {
    static unsigned char from[ROOM], to[LARGEST];
    if (from[1] == 0)
        for (int i = 0; i < ROOM; i++) from[i] = (unsigned char)(i * 7 + (i >> 8) * 31);
    MPI_Aint lower, extent, true_lower, true_extent;
    int size, at = 0;
    OK(MPI_Type_size(type, &size));
    OK(MPI_Type_get_extent(type, &lower, &extent));
    OK(MPI_Type_get_true_extent(type, &true_lower, &true_extent));
    CHECK(size <= LARGEST && true_lower >= 0 && true_lower + true_extent <= ROOM);
    OK(MPI_Pack(from, 1, type, to, LARGEST, &at, MPI_COMM_SELF));
    unsigned long h = 14695981039346656037ul ^ (unsigned long)lower ^ (unsigned long)extent << 20;
    for (int i = 0; i < size; i++) h = (h ^ to[i]) * 1099511628211ul;
    return h;
}

// One that others can be made of without growing too large.
static MPI_Datatype some(void) {
    MPI_Datatype t = types[below(LIVE)].type;
    MPI_Aint lower, extent;
    int size;
    if (t == MPI_DATATYPE_NULL) return below(2) ? MPI_INT : MPI_DOUBLE;
    OK(MPI_Type_size(t, &size));
    OK(MPI_Type_get_extent(t, &lower, &extent));
    return size <= LARGEST / 8 && extent <= ROOM / 64 ? t : MPI_SHORT;
}

static MPI_Datatype made(void) {
    MPI_Datatype t, a = some(), b = some();
    MPI_Aint lower, extent;
    OK(MPI_Type_get_extent(a, &lower, &extent));
    switch (below(7)) {
    case 0:
        OK(MPI_Type_contiguous(2, a, &t));
        break;
    case 1:
        OK(MPI_Type_vector(2, 1, 3, a, &t));
        break;
    case 2:
        OK(MPI_Type_indexed(2, (int[]){1, 2}, (int[]){0, 2}, a, &t));
        break;
    case 3:
        OK(MPI_Type_create_hindexed(2, (int[]){1, 1}, (MPI_Aint[]){0, 2 * extent + 8}, a, &t));
        break;
    case 4: { // MPIs differ in how they round the extent of a structure up
        MPI_Datatype rough;
        MPI_Aint lower_b, extent_b;
        OK(MPI_Type_get_extent(b, &lower_b, &extent_b));
        OK(MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, extent + 16}, (MPI_Datatype[]){a, b},
                                  &rough));
        OK(MPI_Type_create_resized(rough, 0, extent + extent_b + 24, &t));
        OK(MPI_Type_free(&rough));
        break;
    }
    case 5:
        OK(MPI_Type_create_resized(a, lower, extent + 8, &t));
        break;
    default:
        OK(MPI_Type_dup(a, &t));
        break;
    }
    return t;
}

// A copy of a type from its contents; those that it is made of are freed.
static MPI_Datatype again(MPI_Datatype type) {
    int ni, na, nt, combiner, ints[8];
    MPI_Aint addresses[4];
    MPI_Datatype inner[2], t;
    OK(MPI_Type_get_envelope(type, &ni, &na, &nt, &combiner));
    CHECK(ni <= 8 && na <= 4 && nt <= 2 && combiner != MPI_COMBINER_NAMED);
    OK(MPI_Type_get_contents(type, ni, na, nt, ints, addresses, inner));
    switch (combiner) {
    case MPI_COMBINER_CONTIGUOUS:
        OK(MPI_Type_contiguous(ints[0], inner[0], &t));
        break;
    case MPI_COMBINER_VECTOR:
        OK(MPI_Type_vector(ints[0], ints[1], ints[2], inner[0], &t));
        break;
    case MPI_COMBINER_INDEXED:
        OK(MPI_Type_indexed(ints[0], ints + 1, ints + 3, inner[0], &t));
        break;
    case MPI_COMBINER_HINDEXED:
        OK(MPI_Type_create_hindexed(ints[0], ints + 1, addresses, inner[0], &t));
        break;
    case MPI_COMBINER_STRUCT:
        OK(MPI_Type_create_struct(ints[0], ints + 1, addresses, inner, &t));
        break;
    case MPI_COMBINER_RESIZED:
        OK(MPI_Type_create_resized(inner[0], addresses[0], addresses[1], &t));
        break;
    default:
        CHECK(combiner == MPI_COMBINER_DUP);
        OK(MPI_Type_dup(inner[0], &t));
        break;
    }
    for (int i = 0; i < nt; i++) {
        int others;
        OK(MPI_Type_get_envelope(inner[i], &ni, &na, &others, &combiner));
        if (combiner != MPI_COMBINER_NAMED) OK(MPI_Type_free(&inner[i]));
    }
    return t;
}

static void check(int i) {
    CHECK(packed(types[i].type) == types[i].hash);
    if (below(4) == 0) {
        MPI_Datatype copy = again(types[i].type);
        OK(MPI_Type_commit(&copy));
        CHECK(packed(copy) == types[i].hash);
        OK(MPI_Type_free(&copy));
    }
}

static void steps(int n) {
    while (n-- > 0) {
        int i = (int)below(LIVE);
        if (types[i].type != MPI_DATATYPE_NULL) {
            check(i);
            OK(MPI_Type_free(&types[i].type));
        }
        types[i].type = made();
        OK(MPI_Type_commit(&types[i].type));
        types[i].hash = packed(types[i].type);
    }
}

int main(int argc, char **argv) {
    int save = argc > 1 && strcmp(argv[1], "save") == 0;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    seed += (unsigned long)rank * 7919;
    for (int i = 0; i < LIVE; i++) types[i].type = MPI_DATATYPE_NULL;
    steps(STEPS);
    MPIX_CR_state_t state;
    int restarted = 0;
    for (int round = 0; round < 3; round++) {
        steps(STEPS / 10); // some that the last image does not know
        if (save) {
            OK(MPIX_Checkpoint(&state));
            CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
            restarted |= state == MPIX_CR_STATE_RESTART;
        }
        for (int i = 0; i < LIVE; i++)
            if (types[i].type != MPI_DATATYPE_NULL) check(i);
    }
    steps(STEPS);
    for (int i = 0; i < LIVE; i++)
        if (types[i].type != MPI_DATATYPE_NULL) {
            check(i);
            OK(MPI_Type_free(&types[i].type));
        }
    if (rank == 0) printf("types: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
