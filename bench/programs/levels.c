// SPDX-License-Identifier: Apache-2.0
//
// levels: how long does it take to save a state to a level, and to go on from there?
//
//     levels MIB STOP
//
// Each rank fills MIB of random memory, names it, and takes one checkpoint; then it sleeps until there is a file STOP.
// With ckptrun its process is saved, without what it has named.  The start that goes on prints when it was there, and when
// all memory had been read and found right.
#include <unistd.h>

#include "data.h"
#include "job.h"
#include "mpix_checkpoint.h"

static void fail(const struct job *j, const char *what) {
    char reason[512] = "";
    MPIX_Checkpoint_reason(reason, sizeof reason);
    fprintf(stderr, "rank %d: %s: %s\n", j->rank, what, reason);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void continued(const struct job *j, int64_t at, const uint64_t *words, size_t n) {
    report(j, "moment", "restarted", at);
    uint64_t got = sum(words, n);
    report(j, "moment", "checked", clock_ns());
    DEMAND(got == sum_of_random(first_word(j->rank), n));
}

int main(int argc, char **argv) {
    struct job j = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &j.rank);
    DEMAND(argc == 3);
    size_t n = (size_t)atoi(argv[1]) << 17; // words
    uint64_t *words = malloc(n * sizeof *words);
    DEMAND(n > 0 && words != NULL);
    MPIX_CR_state_t state;
    if (MPIX_Checkpoint_protect(0, words, n * sizeof *words) != 0) fail(&j, "protect");
    if (MPIX_Checkpoint_recover(&state) != 0) fail(&j, "recover");
    if (state == MPIX_CR_STATE_RESTART) {
        int64_t at = clock_ns();
        continued(&j, at, words, n);
        MPI_Finalize();
        return 0;
    }
    for (size_t i = 0; i < n; i++) words[i] = random_word(first_word(j.rank) + i);

    MPI_Barrier(MPI_COMM_WORLD);
    int64_t called = clock_ns();
    int rc = MPIX_Checkpoint(&state);
    int64_t back = clock_ns();
    if (rc != 0 || (state != MPIX_CR_STATE_CHECKPOINT && state != MPIX_CR_STATE_RESTART))
        fail(&j, "no checkpoint was made");
    if (state == MPIX_CR_STATE_RESTART) {
        continued(&j, back, words, n);
    } else {
        report(&j, "took", "stopped", back - called);
        while (access(argv[2], F_OK)) usleep(10000);
    }
    free(words);
    MPI_Finalize();
    return 0;
}
