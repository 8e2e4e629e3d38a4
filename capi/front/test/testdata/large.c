// SPDX-License-Identifier: Apache-2.0
//
// large.c: the messages, collectives, windows and files of MPI 4.0 with large counts, for MPICH, on two
// ranks or more.  With "save" and a file as arguments it is saved while receives and persistent
// requests are pending, and a window and a file exist, and continued.  Prints "large: ok" on rank 0, and
// "large: ok, restarted" after a restart.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpix_checkpoint.h"

static int rank, size;
static MPI_Status all[8];
static const char *now = "";
static int rounds; // of the persistent ones: MPICH itself loses some

#define CHECK(what)                                                                             \
    do {                                                                                        \
        if (!(what)) {                                                                          \
            fprintf(stderr, "rank %d: %s:%d: %s (%s)\n", rank, __FILE__, __LINE__, #what, now); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                       \
        }                                                                                       \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)
#define W MPI_COMM_WORLD
#define DONE(r) OK(MPI_Wait(&(r), MPI_STATUS_IGNORE))

enum { N = 64 };

static int right(void) { return (rank + 1) % size; }
static int left(void) { return (rank + size - 1) % size; }

// ---- messages ----

static void messages(void) {
    int out = 100 + rank, in = -1, flag, next = right(), last = left();
    char *buffer = malloc(4096), *detached;
    MPI_Count n;
    MPI_Request r[6];
    MPI_Status st;
    MPI_Message m;
    OK(MPI_Buffer_attach_c(buffer, 4096));
    OK(MPI_Irecv_c(&in, 1, MPI_INT, last, 1, W, &r[0]));
    OK(MPI_Send_c(&out, 1, MPI_INT, next, 1, W));
    OK(MPI_Wait(&r[0], &st));
    OK(MPI_Get_count_c(&st, MPI_INT, &n));
    CHECK(in == 100 + last && n == 1);
    OK(MPI_Get_elements_c(&st, MPI_INT, &n));
    CHECK(n == 1);
    OK(MPI_Bsend_c(&out, 1, MPI_INT, next, 2, W));
    OK(MPI_Recv_c(&in, 1, MPI_INT, last, 2, W, &st));
    OK(MPI_Irecv_c(&in, 1, MPI_INT, last, 3, W, &r[0]));
    OK(MPI_Barrier(W));
    OK(MPI_Rsend_c(&out, 1, MPI_INT, next, 3, W));
    DONE(r[0]);
    OK(MPI_Irecv_c(&in, 1, MPI_INT, last, 4, W, &r[0]));
    OK(MPI_Ssend_c(&out, 1, MPI_INT, next, 4, W));
    DONE(r[0]);
    for (int i = 0; i < 4; i++) {
        in = -1;
        OK(MPI_Irecv_c(&in, 1, MPI_INT, last, 5, W, &r[0]));
        OK(MPI_Barrier(W));
        OK((i == 0   ? MPI_Isend_c
            : i == 1 ? MPI_Ibsend_c
            : i == 2 ? MPI_Issend_c
                     : MPI_Irsend_c)(&out, 1, MPI_INT, next, 5, W, &r[1]));
        OK(MPI_Waitall(2, r, all));
        CHECK(in == 100 + last);
    }
    OK(MPI_Isend_c(&out, 1, MPI_INT, next, 6, W, &r[0]));
    OK(MPI_Mprobe(last, 6, W, &m, &st));
    OK(MPI_Mrecv_c(&in, 1, MPI_INT, &m, &st));
    DONE(r[0]);
    OK(MPI_Isend_c(&out, 1, MPI_INT, next, 6, W, &r[0]));
    OK(MPI_Mprobe(last, 6, W, &m, &st));
    OK(MPI_Imrecv_c(&in, 1, MPI_INT, &m, &r[1]));
    OK(MPI_Waitall(2, r, all));
    in = -1;
    OK(MPI_Sendrecv_c(&out, 1, MPI_INT, next, 7, &in, 1, MPI_INT, last, 7, W, &st));
    CHECK(in == 100 + last);
    in = out;
    OK(MPI_Sendrecv_replace_c(&in, 1, MPI_INT, next, 8, last, 8, W, &st));
    CHECK(in == 100 + last);
    OK(MPI_Isendrecv_c(&out, 1, MPI_INT, next, 9, &in, 1, MPI_INT, last, 9, W, &r[0]));
    DONE(r[0]);
    in = out;
    OK(MPI_Isendrecv_replace_c(&in, 1, MPI_INT, next, 9, last, 9, W, &r[0]));
    DONE(r[0]);
    CHECK(in == 100 + last);
    OK(MPI_Send_init_c(&out, 1, MPI_INT, next, 10, W, &r[0]));
    OK(MPI_Bsend_init_c(&out, 1, MPI_INT, next, 11, W, &r[1]));
    OK(MPI_Ssend_init_c(&out, 1, MPI_INT, next, 12, W, &r[2]));
    OK(MPI_Rsend_init_c(&out, 1, MPI_INT, next, 13, W, &r[3]));
    for (int i = 0; i < 4; i++) {
        in = -1;
        OK(MPI_Recv_init_c(&in, 1, MPI_INT, last, 10 + i, W, &r[4]));
        OK(MPI_Start(&r[4]));
        OK(MPI_Barrier(W));
        OK(MPI_Start(&r[i]));
        OK(MPI_Wait(&r[i], &st));
        OK(MPI_Wait(&r[4], &st));
        CHECK(in == 100 + last);
        OK(MPI_Request_free(&r[4]));
        OK(MPI_Request_free(&r[i]));
    }
    OK(MPI_Buffer_detach_c(&detached, &n));
    CHECK(detached == buffer && n == 4096);
    free(buffer);
    OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, W, &flag, &st));
    CHECK(!flag);
}

