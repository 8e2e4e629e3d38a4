// SPDX-License-Identifier: Apache-2.0
//
// blocks FILE [TIMES]: writes a matrix to an HDF5 file, each rank its block of columns, twice:
// collectively, then each rank for itself into a dataset in chunks; and reads other ranks' blocks back.
// All that so many times, with other numbers and into datasets of their own.
#include <hdf5.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 60, COLUMNS = 24 }; // of each rank

static int rank, size;

#define CHECK(call) check((long)(call), #call, __LINE__)
static hid_t check(long result, const char *what, int line) {
    if (result < 0) {
        fprintf(stderr, "blocks: line %d: %s failed\n", line, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return (hid_t)result;
}

static double value(int row, int column, int time) { return 1.0 / (1 + row + time) + column * 1e-3; }

// The block of a rank in a dataset of all columns.
static hid_t block(int of) {
    hsize_t all[] = {ROWS, (hsize_t)(COLUMNS * size)}, count[] = {ROWS, COLUMNS};
    hsize_t start[] = {0, (hsize_t)(COLUMNS * of)};
    hid_t space = CHECK(H5Screate_simple(2, all, NULL));
    CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    return space;
}

static void transfer(hid_t data, int of, H5FD_mpio_xfer_t how, double *buffer, int write) {
    hsize_t count[] = {ROWS, COLUMNS};
    hid_t memory = CHECK(H5Screate_simple(2, count, NULL)), file = block(of);
    hid_t list = CHECK(H5Pcreate(H5P_DATASET_XFER));
    CHECK(H5Pset_dxpl_mpio(list, how));
    if (write)
        CHECK(H5Dwrite(data, H5T_NATIVE_DOUBLE, memory, file, list, buffer));
    else
        CHECK(H5Dread(data, H5T_NATIVE_DOUBLE, memory, file, list, buffer));
    H5Pclose(list), H5Sclose(memory), H5Sclose(file);
}

// Without times of creation: the file shall depend on nothing but its content.
static hid_t dataset(hid_t file, const char *name, int chunked) {
    hsize_t chunk[] = {ROWS / 2, COLUMNS / 2};
    hid_t space = block(0), list = CHECK(H5Pcreate(H5P_DATASET_CREATE));
    CHECK(H5Pset_obj_track_times(list, 0));
    if (chunked) CHECK(H5Pset_chunk(list, 2, chunk));
    hid_t data = CHECK(H5Dcreate2(file, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, list, H5P_DEFAULT));
    H5Sclose(space), H5Pclose(list);
    return data;
}

// The other ranks' blocks are looked at once they are in the file.
static void blocks(hid_t file, int time, int *wrong, long long *sum) {
    static double mine[ROWS][COLUMNS], theirs[ROWS][COLUMNS];
    char names[2][32] = {"whole", "chunks"};
    if (time > 0) {
        snprintf(names[0], sizeof names[0], "whole %d", time);
        snprintf(names[1], sizeof names[1], "chunks %d", time);
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) mine[r][c] = value(r, c + COLUMNS * rank, time);
    hid_t data[] = {dataset(file, names[0], 0), dataset(file, names[1], 1)};
    transfer(data[0], rank, H5FD_MPIO_COLLECTIVE, *mine, 1);
    transfer(data[1], rank, H5FD_MPIO_INDEPENDENT, *mine, 1);
    CHECK(H5Fflush(file, H5F_SCOPE_GLOBAL));
    MPI_Barrier(MPI_COMM_WORLD);

    int other = (rank + 1) % size;
    for (int d = 0; d < 2; d++) {
        transfer(data[d], other, d ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT, *theirs, 0);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++) {
                *wrong += theirs[r][c] != value(r, c + COLUMNS * other, time);
                *sum += llrint(theirs[r][c] * 1e12);
            }
        H5Dclose(data[d]);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    hid_t access = CHECK(H5Pcreate(H5P_FILE_ACCESS));
    CHECK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    hid_t file = CHECK(H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access));

    int wrong = 0;
    long long sum = 0, all;
    for (int time = 0; time < (argc > 2 ? atoi(argv[2]) : 1); time++) blocks(file, time, &wrong, &sum);
    CHECK(H5Fclose(file));
    H5Pclose(access);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(&sum, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("sum %lld, %d wrong\n", all, wrong);
        printf("blocks: %s\n", wrong ? "WRONG" : "ok");
    }
    MPI_Finalize();
    return wrong != 0;
}
