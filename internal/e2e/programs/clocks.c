// SPDX-License-Identifier: Apache-2.0
//
// Clocks that count from the start of the machine: none goes back or jumps, and what waits for an absolute
// time on them waits as long as was asked for, also on a machine that was started long before or after.
// usage: clocks ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ll
#define STEP 2000000ll           // of a wait
#define LONG_AGO (1000 * SECOND) // more than any pause of the test, less than the machines differ by

static const struct {
    clockid_t id;
    const char *name;
} clocks[] = {{CLOCK_MONOTONIC, "monotonic"},
              {CLOCK_MONOTONIC_RAW, "raw"},
              {CLOCK_MONOTONIC_COARSE, "coarse"},
              {CLOCK_BOOTTIME, "boottime"}};
enum { CLOCKS = sizeof clocks / sizeof *clocks };

static int64_t now(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static int64_t asked(clockid_t id) { // not through the vDSO
    struct timespec t;
    syscall(SYS_clock_gettime, id, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static struct timespec at(int64_t ns) { return (struct timespec){ns / SECOND, ns % SECOND}; }

static int wrong;
static void check(int good, const char *what, const char *clock, int64_t ns) {
    if (good || wrong++ > 10) return;
    printf("%s %s: %lld ns\n", clock, what, (long long)ns);
}

static void waited(const char *how, clockid_t id, int64_t until) {
    int64_t late = now(id) - until;
    check(late >= 0, how, "ended early", late);
    check(late < LONG_AGO, how, "ended late", late);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    int64_t last[CLOCKS];
    for (int i = 0; i < CLOCKS; i++) last[i] = now(clocks[i].id);
    pthread_condattr_t attr;
    pthread_cond_t cond;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&cond, &attr);
    int fd[2] = {timerfd_create(CLOCK_MONOTONIC, 0), timerfd_create(CLOCK_BOOTTIME, 0)};
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < 2000; turn++)
            for (int i = 0; i < CLOCKS; i++) {
                int64_t t = now(clocks[i].id);
                check(t >= last[i], "went back by", clocks[i].name, t - last[i]);
                check(t - last[i] < LONG_AGO, "jumped by", clocks[i].name, t - last[i]);
                last[i] = t;
            }
        int64_t a = now(CLOCK_MONOTONIC), b = asked(CLOCK_MONOTONIC), c = now(CLOCK_MONOTONIC);
        check(a <= b && b - c < LONG_AGO, "is not the vDSO's", "the system call's", b - a);

        clockid_t id = round % 2 ? CLOCK_BOOTTIME : CLOCK_MONOTONIC;
        int64_t until = now(id) + STEP;
        struct timespec ts = at(until);
        while (clock_nanosleep(id, TIMER_ABSTIME, &ts, NULL) == EINTR)
            ;
        waited("clock_nanosleep", id, until);

        pthread_mutex_lock(&mutex);
        until = now(CLOCK_MONOTONIC) + STEP;
        ts = at(until);
        while (pthread_cond_timedwait(&cond, &mutex, &ts) == 0)
            ;
        pthread_mutex_unlock(&mutex);
        waited("pthread_cond_timedwait", CLOCK_MONOTONIC, until);

        until = now(id) + STEP;
        struct itimerspec timer = {{0, 0}, at(until)};
        timerfd_settime(fd[round % 2], TFD_TIMER_ABSTIME, &timer, NULL);
        uint64_t ticks = 0;
        if (read(fd[round % 2], &ticks, 8) != 8 || ticks != 1) check(0, "ticks", "timerfd", (int64_t)ticks);
        waited("timerfd", id, until);
    }
    printf("rounds %d, wrong %d\n", rounds, wrong);
    return wrong != 0;
}
