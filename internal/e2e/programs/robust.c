// SPDX-License-Identifier: Apache-2.0
//
// Robust mutexes, in private and in shared memory: threads end while they have some; who waits for one, or takes it
// later, is told so, makes it good and goes on. One that nobody makes good cannot be had any more.
// usage: robust ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MUTEXES = 3 };
static pthread_mutex_t own[MUTEXES], *shared;
static _Atomic int taken;

static void must(int error, const char *what) {
    if (error == 0) return;
    fprintf(stderr, "%s: %d\n", what, error);
    exit(1);
}

static pthread_mutex_t *mutex(int i) { return i < MUTEXES ? &own[i] : &shared[i - MUTEXES]; }

static void make(pthread_mutex_t *m, int between) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&a, between ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE);
    must(pthread_mutex_init(m, &a), "init");
}

// Takes all, gives one back, and ends a moment later with the others.
static void *heir_to_none(void *given) {
    for (int i = 0; i < 2 * MUTEXES; i++) must(pthread_mutex_lock(mutex(i)), "lock");
    must(pthread_mutex_unlock(mutex(*(int *)given)), "unlock");
    taken = 1;
    usleep(3000);
    return NULL;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10, dead = 0, lost = 0, good = 0;
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    for (int i = 0; i < 2 * MUTEXES; i++) make(mutex(i), i >= MUTEXES);
    for (long round = 0; round < rounds; round++) {
        pthread_t t;
        int given = (int)(round % (2 * MUTEXES)), first = (int)(round % 5);
        taken = 0;
        must(pthread_create(&t, NULL, heir_to_none, &given), "create");
        while (!taken) usleep(100);
        if (round % 2) pthread_join(t, NULL); // else it ends while we wait for one of its mutexes
        for (int k = 0; k < 2 * MUTEXES; k++) {
            int i = (first + k) % (2 * MUTEXES), r = pthread_mutex_lock(mutex(i));
            if (r == EOWNERDEAD && i != round % 7) {
                dead++;
                must(pthread_mutex_consistent(mutex(i)), "consistent");
                must(pthread_mutex_unlock(mutex(i)), "unlock");
            } else if (r == EOWNERDEAD) { // nobody makes it good
                must(pthread_mutex_unlock(mutex(i)), "unlock");
                lost += pthread_mutex_lock(mutex(i)) == ENOTRECOVERABLE;
                pthread_mutex_destroy(mutex(i));
                make(mutex(i), i >= MUTEXES);
            } else {
                must(r, "lock");
                good++;
                must(pthread_mutex_unlock(mutex(i)), "unlock");
            }
        }
        if (round % 2 == 0) pthread_join(t, NULL);
    }
    printf("%ld dead, %ld lost, %ld good\n", dead, lost, good);
    return 0;
}
