// SPDX-License-Identifier: Apache-2.0
//
// plate.h: a rank's block of the plate, and how blocks talk to each other.
//
// The ranks form a 2-D grid.  A block has one row or column of halo on each side, which holds the
// neighbour's cells, or, at the rim of the plate, is insulated (nothing flows through it).
#ifndef HEAT_PLATE_H
#define HEAT_PLATE_H

#include <mpi.h>

#include "params.h"

enum { NORTH, SOUTH, WEST, EAST, SIDES };

struct plate {
    MPI_Comm grid; // all ranks, as a 2-D grid
    MPI_Comm row;  // the ranks of my row of blocks
    int rank, ranks, dims[2], coords[2];
    int neighbour[SIDES];
    int rows, columns;           // cells of my block, without halo
    int first_row, first_column; // of my block, in the whole plate
    int width;                   // doubles from one row to the next: columns + 2
    MPI_Datatype column;         // a column of my block
    double *now, *next;          // temperatures
    double *conductivity;        // relative to the mean material
};

// Divides the plate among the ranks of world.  Returns 0, or -1 when memory is short on some rank or
// a rank would have no cell; every rank gets the same answer.
int plate_make(struct plate *b, const struct params *p, MPI_Comm world);
void plate_free(struct plate *b);

// Gives every neighbour my cells at our common side and fills the halo of field with theirs.
void plate_exchange(const struct plate *b, double *field);

// Gathers now of all ranks at rank 0 into whole (rows * columns doubles, row by row; used there only).
void plate_gather(const struct plate *b, const struct params *p, double *whole);

// The cell at row r and column c of my block; -1 and rows or columns are the halo.
static inline double *cell(const struct plate *b, double *field, int r, int c) {
    return field + (size_t)(r + 1) * b->width + (c + 1);
}

#endif
