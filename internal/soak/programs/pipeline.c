// SPDX-License-Identifier: Apache-2.0
//
// pipeline STEPS [N]: a relaxation on a ring in which the norm of a step is summed while the next one is
// computed: two non-blocking reductions are always under way, on communicators of their own, beside the
// exchange of borders.  Numbers are integers modulo 2^64, so that the order of a sum does not matter.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 2 };

int main(int argc, char **argv) {
    int rank, size, steps = argc > 1 ? atoi(argv[1]) : 200, n = argc > 2 ? atoi(argv[2]) : 20000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm comm[DEPTH];
    MPI_Request norm[DEPTH];
    uint64_t mine[DEPTH] = {0}, sum[DEPTH] = {0}, digest = 0;
    for (int d = 0; d < DEPTH; d++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[d]);
        norm[d] = MPI_REQUEST_NULL;
    }
    uint64_t *x = calloc((size_t)n + 2, 8), *y = calloc((size_t)n + 2, 8);
    if (!x || !y) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 1; i <= n; i++) x[i] = (uint64_t)(rank * n + i) * 0x9e3779b97f4a7c15u;
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    for (int step = 0; step < steps; step++) {
        int d = step % DEPTH;
        MPI_Request border[4];
        MPI_Irecv(&x[0], 1, MPI_UINT64_T, prev, 1, MPI_COMM_WORLD, &border[0]);
        MPI_Irecv(&x[n + 1], 1, MPI_UINT64_T, next, 2, MPI_COMM_WORLD, &border[1]);
        MPI_Isend(&x[n], 1, MPI_UINT64_T, next, 1, MPI_COMM_WORLD, &border[2]);
        MPI_Isend(&x[1], 1, MPI_UINT64_T, prev, 2, MPI_COMM_WORLD, &border[3]);
        for (int i = 2; i < n; i++) y[i] = x[i - 1] + 3 * x[i] + (x[i + 1] >> 1);
        MPI_Waitall(4, border, MPI_STATUSES_IGNORE);
        y[1] = x[0] + 3 * x[1] + (x[2] >> 1);
        y[n] = x[n - 1] + 3 * x[n] + (x[n + 1] >> 1);
        // The norm of two steps ago changes this one.
        MPI_Wait(&norm[d], MPI_STATUS_IGNORE);
        digest = digest * 31 + sum[d];
        y[1 + step % n] ^= digest;
        mine[d] = 0;
        for (int i = 1; i <= n; i++) mine[d] += y[i] * (uint64_t)i;
        MPI_Iallreduce(&mine[d], &sum[d], 1, MPI_UINT64_T, MPI_SUM, comm[d], &norm[d]);
        uint64_t *swap = x;
        x = y;
        y = swap;
    }
    MPI_Waitall(DEPTH, norm, MPI_STATUSES_IGNORE);
    for (int d = 0; d < DEPTH; d++) {
        digest = digest * 31 + sum[d];
        MPI_Comm_free(&comm[d]);
    }
    if (rank == 0) printf("norm %016llx\n", (unsigned long long)digest);
    free(x);
    free(y);
    MPI_Finalize();
    return 0;
}
