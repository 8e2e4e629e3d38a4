// SPDX-License-Identifier: Apache-2.0
//
// heat.c: a plate of heat that is saved by VeloC's calls, and runs with VeloC's library or with libckpt's
// (docs/veloc.md).
//
//   mpiexec -n N heat CONFIG STEPS EVERY
//
// EVERY 0: nothing is saved.  Start it again after a failure: it looks what there is.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <veloc.h>

enum { ROWS = 120, COLUMNS = 400 };

static void must(int r) {
    if (r != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 6);
}

int main(int argc, char **argv) {
    int rank, ranks, step = 0;
    double sum = 0;
    if (argc < 4) return 2;
    const int steps = atoi(argv[2]), every = atoi(argv[3]);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (VELOC_Init(MPI_COMM_WORLD, argv[1]) != VELOC_SUCCESS) { // on all ranks
        MPI_Finalize();
        return 4;
    }
    const int rows = ROWS * (rank + 1) / ranks - ROWS * rank / ranks;
    double *u = calloc((size_t)(rows + 2) * COLUMNS, sizeof *u);
    double *next = calloc((size_t)(rows + 2) * COLUMNS, sizeof *u);
    if (u == NULL || next == NULL) MPI_Abort(MPI_COMM_WORLD, 5);

    must(VELOC_Mem_protect(0, &step, 1, sizeof step));
    must(VELOC_Mem_protect(1, u, (size_t)(rows + 2) * COLUMNS, sizeof *u));
    must(VELOC_Mem_protect(2, &sum, 1, sizeof sum));
    must(VELOC_Mem_protect(3, next, 1, sizeof *next)); // it is computed anew, and left out below
    int version = VELOC_Restart_test("heat", 0);
    if (version != VELOC_FAILURE) {
        int last = 2;
        must(VELOC_Restart_begin("heat", version));
        if (VELOC_Recover_size(1) != (int)((size_t)(rows + 2) * COLUMNS * sizeof *u))
            MPI_Abort(MPI_COMM_WORLD, 7);
        must(VELOC_Recover_selective(VELOC_RECOVER_SOME, (int[]){0, 1}, 2));
        must(VELOC_Recover_selective(VELOC_RECOVER_SOME, &last, 1));
        must(VELOC_Restart_end(1));
        if (rank == 0) printf("restart at %d\n", step), fflush(stdout);
    }

    const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    while (step < steps) {
        for (int x = 0; rank == 0 && x < COLUMNS; x++) u[x] = 100;
        MPI_Sendrecv(u + COLUMNS, COLUMNS, MPI_DOUBLE, up, 0, u + (rows + 1) * COLUMNS, COLUMNS, MPI_DOUBLE,
                     down, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(u + rows * COLUMNS, COLUMNS, MPI_DOUBLE, down, 0, u, COLUMNS, MPI_DOUBLE, up, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int y = 1; y <= rows; y++)
            for (int x = 1; x < COLUMNS - 1; x++) {
                const double *c = u + y * COLUMNS + x;
                next[y * COLUMNS + x] = 0.25 * (c[-1] + c[1] + c[-COLUMNS] + c[COLUMNS]);
            }
        memcpy(u + COLUMNS, next + COLUMNS, (size_t)rows * COLUMNS * sizeof *u);
        sum += u[(rows / 2) * COLUMNS + COLUMNS / 2];
        step++;
        if (every == 0 || step % every != 0) continue;
        int without = 3;
        must(VELOC_Checkpoint_wait());
        must(VELOC_Checkpoint_begin("heat", step));
        must(VELOC_Checkpoint_selective(VELOC_CKPT_REST, &without, 1));
        must(VELOC_Checkpoint_end(1));
        if (rank == 0) printf("saved %d\n", step), fflush(stdout);
    }

    double mine = sum, all;
    for (int i = COLUMNS; i < (rows + 1) * COLUMNS; i++) mine += u[i];
    MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("end %a\n", all);
    free(u), free(next);
    must(VELOC_Finalize(1));
    MPI_Finalize();
    return 0;
}
