// SPDX-License-Identifier: Apache-2.0
//
// early.c: each rank but the first asks for a checkpoint right after MPI_Init, by a signal. The first may
// be inside MPI_Init yet.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank && kill(getpid(), SIGUSR1)) MPI_Abort(MPI_COMM_WORLD, 1);
    // argv[1] appears when there is an epoch.
    while (access(argv[1], F_OK)) usleep(1000);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank) puts("done");
    MPI_Finalize();
    return 0;
}
