// SPDX-License-Identifier: Apache-2.0
//
// A ring of ranks whose numbers depend on each other. Half of the way it stands: messages go on, and are checked, but
// change nothing, until somebody makes the file GO. So no timing decides what a test sees.
//
//   awaits STEPS FOLDER    FOLDER has GO; rank 0 writes FOLDER/stands and, at the end, FOLDER/result
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORDS = 20000 };

static int rank, size;
static uint64_t mine[WORDS], theirs[WORDS];

static void fail(const char *what) {
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

static void step(void) {
    MPI_Sendrecv(mine, WORDS, MPI_UINT64_T, (rank + 1) % size, 1, theirs, WORDS, MPI_UINT64_T,
                 (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < WORDS; i++) mine[i] = (mine[i] ^ theirs[(i + 7) % WORDS]) * 0x100000001b3u + 1;
}

static void stand(const char *go) {
    for (uint64_t round = 0;; round++) {
        uint64_t said[2] = {round, rank == 0 && access(go, F_OK) == 0}, sum = 0, from = 0;
        MPI_Bcast(said, 2, MPI_UINT64_T, 0, MPI_COMM_WORLD);
        if (said[0] != round) fail("a broadcast of another round");
        if (said[1]) return;
        uint64_t to = round * 1000 + rank;
        MPI_Sendrecv(&to, 1, MPI_UINT64_T, (rank + 1) % size, 2, &from, 1, MPI_UINT64_T,
                     (rank + size - 1) % size, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (from != round * 1000 + (rank + size - 1) % size) fail("a message of another round");
        MPI_Allreduce(&to, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        if (sum != round * 1000 * size + size * (size - 1) / 2) fail("a sum of another round");
        usleep(2000);
    }
}

static void write_file(const char *folder, const char *name, uint64_t value) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "%016lx\n", value) < 0 || fclose(f) != 0) fail(path);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 3) fail("usage: awaits STEPS FOLDER");
    int steps = atoi(argv[1]);
    char go[4096];
    snprintf(go, sizeof go, "%s/GO", argv[2]);
    for (int i = 0; i < WORDS; i++) mine[i] = (uint64_t)i * 2654435761u + rank;
    for (int i = 0; i < steps / 2; i++) step();
    if (rank == 0) write_file(argv[2], "stands", 0);
    stand(go);
    for (int i = steps / 2; i < steps; i++) step();
    uint64_t sum = 0xcbf29ce484222325u, all = 0;
    for (int i = 0; i < WORDS; i++) sum = (sum ^ mine[i]) * 0x100000001b3u;
    sum *= 2 * rank + 1;
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
    if (rank == 0) write_file(argv[2], "result", all);
    MPI_Finalize();
    return 0;
}
