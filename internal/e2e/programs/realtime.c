// SPDX-License-Identifier: Apache-2.0
//
// Threads of different real-time priorities share a processor and map memory all the time, the lowest without a pause: the
// others interrupt it wherever it stands. Whoever waits for what it holds must let it run. Prints what was in the memory, and
// how each thread is scheduled in the end. Without the right to priorities, all have the usual one.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { THREADS = 4, PAGE = 4096 };
static int rounds, running = THREADS;
static pthread_barrier_t begin;
static struct {
    pthread_t id;
    int number, policy, priority;
    uint64_t sum;
} threads[THREADS];

// What a thread writes to a page of its own and reads again.
static uint64_t page_of(uint64_t value) {
    volatile uint64_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) abort();
    page[value % (PAGE / sizeof *page)] = value;
    uint64_t sum = 0;
    for (unsigned i = 0; i < PAGE / sizeof *page; i++) sum += page[i];
    if (munmap((void *)page, PAGE) != 0) abort();
    return sum;
}

static void *run(void *number) {
    int n = *(int *)number;
    struct sched_param param = {.sched_priority = n + 1};
    int rc = pthread_setschedparam(pthread_self(), SCHED_FIFO, &param);
    if (rc != 0 && rc != EPERM) abort();
    pthread_barrier_wait(&begin);
    uint64_t x = (uint64_t)n;
    if (n == 0)
        while (__atomic_load_n(&running, __ATOMIC_RELAXED) > 1)
            threads[n].sum = page_of(x) - x; // 0, however often
    for (int i = 0; n > 0 && i < rounds; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        threads[n].sum += page_of(x);
        nanosleep(&(struct timespec){.tv_nsec = 20000 + (long)(x >> 44) % 100000}, NULL);
    }
    if (pthread_getschedparam(pthread_self(), &threads[n].policy, &param) != 0) abort();
    threads[n].priority = param.sched_priority;
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(int argc, char **argv) {
    cpu_set_t all, one;
    if (argc != 2 || (rounds = atoi(argv[1])) < 1) return 1;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return 2;
    CPU_ZERO(&one);
    for (int i = CPU_SETSIZE - 1; i >= 0 && CPU_COUNT(&one) == 0;
         i--) // the others of the machine keep the rest
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return 3;
    pthread_barrier_init(&begin, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        threads[i].number = i;
        if (pthread_create(&threads[i].id, NULL, run, &threads[i].number) != 0) return 4;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i].id, NULL);
    for (int i = 0; i < THREADS; i++)
        printf("thread %d: policy %d, priority %d, sum %016llx\n", i, threads[i].policy, threads[i].priority,
               (unsigned long long)threads[i].sum);
    return 0;
}
