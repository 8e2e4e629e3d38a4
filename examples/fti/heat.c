// SPDX-License-Identifier: Apache-2.0
//
// heat.c: a plate of heat that is saved by FTI's calls, and runs with FTI's library or with libckpt's (docs/fti.md).
//
//   mpiexec -n N heat CONFIG STEPS EVERY [grow]
//
// EVERY 0: nothing is saved.  The levels are taken in turn.  grow: an array that has another size each time, which
// is recovered by FTI_Realloc.  Start it again after a failure: the configuration says that there was one.
#include <fti.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 120, COLUMNS = 400 };

typedef struct {
    double heat[2];
} cell; // what is in the middle of the plate, and at its edge

int main(int argc, char **argv) {
    int rank, ranks, step = 0, saved = 0;
    int64_t length = 0;
    cell last = {{0, 0}};
    fti_id_t cell_type;
    if (argc < 4) return 2;
    const int steps = atoi(argv[2]), every = atoi(argv[3]), grow = argc > 4 && strcmp(argv[4], "grow") == 0;

    MPI_Init(&argc, &argv);
    if (FTI_Init(argv[1], MPI_COMM_WORLD) != FTI_SCES) { // on all ranks
        MPI_Finalize();
        return 4;
    }
    MPI_Comm_rank(FTI_COMM_WORLD, &rank);
    MPI_Comm_size(FTI_COMM_WORLD, &ranks);
    const int rows = ROWS * (rank + 1) / ranks - ROWS * rank / ranks;
    double *u = calloc((size_t)(rows + 2) * COLUMNS, sizeof *u);
    double *next = calloc((size_t)(rows + 2) * COLUMNS, sizeof *u);
    int32_t *history = malloc(sizeof *history);
    if (u == NULL || next == NULL || history == NULL) MPI_Abort(MPI_COMM_WORLD, 5);

    FTI_InitType(&cell_type, sizeof last);
    FTI_Protect(0, &step, 1, FTI_INTG);
    FTI_Protect(1, u, (int64_t)(rows + 2) * COLUMNS, FTI_DBLE);
    FTI_Protect(2, &last, 1, cell_type);
    FTI_Protect(3, &length, sizeof length, FTI_CHAR);
    if (grow) FTI_Protect(4, history, 1, FTI_INTG);
    if (FTI_Status() != 0) {
        if (grow) history = FTI_Realloc(4, history);
        if (FTI_Recover() != FTI_SCES) MPI_Abort(MPI_COMM_WORLD, 6);
        if (rank == 0) printf("restart at %d\n", step), fflush(stdout);
    }

    const int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    while (step < steps) {
        for (int x = 0; rank == 0 && x < COLUMNS; x++) u[x] = 100;
        MPI_Sendrecv(u + COLUMNS, COLUMNS, MPI_DOUBLE, up, 0, u + (rows + 1) * COLUMNS, COLUMNS, MPI_DOUBLE,
                     down, 0, FTI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(u + rows * COLUMNS, COLUMNS, MPI_DOUBLE, down, 0, u, COLUMNS, MPI_DOUBLE, up, 0,
                     FTI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int y = 1; y <= rows; y++)
            for (int x = 1; x < COLUMNS - 1; x++) {
                const double *c = u + y * COLUMNS + x;
                next[y * COLUMNS + x] = 0.25 * (c[-1] + c[1] + c[-COLUMNS] + c[COLUMNS]);
            }
        memcpy(u + COLUMNS, next + COLUMNS, (size_t)rows * COLUMNS * sizeof *u);
        last.heat[0] += u[(rows / 2) * COLUMNS + COLUMNS / 2];
        last.heat[1] += u[COLUMNS + 1];
        step++;
        if (every == 0 || step % every != 0) continue;
        if (grow) {
            history = realloc(history, (size_t)(++length + 1) * sizeof *history);
            if (history == NULL) MPI_Abort(MPI_COMM_WORLD, 5);
            history[length] = step;
            if (length == 1) history[0] = 0;
            FTI_Protect(4, history, length + 1, FTI_INTG);
        }
        if (FTI_Checkpoint(step / every, saved++ % 4 + 1) != FTI_DONE) MPI_Abort(MPI_COMM_WORLD, 7);
        if (rank == 0) printf("saved %d\n", step), fflush(stdout);
    }

    double mine[3] = {last.heat[0], last.heat[1], 0}, all[3];
    for (int64_t i = 1; i <= length; i++)
        if (history[i] != (int32_t)i * every) mine[2]++; // wrong
    for (int i = COLUMNS; i < (rows + 1) * COLUMNS; i++) mine[0] += u[i];
    MPI_Reduce(mine, all, 3, MPI_DOUBLE, MPI_SUM, 0, FTI_COMM_WORLD);
    if (rank == 0) printf("end %a %a %g\n", all[0], all[1], all[2]);
    free(u), free(next), free(history);
    FTI_Finalize();
    MPI_Finalize();
    return 0;
}
