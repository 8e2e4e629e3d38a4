// SPDX-License-Identifier: Apache-2.0
//
// blocking: what do calls cost that wait for another rank?
//
// A round trip has two calls in a row on its way: what a rank does after its send, the other does
// not wait for.
#include "pair.h"

int main(int argc, char **argv) {
    struct pair p = pair_begin(argc, argv);
    int peer = 1 - p.j.rank, wrong = 0;
    int64_t out = 0, in = -1, sum;

    MPI_Barrier(MPI_COMM_WORLD);
    MEASURE_PAIR(&p, "round trip, 8 bytes", 50, {
        if (p.j.rank == 0) {
            out++;
            MPI_Send(&out, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD);
            MPI_Recv(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            wrong += in != out;
        } else {
            MPI_Recv(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&in, 1, MPI_INT64_T, peer, 0, MPI_COMM_WORLD);
        }
    });
    MEASURE_PAIR(&p, "MPI_Barrier", 50, MPI_Barrier(MPI_COMM_WORLD));
    out = p.j.rank + 1;
    MEASURE_PAIR(&p, "MPI_Allreduce, 8 bytes", 50, {
        MPI_Allreduce(&out, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        wrong += sum != 3;
    });
    MEASURE_PAIR(&p, "MPI_Ibarrier and MPI_Wait", 50, {
        MPI_Request request;
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    });
    // Nobody to wait for: what the call itself costs, whatever the other processor is doing.
    MEASURE_PAIR(&p, "MPI_Allreduce, 8 bytes, alone", 50, {
        MPI_Allreduce(&out, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_SELF);
        wrong += sum != out;
    });
    MEASURE_PAIR(&p, "MPI_Sendrecv, 8 bytes, to itself", 50, {
        MPI_Sendrecv(&out, 1, MPI_INT64_T, 0, 0, &in, 1, MPI_INT64_T, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        wrong += in != out;
    });
    DEMAND(wrong == 0);
    return pair_end(&p);
}
