// SPDX-License-Identifier: Apache-2.0
//
// Asks for checkpoints with a message under way and with a request pending, then with nothing of the
// kind, and prints what each attempt answered.  Natively (without ckptrun) all are ignored.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "mpix_checkpoint.h"

static int rank;

static void attempt(const char *when) {
    static const char *const names[] = {"error", "saved", "restarted", "ignored"};
    MPIX_CR_state_t state;
    char why[1000];
    if (MPIX_Checkpoint(&state) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
    MPIX_Checkpoint_reason(why, sizeof why);
    if (rank == 0) printf("%s: %s%s%s\n", when, names[state], why[0] ? ": " : "", why);
    fflush(stdout);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm pair;
    MPI_Comm_dup(MPI_COMM_WORLD, &pair);
    MPI_Comm_set_name(pair, "pair");

    int value = 7, other = 0;
    MPI_Request r;
    if (rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 0, pair);
    MPI_Barrier(MPI_COMM_WORLD);
    attempt("unmatched");
    if (rank == 1) MPI_Recv(&other, 1, MPI_INT, 0, 0, pair, MPI_STATUS_IGNORE);

    if (rank == 1) MPI_Irecv(&other, 1, MPI_INT, 0, 1, pair, &r);
    MPI_Barrier(MPI_COMM_WORLD);
    attempt("pending");
    if (rank == 0)
        MPI_Send(&value, 1, MPI_INT, 1, 1, pair);
    else if (rank == 1)
        MPI_Wait(&r, MPI_STATUS_IGNORE);

    attempt("nothing");
    MPI_Comm_free(&pair);
    MPI_Finalize();
    return 0;
}
