// SPDX-License-Identifier: Apache-2.0
#include "plate.h"

#include <stdlib.h>

// The first of n cells that part i of parts has.
static int part_start(int n, int i, int parts) { return (int)((long)n * i / parts); }

static void make_communicators(struct plate *b, MPI_Comm world) {
    const int periods[2] = {0, 0};

    MPI_Comm_size(world, &b->ranks);
    b->dims[0] = b->dims[1] = 0;
    MPI_Dims_create(b->ranks, 2, b->dims);
    MPI_Cart_create(world, 2, b->dims, periods, 0, &b->grid);
    MPI_Comm_rank(b->grid, &b->rank);
    MPI_Cart_coords(b->grid, b->rank, 2, b->coords);
    MPI_Cart_shift(b->grid, 0, 1, &b->neighbour[NORTH], &b->neighbour[SOUTH]);
    MPI_Cart_shift(b->grid, 1, 1, &b->neighbour[WEST], &b->neighbour[EAST]);
    MPI_Comm_split(b->grid, b->coords[0], b->coords[1], &b->row);
}

int plate_make(struct plate *b, const struct params *p, MPI_Comm world) {
    make_communicators(b, world);

    b->first_row = part_start(p->rows, b->coords[0], b->dims[0]);
    b->first_column = part_start(p->columns, b->coords[1], b->dims[1]);
    b->rows = part_start(p->rows, b->coords[0] + 1, b->dims[0]) - b->first_row;
    b->columns = part_start(p->columns, b->coords[1] + 1, b->dims[1]) - b->first_column;
    b->width = b->columns + 2;
    MPI_Type_vector(b->rows, 1, b->width, MPI_DOUBLE, &b->column);
    MPI_Type_commit(&b->column);

    size_t cells = (size_t)(b->rows + 2) * b->width;
    b->now = calloc(cells, sizeof(double));
    b->next = calloc(cells, sizeof(double));
    b->conductivity = calloc(cells, sizeof(double));
    int good = b->now && b->next && b->conductivity && b->rows > 0 && b->columns > 0, all;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, b->grid);
    return all ? 0 : -1;
}

void plate_free(struct plate *b) {
    free(b->now);
    free(b->next);
    free(b->conductivity);
    MPI_Type_free(&b->column);
    MPI_Comm_free(&b->row);
    MPI_Comm_free(&b->grid);
}

void plate_exchange(const struct plate *b, double *field) {
    // For each side: the first cell to send, the first cell of the halo, how many of which type.
    const struct {
        double *send, *receive;
        int count;
        MPI_Datatype type;
    } side[SIDES] = {
        [NORTH] = {cell(b, field, 0, 0), cell(b, field, -1, 0), b->columns, MPI_DOUBLE},
        [SOUTH] = {cell(b, field, b->rows - 1, 0), cell(b, field, b->rows, 0), b->columns, MPI_DOUBLE},
        [WEST] = {cell(b, field, 0, 0), cell(b, field, 0, -1), 1, b->column},
        [EAST] = {cell(b, field, 0, b->columns - 1), cell(b, field, 0, b->columns), 1, b->column},
    };
    const int opposite[SIDES] = {SOUTH, NORTH, EAST, WEST};
    MPI_Request requests[2 * SIDES];

    // The tag is the side on which the message leaves its sender.
    for (int s = 0; s < SIDES; s++)
        MPI_Irecv(side[s].receive, side[s].count, side[s].type, b->neighbour[s], opposite[s], b->grid,
                  &requests[s]);
    for (int s = 0; s < SIDES; s++)
        MPI_Isend(side[s].send, side[s].count, side[s].type, b->neighbour[s], s, b->grid,
                  &requests[SIDES + s]);
    MPI_Waitall(2 * SIDES, requests, MPI_STATUSES_IGNORE);
}

void plate_gather(const struct plate *b, const struct params *p, double *whole) {
    const int all[2] = {p->rows, p->columns};
    MPI_Request *requests = NULL;
    MPI_Datatype block;

    if (b->rank == 0) {
        requests = malloc(sizeof(MPI_Request) * b->ranks);
        for (int r = 0; r < b->ranks; r++) {
            int at[2], start[2], size[2];
            MPI_Cart_coords(b->grid, r, 2, at);
            for (int d = 0; d < 2; d++) {
                start[d] = part_start(all[d], at[d], b->dims[d]);
                size[d] = part_start(all[d], at[d] + 1, b->dims[d]) - start[d];
            }
            MPI_Type_create_subarray(2, all, size, start, MPI_ORDER_C, MPI_DOUBLE, &block);
            MPI_Type_commit(&block);
            MPI_Irecv(whole, 1, block, r, 0, b->grid, &requests[r]);
            MPI_Type_free(&block);
        }
    }

    const int with_halo[2] = {b->rows + 2, b->width}, inner[2] = {b->rows, b->columns}, start[2] = {1, 1};
    MPI_Type_create_subarray(2, with_halo, inner, start, MPI_ORDER_C, MPI_DOUBLE, &block);
    MPI_Type_commit(&block);
    MPI_Send(b->now, 1, block, 0, 0, b->grid);
    MPI_Type_free(&block);

    if (b->rank == 0) {
        MPI_Waitall(b->ranks, requests, MPI_STATUSES_IGNORE);
        free(requests);
    }
}
