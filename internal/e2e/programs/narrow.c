// SPDX-License-Identifier: Apache-2.0
//
// A rank that allows itself no memory, no addresses and no files any more goes on with what it has, and ends in good order.
// usage: narrow
#include <mpi.h>
#include <stdio.h>
#include <sys/resource.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, n, good = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    printf("%d begins\n", rank);
    fflush(stdout);
    const int resources[] = {RLIMIT_DATA, RLIMIT_AS, RLIMIT_FSIZE};
    for (int i = 0; i < 3; i++) good &= setrlimit(resources[i], &(struct rlimit){0, 0}) == 0;
    for (int round = 0; round < 100; round++) {
        int sum = 0, all;
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm); // libckpt has memory of its own for it
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        MPI_Barrier(comm);
        MPI_Comm_free(&comm);
        good &= sum == n * (n - 1) / 2;
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        good = all;
    }
    MPI_Finalize();
    return !good;
}
