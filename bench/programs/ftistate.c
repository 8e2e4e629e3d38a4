// SPDX-License-Identifier: Apache-2.0
//
// ftistate: how long does it take to save a state by FTI's calls, and to recover it?
//
//     ftistate CONFIG MIB LEVEL
//
// Runs with FTI's own library or with libckpt's.  Each rank fills MIB of random memory and saves it once, to a level; it
// ends without FTI_Finalize, as a program that is killed.  The start after that recovers it and finds it right.
#include <fti.h>

#include "data.h"
#include "job.h"

int main(int argc, char **argv) {
    struct job j = {0};
    MPI_Init(&argc, &argv);
    DEMAND(argc == 4);
    int64_t begun = clock_ns();
    DEMAND(FTI_Init(argv[1], MPI_COMM_WORLD) == FTI_SCES);
    int64_t ready = clock_ns();
    MPI_Comm_rank(FTI_COMM_WORLD, &j.rank);
    size_t n = (size_t)atoi(argv[2]) << 17; // words
    uint64_t *words = malloc(n * sizeof *words);
    DEMAND(n > 0 && words != NULL);
    DEMAND(FTI_Protect(0, words, (int64_t)n, FTI_DBLE) == FTI_SCES);
    if (FTI_Status() != 0) {
        int64_t called = clock_ns();
        DEMAND(FTI_Recover() == FTI_SCES);
        int64_t back = clock_ns();
        report(&j, "moment", "recovered", back);
        report(&j, "took", "init and recover", ready - begun + back - called);
        DEMAND(sum(words, n) == sum_of_random(first_word(j.rank), n));
    } else {
        for (size_t i = 0; i < n; i++) words[i] = random_word(first_word(j.rank) + i);
        MPI_Barrier(FTI_COMM_WORLD);
        int64_t called = clock_ns();
        DEMAND(FTI_Checkpoint(1, atoi(argv[3])) == FTI_DONE);
        report(&j, "took", "saved", clock_ns() - called);
    }
    free(words);
    MPI_Finalize();
    return 0;
}
