// SPDX-License-Identifier: Apache-2.0
//
// Writes a line a step to DIR/out.RANK, and keeps its state in a shared mapping of DIR/map.RANK: what a
// second run of the same job would spoil. Both are emptied before MPI is started. At two steps it waits
// until DIR/go.1, and DIR/go.2, are there.
//
// Compiled with WITHOUT_MPI it is one rank without MPI.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef WITHOUT_MPI
#include <mpi.h>
#endif

enum { STEPS = 60, FIRST = 20, SECOND = 40, BYTES = 1 << 16 };

static const char *dir;

static int rank_of_launcher(void) {
    static const char *const names[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK"};
    for (int i = 0; i < 2; i++)
        if (getenv(names[i])) return atoi(getenv(names[i]));
    return 0;
}

static int open_new(const char *name, int rank) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%s.%d", dir, name, rank);
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
    if (fd < 0) {
        perror(path);
        exit(9);
    }
    return fd;
}

static void wait_for_go(int n) {
    char path[4200];
    snprintf(path, sizeof path, "%s/go.%d", dir, n);
    while (access(path, F_OK) != 0) usleep(1000);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    dir = argv[1];
    int rank = rank_of_launcher(), out = open_new("out", rank), file = open_new("map", rank);
    if (ftruncate(file, BYTES) != 0) return 9;
    volatile uint64_t *map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) return 9;
#ifndef WITHOUT_MPI
    MPI_Init(&argc, &argv);
#endif
    uint64_t h = (uint64_t)rank + 1;
    for (int step = 0; step < STEPS; step++) {
        if (step == FIRST) wait_for_go(1);
        if (step == SECOND) wait_for_go(2);
        uint64_t sum = h;
#ifndef WITHOUT_MPI
        MPI_Allreduce(&h, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
#endif
        h = h * 31 + sum + (uint64_t)step;
        map[0]++;
        map[1 + step % 8000] += h;
        dprintf(out, "%02d %016llx\n", step, (unsigned long long)h);
    }
    uint64_t digest = 0;
    for (size_t i = 0; i < BYTES / sizeof *map; i++) digest = digest * 31 + map[i];
    if (rank == 0)
        printf("steps %llu, digest %016llx, %016llx\n", (unsigned long long)map[0],
               (unsigned long long)digest, (unsigned long long)h);
#ifndef WITHOUT_MPI
    MPI_Finalize();
#endif
    return 0;
}
