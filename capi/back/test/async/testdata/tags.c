// SPDX-License-Identifier: Apache-2.0
//
// tags.c: the highest tags that there are, alive at a checkpoint and used after it.
//
//   tags STAGES [TAG]
//
// TAG instead of MPI_TAG_UB, above it where the MPI below bears that.  Both ranks wait for STAGES/saved;
// rank 0 ends with the line "tags ok".
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static int upper_bound(void) {
    int *ub, flag;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &ub, &flag);
    check(flag && *ub >= 32767, "MPI_TAG_UB");
    return *ub;
}

int main(int argc, char **argv) {
    int rank, other, got[3] = {-1, -1, -1}, done = 0;
    char path[4096];
    struct stat s;
    MPI_Request r[3];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    int told = upper_bound(), ub = argc > 2 ? atoi(argv[2]) : told;
    snprintf(path, sizeof path, "%s/saved", argv[1]);
    if (argc <= 2) {
        MPI_Send_init(&rank, 1, MPI_INT, other, ub, MPI_COMM_WORLD, &r[0]);
        MPI_Recv_init(&got[0], 1, MPI_INT, other, ub, MPI_COMM_WORLD, &r[1]);
    }
    MPI_Irecv(&got[1], 1, MPI_INT, other, ub - 1, MPI_COMM_WORLD, &r[2]);
    for (int n = 0; !done; n++) {
        int there = stat(path, &s) == 0;
        MPI_Allreduce(&there, &done, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (n == 10 && rank == 0) {
            snprintf(path, sizeof path, "%s/at", argv[1]);
            fclose(fopen(path, "w"));
            snprintf(path, sizeof path, "%s/saved", argv[1]);
        }
        usleep(10000);
    }
    check(upper_bound() == told, "MPI_TAG_UB is another one now");
    if (argc <= 2) {
        MPI_Startall(2, r);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
        check(got[0] == other, "persistent requests");
    }
    MPI_Send(&rank, 1, MPI_INT, other, ub - 1, MPI_COMM_WORLD);
    MPI_Wait(&r[2], MPI_STATUS_IGNORE);
    MPI_Sendrecv(&rank, 1, MPI_INT, other, ub - 2, &got[2], 1, MPI_INT, other, ub - 2, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    check(got[1] == other && got[2] == other, "messages");
    if (rank == 0) printf("tags ok\n");
    MPI_Finalize();
    return 0;
}