// ---- collectives ----

static void add(void *in, void *inout, MPI_Count *n, MPI_Datatype *type) {
    CHECK(*type == MPI_INT);
    for (MPI_Count i = 0; i < *n; i++) ((int *)inout)[i] += ((int *)in)[i];
}

static int mine[N], got[N];
static MPI_Count ones[N];
static MPI_Aint at[N], bytes[N];
static MPI_Datatype ints[N];

static void fill(int base) {
    for (int i = 0; i < N; i++) {
        mine[i] = base + i;
        got[i] = -1;
    }
}

// What each collective leaves, with mine[i] = 10 * rank + i.
static void all_gathered(void) {
    for (int i = 0; i < size; i++) CHECK(got[i] == 10 * i);
}
static void transposed(void) {
    for (int i = 0; i < size; i++) CHECK(got[i] == 10 * i + rank);
}
static void summed(int i, int from, int to) {
    int sum = 0;
    for (int r = from; r < to; r++) sum += 10 * r + i;
    CHECK(got[0] == sum);
}
static void everybody(int i) { summed(i, 0, size); }
static void the_root(void) {
    if (rank == 0) all_gathered();
}
static void scattered(void) { CHECK(got[0] == rank); }

// Each function: a blocking one, its other two forms with a request, its arguments, a check.
#define THREE(name, Iname, check, ...)                           \
    do {                                                         \
        MPI_Request q;                                           \
        now = #name;                                             \
        fill(10 * rank);                                         \
        OK(MPI_##name##_c(__VA_ARGS__));                         \
        check;                                                   \
        fill(10 * rank);                                         \
        OK(MPI_##Iname##_c(__VA_ARGS__, &q));                    \
        DONE(q);                                                 \
        check;                                                   \
        OK(MPI_##name##_init_c(__VA_ARGS__, MPI_INFO_NULL, &q)); \
        for (int round = 0; round < rounds; round++) {           \
            fill(10 * rank);                                     \
            OK(MPI_Start(&q));                                   \
            DONE(q);                                             \
            check;                                               \
        }                                                        \
        OK(MPI_Request_free(&q));                                \
    } while (0)

static void collectives(void) {
    MPI_Op op;
    for (int i = 0; i < N; i++) {
        ones[i] = 1;
        at[i] = i;
        bytes[i] = i * (int)sizeof(int);
        ints[i] = MPI_INT;
    }
    OK(MPI_Op_create_c(add, 1, &op));
    THREE(Allgather, Iallgather, all_gathered(), mine, 1, MPI_INT, got, 1, MPI_INT, W);
    THREE(Allgatherv, Iallgatherv, all_gathered(), mine, 1, MPI_INT, got, ones, at, MPI_INT, W);
    THREE(Allreduce, Iallreduce, everybody(0), mine, got, 1, MPI_INT, MPI_SUM, W);
    THREE(Allreduce, Iallreduce, everybody(0), mine, got, 1, MPI_INT, op, W);
    THREE(Alltoall, Ialltoall, transposed(), mine, 1, MPI_INT, got, 1, MPI_INT, W);
    THREE(Alltoallv, Ialltoallv, transposed(), mine, ones, at, MPI_INT, got, ones, at, MPI_INT, W);
    THREE(Alltoallw, Ialltoallw, transposed(), mine, ones, bytes, ints, got, ones, bytes, ints, W);
    THREE(Bcast, Ibcast, CHECK(mine[0] == 10), mine, 1, MPI_INT, 1, W);
    THREE(Exscan, Iexscan, if (rank > 0) summed(0, 0, rank), mine, got, 1, MPI_INT, MPI_SUM, W);
    THREE(Gather, Igather, the_root(), mine, 1, MPI_INT, got, rank ? INT64_MAX : 1,
          rank ? MPI_DATATYPE_NULL : MPI_INT, 0, W);
    THREE(Gatherv, Igatherv, the_root(), mine, 1, MPI_INT, got, rank ? NULL : ones, rank ? NULL : at, MPI_INT,
          0, W);
    THREE(Reduce, Ireduce, if (rank == 0) everybody(0), mine, got, 1, MPI_INT, op, 0, W);
    THREE(Reduce_scatter, Ireduce_scatter, everybody(rank), mine, got, ones, MPI_INT, MPI_SUM, W);
    THREE(Reduce_scatter_block, Ireduce_scatter_block, everybody(rank), mine, got, 1, MPI_INT, op, W);
    THREE(Scan, Iscan, summed(0, 0, rank + 1), mine, got, 1, MPI_INT, MPI_SUM, W);
    THREE(Scatter, Iscatter, scattered(), mine, rank ? INT64_MAX : 1, rank ? MPI_DATATYPE_NULL : MPI_INT, got,
          1, MPI_INT, 0, W);
    THREE(Scatterv, Iscatterv, scattered(), mine, rank ? NULL : ones, rank ? NULL : at, MPI_INT, got, 1,
          MPI_INT, 0, W);
    fill(rank);
    memcpy(got, mine, sizeof got);
    OK(MPI_Reduce_local_c(mine, got, 4, MPI_INT, op));
    CHECK(got[3] == 2 * (rank + 3));
    fill(10 * rank);
    for (int i = 0; i < size; i++) got[i] = mine[i];
    OK(MPI_Alltoallv_c(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, got, ones, at, MPI_INT, W));
    transposed();
    OK(MPI_Op_free(&op));
}

static void neighbors(void) {
    int degree = size, peers[N], reorder = 0;
    MPI_Comm graph;
    for (int i = 0; i < size; i++) peers[i] = i;
    OK(MPI_Dist_graph_create_adjacent(W, degree, peers, MPI_UNWEIGHTED, degree, peers, MPI_UNWEIGHTED,
                                      MPI_INFO_NULL, reorder, &graph));
    THREE(Neighbor_allgather, Ineighbor_allgather, all_gathered(), mine, 1, MPI_INT, got, 1, MPI_INT, graph);
    THREE(Neighbor_allgatherv, Ineighbor_allgatherv, all_gathered(), mine, 1, MPI_INT, got, ones, at, MPI_INT,
          graph);
    THREE(Neighbor_alltoall, Ineighbor_alltoall, transposed(), mine, 1, MPI_INT, got, 1, MPI_INT, graph);
    THREE(Neighbor_alltoallv, Ineighbor_alltoallv, transposed(), mine, ones, at, MPI_INT, got, ones, at,
          MPI_INT, graph);
    THREE(Neighbor_alltoallw, Ineighbor_alltoallw, transposed(), mine, ones, bytes, ints, got, ones, bytes,
          ints, graph);
    OK(MPI_Comm_free(&graph));
}

// ---- one-sided, files ----

static struct {
    int out[4], in[N], pending[3], gathered[N], memory[N];
    MPI_Request receive[2], persistent[3];
    MPI_Win win;
    int *window;
    MPI_File file;
} s;
static MPI_Datatype other; // every other integer

static void one_sided(void) {
    int value = 7 + rank, old[4] = {0}, next = right();
    MPI_Request r;
    MPI_Win w = s.win;
    memset(s.window, 0, N * sizeof(int));
    OK(MPI_Win_fence(0, w));
    OK(MPI_Put_c(&value, 1, MPI_INT, next, 0, 1, MPI_INT, w));
    OK(MPI_Win_fence(0, w));
    CHECK(s.window[0] == 7 + left());
    OK(MPI_Barrier(W)); // all have looked
    OK(MPI_Get_c(old, 1, MPI_INT, next, 0, 1, MPI_INT, w));
    OK(MPI_Win_fence(0, w));
    CHECK(old[0] == value);
    OK(MPI_Accumulate_c(&value, 1, MPI_INT, next, 0, 1, MPI_INT, MPI_SUM, w));
    OK(MPI_Win_fence(0, w));
    CHECK(s.window[0] == 2 * (7 + left()));
    OK(MPI_Barrier(W));
    OK(MPI_Get_accumulate_c(&value, 1, MPI_INT, old, 1, MPI_INT, next, 0, 1, MPI_INT, MPI_SUM, w));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w));
    CHECK(old[0] == 2 * value && s.window[0] == 3 * (7 + left()));
    OK(MPI_Barrier(W));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, w));
    OK(MPI_Rput_c(&value, 1, MPI_INT, next, 1, 1, MPI_INT, w, &r));
    DONE(r);
    OK(MPI_Win_flush(next, w));
    OK(MPI_Raccumulate_c(&value, 1, MPI_INT, next, 1, 1, MPI_INT, MPI_SUM, w, &r));
    DONE(r);
    OK(MPI_Win_flush(next, w));
    OK(MPI_Rget_accumulate_c(&value, 1, MPI_INT, old, 1, MPI_INT, next, 1, 1, MPI_INT, MPI_SUM, w, &r));
    DONE(r);
    CHECK(old[0] == 2 * value);
    OK(MPI_Win_flush(next, w));
    OK(MPI_Rget_c(old, 1, MPI_INT, next, 1, 1, MPI_INT, w, &r));
    DONE(r);
    CHECK(old[0] == 3 * value);
    OK(MPI_Win_unlock(next, w));
    OK(MPI_Barrier(W));
}

