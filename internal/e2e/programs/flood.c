// SPDX-License-Identifier: Apache-2.0
//
// flood COUNT FILE: lets COUNT real-time signals come and stay pending, and takes them when FILE is there.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < atoi(argv[1]); i++)
        if (sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) != 0) return 1;
    printf("queued\n");
    fflush(stdout);
    while (access(argv[2], F_OK) != 0) nanosleep(&(struct timespec){0, 10000000}, NULL);
    long n = 0, sum = 0;
    siginfo_t info;
    for (struct timespec now = {0, 0};;) {
        int sig = sigtimedwait(&set, &info, &now);
        if (sig < 0 && errno == EINTR) continue;
        if (sig < 0) break;
        sum += n++ * info.si_value.sival_int; // in their order
    }
    printf("signals %ld sum %ld\n", n, sum);
    return 0;
}
