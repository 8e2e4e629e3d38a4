// SPDX-License-Identifier: Apache-2.0
//
// many.c: as many live objects as the first argument says, datatypes and requests of each sort.  With
// "save" as second argument a checkpoint is made while all are live; with "loops", objects are made and
// freed in loops, by one thread and by several at a time, without the process growing.  Prints "many:
// ok" on rank 0, and "many: ok, restarted" after a restart.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

enum { POSTED = 1, PERSISTENT = 2, EARLY = 3, THREADS = 4, LOOPS = 20000, GROWTH = 24 };

static int n, early; // so many of each; messages that nobody has asked for yet
static MPI_Datatype *types;
static MPI_Comm other; // on which they are
static MPI_Request *posted, *persistent;
static int *in, *again;

static void *array(size_t size) {
    void *p = calloc((size_t)n + 1, size);
    CHECK(p != NULL);
    return p;
}

// Each is made of an older one, so that making them again needs an order.
static void make_types(void) {
    types = array(sizeof *types);
    for (int i = 0; i < n; i++)
        OK(MPI_Type_contiguous(i % 5 == 0 ? 2 : 1, i % 50 == 0 ? MPI_INT : types[i - 1], &types[i]));
}

static void check_types(void) {
    for (int i = 0; i < n; i++) {
        int size;
        OK(MPI_Type_size(types[i], &size));
        CHECK(size == (int)sizeof(int) * (2 << i % 50 / 5));
    }
}

static void free_types(void) {
    for (int i = 0; i < n; i++) OK(MPI_Type_free(&types[i]));
    free(types);
}

// Of the persistent ones every second is freed again: the ids in use have holes.
static void make_requests(int left) {
    posted = array(sizeof *posted);
    persistent = array(sizeof *persistent);
    in = array(sizeof *in);
    again = array(sizeof *again);
    for (int i = 0; i < n; i++) {
        OK(MPI_Recv_init(&again[i], 1, MPI_INT, left, PERSISTENT, MPI_COMM_WORLD, &persistent[i]));
        if (i % 2 == 0) OK(MPI_Irecv(&in[i / 2], 1, MPI_INT, left, POSTED, MPI_COMM_WORLD, &posted[i / 2]));
    }
    for (int i = 0; i < n; i += 2) OK(MPI_Request_free(&persistent[i]));
}

static void use_requests(int right) {
    int half = (n + 1) / 2, used = n / 2;
    MPI_Request *left = array(sizeof *left);
    for (int i = 0; i < half; i++) OK(MPI_Send(&i, 1, MPI_INT, right, POSTED, MPI_COMM_WORLD));
    OK(MPI_Waitall(half, posted, MPI_STATUSES_IGNORE));
    for (int i = 0; i < half; i++) CHECK(in[i] == i && posted[i] == MPI_REQUEST_NULL);
    for (int i = 0; i < used; i++) left[i] = persistent[2 * i + 1];
    OK(MPI_Startall(used, left));
    for (int i = 0; i < used; i++) OK(MPI_Send(&i, 1, MPI_INT, right, PERSISTENT, MPI_COMM_WORLD));
    OK(MPI_Waitall(used, left, MPI_STATUSES_IGNORE));
    for (int i = 0; i < used; i++) {
        CHECK(again[2 * i + 1] == i);
        OK(MPI_Request_free(&left[i]));
    }
    free(left);
    free(posted);
    free(persistent);
    free(in);
    free(again);
}

static void send_early(int right) {
    for (int i = 0; i < early; i++) OK(MPI_Send(&i, 1, MPI_INT, right, EARLY + i % 3, other));
}

// In the order in which they were sent, whatever their tags.
static void receive_early(int left) {
    for (int i = 0; i < early; i++) {
        int got = -1;
        MPI_Status status;
        OK(MPI_Recv(&got, 1, MPI_INT, left, MPI_ANY_TAG, other, &status));
        CHECK(got == i && status.MPI_TAG == EARLY + i % 3);
    }
}

