// SPDX-License-Identifier: Apache-2.0
//
// checkpoint: how long does a checkpoint stop the program, and how soon does it go on after a
// restart?
//
//     checkpoint MIB random|smooth|alike
//
// Each rank fills MIB of memory and takes one checkpoint.  The run that saved prints how long the
// first touch of its memory took, and MPIX_Checkpoint; the run that was restarted prints when it
// came back from the same call, and when it had read all its memory and found it right.  Both end
// with status 1 when anything is wrong.
//
// random: no two words alike, so nothing can be compressed.  alike: the same, and all ranks have the
// same.  smooth: a slowly varying field in steps of 1/1024, as a solver's output often is, where
// neighbours are mostly equal.
#include "data.h"
#include "job.h"
#include "mpix_checkpoint.h"

static uint64_t smooth_word(uint64_t i) {
    const double period = 1 << 20;
    double x = 2 * ((double)(i & ((1 << 20) - 1)) / period) - 1; // a wave of parabolas
    double y = 4 * x * (1 - (x < 0 ? -x : x));
    double step = (double)(int64_t)(y * 1024) / 1024;
    uint64_t word;
    memcpy(&word, &step, sizeof word);
    return word;
}

int main(int argc, char **argv) {
    struct job j = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
    DEMAND(argc == 3);
    int alike = strcmp(argv[2], "alike") == 0, random = alike || strcmp(argv[2], "random") == 0;
    DEMAND(random || strcmp(argv[2], "smooth") == 0);
    size_t n = (size_t)atoi(argv[1]) << 17; // words
    uint64_t *words = malloc(n * sizeof *words);
    DEMAND(n > 0 && words != NULL);
    int64_t fresh = clock_ns();
    memset(words, 1, n * sizeof *words);
    report(&j, "took", "touched", clock_ns() - fresh);
    uint64_t first = alike ? 0 : first_word(j.rank);
    for (size_t i = 0; i < n; i++) words[i] = random ? random_word(first + i) : smooth_word(first + i);
    uint64_t before = sum(words, n);

    MPI_Barrier(MPI_COMM_WORLD);
    MPIX_CR_state_t state;
    int64_t called = clock_ns();
    int rc = MPIX_Checkpoint(&state);
    int64_t back = clock_ns();

    DEMAND(rc == MPI_SUCCESS);
    if (state == MPIX_CR_STATE_CHECKPOINT) {
        report(&j, "took", "stopped", back - called);
    } else if (state == MPIX_CR_STATE_RESTART) {
        report(&j, "moment", "restarted", back);
        DEMAND(sum(words, n) == before);
        report(&j, "moment", "checked", clock_ns());
    } else {
        char reason[512] = "";
        MPIX_Checkpoint_reason(reason, sizeof reason);
        fprintf(stderr, "rank %d: no checkpoint was made: %s\n", j.rank, reason);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(words);
    MPI_Finalize();
    return 0;
}
