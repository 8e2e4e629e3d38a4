// SPDX-License-Identifier: Apache-2.0
//
// overtime.c: synchronous sends while a checkpoint is given up in the middle of draining.
//
//   overtime DIRECTORY
//
// Rank 0 has a request of MPI_Issend, rank 2 stands in MPI_Ssend, and rank 1 receives neither before the file
// "take" is in DIRECTORY.  None of the sends may be complete before.  at.RANK says that a rank has sent, or is
// about to; "look" has rank 0 look for as long as MPI needs to notice, and it answers with "looked".
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { LONG = 40000, LOOKS = 2000 };

static int rank, early;
static const char *directory;
static int data[LONG];

static const char *at(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static int is(const char *name) { return access(at(name), F_OK) == 0; }

static void say(const char *name) { fclose(fopen(at(name), "w")); }

static void look(MPI_Request *q, const char *until) {
    while (!is(until)) {
        int flag = 0;
        MPI_Request_get_status(*q, &flag, MPI_STATUS_IGNORE);
        early |= flag && !is("take");
        usleep(1000);
    }
}

int main(int argc, char **argv) {
    int sum = 0;
    MPI_Request q = MPI_REQUEST_NULL;
    directory = argc > 1 ? argv[1] : ".";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        for (int i = 0; i < LONG; i++) data[i] = 1;
        MPI_Send(data, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
        MPI_Issend(data, 3, MPI_INT, 1, 3, MPI_COMM_WORLD, &q);
        say("at.0");
        look(&q, "look");
        for (int i = 0; i < LOOKS; i++) {
            int flag = 0;
            MPI_Request_get_status(q, &flag, MPI_STATUS_IGNORE);
            early |= flag && !is("take");
        }
        say("looked");
        look(&q, "take");
        MPI_Wait(&q, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        say("at.1");
        while (!is("take")) usleep(1000);
        for (int from = 0; from < 3; from += 2) {
            int n = 1;
            if (from == 0) MPI_Recv(data, LONG, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Status s;
            MPI_Recv(data, LONG, MPI_INT, from, 3, MPI_COMM_WORLD, &s);
            MPI_Get_count(&s, MPI_INT, &n);
            for (int i = 0; i < n; i++) sum += data[i];
        }
    } else {
        for (int i = 0; i < LONG; i++) data[i] = 1;
        say("at.2");
        MPI_Ssend(data, LONG, MPI_INT, 1, 3, MPI_COMM_WORLD);
        early = !is("take");
    }
    MPI_Allreduce(MPI_IN_PLACE, &early, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("overtime %s-%d\n", early ? "early" : "right", sum);
    MPI_Finalize();
    return 0;
}