static void more_windows(void) {
    int *base, *peer;
    MPI_Aint bytes_of, unit;
    MPI_Win w;
    OK(MPI_Win_allocate_c(64, 4, MPI_INFO_NULL, W, &base, &w));
    base[0] = rank;
    OK(MPI_Win_free(&w));
    OK(MPI_Win_allocate_shared_c(64, 4, MPI_INFO_NULL, W, &base, &w));
    OK(MPI_Win_shared_query_c(w, right(), &bytes_of, &unit, &peer));
    CHECK(bytes_of == 64 && unit == 4 && peer != NULL);
    OK(MPI_Win_free(&w));
}

// All functions on files, on 8 integers of each rank at a time.
static void files(void) {
    MPI_File f = s.file;
    MPI_Offset mine_at = 64 * rank;
    MPI_Count extent = 0, n;
    MPI_Request r;
    MPI_Status st;
    int out[8], in[8];
#define BEGIN(base)                                                                \
    do {                                                                           \
        for (int i = 0; i < 8; i++) out[i] = 1000 * rank + (base) + i, in[i] = -1; \
        OK(MPI_File_seek(f, mine_at, MPI_SEEK_SET));                               \
    } while (0)
#define AGAIN()                                 \
    do {                                        \
        CHECK(memcmp(out, in, sizeof in) == 0); \
    } while (0)
#define REWIND() OK(MPI_File_seek(f, mine_at, MPI_SEEK_SET))
    OK(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_get_type_extent_c(f, MPI_INT, &extent));
    CHECK(extent == 4);
    BEGIN(1);
    OK(MPI_File_write_at_c(f, mine_at, out, 8, MPI_INT, &st));
    OK(MPI_Get_count_c(&st, MPI_INT, &n));
    CHECK(n == 8);
    OK(MPI_File_read_at_c(f, mine_at, in, 8, MPI_INT, &st));
    AGAIN();
    BEGIN(2);
    OK(MPI_File_write_at_all_c(f, mine_at, out, 8, MPI_INT, &st));
    OK(MPI_File_read_at_all_c(f, mine_at, in, 8, MPI_INT, &st));
    AGAIN();
    BEGIN(3);
    OK(MPI_File_iwrite_at_c(f, mine_at, out, 8, MPI_INT, &r));
    DONE(r);
    OK(MPI_File_iread_at_c(f, mine_at, in, 8, MPI_INT, &r));
    DONE(r);
    AGAIN();
    BEGIN(4);
    OK(MPI_File_iwrite_at_all_c(f, mine_at, out, 8, MPI_INT, &r));
    DONE(r);
    OK(MPI_File_iread_at_all_c(f, mine_at, in, 8, MPI_INT, &r));
    DONE(r);
    AGAIN();
    BEGIN(5);
    OK(MPI_File_write_c(f, out, 8, MPI_INT, &st));
    REWIND();
    OK(MPI_File_read_c(f, in, 8, MPI_INT, &st));
    AGAIN();
    BEGIN(6);
    OK(MPI_File_write_all_c(f, out, 8, MPI_INT, &st));
    REWIND();
    OK(MPI_File_read_all_c(f, in, 8, MPI_INT, &st));
    AGAIN();
    BEGIN(7);
    OK(MPI_File_iwrite_c(f, out, 8, MPI_INT, &r));
    DONE(r);
    REWIND();
    OK(MPI_File_iread_c(f, in, 8, MPI_INT, &r));
    DONE(r);
    AGAIN();
    BEGIN(8);
    OK(MPI_File_iwrite_all_c(f, out, 8, MPI_INT, &r));
    DONE(r);
    REWIND();
    OK(MPI_File_iread_all_c(f, in, 8, MPI_INT, &r));
    DONE(r);
    AGAIN();
    BEGIN(9);
    OK(MPI_File_write_at_all_begin_c(f, mine_at, out, 8, MPI_INT));
    OK(MPI_File_write_at_all_end(f, out, &st));
    OK(MPI_File_read_at_all_begin_c(f, mine_at, in, 8, MPI_INT));
    OK(MPI_File_read_at_all_end(f, in, &st));
    AGAIN();
    BEGIN(10);
    OK(MPI_File_write_all_begin_c(f, out, 8, MPI_INT));
    OK(MPI_File_write_all_end(f, out, &st));
    REWIND();
    OK(MPI_File_read_all_begin_c(f, in, 8, MPI_INT));
    OK(MPI_File_read_all_end(f, in, &st));
    AGAIN();
    OK(MPI_Barrier(W));
    for (int how = 0; how < 4; how++) { // the shared pointer: in any order, but all of it
        int whole[N * 8], seen = 0;
        BEGIN(20 + how);
        OK(MPI_File_seek_shared(f, 0, MPI_SEEK_SET));
        if (how == 0) OK(MPI_File_write_shared_c(f, out, 8, MPI_INT, &st));
        if (how == 1) {
            OK(MPI_File_iwrite_shared_c(f, out, 8, MPI_INT, &r));
            DONE(r);
        }
        if (how == 2) OK(MPI_File_write_ordered_c(f, out, 8, MPI_INT, &st));
        if (how == 3) {
            OK(MPI_File_write_ordered_begin_c(f, out, 8, MPI_INT));
            OK(MPI_File_write_ordered_end(f, out, &st));
        }
        OK(MPI_File_sync(f));
        OK(MPI_Barrier(W));
        OK(MPI_File_read_at_c(f, 0, whole, 8 * size, MPI_INT, &st));
        for (int i = 0; i < size; i++) seen += memcmp(whole + 8 * i, out, sizeof out) == 0;
        CHECK(seen == 1);
        OK(MPI_File_seek_shared(f, 0, MPI_SEEK_SET));
        if (how == 0) OK(MPI_File_read_shared_c(f, in, 8, MPI_INT, &st));
        if (how == 1) {
            OK(MPI_File_iread_shared_c(f, in, 8, MPI_INT, &r));
            DONE(r);
        }
        if (how == 2) OK(MPI_File_read_ordered_c(f, in, 8, MPI_INT, &st));
        if (how == 3) {
            OK(MPI_File_read_ordered_begin_c(f, in, 8, MPI_INT));
            OK(MPI_File_read_ordered_end(f, in, &st));
        }
        CHECK(in[0] % 1000 == 20 + how && (how < 2 || memcmp(in, out, sizeof in) == 0));
        OK(MPI_Barrier(W));
    }
}

