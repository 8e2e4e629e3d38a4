// SPDX-License-Identifier: Apache-2.0
//
// query: what do calls cost that only ask?
#include "job.h"

int main(int argc, char **argv) {
    struct job j = job_begin(argc, argv, 0);
    int rank, size, bytes, flag, wrong = 0;

    MEASURE(&j.m, "MPI_Comm_rank", 200, {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        wrong += rank != j.rank;
    });
    MEASURE(&j.m, "MPI_Comm_size", 200, {
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        wrong += size != j.size;
    });
    MEASURE(&j.m, "MPI_Type_size", 200, {
        MPI_Type_size(MPI_DOUBLE, &bytes);
        wrong += bytes != sizeof(double);
    });
    MEASURE(&j.m, "MPI_Initialized", 200, {
        MPI_Initialized(&flag);
        wrong += !flag;
    });
    MPI_Status status;
    int word = j.rank, got, count;
    MPI_Sendrecv(&word, 1, MPI_INT, j.rank, 0, &got, 1, MPI_INT, j.rank, 0, MPI_COMM_WORLD, &status);
    MEASURE(&j.m, "MPI_Get_count", 200, {
        MPI_Get_count(&status, MPI_INT, &count);
        wrong += count != 1;
    });
    double last = MPI_Wtime();
    MEASURE(&j.m, "MPI_Wtime", 200, {
        double now = MPI_Wtime();
        wrong += now < last;
        last = now;
    });
    DEMAND(wrong == 0);
    return job_end();
}
