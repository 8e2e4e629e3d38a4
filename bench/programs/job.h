// SPDX-License-Identifier: Apache-2.0
//
// job.h: measure.h for a job of MPI ranks.  All ranks measure, rank 0 prints.
#ifndef BENCH_JOB_H
#define BENCH_JOB_H

#include <mpi.h>

#include "measure.h"

struct job {
    int rank, size;
    struct measure m;
};

static inline struct job job_begin(int argc, char **argv, int ranks) {
    struct job j;
    DEMAND(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &j.size);
    DEMAND(ranks == 0 || j.size == ranks);
    j.m = measure_begin(argc, argv);
    j.m.silent = j.rank != 0;
    MPI_Barrier(MPI_COMM_WORLD);
    return j;
}

static inline int job_end(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}

// Collective.  Rank 0 prints the largest value of any rank.
static inline void report(const struct job *j, const char *kind, const char *name, int64_t mine) {
    int64_t most;
    MPI_Reduce(&mine, &most, 1, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    if (j->rank == 0) printf("%s\t%s\t%lld\n", kind, name, (long long)most);
    fflush(stdout);
}

#endif
