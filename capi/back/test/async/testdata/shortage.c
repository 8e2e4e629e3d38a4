// SPDX-License-Identifier: Apache-2.0
//
// shortage.c: messages, requests and windows under way, round after round, while allocations of the back fail:
// at first one at each place where it allocates, until there are no places left; then one in each part of a
// round, the first, the second and so on.
//
//   shortage STAGES [SHORTFALL]
//
// A call that says MPI_ERR_NO_MEM is made again: it must have done nothing.  In each round the program stands
// still at a point where a checkpoint is to be made, writes STAGES/at.K and waits for STAGES/go.K.  Three
// ranks; rank 0 ends with the line "shortage ok".
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shortfall.h"

enum { FEW = 100, MANY = 5 << 20, REQUESTS = 80, BLOCKS = 40, FREED = 70, ROUNDS = 400 };
enum {
    START,
    DRAINED,
    BIG,
    SYNC,
    SYNC_AGAIN,
    BUFFERED,
    BUFFERED_AGAIN,
    LATER,
    MATCHED,
    MATCHED_BIG,
    BOTH,
    SWAPPED,
    SCATTERED,
    ORPHAN,
    GO,
    HELD
};

static int rank, left, right, round_, nth, failed_before;
static const char *stages, *shortfall;
static MPI_Comm comm;
static char *out[HELD], *in[HELD];

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "rank %d round %d: %s\n", rank, round_, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

// ---- allocations that fail ----

static struct shortfall look(int left_of) {
    struct shortfall s = {0};
    int fd = shortfall ? open(shortfall, O_RDWR) : -1;
    if (fd < 0) return s;
    check(pread(fd, &s, sizeof s, rank * (long)sizeof s) == sizeof s, "the shortfall is read");
    check(pwrite(fd, &left_of, sizeof left_of, rank * (long)sizeof s) == sizeof left_of, "... and written");
    close(fd);
    return s;
}

static void arm(void) { look(nth); }
// 1 when the allocation was there, and failed.
static int disarm(void) {
    int failed = look(0).failed, now = failed != failed_before;
    failed_before = failed;
    return now;
}