// ---- over a checkpoint ----

static void set_up(void) {
    OK(MPI_Type_vector_c(3, 1, 2, MPI_INT, &other));
    OK(MPI_Type_commit(&other));
    OK(MPI_Alloc_mem(N * sizeof(int), MPI_INFO_NULL, &s.window));
    OK(MPI_Win_create_c(s.window, N * sizeof(int), sizeof(int), MPI_INFO_NULL, W, &s.win));
    OK(MPI_Send_init_c(s.out, 4, MPI_INT, right(), 30, W, &s.persistent[0]));
    OK(MPI_Recv_init_c(s.in, 4, MPI_INT, left(), 30, W, &s.persistent[1]));
    OK(MPI_Allgatherv_init_c(&s.out[1], 1, MPI_INT, s.gathered, ones, at, MPI_INT, W, MPI_INFO_NULL,
                             &s.persistent[2]));
}

// Receives that are pending at the checkpoint: one that has a message under way, one that has not.
static void leave_pending(void) {
    s.out[3] = 500 + rank;
    memset(s.pending, -1, sizeof s.pending);
    OK(MPI_Irecv_c(s.pending, 1, other, left(), 31, W, &s.receive[0])); // every other integer
    memset(s.memory, -1, sizeof s.memory);
    OK(MPI_Irecv_c(s.memory, 2, other, left(), 32, W, &s.receive[1]));
    OK(MPI_Send_c(s.out + 3, 1, MPI_INT, right(), 31, W));
}

