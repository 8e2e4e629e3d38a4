// SPDX-License-Identifier: Apache-2.0
//
// news.c: communicators made just before all ranks call MPIX_Checkpoint, one with a message under way, one freed
// again.  With "save" as argument it is saved there and ends.  Prints "news: ok", and "news: ok, restarted" after a restart.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

int main(int argc, char **argv) {
    MPIX_CR_state_t state = MPIX_CR_STATE_IGNORE;
    MPI_Comm first, with, gone;
    MPI_Request sent;
    int size, got = -1, sum = 0;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    int value = 40 + rank;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &first));
    OK(MPI_Comm_dup(first, &with));
    OK(MPI_Comm_dup(with, &gone));
    OK(MPI_Comm_free(&gone));
    OK(MPI_Isend(&value, 1, MPI_INT, (rank + 1) % size, 5, with, &sent));
    if (argc > 1 && strcmp(argv[1], "save") == 0) {
        OK(MPIX_Checkpoint(&state));
        CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
    }
    OK(MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, 5, with, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    CHECK(got == 40 + (rank + size - 1) % size);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, with));
    CHECK(sum == size * (size - 1) / 2);
    OK(MPI_Comm_free(&with));
    OK(MPI_Comm_free(&first));
    if (rank == 0) printf("news: ok%s\n", state == MPIX_CR_STATE_RESTART ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
