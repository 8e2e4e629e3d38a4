// SPDX-License-Identifier: Apache-2.0
//
// startup: when does the application get going?  Prints the moment at which all ranks are through
// MPI_Init, on CLOCK_MONOTONIC, in nanoseconds.
#include "job.h"

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int64_t now = clock_ns(), last;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Reduce(&now, &last, 1, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("moment\tstarted\t%lld\n", (long long)last);
    MPI_Finalize();
    return 0;
}
