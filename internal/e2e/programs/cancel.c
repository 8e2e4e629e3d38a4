// SPDX-License-Identifier: Apache-2.0
//
// pthread_cancel in both modes, at blocking calls and in computing loops, with clean-up handlers.
// usage: cancel ROUNDS
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic int cleaned, entered;
static sem_t ready, never;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void clean(void *arg) { cleaned += *(int *)arg; }

static void unlock(void *m) { pthread_mutex_unlock(m); }

static void begin(void) {
    entered++;
    sem_post(&ready);
}

static void *in_sleep(void *one) {
    pthread_cleanup_push(clean, one);
    begin();
    for (;;) sleep(1000);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *in_cond(void *one) {
    pthread_cleanup_push(clean, one);
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(unlock, &mutex);
    begin();
    for (;;) pthread_cond_wait(&cond, &mutex);
    pthread_cleanup_pop(1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *in_sem(void *one) {
    pthread_cleanup_push(clean, one);
    begin();
    sem_wait(&never);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *in_read(void *one) {
    int p[2];
    if (pipe(p) != 0) abort();
    pthread_cleanup_push(clean, one);
    begin();
    char c;
    if (read(p[0], &c, 1) == 1) abort();
    pthread_cleanup_pop(0);
    return NULL;
}

static void *computing(void *one) {
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    pthread_cleanup_push(clean, one);
    begin();
    for (volatile unsigned long i = 0;; i++) (void)i;
    pthread_cleanup_pop(0);
    return NULL;
}

static void *deferred_then_tested(void *one) {
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_cleanup_push(clean, one);
    begin();
    usleep(1000); // a cancellation point, but disabled
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    for (;;) pthread_testcancel();
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    void *(*const kinds[])(void *) = {in_sleep, in_cond, in_sem, in_read, computing, deferred_then_tested};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    sem_init(&ready, 0, 0);
    sem_init(&never, 0, 0);
    int one = 1, cancelled = 0;
    for (int i = 0; i < rounds; i++) {
        pthread_t t[KINDS];
        for (int k = 0; k < KINDS; k++)
            if (pthread_create(&t[k], NULL, kinds[k], &one) != 0) abort();
        for (int k = 0; k < KINDS; k++)
            while (sem_wait(&ready) != 0)
                ;
        usleep(3000);
        for (int k = 0; k < KINDS; k++) pthread_cancel(t[k]);
        for (int k = 0; k < KINDS; k++) {
            void *result;
            pthread_join(t[k], &result);
            cancelled += result == PTHREAD_CANCELED;
        }
        // in_read leaves its pipes open on purpose; they are few.
        for (int fd = 3; fd < 40; fd++) close(fd);
    }
    printf("entered %d cancelled %d cleaned %d\n", entered, cancelled, cleaned);
    return 0;
}
