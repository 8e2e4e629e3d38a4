// SPDX-License-Identifier: Apache-2.0
//
// Sleeps until the process has used so many seconds of processor time, as the argument says, which a thread of it does: first on the
// clock of the process, then on that of the thread by its number. Neither sleep may end early, and each is one call.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile int stop;

static void *spin(void *nothing) {
    while (!stop) {}
    return nothing;
}

static double now(clockid_t clock) {
    struct timespec t = {0, 0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    pthread_t thread;
    clockid_t clocks[2] = {CLOCK_PROCESS_CPUTIME_ID, 0};
    if (argc != 2 || pthread_create(&thread, NULL, spin, NULL) != 0 ||
        pthread_getcpuclockid(thread, &clocks[1]) != 0)
        return 1;
    for (int i = 0; i < 2; i++) {
        struct timespec t = {.tv_sec = atoi(argv[1])};
        printf("nap %d\n", i);
        fflush(stdout);
        double before = now(clocks[i]);
        int error = clock_nanosleep(clocks[i], 0, &t, NULL);
        double took = now(clocks[i]) - before;
        if (error != 0 || took < (double)t.tv_sec) {
            printf("nap %d: %s after %.3f s\n", i, strerror(error), took);
            return 1;
        }
    }
    stop = 1;
    printf("naps: good\n");
    return pthread_join(thread, NULL) != 0;
}
