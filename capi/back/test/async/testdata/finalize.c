// SPDX-License-Identifier: Apache-2.0
//
// finalize.c: ranks that have come to MPI_Finalize leave the processor to those that still compute.
// Rank 0 comes two seconds after the others, and prints "finalize: ok".
#include <mpi.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) sleep(2);
    double clock = now(CLOCK_MONOTONIC), used = now(CLOCK_THREAD_CPUTIME_ID);
    MPI_Finalize();
    clock = now(CLOCK_MONOTONIC) - clock;
    used = now(CLOCK_THREAD_CPUTIME_ID) - used;
    if (rank != 0 && used > 0.25 * clock)
        printf("rank %d used %.2f s of the processor while it waited for %.2f s\n", rank, used, clock);
    else
        printf("finalize: ok\n");
    return 0;
}
