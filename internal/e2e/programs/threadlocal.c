// SPDX-License-Identifier: Apache-2.0
//
// What each thread has to itself: errno, thread-local variables (4 KiB of them), keys with
// destructors, its locale, its name; and threads that come and go all the time.
// usage: threadlocal ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <fenv.h>

enum { WORDS = 512, KEYS = 8 };
static __thread uint64_t words[WORDS];
static __thread int initialised = 42;
static pthread_key_t keys[KEYS];
static _Atomic long destroyed, damaged;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void destroy(void *v) {
    destroyed += *(long *)v;
    free(v);
}

static void make_keys(void) {
    for (int i = 0; i < KEYS; i++)
        if (pthread_key_create(&keys[i], destroy) != 0) abort();
}

struct job {
    int me, rounds;
    double result;
};

static void *work(void *arg) {
    struct job *job = arg;
    pthread_once(&once, make_keys);
    // Each thread fails in another way, rounds differently, and must keep both.
    const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    fesetround(modes[job->me % 4]);
    for (int i = 0; i < KEYS; i++) {
        long *v = malloc(sizeof *v);
        *v = job->me + 1;
        pthread_setspecific(keys[i], v);
    }
    if (initialised != 42) damaged++;
    initialised = job->me;
    for (int i = 0; i < WORDS; i++) words[i] = (uint64_t)(job->me * 1000 + i);
    double sum = 0;
    for (int r = 0; r < job->rounds; r++) {
        int want;
        switch (job->me % 3) {
        case 0:
            want = EBADF, (void)!write(-1, "", 1);
            break;
        case 1:
            want = ENOENT, (void)open("/no/such/file", O_RDONLY);
            break;
        default:
            want = EINVAL, (void)!lseek(STDIN_FILENO, 0, 77);
        }
        for (int k = 0; k < 300; k++) {
            volatile double third = 1.0, three = 3.0 + k;
            sum += third / three;
        }
        damaged += errno != want;
        for (int i = 0; i < WORDS; i++) damaged += words[i] != (uint64_t)(job->me * 1000 + i);
        damaged += initialised != job->me || fegetround() != modes[job->me % 4];
        for (int i = 0; i < KEYS; i++) damaged += *(long *)pthread_getspecific(keys[i]) != job->me + 1;
    }
    job->result = sum;
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    for (int r = 0; r < rounds; r++) {
        pthread_t t[6];
        struct job jobs[6];
        for (int i = 0; i < 6; i++) {
            jobs[i] = (struct job){i, 2000, 0};
            if (pthread_create(&t[i], NULL, work, &jobs[i]) != 0) abort();
        }
        for (int i = 0; i < 6; i++) pthread_join(t[i], NULL);
        if (r % 10 == 0) {
            for (int i = 0; i < 6; i++) printf("%a ", jobs[i].result);
            printf("\n");
            fflush(stdout);
        }
    }
    printf("destroyed %ld damaged %ld\n", destroyed, damaged);
    return 0;
}
