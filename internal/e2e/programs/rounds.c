// SPDX-License-Identifier: Apache-2.0
//
// rounds.c: N processes without MPI call MPIX_Checkpoint together, ROUNDS times, and print what it answers.
//
//   rounds ROUNDS DIR [LAST]     before round i process CKPT_RANK waits while DIR/hold-RANK-i exists; it ends after LAST rounds
//
// SIGUSR2 makes the file DIR/signal-RANK, also while the process waits in the call.
#include <fcntl.h>
#include <mpix_checkpoint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char seen[4200];

static void on_signal(int sig) {
    (void)sig;
    close(open(seen, O_CREAT | O_WRONLY, 0644));
}

int main(int argc, char **argv) {
    static const char *const names[] = {[MPIX_CR_STATE_ERROR] = "error",
                                        [MPIX_CR_STATE_CHECKPOINT] = "checkpoint",
                                        [MPIX_CR_STATE_RESTART] = "restart",
                                        [MPIX_CR_STATE_IGNORE] = "ignore"};
    const char *rank = getenv("CKPT_RANK");
    if (argc < 3 || !rank) return 2;
    int rounds = atoi(argv[1]), last = argc > 3 ? atoi(argv[3]) : rounds;
    snprintf(seen, sizeof seen, "%s/signal-%s", argv[2], rank);
    signal(SIGUSR2, on_signal);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < rounds && i < last; i++) {
        char hold[4200], why[500] = "";
        snprintf(hold, sizeof hold, "%s/hold-%s-%d", argv[2], rank, i);
        printf("round %d\n", i);
        while (access(hold, F_OK) == 0) usleep(5000);
        MPIX_CR_state_t state = MPIX_CR_STATE_ERROR;
        if (MPIX_Checkpoint(&state)) return 3;
        MPIX_Checkpoint_reason(why, sizeof why);
        printf("%s%s%s\n", names[state], *why ? ": " : "", why);
    }
    return 0;
}
