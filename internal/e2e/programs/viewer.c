// SPDX-License-Identifier: Apache-2.0
//
// viewer.c: the last rank has a view of its own thread open, which no image can hold, until argv[2] exists. All end
// when argv[1] exists.
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, fd = -1;
    char path[64];
    MPI_Init(&argc, &argv);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)gettid());
    if (rank == size - 1) fd = open(path, O_RDONLY);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ready\n");
        fflush(stdout);
    }
    while (access(argv[1], F_OK)) {
        usleep(1000);
        if (fd >= 0 && !access(argv[2], F_OK)) {
            close(fd);
            fd = -1;
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("done\n");
    MPI_Finalize();
    return 0;
}
