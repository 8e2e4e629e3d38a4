// SPDX-License-Identifier: Apache-2.0
//
// pacer.c: the last rank counts in its own memory and, always a moment later, in memory that all share.  Both are of the same moment
// after a restart, though rank 0, which saves what is shared, has much more to save.
//
//   pacer NAME HOLD     counts for as long as the file HOLD is there
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 1 << 18, BALLAST = 256 << 20 };

static int agree(const volatile long *shared, long n) {
    for (int i = 0; i < WORDS; i++)
        if (shared[i] != n) {
            fprintf(stderr, "%ld by its own count, %ld by that of all\n", n, shared[i]);
            return 0;
        }
    return 1;
}

int main(int argc, char **argv) {
    int rank, ranks, good = argc == 3;
    long n = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    // Before what is shared: images are written in the order of addresses.
    unsigned *ballast = rank ? NULL : malloc(BALLAST);
    for (unsigned i = 0, x = 1; ballast && i < BALLAST / sizeof x; i++)
        ballast[i] = x = x * 1664525 + 1013904223;
    if (rank) MPI_Barrier(MPI_COMM_WORLD);
    int fd = shm_open(argv[1], O_RDWR | O_CREAT, 0600);
    volatile long *shared = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, WORDS * sizeof *shared) == 0)
        shared = mmap(NULL, WORDS * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 1);
    if (!rank) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank) shm_unlink(argv[1]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank) printf("counting\n"), fflush(stdout);
    while (access(argv[2], F_OK) == 0) {
        if (rank < ranks - 1) {
            usleep(1000);
            continue;
        }
        good = good && agree(shared, n);
        n++;
        for (int i = 0; i < WORDS; i++) shared[i] = n;
    }
    if (rank == ranks - 1) good = good && agree(shared, n); // however soon it was let go
    int all;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!rank && all && ballast[BALLAST / sizeof *ballast - 1]) printf("good\n");
    MPI_Finalize();
    return !all;
}
