// SPDX-License-Identifier: Apache-2.0
//
// calls.c: what is under way or kept between calls, saved ("save" as argument) and used on: messages
// in an attached buffer, many operations at once, the thread level; and errors of requests, which go
// to the handler of the communicator that the request belongs to.  Prints "calls: ok" on rank 0, with
// ", restarted" after a restart.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

static int size, restarted;

// ---- buffered messages: small ones, and one that no MPI sends before it is asked for ----

enum { SMALL = 40, LARGE = 200000 };
static char *attached;
static int attached_bytes;
static MPI_Request persistent;
static int persistent_value;

static void buffered_send(void) {
    int to = (rank + 1) % size;
    int *large = malloc(LARGE * sizeof(int));
    attached_bytes = LARGE * (int)sizeof(int) + 4096 + (SMALL + 8) * (MPI_BSEND_OVERHEAD + 64);
    attached = malloc((size_t)attached_bytes);
    CHECK(attached != NULL && large != NULL);
    OK(MPI_Buffer_attach(attached, attached_bytes));
    for (int i = 0; i < SMALL; i++)
        OK(MPI_Bsend((int[]){1000 * rank + i}, 1, MPI_INT, to, i % 3, MPI_COMM_WORLD));
    for (int i = 0; i < LARGE; i++) large[i] = rank + i;
    OK(MPI_Bsend(large, LARGE, MPI_INT, to, 3, MPI_COMM_WORLD));
    memset(large, 0, LARGE * sizeof(int)); // it is in the buffer
    free(large);
    OK(MPI_Bsend_init(&persistent_value, 1, MPI_INT, to, 4, MPI_COMM_WORLD, &persistent));
    persistent_value = 5 + rank;
    OK(MPI_Start(&persistent));
}

