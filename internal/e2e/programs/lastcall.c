// SPDX-License-Identifier: Apache-2.0
//
// lastcall.c: says that all ranks have come to MPI_Finalize (the file that is named), and ends.
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
        usleep(100000); // the launcher is slow by now
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
