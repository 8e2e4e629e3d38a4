// SPDX-License-Identifier: Apache-2.0
//
// buffered.c: buffered sends, while the job is saved in MPI_Buffer_detach and in MPI_Comm_disconnect.
//
//   buffered DIRECTORY
//
// Rank 0 sends.  Rank 1 receives when DIRECTORY/first exists, and rank 2 when DIRECTORY/second does;
// until then rank 0 cannot take its buffer away, nor disconnect.  Three ranks; it ends with one line
// "buffered RESULT" from rank 0.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BIG = 3 << 20, ROOM = BIG + 65536 };

static int rank;
static const char *directory;
static char buffer[ROOM], *big;

static void stage(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    while (access(path, F_OK) != 0) usleep(2000);
}

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static int class_of(int rc) {
    int class = MPI_SUCCESS;
    MPI_Error_class(rc, &class);
    return class;
}

static void fill(int seed) {
    for (int i = 0; i < BIG; i++) big[i] = (char)(i * 31 + i / 4096 + seed);
}

static void errors(void) {
    int v = 1;
    MPI_Request q;
    MPI_Datatype raw;
    MPI_Buffer_attach(buffer, ROOM);
    check(class_of(MPI_Bsend(big, ROOM, MPI_CHAR, 1, 1, MPI_COMM_WORLD)) == MPI_ERR_BUFFER, "too large");
    check(class_of(MPI_Ibsend(big, ROOM, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &q)) == MPI_ERR_BUFFER,
          "too large, Ibsend");
    check(class_of(MPI_Bsend(&v, 1, MPI_INT, 3, 1, MPI_COMM_WORLD)) == MPI_ERR_RANK, "a rank");
    check(class_of(MPI_Bsend(&v, 1, MPI_INT, 1, -7, MPI_COMM_WORLD)) == MPI_ERR_TAG, "a tag");
    check(class_of(MPI_Bsend(&v, -1, MPI_INT, 1, 1, MPI_COMM_WORLD)) == MPI_ERR_COUNT, "a count");
    MPI_Type_contiguous(1, MPI_INT, &raw);
    check(class_of(MPI_Bsend(&v, 1, raw, 1, 1, MPI_COMM_WORLD)) == MPI_ERR_TYPE, "a datatype");
    MPI_Type_free(&raw);
    check(MPI_Bsend(&v, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD) == MPI_SUCCESS, "to nobody");
}

static void send_all(void) {
    int grid[6][4], v[5] = {1, 2, 3, 4, 5}, got = 0;
    MPI_Datatype column;
    MPI_Request q[3];
    MPI_Status s;
    for (int i = 0; i < 24; i++) grid[i / 4][i % 4] = i;
    MPI_Type_vector(6, 1, 4, MPI_INT, &column);
    MPI_Type_commit(&column);
    // One behind the other, whatever sends them.
    MPI_Isend(&v[0], 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &q[0]);
    MPI_Bsend(&v[1], 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    MPI_Ibsend(&v[2], 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &q[1]);
    MPI_Bsend_init(&v[3], 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &q[2]);
    MPI_Start(&q[2]);
    MPI_Send(&v[4], 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    MPI_Waitall(3, q, MPI_STATUSES_IGNORE);
    MPI_Start(&q[2]);
    MPI_Wait(&q[2], &s);
    MPI_Request_free(&q[2]);
    MPI_Bsend(&grid[0][2], 1, column, 1, 2, MPI_COMM_WORLD);
    MPI_Type_free(&column);
    MPI_Bsend(NULL, 0, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
    MPI_Bsend(&v[2], 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
    MPI_Recv(&got, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, &s);
    check(got == 3, "to itself");
    fill(1);
    MPI_Bsend(big, BIG, MPI_CHAR, 1, 5, MPI_COMM_WORLD);
    check(class_of(MPI_Bsend(big, BIG, MPI_CHAR, 1, 5, MPI_COMM_WORLD)) == MPI_ERR_BUFFER,
          "a second one does not fit");
    memset(big, 0, BIG);
}

static void receive_all(void) {
    static const int order[] = {1, 2, 3, 4, 5, 4};
    int v = 0, six[6], n = 0;
    MPI_Status s;
    for (int i = 0; i < 6; i++) {
        MPI_Recv(&v, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &s);
        check(v == order[i], "the order");
    }
    MPI_Probe(0, 2, MPI_COMM_WORLD, &s);
    MPI_Get_count(&s, MPI_INT, &n);
    check(n == 6, "the count of a datatype");
    MPI_Recv(six, 6, MPI_INT, 0, 2, MPI_COMM_WORLD, &s);
    for (int i = 0; i < 6; i++) check(six[i] == 4 * i + 2, "a datatype");
    MPI_Recv(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &s);
}

// seed: of what is expected.
static void receive_big(int seed, MPI_Comm comm) {
    char *got = malloc(BIG);
    int n = 0;
    MPI_Status s;
    fill(seed);
    MPI_Recv(got, BIG, MPI_CHAR, 0, 5, comm, &s);
    MPI_Get_count(&s, MPI_CHAR, &n);
    check(n == BIG && memcmp(got, big, BIG) == 0, "a large one");
    free(got);
}

static void detach(void) {
    void *p = NULL;
    int n = 0;
    MPI_Buffer_detach(&p, &n);
    check(p == buffer && n == ROOM, "the buffer");
}

int main(int argc, char **argv) {
    MPI_Comm twin;
    int sum = 0, mine;
    directory = argc > 1 ? argv[1] : ".";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    big = malloc(ROOM);
    if (rank == 0) {
        errors();
        send_all();
        detach();
        MPI_Buffer_attach(buffer, ROOM);
        fill(2);
        MPI_Bsend(big, BIG, MPI_CHAR, 2, 5, twin);
    } else {
        stage("first");
        if (rank == 1) {
            receive_all();
            receive_big(1, MPI_COMM_WORLD);
        }
        stage("second");
        if (rank == 2) receive_big(2, twin);
    }
    MPI_Comm_disconnect(&twin);
    if (rank == 0) {
        detach();
        MPI_Buffer_attach(buffer, ROOM);
        MPI_Bsend(big, BIG, MPI_CHAR, 1, 5, MPI_COMM_WORLD); // MPI_Finalize waits for it
    }
    mine = 100 + rank;
    MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("buffered %d\n", sum);
    if (rank == 1) receive_big(2, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
