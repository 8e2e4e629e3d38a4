// SPDX-License-Identifier: Apache-2.0
//
// safestate: what does a job pay for the way in which a checkpoint would find it, when none is made?
#include "job.h"

int main(int argc, char **argv) {
    struct job j = job_begin(argc, argv, 2);
    int peer = 1 - j.rank, wrong = 0;
    int64_t out = 0, in = -1, sum = 0;
    MPI_Request r;

    MEASURE(&j.m, "MPI_Barrier", 50, MPI_Barrier(MPI_COMM_WORLD));
    MEASURE(&j.m, "MPI_Bcast, 8 bytes", 50, {
        in = j.rank == 0 ? ++out : -1;
        MPI_Bcast(&in, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
        wrong += in < 0;
    });
    MPI_Barrier(MPI_COMM_WORLD); // the root was ahead
    out = j.rank + 1;
    MEASURE(&j.m, "MPI_Allreduce, 8 bytes", 50, {
        MPI_Allreduce(&out, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        wrong += sum != 3;
    });
    MEASURE(&j.m, "MPI_Ibarrier and MPI_Wait", 50, {
        MPI_Ibarrier(MPI_COMM_WORLD, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
    });
    MEASURE(&j.m, "MPI_Iallreduce and MPI_Wait, 8 bytes", 50, {
        MPI_Iallreduce(&out, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        wrong += sum != 3;
    });
    MEASURE(&j.m, "ping-pong, 8 bytes", 50, {
        if (j.rank == 0) {
            out++;
            MPI_Send(&out, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD);
            MPI_Recv(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            wrong += in != out;
        } else {
            MPI_Recv(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD);
        }
    });
    DEMAND(wrong == 0);
    return job_end();
}
