// SPDX-License-Identifier: Apache-2.0
//
// window: what do one-sided operations cost on memory of MPI_Win_allocate, and making such a window?
#include "job.h"

enum { WORDS = 64 };

static MPI_Win make(int64_t **at) {
    MPI_Win win;
    MPI_Win_allocate(WORDS * sizeof **at, sizeof **at, MPI_INFO_NULL, MPI_COMM_WORLD, at, &win);
    return win;
}

int main(int argc, char **argv) {
    struct job j = job_begin(argc, argv, 2);
    int64_t *mine, *other, one = 1, was, n = 0;
    MPI_Win win = make(&mine), more;
    int to = 1 - j.rank;

    memset(mine, 0, WORDS * sizeof *mine);
    MPI_Win_lock_all(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MEASURE(&j.m, "MPI_Put and MPI_Win_flush, 8 bytes", 50, n++;
            MPI_Put(&n, 1, MPI_INT64_T, to, 3, 1, MPI_INT64_T, win); MPI_Win_flush(to, win));
    MEASURE(&j.m, "MPI_Fetch_and_op and MPI_Win_flush", 50,
            MPI_Fetch_and_op(&one, &was, MPI_INT64_T, to, 5, MPI_SUM, win);
            MPI_Win_flush(to, win));
    MPI_Barrier(MPI_COMM_WORLD);
    DEMAND(mine[3] == n && mine[5] == was + 1);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MEASURE(&j.m, "MPI_Win_allocate and MPI_Win_free", 2, more = make(&other); MPI_Win_free(&more));
    return job_end();
}