// Whether a call is to be made again.
static int again(int rc, const char *call) {
    int class = MPI_SUCCESS, n;
    char text[MPI_MAX_ERROR_STRING] = "";
    if (rc != MPI_SUCCESS) MPI_Error_class(rc, &class);
    if (class != MPI_SUCCESS && class != MPI_ERR_NO_MEM) {
        MPI_Error_string(rc, text, &n);
        fprintf(stderr, "%s\n", text);
    }
    check(class == MPI_SUCCESS || class == MPI_ERR_NO_MEM, call);
    return class != MPI_SUCCESS;
}
#define CALL(call) \
    do {           \
    } while (again(call, #call))

// ---- content ----

static int bytes(int tag) { return tag == BIG || tag == MATCHED_BIG ? MANY : tag == LATER ? 4 * FEW : FEW; }

static void fill(int tag) {
    for (int i = 0; i < bytes(tag); i++) out[tag][i] = (char)(i + rank + 3 * tag + 5 * round_);
    memset(in[tag], 0x55, (size_t)bytes(tag));
}

static void verify(int tag) {
    for (int i = 0; i < bytes(tag); i++)
        check(in[tag][i] == (char)(i + left + 3 * tag + 5 * round_), "a message is what was sent");
}

// ---- one round ----

static MPI_Request now[REQUESTS], ssend, again_sync, again_out, again_in, again_buffered, later;
static MPI_Request scattered, general;
static MPI_Message matched[2];
static MPI_Op op;
static int general_freed;

static void sum(void *a, void *b, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) ((int *)b)[i] += ((int *)a)[i];
}

static int query(void *extra, MPI_Status *s) {
    (void)extra;
    MPI_Status_set_elements(s, MPI_CHAR, 7);
    MPI_Status_set_cancelled(s, 0);
    s->MPI_SOURCE = rank;
    s->MPI_TAG = 8;
    return MPI_SUCCESS;
}

static int release(void *extra) {
    (void)extra;
    general_freed++;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete) {
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

// Blocks of one and two bytes in turn, FEW in all but for the last.
static void make_blocks(MPI_Datatype *type) {
    int length[BLOCKS], at[BLOCKS], n = 0;
    MPI_Datatype inner, chars[BLOCKS];
    MPI_Aint where[BLOCKS];
    CALL(MPI_Type_vector(1, 1, 2, MPI_CHAR, &inner));
    for (int i = 0; i < BLOCKS; i++) {
        length[i] = 1 + i % 2;
        where[i] = at[i] = n;
        n += length[i];
        chars[i] = i % 3 == 0 && length[i] == 1 ? inner : MPI_CHAR;
    }
    CALL(MPI_Type_create_struct(BLOCKS, length, where, chars, type));
    CALL(MPI_Type_free(&inner));
    CALL(MPI_Type_commit(type));
    check(n <= FEW, "the blocks are in the buffer");
}

// Everything that is under way when the checkpoint is made, but for collective calls.
static void start(void) {
    MPI_Datatype pairs, blocks;
    MPI_Status s;
    MPI_Request orphan[FREED];
    for (int i = 0; i < REQUESTS; i++) now[i] = MPI_REQUEST_NULL;
    CALL(MPI_Isend(out[MATCHED], FEW, MPI_CHAR, right, MATCHED, comm, &now[0]));
    CALL(MPI_Isend(out[MATCHED_BIG], MANY, MPI_CHAR, right, MATCHED_BIG, comm, &now[40]));
    CALL(MPI_Isend(out[DRAINED], FEW, MPI_CHAR, right, DRAINED, comm, &now[1]));
    CALL(MPI_Isend(out[BIG], MANY, MPI_CHAR, right, BIG, comm, &now[79]));
    CALL(MPI_Issend(out[SYNC], FEW, MPI_CHAR, right, SYNC, comm, &ssend));
    CALL(MPI_Ssend_init(out[SYNC_AGAIN], FEW, MPI_CHAR, right, SYNC_AGAIN, comm, &again_sync));
    CALL(MPI_Start(&again_sync));
    CALL(MPI_Send_init(out[START], FEW, MPI_CHAR, right, START, comm, &again_out));
    CALL(MPI_Start(&again_out));
    CALL(MPI_Recv_init(in[START], FEW, MPI_CHAR, left, START, comm, &again_in));
    CALL(MPI_Bsend_init(out[BUFFERED_AGAIN], FEW, MPI_CHAR, right, BUFFERED_AGAIN, comm, &again_buffered));
    CALL(MPI_Start(&again_buffered));
    CALL(MPI_Ibsend(out[BUFFERED], FEW, MPI_CHAR, right, BUFFERED, comm, &now[2]));
    CALL(MPI_Type_contiguous(4, MPI_CHAR, &pairs));
    CALL(MPI_Type_commit(&pairs));
    CALL(MPI_Irecv(in[LATER], FEW, pairs, left, LATER, comm, &later));
    CALL(MPI_Type_free(&pairs));
    make_blocks(&blocks);
    CALL(MPI_Recv_init(in[SCATTERED], 1, blocks, left, SCATTERED, comm, &scattered));
    CALL(MPI_Type_free(&blocks));
    CALL(MPI_Start(&scattered));
    for (int i = 0; i < FREED; i++) {
        CALL(MPI_Irecv(in[ORPHAN] + i, 1, MPI_CHAR, left, ORPHAN, comm, &orphan[i]));
        CALL(MPI_Request_free(&orphan[i]));
    }
    CALL(MPI_Grequest_start(query, release, cancel, NULL, &general));
    CALL(MPI_Grequest_complete(general)); // a checkpoint waits for that
    CALL(MPI_Op_create(sum, 1, &op));
    memcpy(in[SWAPPED], out[SWAPPED], FEW);
    CALL(MPI_Sendrecv_replace(in[SWAPPED], FEW, MPI_CHAR, right, SWAPPED, left, SWAPPED, comm, &s));
    verify(SWAPPED);
    CALL(MPI_Mprobe(left, MATCHED, comm, &matched[0], &s));
    CALL(MPI_Mprobe(left, MATCHED_BIG, comm, &matched[1], &s));
#if MPI_VERSION >= 4
    MPI_Request both;
    CALL(MPI_Isendrecv(out[BOTH], FEW, MPI_CHAR, right, BOTH, in[BOTH], FEW, MPI_CHAR, left, BOTH, comm,
                       &both));
    CALL(MPI_Wait(&both, &s));
    verify(BOTH);
    memcpy(in[SWAPPED], out[SWAPPED], FEW);
    CALL(MPI_Isendrecv_replace(in[SWAPPED], FEW, MPI_CHAR, right, SWAPPED, left, SWAPPED, comm, &both));
    CALL(MPI_Wait(&both, &s));
    verify(SWAPPED);
#endif
}

static int there(const char *stage, int k) {
    char path[4096];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s.%d", stages, stage, k);
    return stat(path, &s) == 0;
}

static void make(const char *stage, int k) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d", stages, stage, k);
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    check(fd >= 0, "a stage");
    close(fd);
}

// Rank 0 is in MPI_Ssend meanwhile, rank 1 in MPI_Recv.
static void stand(void) {
    int word = round_;
    if (rank == 0) {
        CALL(MPI_Ssend(out[GO], FEW, MPI_CHAR, 1, GO, comm));
        check(there("receiving", round_), "MPI_Ssend returns before its message is received");
    } else if (rank == 1) {
        CALL(MPI_Recv(&word, 1, MPI_INT, 2, GO, comm, MPI_STATUS_IGNORE));
        make("receiving", round_);
        CALL(MPI_Recv(in[GO], FEW, MPI_CHAR, 0, GO, comm, MPI_STATUS_IGNORE));
        verify(GO);
    } else {
        make("at", round_);
        while (!there("go", round_)) usleep(2000);
        CALL(MPI_Send(&word, 1, MPI_INT, 1, GO, comm));
    }
}

// No synchronous send may be complete: nobody has begun to receive.
static void not_yet(void) {
    int flag = 1;
    CALL(MPI_Request_get_status(ssend, &flag, MPI_STATUS_IGNORE));
    check(!flag, "MPI_Issend is complete before its message is received");
    CALL(MPI_Request_get_status(again_sync, &flag, MPI_STATUS_IGNORE));
    check(!flag, "MPI_Ssend_init is complete before its message is received");
}

static void finish(void) {
    MPI_Request r;
    MPI_Message m;
    int flag = 0, index, n, done[REQUESTS];
    MPI_Status s;
    CALL(MPI_Send(out[LATER], 4 * FEW, MPI_CHAR, right, LATER, comm));
    for (int i = 0; i < FREED; i++) CALL(MPI_Send(out[ORPHAN] + i, 1, MPI_CHAR, right, ORPHAN, comm));
    CALL(MPI_Send(out[SCATTERED], 3 * BLOCKS / 2, MPI_CHAR, right, SCATTERED, comm));
    CALL(MPI_Wait(&scattered, &s));
    CALL(MPI_Get_count(&s, MPI_CHAR, &n));
    check(n == 3 * BLOCKS / 2 && s.MPI_TAG == SCATTERED, "the status of a persistent receive");
    for (int i = 0; i < n; i++)
        check(in[SCATTERED][i] == (char)(i + left + 3 * SCATTERED + 5 * round_), "what came in blocks");
    CALL(MPI_Wait(&general, &s));
    CALL(MPI_Get_count(&s, MPI_CHAR, &n));
    check(n == 7 && s.MPI_SOURCE == rank && s.MPI_TAG == 8, "the status of a generalized request");
    check(general_freed == 1, "a generalized request is freed once");
    general_freed = 0;
    CALL(MPI_Start(&again_in));
    CALL(MPI_Wait(&again_in, MPI_STATUS_IGNORE));
    verify(START);
    CALL(MPI_Irecv(in[DRAINED], FEW, MPI_CHAR, left, DRAINED, comm, &r));
    CALL(MPI_Wait(&r, MPI_STATUS_IGNORE));
    verify(DRAINED);
    CALL(MPI_Irecv(in[BIG], MANY, MPI_CHAR, left, BIG, comm, &r));
    CALL(MPI_Wait(&r, MPI_STATUS_IGNORE));
    verify(BIG);
    while (!flag) CALL(MPI_Improbe(left, BUFFERED, comm, &flag, &m, MPI_STATUS_IGNORE));
    CALL(MPI_Imrecv(in[BUFFERED], FEW, MPI_CHAR, &m, &r));
    CALL(MPI_Wait(&r, MPI_STATUS_IGNORE));
    verify(BUFFERED);
    CALL(MPI_Recv(in[BUFFERED_AGAIN], FEW, MPI_CHAR, left, BUFFERED_AGAIN, comm, MPI_STATUS_IGNORE));
    verify(BUFFERED_AGAIN);
    CALL(MPI_Imrecv(in[MATCHED], FEW, MPI_CHAR, &matched[0], &r));
    CALL(MPI_Wait(&r, MPI_STATUS_IGNORE));
    verify(MATCHED);
    CALL(MPI_Mrecv(in[MATCHED_BIG], MANY, MPI_CHAR, &matched[1], MPI_STATUS_IGNORE));
    verify(MATCHED_BIG);
    CALL(MPI_Recv(in[SYNC], FEW, MPI_CHAR, left, SYNC, comm, MPI_STATUS_IGNORE));
    verify(SYNC);
    CALL(MPI_Recv(in[SYNC_AGAIN], FEW, MPI_CHAR, left, SYNC_AGAIN, comm, MPI_STATUS_IGNORE));
    verify(SYNC_AGAIN);
    CALL(MPI_Wait(&later, MPI_STATUS_IGNORE));
    verify(LATER);
    CALL(MPI_Wait(&ssend, MPI_STATUS_IGNORE));
    CALL(MPI_Wait(&again_sync, MPI_STATUS_IGNORE));
    CALL(MPI_Wait(&again_out, MPI_STATUS_IGNORE));
    CALL(MPI_Wait(&again_buffered, MPI_STATUS_IGNORE));
    CALL(MPI_Waitany(REQUESTS, now, &index, MPI_STATUS_IGNORE));
    CALL(MPI_Waitsome(REQUESTS, now, &n, done, MPI_STATUSES_IGNORE));
    for (flag = 0; !flag;) CALL(MPI_Testall(REQUESTS, now, &flag, MPI_STATUSES_IGNORE));
    CALL(MPI_Op_free(&op));
    // Sent before, in order, on the same communicator: so the receives that were freed have theirs.
    CALL(MPI_Sendrecv(out[DRAINED], 1, MPI_CHAR, right, ORPHAN, in[DRAINED], 1, MPI_CHAR, left, ORPHAN, comm,
                      &s));
    verify(ORPHAN);
    MPI_Request_free(&scattered);
    MPI_Request_free(&again_sync);
    MPI_Request_free(&again_out);
    MPI_Request_free(&again_in);
    MPI_Request_free(&again_buffered);
}

// Returns 1 when an allocation has failed on some rank.
static int one_round(MPI_Win win, int *board, MPI_File file) {
    int failed, types[3] = {0, 1, 2}, one[3] = {1, 1, 1}, at[3] = {0, 4, 8}, from[3], to[3], flag;
    MPI_Datatype ints[3] = {MPI_INT, MPI_INT, MPI_INT};
    MPI_Request all, write;
    for (int tag = 0; tag < HELD; tag++) fill(tag);
    for (int i = FREED; i < FEW; i++) in[ORPHAN][i] = (char)(i + left + 3 * ORPHAN + 5 * round_);
    for (int i = 0; i < 3; i++) from[i] = 10 * round_ + rank + types[i];
    arm();
    start();
    failed = disarm();
    MPI_Barrier(comm);
    MPI_Ialltoallw(from, one, at, ints, to, one, at, ints, comm, &all);
    MPI_Win_fence(0, win);
    MPI_Put(&from[0], 1, MPI_INT, right, 0, 1, MPI_INT, win);
    MPI_File_iwrite_at(file, rank * (MPI_Offset)sizeof from, from, 3, MPI_INT, &write);
    arm();
    stand();
    failed |= disarm();
    not_yet();
    MPI_Barrier(comm);
    arm();
    for (flag = 0; !flag;) CALL(MPI_Request_get_status(write, &flag, MPI_STATUS_IGNORE));
    CALL(MPI_Wait(&write, MPI_STATUS_IGNORE));
    finish();
    failed |= disarm();
    CALL(MPI_Wait(&all, MPI_STATUS_IGNORE));
    MPI_Win_fence(0, win);
    check(*board == 10 * round_ + left, "MPI_Put");
    for (int i = 0; i < 3; i++) check(to[i] == 10 * round_ + i + rank, "MPI_Ialltoallw");
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm);
    return failed;
}

