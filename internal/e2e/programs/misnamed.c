// SPDX-License-Identifier: Apache-2.0
//
// misnamed.c: what mpix_checkpoint.h answers to calls that are wrong, or come in a wrong state.  Twice in one directory:
// the second start finds what the first one saved.  It prints a line for each answer.
#include <mpix_checkpoint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef ALONE
#include <mpi.h>
#endif

static void tell(const char *what, int r) {
    char why[1000];
    MPIX_Checkpoint_reason(why, sizeof why);
    printf("%s: %d %s\n", what, r, why);
}
#define TELL(call) tell(#call, call)

static double a[100], b[50];
static size_t n;
static MPIX_CR_state_t state;

// Nothing of libckpt's is in the process before a call needs it.
static void before(void) {
    struct sigaction old;
    char line[200];
    int threads = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, f)) sscanf(line, "Threads: %d", &threads);
    fclose(f);
    sigaction(SIGSEGV, NULL, &old);
    printf("threads %d, handler %d\n", threads, old.sa_handler != SIG_DFL);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        TELL(MPIX_Checkpoint_protect(0, a, sizeof a));
        TELL(MPIX_Checkpoint_unprotect(0));
        TELL(MPIX_Checkpoint(&state));
        printf("state %d\n", (int)state);
        exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(void) {
    before();
#ifndef ALONE
    MPI_Init(NULL, NULL);
#endif
    TELL(MPIX_Checkpoint(NULL));
    TELL(MPIX_Checkpoint_protect(-1, a, sizeof a));
    TELL(MPIX_Checkpoint_protect(0, NULL, 8));
    TELL(MPIX_Checkpoint_unprotect(5));
    TELL(MPIX_Checkpoint_saved(0, &n));
    TELL(MPIX_Checkpoint_saved(0, NULL));
    TELL(MPIX_Checkpoint_recover_one(0));
    TELL(MPIX_Checkpoint_recover(&state));
    printf("state %d\n", (int)state);
    TELL(MPIX_Checkpoint_protect(0, a, sizeof a));
    TELL(MPIX_Checkpoint_protect(1, (char *)a + 792, 100));
    TELL(MPIX_Checkpoint_protect(0, (char *)a + 8, 80));
    TELL(MPIX_Checkpoint_protect(0, a, sizeof a));
    TELL(MPIX_Checkpoint_distribute(9, 0, NULL, NULL, NULL, 0));
    TELL(MPIX_Checkpoint_distribute(0, 9, NULL, NULL, NULL, 8));
    TELL(MPIX_Checkpoint_distribute(0, 1, NULL, NULL, NULL, 8));
    TELL(MPIX_Checkpoint_distribute(0, 1, (const size_t[]){100}, (const size_t[]){1}, (const size_t[]){100},
                                    8));
    TELL(MPIX_Checkpoint_distribute(0, 1, (const size_t[]){100}, (const size_t[]){0}, (const size_t[]){99},
                                    8));
    TELL(MPIX_Checkpoint_level(5));
    TELL(MPIX_Checkpoint_level(2));
    TELL(MPIX_Checkpoint_level(4));
    TELL(MPIX_Checkpoint_recover(NULL));
    TELL(MPIX_Checkpoint_saved(7, &n));
    TELL(MPIX_Checkpoint_saved(0, &n));
    TELL(MPIX_Checkpoint_protect(0, a, 80));
    TELL(MPIX_Checkpoint_recover(&state));
    printf("state %d\n", (int)state);
    TELL(MPIX_Checkpoint_protect(0, a, sizeof a));
    TELL(MPIX_Checkpoint_protect(3, b, sizeof b));
    TELL(MPIX_Checkpoint_recover(&state));
    TELL(MPIX_Checkpoint_recover_one(3));
    TELL(MPIX_Checkpoint_recover_one(4));
    TELL(MPIX_Checkpoint_recover_one(0));
    TELL(MPIX_Checkpoint_unprotect(3));
    for (int i = 0; i < 100; i++) a[i] = i;
    TELL(MPIX_Checkpoint_protect(2, b, 0));
    TELL(MPIX_Checkpoint(&state));
    printf("state %d\n", (int)state);
    TELL(MPIX_Checkpoint_recover(&state));
    fflush(stdout);
    if (fork() == 0) {
        TELL(MPIX_Checkpoint(&state));
        printf("state %d\n", (int)state);
        fflush(stdout);
        _exit(0); // an MPI does not live in it either
    }
    wait(NULL);
    TELL(MPIX_Checkpoint_unprotect(0));
    TELL(MPIX_Checkpoint_unprotect(2));
    TELL(MPIX_Checkpoint(&state));
    printf("state %d\n", (int)state);
#ifndef ALONE
    MPI_Finalize();
    TELL(MPIX_Checkpoint_recover(&state));
#endif
    return 0;
}