static void take_pending(void) {
    int six[6];
    MPI_Status st;
    MPI_Count n;
    for (int i = 0; i < 6; i++) six[i] = 600 + 10 * rank + i;
    OK(MPI_Send_c(six, 6, MPI_INT, right(), 32, W));
    OK(MPI_Wait(&s.receive[0], &st));
    OK(MPI_Get_count_c(&st, MPI_INT, &n));
    CHECK(n == 1 && s.pending[0] == 500 + left() && s.pending[1] == -1);
    OK(MPI_Wait(&s.receive[1], &st));
    static const int where[] = {0, 2, 4, 5, 7, 9};
    for (int i = 0; i < 6; i++) CHECK(s.memory[where[i]] == 600 + 10 * left() + i);
}

static void use_persistent(int round) {
    for (int i = 0; i < 4; i++) s.out[i] = 40 * rank + i + round;
    OK(MPI_Startall(3, s.persistent));
    OK(MPI_Waitall(3, s.persistent, all));
    for (int i = 0; i < 4; i++) CHECK(s.in[i] == 40 * left() + i + round);
    for (int i = 0; i < size; i++) CHECK(s.gathered[i] == 40 * i + 1 + round);
}

static void everything(void) {
    messages();
    collectives();
    neighbors();
    one_sided();
    files();
}

