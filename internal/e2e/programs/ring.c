// SPDX-License-Identifier: Apache-2.0
//
// ring.c: messages, requests, collectives, datatypes and communicators, again and again with pauses, until
// there is the file that argv[1] names.
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, stop = 0;
    long out, in, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (out = rank; !stop; out++) {
        MPI_Request r[2];
        MPI_Status done[2];
        MPI_Datatype pair;
        MPI_Comm half;
        MPI_Type_contiguous(2, MPI_INT, &pair);
        MPI_Type_commit(&pair);
        MPI_Irecv(&in, 1, pair, (rank + size - 1) % size, 0, MPI_COMM_WORLD, &r[0]);
        MPI_Isend(&out, 1, pair, (rank + 1) % size, 0, MPI_COMM_WORLD, &r[1]);
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
        MPI_Allreduce(&out, &sum, 1, MPI_LONG, MPI_SUM, half);
        MPI_Waitall(2, r, done);
        MPI_Comm_free(&half);
        MPI_Type_free(&pair);
        int mine = access(argv[1], F_OK) == 0;
        MPI_Allreduce(&mine, &stop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        usleep(2000);
    }
    if (!rank) puts("done");
    MPI_Finalize();
    return 0;
}
