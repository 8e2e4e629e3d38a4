// SPDX-License-Identifier: Apache-2.0
//
// measure.h: times short pieces of code, the same way natively and under ckptrun.
//
// The clock is the processor's time-stamp counter: reading it is no system call and goes through
// neither vDSO, so it costs the same on both sides.  Code is run in batches of a fixed number of
// calls, so that all ranks of a job make the same calls; the median over the batches is what
// counts, since a batch in which the machine did something else is no more than one large value.
//
// What a program finds goes to standard output, one line a question:
//
//     ns <tab> NAME <tab> median <tab> least <tab> largest       nanoseconds a call, of the batches
//     ns <tab> NAME <tab> ... <tab> distance                     the same, see pair.h
//
// A program ends with status 0 only if everything that it called did what it should.
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

// Ends the program with a message; for what should never happen.
#define DEMAND(condition)                                                                 \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

struct measure {
    int batches;   // of each question; from the command line
    int silent;    // measures but does not print: a rank other than 0
    uint64_t tick; // counter and clock at the start, to learn the counter's rate
    int64_t ns;
    double *batch; // ticks a call
    double apart;  // ticks, see pair.h; 0: not measured
};

static inline int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// The counter, read after everything before and before everything after.
static inline uint64_t ticks(void) {
    unsigned aux;
    uint64_t t = __rdtscp(&aux);
    _mm_lfence();
    return t;
}

static inline struct measure measure_begin(int argc, char **argv) {
    struct measure m = {.batches = argc > 1 ? atoi(argv[1]) : 0};
    if (m.batches <= 0) {
        fprintf(stderr, "usage: %s BATCHES\n", argv[0]);
        exit(2);
    }
    m.batch = malloc((size_t)m.batches * sizeof *m.batch);
    DEMAND(m.batch != NULL);
    m.ns = clock_ns();
    m.tick = ticks();
    return m;
}

// Nanoseconds a tick, over the time since the start: 20 ms at least, where an error of 100 ns in
// reading the two clocks is 5 in a million.
static inline double measure_rate(const struct measure *m) {
    int64_t ns;
    do ns = clock_ns() - m->ns;
    while (ns < 20000000);
    return (double)ns / (double)(ticks() - m->tick);
}

static int measure_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void measure_report(struct measure *m, const char *name) {
    if (m->silent) return;
    double rate = measure_rate(m);
    qsort(m->batch, (size_t)m->batches, sizeof *m->batch, measure_order);
    printf("ns\t%s\t%.3f\t%.3f\t%.3f", name, rate * m->batch[m->batches / 2], rate * m->batch[0],
           rate * m->batch[m->batches - 1]);
    if (m->apart > 0) printf("\t%.3f", rate * m->apart);
    printf("\n");
    fflush(stdout);
}

// Runs the code calls times a batch, and reports it as name.  The first tenth of the batches more
// is run before, to warm caches up.
#define MEASURE(m, name, calls, ...)                                               \
    do {                                                                           \
        for (int batch_ = -(m)->batches / 10; batch_ < (m)->batches; batch_++) {   \
            uint64_t from_ = ticks();                                              \
            for (int call_ = 0; call_ < (calls); call_++) {                        \
                __VA_ARGS__;                                                       \
            }                                                                      \
            uint64_t to_ = ticks();                                                \
            if (batch_ >= 0) (m)->batch[batch_] = (double)(to_ - from_) / (calls); \
        }                                                                          \
        measure_report(m, name);                                                   \
    } while (0)

#endif
