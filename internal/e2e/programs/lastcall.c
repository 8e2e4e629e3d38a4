// SPDX-License-Identifier: Apache-2.0
//
// lastcall.c: says that all ranks have come to MPI_Finalize (by the first file), and ends when the launcher is slow (by
// the second).
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        fclose(fopen(argv[1], "w"));
        while (access(argv[2], F_OK) != 0) usleep(1000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
