// SPDX-License-Identifier: Apache-2.0
//
// counting: what do the clock and the bookmarks cost, which count every collective call and message?
//
// Nobody is waited for: a difference of a few nanoseconds would be lost in that.
#include "job.h"

int main(int argc, char **argv) {
    struct job j = job_begin(argc, argv, 0);
    int wrong = 0, word = 7, sum = 0, in = 0;
    MPI_Request r[2];

    MEASURE(&j.m, "MPI_Barrier, alone", 200, wrong += MPI_Barrier(MPI_COMM_SELF));
    MEASURE(&j.m, "MPI_Bcast, 4 bytes, alone", 200, wrong += MPI_Bcast(&word, 1, MPI_INT, 0, MPI_COMM_SELF));
    MEASURE(&j.m, "MPI_Allreduce, 4 bytes, alone", 200, {
        MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
        wrong += sum != word;
    });
    MEASURE(&j.m, "MPI_Ibarrier and MPI_Wait, alone", 200, {
        MPI_Ibarrier(MPI_COMM_SELF, &r[0]);
        wrong += MPI_Wait(&r[0], MPI_STATUS_IGNORE);
    });
    MEASURE(&j.m, "MPI_Sendrecv, 4 bytes, to itself", 200, {
        MPI_Sendrecv(&word, 1, MPI_INT, 0, 0, &in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        wrong += in != word;
    });
    MEASURE(&j.m, "MPI_Irecv, MPI_Isend and MPI_Waitall, to itself", 200, {
        MPI_Irecv(&in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &r[0]);
        MPI_Isend(&word, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &r[1]);
        wrong += MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    });
    DEMAND(wrong == 0);
    return job_end();
}
