// SPDX-License-Identifier: Apache-2.0
//
// moments.c: a program that comes to awkward moments, and stays in each until it is told to go on.
//
//   moments DIRECTORY
//
// One rank waits until DIRECTORY/STAGE exists, while the others are in the MPI call that the stage is
// about; in some stages all wait.  Rank 0 ends with one line "moments RESULT", which must be the same whatever happened.
// Three ranks.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int rank;
static const char *directory;
static uint64_t sum;

enum { ALL = -1 };

static void stay(int who, const char *stage) {
    char path[4096];
    if (who != ALL && rank != who) return;
    snprintf(path, sizeof path, "%s/%s", directory, stage);
    while (access(path, F_OK) != 0) usleep(2000);
}

static void add(MPI_Comm comm, uint64_t mine) {
    uint64_t all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, comm);
    sum = sum * 1000003 + all;
}

// How this thread rounds: bits 13 and 14 of SSE's control word, 10 and 11 of x87's.
static void set_rounding(unsigned mode) {
    uint32_t sse;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(sse), "=m"(x87));
    sse = (sse & ~(3u << 13)) | mode << 13;
    x87 = (uint16_t)((x87 & ~(3u << 10)) | mode << 10);
    __asm__ volatile("ldmxcsr %0; fldcw %1" : : "m"(sse), "m"(x87));
}

static unsigned rounding(void) {
    uint32_t sse;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(sse), "=m"(x87));
    return (sse >> 13 & 3) * 10 + (x87 >> 10 & 3);
}

// A broadcast whose root goes on before the others have called it, and on which one of them depends:
// not portable, but MPI programs do it.
static void early(void) {
    MPI_Comm pair;
    uint64_t word = 7, got = 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &pair);
    MPI_Comm_set_name(pair, "pair");
    if (rank == 0) {
        stay(0, "early");
        MPI_Bcast(&word, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
        MPI_Send(&word, 1, MPI_UINT64_T, 1, 3, MPI_COMM_WORLD);
    } else {
        if (rank == 1) MPI_Recv(&got, 1, MPI_UINT64_T, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(pair);
        MPI_Bcast(&word, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    }
    add(MPI_COMM_WORLD, word + got);
    MPI_Comm_free(&pair);
}

int main(int argc, char **argv) {
    MPI_Comm grid;
    directory = argc > 1 ? argv[1] : ".";
    stay(ALL, "start");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    stay(ALL, "begin");
    stay(0, "create");
    MPI_Comm_dup(MPI_COMM_WORLD, &grid);
    MPI_Comm_set_name(grid, "grid");
    add(grid, (uint64_t)rank + 1);
    stay(1, "never");
    set_rounding((unsigned)rank + 1); // a thread that is held in a call goes on as it came
    MPI_Barrier(grid);
    unsigned modes = rounding();
    set_rounding(0);
    add(grid, modes);
    early();
    stay(0, "twice");
    MPI_Barrier(grid);
    add(grid, (uint64_t)rank * 3);
    MPI_Comm_free(&grid);
    add(MPI_COMM_WORLD, 5);
    stay(0, "finalize");
    if (rank == 0) printf("moments %016llx\n", (unsigned long long)sum), fflush(stdout);
    MPI_Finalize();
    return 0;
}
