// SPDX-License-Identifier: Apache-2.0
//
// crossing: what does an MPI call cost that has to be made in the lower half, and does nothing, or
// little, there?
#include "job.h"

int main(int argc, char **argv) {
    struct job j = job_begin(argc, argv, 0);
    int done = 0, wrong = 0;

    MPI_Request none = MPI_REQUEST_NULL;
    MEASURE(&j.m, "MPI_Test of no request", 200, {
        done = 0;
        MPI_Test(&none, &done, MPI_STATUS_IGNORE);
        wrong += !done;
    });
    int word = 1;
    MEASURE(&j.m, "MPI_Send to MPI_PROC_NULL", 200,
            wrong += MPI_Send(&word, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD) != MPI_SUCCESS);

    // A receive that nothing comes for: what a program pays that polls.
    MPI_Request polled;
    int index = 0;
    MPI_Irecv(&word, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &polled);
    MEASURE(&j.m, "MPI_Test of one that waits", 200, {
        MPI_Test(&polled, &done, MPI_STATUS_IGNORE);
        wrong += done;
    });
    MEASURE(&j.m, "MPI_Testany of one that waits", 200, {
        MPI_Testany(1, &polled, &index, &done, MPI_STATUS_IGNORE);
        wrong += done;
    });
    MPI_Cancel(&polled);
    MPI_Wait(&polled, MPI_STATUS_IGNORE);
    DEMAND(wrong == 0);
    return job_end();
}