int main(int argc, char **argv) {
    static int board;
    static char buffer[1 << 16];
    char name[4096];
    MPI_Win win;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    right = (rank + 1) % 3;
    left = (rank + 2) % 3;
    stages = argv[1];
    shortfall = argv[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int tag = 0; tag < HELD; tag++) {
        out[tag] = malloc((size_t)bytes(tag));
        in[tag] = malloc((size_t)bytes(tag));
    }
    MPI_Buffer_attach(buffer, sizeof buffer);
    MPI_Win_create(&board, sizeof board, sizeof board, MPI_INFO_NULL, comm, &win);
    snprintf(name, sizeof name, "%s/file", stages);
    MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Win_fence(0, win);
    // One by one at first; there are many when a call allocates each time that it looks for a message.
    nth = SHORTFALL_NEW;
    for (round_ = 1; round_ < ROUNDS && one_round(win, &board, file); round_++) {}
    // One by one at first; there are many when a call allocates each time that it looks for a message.
    for (nth = 1, round_++; round_ < ROUNDS && one_round(win, &board, file); round_++)
        nth += nth < 30 ? 1 : nth / 6;
    check(round_ < ROUNDS, "there is no end of allocations");
    if (rank == 2) make("rounds", 0);
    shortfall = NULL;    // from here on nothing fails but what the test wants to
    round_ = ROUNDS + 1; // it is killed, and continued
    one_round(win, &board, file);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    MPI_Win_free(&win);
    MPI_File_close(&file);
    if (rank == 0) printf("shortage ok\n");
    MPI_Finalize();
    return 0;
}
