// SPDX-License-Identifier: Apache-2.0
//
// triple: what does an exchange of non-blocking messages cost, Irecv, Isend and Waitall?
#include "pair.h"

static int exchange(int64_t out, int peer, MPI_Comm comm) {
    int64_t in = -1;
    MPI_Request r[2];
    MPI_Irecv(&in, 1, MPI_INT64_T, peer, 0, comm, &r[0]);
    MPI_Isend(&out, 1, MPI_INT64_T, peer, 0, comm, &r[1]);
    MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
    return in != out || r[0] != MPI_REQUEST_NULL || r[1] != MPI_REQUEST_NULL;
}

int main(int argc, char **argv) {
    struct pair p = pair_begin(argc, argv);
    int wrong = 0;
    int64_t n = 0;

    MEASURE_PAIR(&p, "triple, 8 bytes", 50, wrong += exchange(n++, 1 - p.j.rank, MPI_COMM_WORLD));
    // Nobody to wait for: what the calls themselves cost.
    MEASURE_PAIR(&p, "triple, 8 bytes, to itself", 50, wrong += exchange(n++, 0, MPI_COMM_SELF));
    DEMAND(wrong == 0);
    return pair_end(&p);
}
