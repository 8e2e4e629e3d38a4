// SPDX-License-Identifier: Apache-2.0
//
// grequest.c: generalized requests, completed by the thread that waits and by another one; with
// "save" as argument a checkpoint asked for while one is unfinished is refused, and one asked for
// when it is complete, but nobody has waited for it, is made.  Prints "grequest: ok" on rank 0, and
// "grequest: ok, restarted" after a restart.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "mpix_checkpoint.h"

struct state {
    int elements, cancelled, queries, frees, cancels;
};

static int query(void *extra, MPI_Status *status) {
    struct state *s = extra;
    s->queries++;
    OK(MPI_Status_set_elements(status, MPI_INT, s->elements));
    OK(MPI_Status_set_cancelled(status, s->cancelled));
    status->MPI_SOURCE = 5;
    status->MPI_TAG = 17;
    return MPI_SUCCESS;
}

static int release(void *extra) {
    ((struct state *)extra)->frees++;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete) {
    struct state *s = extra;
    s->cancels++;
    s->cancelled = !complete;
    return MPI_SUCCESS;
}

static void check_status(const MPI_Status *status, const struct state *s) {
    int n = -1, cancelled = -1;
    OK(MPI_Get_count(status, MPI_INT, &n));
    OK(MPI_Test_cancelled(status, &cancelled));
    CHECK(n == s->elements && cancelled == s->cancelled);
    CHECK(status->MPI_SOURCE == 5 && status->MPI_TAG == 17);
    CHECK(s->queries >= 1 && s->frees == 1);
}

static void *complete_later(void *request) {
    usleep(20000);
    OK(MPI_Grequest_complete(*(MPI_Request *)request));
    return NULL;
}

static void alone(int threads) {
    struct state s = {3, 0, 0, 0, 0};
    MPI_Request r[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL}, copy;
    MPI_Status status, all[3];
    int flag = 1, index;
    OK(MPI_Grequest_start(query, release, cancel, &s, &r[0]));
    OK(MPI_Test(&r[0], &flag, &status));
    CHECK(!flag && r[0] != MPI_REQUEST_NULL);
    OK(MPI_Grequest_complete(r[0]));
    OK(MPI_Request_get_status(r[0], &flag, &status));
    CHECK(flag && s.frees == 0);
    OK(MPI_Wait(&r[0], &status));
    CHECK(r[0] == MPI_REQUEST_NULL);
    check_status(&status, &s);

    s = (struct state){2, 0, 0, 0, 0};
    OK(MPI_Grequest_start(query, release, cancel, &s, &r[1]));
    OK(MPI_Cancel(&r[1]));
    CHECK(s.cancels == 1);
    OK(MPI_Grequest_complete(r[1]));
    OK(MPI_Waitany(3, r, &index, &status));
    CHECK(index == 1);
    check_status(&status, &s);

    // With others, in one call.
    s = (struct state){1, 0, 0, 0, 0};
    int in = -1;
    OK(MPI_Grequest_start(query, release, cancel, &s, &r[0]));
    OK(MPI_Irecv(&in, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, &r[1]));
    OK(MPI_Isend(&rank, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, &r[2]));
    OK(MPI_Grequest_complete(r[0]));
    OK(MPI_Waitall(3, r, all));
    CHECK(in == rank);
    check_status(&all[0], &s);

    // Freed before it is complete.
    s = (struct state){1, 0, 0, 0, 0};
    OK(MPI_Grequest_start(query, release, cancel, &s, &r[0]));
    copy = r[0];
    OK(MPI_Request_free(&r[0]));
    CHECK(r[0] == MPI_REQUEST_NULL); // when its function is called differs
    OK(MPI_Grequest_complete(copy));
    CHECK(s.frees == 1);

    if (threads) {
        pthread_t thread;
        s = (struct state){4, 0, 0, 0, 0};
        OK(MPI_Grequest_start(query, release, cancel, &s, &r[0]));
        CHECK(pthread_create(&thread, NULL, complete_later, &r[0]) == 0);
        copy = r[0];
        OK(MPI_Wait(&copy, &status));
        check_status(&status, &s);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

static MPIX_CR_state_t checkpoint(char why[500]) {
    MPIX_CR_state_t state;
    why[0] = 0;
    OK(MPIX_Checkpoint(&state));
    MPIX_Checkpoint_reason(why, 500);
    return state;
}

int main(int argc, char **argv) {
    int provided, save = argc > 1 && strcmp(argv[1], "save") == 0, restarted = 0, size;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    alone(provided == MPI_THREAD_MULTIPLE);
    struct state s = {rank + 1, 0, 0, 0, 0};
    if (save) {
        MPI_Request r = MPI_REQUEST_NULL;
        MPI_Status status;
        char why[500], want[100];
        snprintf(want, sizeof want, "rank %d: an unfinished generalized request (MPI_Grequest_start)",
                 size - 1);
        if (rank == size - 1) OK(MPI_Grequest_start(query, release, cancel, &s, &r));
        CHECK(checkpoint(why) == MPIX_CR_STATE_IGNORE);
        if (strstr(why, want) == NULL)
            fprintf(stderr, "rank %d: reason \"%s\", want \"%s\"\n", rank, why, want);
        CHECK(strstr(why, want) != NULL && strstr(why, "rank 0") == NULL);
        if (rank == size - 1) OK(MPI_Grequest_complete(r));
        MPIX_CR_state_t state = checkpoint(why);
        CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
        restarted = state == MPIX_CR_STATE_RESTART;
        if (rank == size - 1) {
            OK(MPI_Wait(&r, &status));
            check_status(&status, &s);
        }
        alone(provided == MPI_THREAD_MULTIPLE);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) printf("grequest: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
