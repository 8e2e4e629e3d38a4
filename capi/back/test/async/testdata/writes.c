// SPDX-License-Identifier: Apache-2.0
//
// writes.c: several non-blocking collective writes to one file are under way, with collective buffering.
//
//   writes DIRECTORY
//
// The ranks begin them, and make no call of MPI until the file "go" is in DIRECTORY; at.RANK says that a
// rank is there.  Then they test and wait for them, in several ways and in different orders.  Rank 0 reads
// the file; it ends with one line "writes WRONG", the number of blocks that are wrong.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITES = 4, BYTES = 1 << 20, ROUNDS = 4 };

static int rank, ranks;
static const char *directory;
static char *memory;

static char content(int round, int r, int i) { return (char)('A' + (round * 31 + r * WRITES + i) % 50); }

static void stage(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/at.%d", directory, rank);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof path, "%s/%s", directory, name);
    while (access(path, F_OK) != 0) usleep(2000);
}

// Each rank begins elsewhere.
static int nth(int i) { return rank % 2 ? WRITES - 1 - i : i; }

static void finish(int round, MPI_Request *q) {
    int done = 0, flag, i;
    MPI_Request ordered[WRITES];
    switch (round) {
    case 0: // all at once
        MPI_Waitall(WRITES, q, MPI_STATUSES_IGNORE);
        break;
    case 1: // tested in turn
        while (done < WRITES)
            for (i = 0; i < WRITES; i++)
                if (q[nth(i)] != MPI_REQUEST_NULL) {
                    MPI_Test(&q[nth(i)], &flag, MPI_STATUS_IGNORE);
                    done += flag;
                }
        break;
    case 2: // one after the other
        for (i = 0; i < WRITES; i++) MPI_Wait(&q[nth(i)], MPI_STATUS_IGNORE);
        break;
    default: // whichever comes first
        for (i = 0; i < WRITES; i++) ordered[i] = q[nth(i)];
        for (; done < WRITES; done++) MPI_Waitany(WRITES, ordered, &i, MPI_STATUS_IGNORE);
    }
}

static int wrong_blocks(int round, const char *path) {
    int wrong = 0;
    char *block = malloc(BYTES);
    FILE *f = fopen(path, "rb");
    for (int b = 0; b < ranks * WRITES; b++) {
        size_t n = fread(block, 1, BYTES, f), k = 0;
        while (k < n && block[k] == content(round, b / WRITES, b % WRITES)) k++;
        wrong += k != BYTES;
    }
    fclose(f);
    free(block);
    return wrong;
}

static int one_round(int round) {
    char path[4096];
    MPI_File f;
    MPI_Info hints;
    MPI_Request q[WRITES];
    snprintf(path, sizeof path, "%s/file.%d", directory, round);
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "romio_cb_write", "enable");
    MPI_Info_set(hints, "romio_no_indep_rw", "1");
    MPI_Info_set(hints, "cb_nodes", "1");
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, hints, &f);
    MPI_Info_free(&hints);
    for (int i = 0; i < WRITES; i++) {
        memset(memory + (size_t)i * BYTES, content(round, rank, i), BYTES);
        MPI_File_iwrite_at_all(f, ((MPI_Offset)rank * WRITES + i) * BYTES, memory + (size_t)i * BYTES, BYTES,
                               MPI_BYTE, &q[i]);
    }
    if (round == 0) stage("go");
    finish(round, q);
    MPI_File_close(&f);
    MPI_Barrier(MPI_COMM_WORLD);
    return rank == 0 ? wrong_blocks(round, path) : 0;
}

int main(int argc, char **argv) {
    int wrong = 0;
    directory = argc > 1 ? argv[1] : ".";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    memory = malloc((size_t)WRITES * BYTES);
    for (int round = 0; round < ROUNDS; round++) wrong += one_round(round);
    if (rank == 0) printf("writes %d\n", wrong);
    MPI_Finalize();
    return 0;
}
