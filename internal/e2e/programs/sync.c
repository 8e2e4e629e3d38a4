// SPDX-License-Identifier: Apache-2.0
//
// Threads that wait in every usual way, against each other and against clocks: mutex, condition,
// semaphore with and without time limit, barrier, rwlock, nanosleep, poll, select, clock_gettime.
// usage: sync ROUNDS
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static int rounds;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;
static uint64_t digest = 14695981039346656037u;

static void mix(uint64_t v) { digest = (digest ^ v) * 1099511628211u; }

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// Two threads take turns; any lost wake-up hangs, any double one changes the digest.
static void *take_turns(void *arg) {
    int me = (int)(intptr_t)arg;
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&mutex);
        while (turn != me) pthread_cond_wait(&turned, &mutex);
        mix((uint64_t)(i * 2 + me));
        turn = !me;
        pthread_cond_broadcast(&turned);
        pthread_mutex_unlock(&mutex);
        if (i % 8 == 0) {
            struct timespec pause = {0, 500000};
            nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

static sem_t items;
static _Atomic int produced, consumed, timeouts;

static void *consume(void *arg) {
    (void)arg;
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 3000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (sem_timedwait(&items, &until) == 0) {
            if (++consumed == rounds) return NULL;
        } else if (errno == ETIMEDOUT) {
            timeouts++;
        } else if (errno != EINTR) {
            perror("sem_timedwait");
            exit(1);
        }
    }
}

static void *produce(void *arg) {
    (void)arg;
    for (int i = 0; i < rounds; i++) {
        produced++;
        sem_post(&items);
        if (i % 4 == 0)
            poll(NULL, 0, 1);
        else if (i % 64 == 1) {
            struct timeval t = {0, 5000};
            select(0, NULL, NULL, NULL, &t);
        }
    }
    return NULL;
}

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static long shared[2];
static _Atomic long torn;
static _Atomic int done;

static void *read_or_write(void *arg) {
    int writer = arg != NULL;
    pthread_barrier_wait(&barrier);
    for (long i = 0; !done; i++) {
        if (writer) {
            pthread_rwlock_wrlock(&rwlock);
            shared[0]++;
            shared[1]++;
            pthread_rwlock_unlock(&rwlock);
            usleep(200);
        } else {
            pthread_rwlock_rdlock(&rwlock);
            torn += shared[0] != shared[1];
            pthread_rwlock_unlock(&rwlock);
            if (i % 16 == 0) sched_yield();
            if (i % 256 == 0) usleep(100);
        }
    }
    return NULL;
}

static _Atomic long backwards, short_sleeps;

// The monotonic clock never goes back, and no sleep is shorter than asked for.
static void *watch_clock(void *arg) {
    (void)arg;
    int64_t last = now_ns();
    while (!done) {
        for (int i = 0; i < 1000; i++) {
            int64_t t = now_ns();
            backwards += t < last;
            last = t;
        }
        int64_t before = now_ns();
        struct timespec pause = {0, 2000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, &pause) == EINTR)
            ;
        short_sleeps += now_ns() - before < 2000000;
    }
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 1000;
    sem_init(&items, 0, 0);
    pthread_barrier_init(&barrier, NULL, 3);
    pthread_t t[8];
    pthread_create(&t[0], NULL, take_turns, (void *)0);
    pthread_create(&t[1], NULL, take_turns, (void *)1);
    pthread_create(&t[2], NULL, consume, NULL);
    pthread_create(&t[3], NULL, produce, NULL);
    pthread_create(&t[4], NULL, read_or_write, NULL);
    pthread_create(&t[5], NULL, read_or_write, NULL);
    pthread_create(&t[6], NULL, read_or_write, (void *)1);
    pthread_create(&t[7], NULL, watch_clock, NULL);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    done = 1;
    for (int i = 4; i < 8; i++) pthread_join(t[i], NULL);
    printf("turns %016lx produced %d consumed %d\n", (unsigned long)digest, produced, consumed);
    printf("torn %ld backwards %ld short sleeps %ld\n", torn, backwards, short_sleeps);
    return 0;
}
