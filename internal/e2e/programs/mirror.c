// SPDX-License-Identifier: Apache-2.0
//
// mirror.c: ranks that read, in memory, files of a disk to which they write otherwise, as databases do.
//
//   mirror HOLD     goes on for as long as the file HOLD is there
//
// Rank 0 writes to "written" by a descriptor and to "mapped" in memory.  All have both mapped to be read, rank 0 "written" too; the
// last rank may make its mapping of "written" writable, and does at the end.
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 300 << 10, FAR = BYTES / sizeof(long) - 1 };

static int rank, ranks;

static volatile long *map(const char *path, int mode, int prot) {
    int fd = open(path, mode);
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, BYTES, prot, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        perror(path);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    close(fd);
    return p;
}

int main(int argc, char **argv) {
    int good = argc == 2, go = 1, fd = -1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!rank) {
        int other = open("mapped", O_RDWR | O_CREAT, 0600);
        fd = open("written", O_RDWR | O_CREAT, 0600);
        good = good && ftruncate(fd, BYTES) == 0 && ftruncate(other, BYTES) == 0;
        close(other);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    volatile long *written = map("written", rank == ranks - 1 ? O_RDWR : O_RDONLY, PROT_READ);
    volatile long *mapped = map("mapped", rank ? O_RDONLY : O_RDWR, PROT_READ | (rank ? 0 : PROT_WRITE));
    if (!rank) printf("writing\n"), fflush(stdout);
    for (long n = 1; go; n++) {
        if (!rank) {
            good = good && pwrite(fd, &n, sizeof n, FAR * sizeof n) == sizeof n;
            mapped[FAR] = n;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (written[FAR] != n || mapped[FAR] != n || written[0] || mapped[0]) {
            if (good)
                fprintf(stderr, "rank %d, step %ld: %ld is written, %ld mapped\n", rank, n, written[FAR],
                        mapped[FAR]);
            good = 0;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        go = access(argv[1], F_OK) == 0;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == ranks - 1) {
        good = good && mprotect((void *)written, BYTES, PROT_READ | PROT_WRITE) == 0;
        if (good) written[7] = 7;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    good = good && written[7] == 7;
    int all;
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (!rank && all) printf("good\n");
    MPI_Finalize();
    return !all;
}
