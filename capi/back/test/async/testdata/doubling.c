// SPDX-License-Identifier: Apache-2.0
//
// doubling.c: MPI_Comm_idup while allocations of the back fail, one after the other, on one rank or on all.
//
//   doubling STAGES SHORTFALL
//
// A call that says MPI_ERR_NO_MEM is made again: it must have done nothing, on no rank.  Each duplicate is used and
// freed.  Then STAGES/at.RANK is made, for a checkpoint, and the program goes on when there is STAGES/go.  Three ranks;
// rank 0 ends with the line "doubling RESULT".
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shortfall.h"

enum { MOST = 14, RANKS = 3 };

static int rank, failures;
static const char *stages, *shortfall;

static void arm(int nth) {
    int fd = open(shortfall, O_RDWR);
    if (fd < 0 || pwrite(fd, &nth, sizeof nth, rank * (long)sizeof(struct shortfall)) != sizeof nth)
        MPI_Abort(MPI_COMM_WORLD, 3);
    close(fd);
}

static void use(MPI_Comm comm, int who, int nth) {
    MPI_Comm twin = MPI_COMM_NULL;
    MPI_Request q;
    int class = MPI_ERR_NO_MEM, sum = 0;
    if (who == RANKS || who == rank) arm(nth);
    for (int tries = 0; class == MPI_ERR_NO_MEM && tries < 3; tries++) {
        int rc = MPI_Comm_idup(comm, &twin, &q);
        MPI_Error_class(rc, &class);
        failures += rc != MPI_SUCCESS;
    }
    arm(0);
    if (class != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 4);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, twin);
    if (sum != 3) MPI_Abort(MPI_COMM_WORLD, 5);
    MPI_Comm_free(&twin);
}

int main(int argc, char **argv) {
    char path[4096];
    MPI_Comm comm, again;
    int sum = 0, some;
    MPI_Init(&argc, &argv);
    if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    stages = argv[1];
    shortfall = argv[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int who = 0; who <= RANKS; who++)
        for (int nth = 1; nth <= MOST; nth++) use(comm, who, nth);
    snprintf(path, sizeof path, "%s/at.%d", stages, rank);
    close(open(path, O_CREAT | O_WRONLY, 0644));
    snprintf(path, sizeof path, "%s/go", stages);
    while (access(path, F_OK)) usleep(1000);
    MPI_Comm_dup(comm, &again); // its identity follows from how many there were before, on each rank
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, again);
    MPI_Comm_free(&again);
    some = failures >= 4;
    MPI_Allreduce(MPI_IN_PLACE, &some, 1, MPI_INT, MPI_SUM, comm);
    if (rank == 0) printf("doubling %d-%d\n", sum, some);
    MPI_Finalize();
    return 0;
}
