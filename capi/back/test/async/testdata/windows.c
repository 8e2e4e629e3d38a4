// SPDX-License-Identifier: Apache-2.0
//
// windows.c: one-sided communication of all sorts, round after round: epochs of MPI_Win_fence, locks,
// MPI_Win_lock_all that stays open, post and start, memory that the ranks share and load and store
// themselves.  What it computes depends on the number of rounds alone.  Rank 0 prints a line of two
// words at the end.
//
//   windows ROUNDS
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static uint64_t sum = 1469598103934665603u;

#define CHECK(what)                                                           \
    do {                                                                      \
        if (!(what)) {                                                        \
            fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, #what); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                     \
        }                                                                     \
    } while (0)

static void mix(uint64_t v) { sum = (sum ^ v) * 1099511628211u; }

static int64_t value(int64_t round, int64_t who, int64_t i) {
    return (round * 1000003 + who * 7919 + i * 31) % 1000000007;
}

enum { N = 600 }; // words of each rank in each window

// ---- epochs of MPI_Win_fence ----

static int64_t board_at[N];
static MPI_Win board;

static void fences(int round) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int64_t out[100], in[100], one = value(round, rank, 0);
    for (int i = 0; i < 100; i++) out[i] = value(round, rank, i);
    board_at[200] = 0;
    MPI_Win_fence(0, board);
    MPI_Put(out, 100, MPI_INT64_T, to, 100, 100, MPI_INT64_T, board);
    for (int r = 0; r < size; r++)
        MPI_Accumulate(&one, 1, MPI_INT64_T, r, 200, 1, MPI_INT64_T, MPI_SUM, board);
    MPI_Win_fence(0, board);
    MPI_Get(in, 100, MPI_INT64_T, to, 100, 100, MPI_INT64_T, board);
    int64_t all = 0;
    for (int i = 0; i < 100; i++) {
        CHECK(board_at[100 + i] == value(round, from, i));
        mix(board_at[100 + i]);
    }
    for (int r = 0; r < size; r++) all += value(round, r, 0);
    CHECK(board_at[200] == all);
    MPI_Win_fence(0, board);
    CHECK(memcmp(in, out, sizeof in) == 0);
}

// ---- locks of one rank ----

static int64_t *heap_at;
static MPI_Win heap;

static void locks(int round) {
    int to = (rank + round) % size;
    int64_t in[50], out[50], before, one = 1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, heap);
    MPI_Get(in, 50, MPI_INT64_T, to, 0, 50, MPI_INT64_T, heap);
    MPI_Win_flush(to, heap);
    for (int i = 0; i < 50; i++) out[i] = in[i] + value(round, rank, i);
    MPI_Put(out, 50, MPI_INT64_T, to, 0, 50, MPI_INT64_T, heap);
    MPI_Win_unlock(to, heap);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, heap);
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, 0, 60, MPI_SUM, heap);
    MPI_Win_unlock(0, heap);
    CHECK(before >= (int64_t)round * size && before < (int64_t)(round + 1) * size);
    MPI_Barrier(MPI_COMM_WORLD);
}

// ---- post and start ----

static void posts(int round) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int64_t out = value(round, rank, 5);
    MPI_Group all, origin, target;
    MPI_Win_get_group(heap, &all);
    MPI_Group_incl(all, 1, &from, &origin);
    MPI_Group_incl(all, 1, &to, &target);
    MPI_Win_post(origin, 0, heap);
    MPI_Win_start(target, 0, heap);
    MPI_Put(&out, 1, MPI_INT64_T, to, 70, 1, MPI_INT64_T, heap);
    MPI_Win_complete(heap);
    MPI_Win_wait(heap);
    CHECK(heap_at[70] == value(round, from, 5));
    MPI_Group_free(&all);
    MPI_Group_free(&origin);
    MPI_Group_free(&target);
}

// ---- MPI_Win_lock_all ----

static int64_t open_at[N];
static MPI_Win opened;

