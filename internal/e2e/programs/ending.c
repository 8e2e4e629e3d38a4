// SPDX-License-Identifier: Apache-2.0
//
// Ends in the way that is asked for, after working for a while.
// usage: ending ROUNDS HOW
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static volatile int *volatile nowhere;
static volatile int zero;

static void at_exit(void) { printf("at exit\n"); }

static void *exit_from_thread(void *arg) {
    (void)arg;
    exit(7);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    const char *how = argc > 2 ? argv[2] : "0";
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    atexit(at_exit);
    uint64_t v = 1;
    for (int i = 0; i < rounds; i++)
        for (int k = 0; k < 10000000; k++) v = v * 6364136223846793005u + 1442695040888963407u;
    printf("ready %016lx\n", (unsigned long)v);
    fprintf(stderr, "ends by %s\n", how);
    fflush(stdout);
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "term") == 0) raise(SIGTERM);
    if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(how, "segv") == 0) *nowhere = 1;
    if (strcmp(how, "fpe") == 0) return 10 / zero;
    if (strcmp(how, "pipe") == 0) {
        int p[2];
        if (pipe(p) == 0 && close(p[0]) == 0 && write(p[1], "x", 1) < 0) perror("write");
    }
    if (strcmp(how, "alarm") == 0) {
        alarm(1);
        for (;;) pause();
    }
    if (strcmp(how, "now") == 0) _exit(9);
    if (strcmp(how, "thread") == 0) {
        pthread_t t;
        pthread_create(&t, NULL, exit_from_thread, NULL);
        pthread_join(t, NULL);
    }
    if (strcmp(how, "main-gone") == 0) {
        pthread_t t;
        pthread_create(&t, NULL, exit_from_thread, NULL);
        pthread_exit(NULL);
    }
    return atoi(how);
}
