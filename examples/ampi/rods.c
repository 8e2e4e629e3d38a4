// SPDX-License-Identifier: Apache-2.0
//
// rods: heat in a ring of rods, one a rank, for AMPI.
//
//     rods STEPS
//
// Nothing is global: AMPI's ranks are user-level threads of one process, and share its variables.  The last line has
// the residual in hexadecimal.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 2000 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, steps = argc > 1 ? atoi(argv[1]) : 2000;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    double *now = calloc(CELLS + 2, sizeof *now), *next = calloc(CELLS + 2, sizeof *next), residual = 0;
    if (now == NULL || next == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 1; i <= CELLS; i++) now[i] = (double)((i * 7919 + rank * 104729) % 1000) / 1000;
    for (int step = 0; step < steps; step++) {
        MPI_Request halo[4];
        MPI_Irecv(&now[0], 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, &halo[0]);
        MPI_Irecv(&now[CELLS + 1], 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &halo[1]);
        MPI_Isend(&now[CELLS], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, &halo[2]);
        MPI_Isend(&now[1], 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &halo[3]);
        MPI_Waitall(4, halo, MPI_STATUSES_IGNORE);
        double mine = 0;
        for (int i = 1; i <= CELLS; i++) {
            next[i] = 0.25 * now[i - 1] + 0.5 * now[i] + 0.25 * now[i + 1];
            mine += (next[i] - now[i]) * (next[i] - now[i]);
        }
        double *was = now;
        now = next;
        next = was;
        MPI_Allreduce(&mine, &residual, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0 && step % 500 == 0) printf("step %d: %a\n", step, residual), fflush(stdout);
    }
    if (rank == 0) printf("rods: %a after %d steps of %d ranks\n", residual, steps, size);
    free(now);
    free(next);
    MPI_Finalize();
    return 0;
}