// Many collective calls with arrays: what was kept for them is freed on the way.
static void often(void) {
    for (int i = 0; i < 500; i++) {
        MPI_Request r;
        fill(10 * rank);
        OK(MPI_Iallgatherv_c(mine, 1, MPI_INT, got, ones, at, MPI_INT, W, &r));
        DONE(r);
        all_gathered();
    }
}

int main(int argc, char **argv) {
    int restarted = 0, save = argc > 1 && strcmp(argv[1], "save") == 0;
    const char *path = argc > 2 ? argv[2] : "large.dat";
    MPIX_CR_state_t state;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(W, &rank));
    OK(MPI_Comm_size(W, &size));
    CHECK(size <= N / 2);
    if (save) rounds = 2;
    OK(MPI_File_open(W, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &s.file));
    for (int i = 0; i < N; i++) {
        ones[i] = 1;
        at[i] = i;
    }
    set_up();
    everything();
    more_windows();
    use_persistent(1);
    if (save) {
        leave_pending();
        OK(MPI_Startall(3, s.persistent));
        OK(MPIX_Checkpoint(&state));
        if (state != MPIX_CR_STATE_CHECKPOINT && state != MPIX_CR_STATE_RESTART) {
            char why[500] = "";
            MPIX_Checkpoint_reason(why, sizeof why);
            fprintf(stderr, "rank %d: not saved: %s\n", rank, why);
        }
        CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
        restarted = state == MPIX_CR_STATE_RESTART;
        OK(MPI_Waitall(3, s.persistent, all));
        take_pending();
        use_persistent(2);
        everything();
        often();
    }
    for (int i = 0; i < 3; i++) OK(MPI_Request_free(&s.persistent[i]));
    OK(MPI_Type_free(&other));
    OK(MPI_Win_free(&s.win));
    OK(MPI_Free_mem(s.window));
    OK(MPI_File_close(&s.file));
    if (rank == 0) printf("large: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
