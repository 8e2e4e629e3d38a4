// SPDX-License-Identifier: Apache-2.0
//
// halves.c: MPI_Isendrecv and MPI_Isendrecv_replace whose send MPI refuses leave the message for their receive to the
// next call.
//
//   halves
//
// Two ranks; rank 0 ends with the line "halves RESULT".
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, got[4] = {0}, refused = 0, flag = 0;
    MPI_Request r;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 1) {
        for (int i = 1; i <= 4; i++) MPI_Send(&i, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
    } else {
        while (!flag) MPI_Iprobe(1, 5, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE); // it is there
        for (int i = 0; i < 4; i++) {
            int dest = i < 2 ? 77 : 1, tag = i < 2 ? 5 : -9;
            if (i % 2 == 0)
                refused += MPI_SUCCESS != MPI_Isendrecv(&rank, 1, MPI_INT, dest, tag, &got[i], 1, MPI_INT, 1,
                                                        5, MPI_COMM_WORLD, &r);
            else
                refused += MPI_SUCCESS !=
                           MPI_Isendrecv_replace(&got[i], 1, MPI_INT, dest, tag, 1, 5, MPI_COMM_WORLD, &r);
            MPI_Recv(&got[i], 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        printf("halves %d-%d%d%d%d\n", refused, got[0], got[1], got[2], got[3]);
    }
    MPI_Finalize();
    return 0;
}
