// SPDX-License-Identifier: Apache-2.0
//
// Mutexes that inherit priority: threads wait for them, also for a while and for one whose owner has died, and count under them.
// usage: inherit ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4 };

static pthread_mutex_t plain, checked, robust;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long count, timeouts, died, wrong, turn, signals;
static int rounds;

#define CHECK(c)                                                         \
    do                                                                   \
        if (!(c) && wrong++ < 10) printf("line %d: " #c "\n", __LINE__); \
    while (0)

static void on_signal(int sig) {
    (void)sig;
    __atomic_add_fetch(&signals, 1, __ATOMIC_RELAXED);
}

static void make(pthread_mutex_t *m, int type, int robustness) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    pthread_mutexattr_settype(&a, type);
    pthread_mutexattr_setrobust(&a, robustness);
    CHECK(pthread_mutex_init(m, &a) == 0);
}

static void pause_for(long ns) { nanosleep(&(struct timespec){0, ns}, NULL); }

// Ends with the mutex.
static void *dies(void *unused) {
    int e = pthread_mutex_lock(&robust);
    if (e == EOWNERDEAD) CHECK(pthread_mutex_consistent(&robust) == 0);
    pause_for(200000);
    return unused;
}

static void *work(void *arg) {
    long me = (long)arg;
    for (int i = 0; i < rounds; i++) {
        CHECK(pthread_mutex_lock(&plain) == 0);
        long seen = count;
        if (i % 4 == 0) pause_for(50000); // the others come to wait
        CHECK(count == seen);
        count = seen + 1;
        CHECK(pthread_mutex_unlock(&plain) == 0);

        // One after the other.
        CHECK(pthread_mutex_lock(&checked) == 0);
        CHECK(pthread_mutex_lock(&checked) == EDEADLK);
        while (turn % THREADS != me) CHECK(pthread_cond_wait(&cond, &checked) == 0);
        turn++;
        pthread_cond_broadcast(&cond);
        CHECK(pthread_mutex_unlock(&checked) == 0);
        CHECK(pthread_mutex_unlock(&checked) == EPERM);

        if (i % 8 == 3) {
            int e = pthread_mutex_lock(&robust);
            if (e == EOWNERDEAD) {
                died++;
                CHECK(pthread_mutex_consistent(&robust) == 0);
            } else {
                CHECK(e == 0);
            }
            pthread_t t;
            CHECK(pthread_mutex_unlock(&robust) == 0);
            if (me == 0 && pthread_create(&t, NULL, dies, NULL) == 0) pthread_join(t, NULL);
        }
        int e = pthread_mutex_trylock(&plain);
        CHECK(e == 0 || e == EBUSY);
        if (e == 0) CHECK(pthread_mutex_unlock(&plain) == 0);
    }
    return NULL;
}

static pthread_mutex_t held;

static void *waits(void *arg) {
    for (int i = 0; i < *(int *)arg; i++) {
        struct timespec until;
        clockid_t clock = i % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
        clock_gettime(clock, &until);
        until.tv_nsec += 1000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        timeouts += pthread_mutex_clocklock(&held, clock, &until) == ETIMEDOUT;
    }
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 100;
    make(&plain, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED);
    make(&held, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_STALLED);
    make(&checked, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_STALLED);
    make(&robust, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal; // without SA_RESTART: a mutex knows no EINTR
    sigaction(SIGUSR1, &a, NULL);
    CHECK(pthread_mutex_lock(&held) == 0);
    pthread_t t[THREADS], waiter;
    pthread_create(&waiter, NULL, waits, &rounds);
    for (long i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, work, (void *)i);
    for (int i = 0; i < rounds; i++) {
        pthread_kill(waiter, SIGUSR1);
        // What is no time is told before it is known who has the mutex: this thread, which would wait for ever.
        struct timespec never = {0, 1000000000};
        CHECK(pthread_mutex_timedlock(&held, &never) == EINVAL);
        pause_for(300000);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    pthread_join(waiter, NULL);
    CHECK(signals > 0);
    printf("counted %ld, in turn %ld, timed out %ld, owners that died %s, wrong %ld\n", count, turn, timeouts,
           died > 0 ? "some" : "none", wrong);
    return wrong != 0;
}
