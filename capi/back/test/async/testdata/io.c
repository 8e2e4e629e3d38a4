// SPDX-License-Identifier: Apache-2.0
//
// io.c: files that are written in many ways at once, in the directory that is the first argument; the
// second is how many rounds.  Ends with a line "io HASH", the hash of what the files hold in the end.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 300, REOPEN = 7 };

static int rank, size;
static const char *dir;

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

#define OK(call)                                          \
    do {                                                  \
        if ((call) != MPI_SUCCESS) fail(#call, __LINE__); \
    } while (0)

static void fail(const char *what, int line) {
    fprintf(stderr, "rank %d, line %d: %s\n", rank, line, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_File open_file(const char *name, int amode) {
    char path[4000];
    MPI_File f;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | amode, MPI_INFO_NULL, &f));
    return f;
}

static void delete_file(const char *name) {
    char path[4000];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    MPI_File_delete(path, MPI_INFO_NULL);
}

static void fill(uint64_t *v, int round, int who) {
    for (int i = 0; i < N; i++) v[i] = mix(mix((uint64_t)round, (uint64_t)who), (uint64_t)i);
}

static void check(const uint64_t *v, int round, int who, const char *what) {
    uint64_t want[N];
    fill(want, round, who);
    if (memcmp(v, want, sizeof want) != 0) fail(what, round);
}

// Interleaved by a view: round after round, each rank's part after its left neighbour's.
static void set_view(MPI_File f, int round) {
    MPI_Datatype mine;
    OK(MPI_Type_create_resized(MPI_UINT64_T, 0, size * (int)sizeof(uint64_t), &mine));
    OK(MPI_Type_commit(&mine));
    MPI_Offset at = ((MPI_Offset)round * N * size + rank) * (int)sizeof(uint64_t);
    OK(MPI_File_set_view(f, at, MPI_UINT64_T, mine, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&mine));
}

static uint64_t hash_of(const char *name, uint64_t h) {
    char path[4000];
    uint64_t v;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    if (f == NULL) fail(path, __LINE__);
    while (fread(&v, sizeof v, 1, f) == 1) h = mix(h, v);
    h = mix(h, (uint64_t)ftell(f));
    fclose(f);
    return h;
}

static void run(int rounds) {
    static uint64_t out[N], in[N], later[N], record[2];
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status;
    int n, left = (rank + size - 1) % size;
    if (rank == 0) { // what an earlier run left
        delete_file("viewed");
        delete_file("blocks");
        delete_file("log");
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_File viewed = open_file("viewed", MPI_MODE_RDWR);
    MPI_File blocks = open_file("blocks", MPI_MODE_RDWR), log = open_file("log", MPI_MODE_WRONLY);
    OK(MPI_File_set_view(blocks, 0, MPI_UINT64_T, MPI_UINT64_T, "native", MPI_INFO_NULL));
    set_view(viewed, 0);
    for (int round = 0; round < rounds; round++) {
        fill(out, round, rank);
        OK(MPI_File_write_all(viewed, out, N, MPI_UINT64_T, &status));
        OK(MPI_Get_count(&status, MPI_UINT64_T, &n));
        if (n != N) fail("count", round);
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        if (round > 2) check(in, round - 3, left, "block of the left neighbour");
        fill(later, round, rank);
        OK(MPI_File_iwrite_at(blocks, (MPI_Offset)N * (round * size + rank), later, N, MPI_UINT64_T,
                              &requests[0]));
        if (round > 1) // what the neighbour has waited for before the last barrier
            OK(MPI_File_iread_at_all(blocks, (MPI_Offset)N * ((round - 2) * size + left), in, N, MPI_UINT64_T,
                                     &requests[1]));
        record[0] = (uint64_t)round;
        record[1] = (uint64_t)rank;
        OK(MPI_File_write_ordered(log, record, 16, MPI_BYTE, MPI_STATUS_IGNORE));
        if (round % REOPEN == REOPEN - 1) {
            OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
            OK(MPI_File_sync(blocks));
            OK(MPI_File_close(&viewed));
            viewed = open_file("viewed", MPI_MODE_RDWR);
            set_view(viewed, round + 1);
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    OK(MPI_File_close(&viewed));
    OK(MPI_File_close(&blocks));
    OK(MPI_File_close(&log));
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    dir = argv[1];
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    run(atoi(argv[2]));
    if (rank == 0)
        printf("io %016llx\n", (unsigned long long)hash_of("log", hash_of("blocks", hash_of("viewed", 1))));
    MPI_Finalize();
    return 0;
}