static void flushes(int round) {
    int64_t one = value(round, rank, 9), in = -1;
    for (int r = 0; r < size; r++)
        MPI_Accumulate(&one, 1, MPI_INT64_T, r, 3, 1, MPI_INT64_T, MPI_SUM, opened);
    MPI_Put(&one, 1, MPI_INT64_T, (rank + 1) % size, 10 + rank, 1, MPI_INT64_T, opened);
    MPI_Win_flush_all(opened);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Get(&in, 1, MPI_INT64_T, (rank + 2) % size, 10 + (rank + 1) % size, 1, MPI_INT64_T, opened);
    MPI_Win_flush((rank + 2) % size, opened);
    CHECK(in == value(round, (rank + 1) % size, 9));
    MPI_Barrier(MPI_COMM_WORLD);
}

// ---- memory that is shared ----

static MPI_Comm node;
static MPI_Win shared;
static volatile int64_t *part[64]; // of each rank

static void make_shared(void) {
    void *mine;
    MPI_Aint bytes;
    int unit;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    // Parts that begin and end anywhere in pages.
    MPI_Win_allocate_shared((N + 8 + 77 * rank) * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, node,
                            &mine, &shared);
    memset(mine, 0, (N + 8) * sizeof(int64_t));
    for (int r = 0; r < size; r++) {
        MPI_Win_shared_query(shared, r, &bytes, &unit, &mine);
        part[r] = mine;
        CHECK(bytes == (MPI_Aint)((N + 8 + 77 * r) * sizeof(int64_t)) && unit == sizeof(int64_t));
    }
    MPI_Win_lock_all(MPI_MODE_NOCHECK, shared);
    MPI_Barrier(node);
}

// Every rank stores in its right neighbour's part and loads from its own; then a token goes round
// through memory alone.
static void stores(int round) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int i = 0; i < N; i++) part[to][i] = part[to][i] + value(round, rank, i);
    MPI_Win_sync(shared);
    MPI_Barrier(node);
    MPI_Win_sync(shared);
    for (int i = 0; i < N; i++) mix(part[rank][i]);
    int64_t turn = (int64_t)(round + 1) * size + rank;
    while (rank > 0 && part[0][N + 1] != turn) {
        MPI_Win_sync(shared);
        sched_yield();
    }
    mix(part[from][7]);
    part[0][N + 1] = turn + 1;
    MPI_Win_sync(shared);
    MPI_Barrier(node);
    int64_t one = value(round, rank, 2);
    MPI_Accumulate(&one, 1, MPI_INT64_T, 0, N + 2, 1, MPI_INT64_T, MPI_SUM, shared);
    MPI_Win_flush(0, shared);
    MPI_Barrier(node);
    mix(part[0][N + 2]);
    MPI_Barrier(node);
}

// ---- windows that come and go ----

static void passing(int round) {
    enum { FEW = 4 }; // MPICH 4.0 alone goes wrong where parts are not a multiple of 16 bytes
    int64_t *mine, out = value(round, rank, 1);
    MPI_Win win;
    if (round % 2)
        MPI_Win_allocate_shared(FEW * sizeof *mine, sizeof *mine, MPI_INFO_NULL, node, &mine, &win);
    else
        MPI_Win_allocate(FEW * sizeof *mine, sizeof *mine, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    mine[1] = 0;
    MPI_Win_fence(0, win);
    MPI_Put(&out, 1, MPI_INT64_T, (rank + 1) % size, 1, 1, MPI_INT64_T, win);
    MPI_Win_fence(0, win);
    CHECK(mine[1] == value(round, (rank + size - 1) % size, 1));
    mix(mine[1]);
    MPI_Win_free(&win);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    MPI_Win_create(board_at, sizeof board_at, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &board);
    MPI_Win_allocate(N * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &heap_at, &heap);
    memset(heap_at, 0, N * sizeof(int64_t));
    MPI_Win_create(open_at, sizeof open_at, sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &opened);
    make_shared();
    part[0][N + 1] = size; // the token; rank 0 takes it first
    MPI_Win_lock_all(0, opened);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < rounds; round++) {
        fences(round);
        locks(round);
        posts(round);
        flushes(round);
        stores(round);
        if (round % 4 == 0) passing(round);
    }
    MPI_Win_unlock_all(opened);
    MPI_Win_unlock_all(shared);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 71; i++) mix(heap_at[i]);
    mix(open_at[3]);
    uint64_t all = 0;
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Win_free(&board);
    MPI_Win_free(&heap);
    MPI_Win_free(&opened);
    MPI_Win_free(&shared);
    if (rank == 0) printf("windows %016llx\n", (unsigned long long)all);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}