static void add(void *a, void *b, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; i++) ((int *)b)[i] += ((int *)a)[i];
}

static void on_error(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    (void)code;
}

// One of each sort that is made by one rank alone, made, used and freed.
static void make_and_free(int i, MPI_Group world, MPI_Comm comm) {
    MPI_Datatype vector;
    MPI_Request r;
    MPI_Group group;
    MPI_Op op;
    MPI_Info info;
    MPI_Errhandler handler;
    int size, got = -1, keyval, one[1] = {0};
    OK(MPI_Type_vector(2, 1 + i % 3, 5, MPI_INT, &vector));
    OK(MPI_Type_size(vector, &size));
    CHECK(size == (int)sizeof(int) * 2 * (1 + i % 3));
    OK(MPI_Type_free(&vector));
    OK(MPI_Recv_init(&got, 1, MPI_INT, 0, 7, comm, &r));
    OK(MPI_Request_free(&r));
    OK(MPI_Irecv(&got, 1, MPI_INT, 0, 7, comm, &r));
    OK(MPI_Send(&i, 1, MPI_INT, 0, 7, comm));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    CHECK(got == i);
    OK(MPI_Group_incl(world, 1, one, &group));
    OK(MPI_Group_free(&group));
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Op_free(&op));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "key", "value"));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL));
    OK(MPI_Comm_free_keyval(&keyval));
    OK(MPI_Comm_create_errhandler(on_error, &handler));
    OK(MPI_Errhandler_free(&handler));
    if (i % 100 == 0) {
        MPI_Comm dup;
        OK(MPI_Comm_dup(comm, &dup));
        OK(MPI_Comm_free(&dup));
    }
}

static void *loop(void *comm) {
    MPI_Group world;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int i = 0; i < LOOPS / THREADS; i++) make_and_free(i, world, *(MPI_Comm *)comm);
    OK(MPI_Group_free(&world));
    return NULL;
}

static void threads(void) {
    pthread_t thread[THREADS];
    MPI_Comm comm[THREADS];
    for (int i = 0; i < THREADS; i++) OK(MPI_Comm_dup(MPI_COMM_SELF, &comm[i]));
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, loop, &comm[i]) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    for (int i = 0; i < THREADS; i++) OK(MPI_Comm_free(&comm[i]));
}

static long megabytes(void) {
    long size, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL && fscanf(f, "%ld %ld", &size, &resident) == 2);
    fclose(f);
    return resident / 256;
}

// The rounds after the first one add nothing: what leaks 400 bytes a turn would show.
static void loops(int multiple) {
    MPI_Group world;
    long before = 0;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < LOOPS; i++) make_and_free(i, world, MPI_COMM_SELF);
        if (multiple) threads();
        if (round == 0) before = megabytes();
    }
    long grown = megabytes() - before;
    if (grown > GROWTH) fprintf(stderr, "rank %d: %ld MB more after making and freeing\n", rank, grown);
    CHECK(grown <= GROWTH);
    OK(MPI_Group_free(&world));
}

int main(int argc, char **argv) {
    int provided, size, restarted = 0;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    CHECK(argc > 1);
    n = atoi(argv[1]);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    if (argc > 2 && strcmp(argv[2], "save") == 0) {
        MPIX_CR_state_t state;
        early = n / 20;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
        make_types();
        send_early(right);
        make_requests(left);
        OK(MPIX_Checkpoint(&state));
        CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
        restarted = state == MPIX_CR_STATE_RESTART;
        receive_early(left);
        check_types();
        free_types();
        use_requests(right);
        OK(MPI_Comm_free(&other));
    } else {
        make_types();
        check_types();
        free_types();
        make_requests(left);
        use_requests(right);
        if (argc > 2) loops(provided == MPI_THREAD_MULTIPLE);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) printf("many: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
