// SPDX-License-Identifier: Apache-2.0
//
// steps.c: all ranks but the last count together, step by step, until argv[1] exists; rank 0 writes to
// argv[2] how far they are. The last one sleeps: whatever happens to it is no reason for the others to stand
// still. In the end all must agree.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size;
    long all = 0;
    MPI_Comm others;
    MPI_Init(&argc, &argv);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, rank == size - 1, rank, &others);
    if (rank == size - 1) {
        while (access(argv[1], F_OK)) usleep(1000);
    } else {
        FILE *far = rank ? NULL : fopen(argv[2], "w");
        int end = 0, n;
        MPI_Comm_size(others, &n);
        for (long i = 0; !end; i++) {
            int mine = !access(argv[1], F_OK);
            MPI_Allreduce(&mine, &end, 1, MPI_INT, MPI_MAX, others);
            MPI_Allreduce(&i, &all, 1, MPI_LONG, MPI_SUM, others);
            if (all != i * n) MPI_Abort(MPI_COMM_WORLD, 2);
            if (far) {
                rewind(far);
                fprintf(far, "%ld\n", i);
                fflush(far);
            }
            usleep(1000);
        }
        if (far) fclose(far);
    }
    MPI_Bcast(&all, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank == size - 1) puts(all > 0 ? "done" : "nothing was counted");
    MPI_Finalize();
    return 0;
}
