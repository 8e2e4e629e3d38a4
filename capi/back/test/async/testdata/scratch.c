// SPDX-License-Identifier: Apache-2.0
//
// Files that are worked on in place: one that all ranks write to, one that a rank has mapped, and of every
// rank a scratch file, which is renamed or deleted from time to time and made again. What is read comes
// into the result, so a file of another moment shows.
// usage: scratch FOLDER STEPS
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 32, MAPPED = 1 << 16 };

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        MPI_Abort(MPI_COMM_WORLD, 9);
    }
}

static int make(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    check(fd >= 0, path);
    return fd;
}

static uint64_t update(int fd, int word, uint64_t add) {
    uint64_t x = 0;
    check(pread(fd, &x, 8, 8 * word) >= 0, "pread");
    x = x * 31 + add;
    check(pwrite(fd, &x, 8, 8 * word) == 8, "pwrite");
    return x;
}

int main(int argc, char **argv) {
    char scratch[4000], old[4100], shared[4000], mapped[4000];
    int rank, ranks, steps = argc > 2 ? atoi(argv[2]) : 100;
    uint64_t sum = 0, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(shared, sizeof shared, "%s/shared", argv[1]);
    snprintf(mapped, sizeof mapped, "%s/mapped.%d", argv[1], rank);
    snprintf(scratch, sizeof scratch, "%s/scratch.%d", argv[1], rank);
    snprintf(old, sizeof old, "%s.old", scratch);
    if (rank == 0) close(make(shared));
    MPI_Barrier(MPI_COMM_WORLD);
    int file = open(shared, O_RDWR), map = make(mapped), own = make(scratch);
    check(file >= 0 && ftruncate(map, MAPPED) == 0, shared);
    volatile uint64_t *page = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
    check(page != MAP_FAILED, mapped);
    close(map);
    for (int s = 0; s < steps; s++) {
        sum = sum * 1099511628211u + update(file, s % WORDS * ranks + rank, (uint64_t)(s + rank + 1));
        for (int w = 0; w < WORDS; w++) sum = sum * 1099511628211u + update(own, w, sum);
        page[s * 97 % (MAPPED / 8)] += sum;
        sum += page[s * 31 % (MAPPED / 8)] + 1;
        if (s % 16 == 15) {
            check(s % 32 == 15 ? unlink(scratch) == 0 : rename(scratch, old) == 0, scratch);
            close(own);
            own = make(scratch);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(1000);
    }
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("sum %016lx\n", (unsigned long)all);
    MPI_Finalize();
    return 0;
}