static void buffered_receive(void) {
    int from = (rank + size - 1) % size, v, bytes = 0;
    int *large = malloc(LARGE * sizeof(int));
    void *detached = NULL;
    MPI_Status status;
    for (int i = 0; i < SMALL; i++) {
        OK(MPI_Recv(&v, 1, MPI_INT, from, i % 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(v == 1000 * from + i);
    }
    OK(MPI_Recv(large, LARGE, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == from);
    for (int i = 0; i < LARGE; i++) CHECK(large[i] == from + i);
    OK(MPI_Recv(&v, 1, MPI_INT, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(v == 5 + from);
    OK(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
    persistent_value = 77;
    OK(MPI_Start(&persistent));
    OK(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&persistent));
    OK(MPI_Recv(&v, 1, MPI_INT, from, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(v == 77);
    free(large);
    OK(MPI_Buffer_detach(&detached, &bytes));
    CHECK(detached == attached && bytes == attached_bytes);
    free(attached);
}

// ---- many operations ----

enum { OPS = 600 };
static MPI_Op ops[OPS];

static void add(void *in, void *inout, int *len, MPI_Datatype *type) {
    CHECK(*type == MPI_INT);
    for (int i = 0; i < *len; i++) ((int *)inout)[i] += ((int *)in)[i];
}

static void largest(void *in, void *inout, int *len, MPI_Datatype *type) {
    CHECK(*type == MPI_INT);
    for (int i = 0; i < *len; i++)
        if (((int *)in)[i] > ((int *)inout)[i]) ((int *)inout)[i] = ((int *)in)[i];
}

static void ops_make(void) {
    for (int i = 0; i < OPS; i++) OK(MPI_Op_create(i % 2 ? largest : add, 1, &ops[i]));
}

static void ops_use(int step) {
    for (int i = 0; i < OPS; i += step) {
        int v = i + rank, got = 3;
        OK(MPI_Reduce_local(&v, &got, 1, MPI_INT, ops[i]));
        CHECK(got == (i % 2 ? (v > 3 ? v : 3) : v + 3));
    }
    int sum = 0, highest = 0;
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, ops[OPS - 2], MPI_COMM_WORLD));
    OK(MPI_Allreduce(&rank, &highest, 1, MPI_INT, ops[OPS - 1], MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2 && highest == size - 1);
}

// ---- errors of requests; MPI_COMM_WORLD's would end the job ----

static MPI_Comm quiet;
static int errors;

static void count(MPI_Comm *comm, int *code, ...) {
    int class;
    CHECK(*comm == quiet);
    OK(MPI_Error_class(*code, &class));
    CHECK(class == MPI_ERR_TRUNCATE || class == MPI_ERR_IN_STATUS);
    errors++;
}

static void errors_make(void) {
    MPI_Errhandler h;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &quiet));
    OK(MPI_Comm_create_errhandler(count, &h));
    OK(MPI_Comm_set_errhandler(quiet, h));
    OK(MPI_Errhandler_free(&h));
}

// Sends two numbers to itself where one is expected.
static void post(MPI_Request *r) {
    int v[2] = {1, 2};
    static int one[4];
    static int n;
    OK(MPI_Irecv(&one[n++ % 4], 1, MPI_INT, rank, 0, quiet, r));
    OK(MPI_Send(v, 2, MPI_INT, rank, 0, quiet));
}

// Open MPI below does not tell that a message from oneself was too long.
static int tells(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    OK(MPI_Get_library_version(version, &n));
    return strstr(version, "Open MPI") == NULL;
}

static void errors_use(void) {
    MPI_Request r[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2];
    int class, flag = 0, rc = MPI_SUCCESS, each = tells();
    errors = 0;
    post(&r[0]);
    OK(MPI_Error_class(MPI_Wait(&r[0], MPI_STATUS_IGNORE), &class));
    CHECK(class == (each ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
    CHECK(errors == each && r[0] == MPI_REQUEST_NULL);
    post(&r[0]);
    while (!flag && rc == MPI_SUCCESS) rc = MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE);
    CHECK((rc != MPI_SUCCESS) == each && errors == 2 * each && r[0] == MPI_REQUEST_NULL);
    post(&r[1]);
    OK(MPI_Error_class(MPI_Waitall(2, r, statuses), &class));
    CHECK(class == (each ? MPI_ERR_IN_STATUS : MPI_SUCCESS));
    CHECK(errors == 3 * each && r[1] == MPI_REQUEST_NULL);
    if (each) {
        OK(MPI_Error_class(statuses[1].MPI_ERROR, &class));
        CHECK(class == MPI_ERR_TRUNCATE && statuses[0].MPI_ERROR == MPI_SUCCESS);
    }
}

// A message that was too long for a receive that nobody has waited for yet.
static MPI_Request cut = MPI_REQUEST_NULL;

static void cut_make(void) {
    static int v[2] = {1, 2}, one;
    if (rank == 1) OK(MPI_Irecv(&one, 1, MPI_INT, 0, 1, quiet, &cut));
    OK(MPI_Barrier(quiet));
    if (rank == 0) OK(MPI_Send(v, 2, MPI_INT, 1, 1, quiet));
    OK(MPI_Barrier(quiet));
}

static void cut_use(void) {
    int class;
    if (rank != 1) return;
    errors = 0;
    OK(MPI_Error_class(MPI_Wait(&cut, MPI_STATUS_IGNORE), &class));
    CHECK(class == MPI_ERR_TRUNCATE && errors == 1 && cut == MPI_REQUEST_NULL);
}

// A send that was cancelled, and freed by a program that does not want to know whether it was in time.
static void cancelled_make(void) {
    static int v = 7;
    MPI_Request r;
    OK(MPI_Issend(&v, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &r));
    OK(MPI_Cancel(&r));
    OK(MPI_Request_free(&r));
    CHECK(r == MPI_REQUEST_NULL);
}

static void cancelled_use(void) {
    int came, v = 0;
    OK(MPI_Iprobe(0, 5, MPI_COMM_SELF, &came, MPI_STATUS_IGNORE));
    if (came) {
        OK(MPI_Recv(&v, 1, MPI_INT, 0, 5, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        CHECK(v == 7);
    }
}

int main(int argc, char **argv) {
    int save = argc > 1 && strcmp(argv[1], "save") == 0, level, provided;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided));
    CHECK(provided >= MPI_THREAD_FUNNELED);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    ops_make();
    errors_make();
    ops_use(1);
    buffered_send();
    if (save) {
        cut_make();
        cancelled_make();
        MPIX_CR_state_t state;
        OK(MPIX_Checkpoint(&state));
        CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
        restarted = state == MPIX_CR_STATE_RESTART;
    }
    buffered_receive();
    ops_use(1);
    if (save) { // natively an error of a request may be MPI_COMM_WORLD's, and end the job
        cut_use();
        cancelled_use();
        errors_use();
    }
    OK(MPI_Query_thread(&level));
    CHECK(level == provided);
    for (int i = 0; i < OPS; i++) OK(MPI_Op_free(&ops[i]));
    OK(MPI_Comm_free(&quiet));
    if (rank == 0) printf("calls: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
