// SPDX-License-Identifier: Apache-2.0
//
// pair.h: job.h for two ranks that talk, and how near to each other their processors are.
//
// Processors of a virtual machine move about on those of its host: now they are two threads of one core, now two
// cores with a cache in common, now two that have none. A message takes three to five times as long then, with or
// without ckptrun. What a cache line takes to go to the other rank and back tells which it is, without any MPI:
// it is measured before each batch of calls, and printed after the times, in nanoseconds.
#ifndef BENCH_PAIR_H
#define BENCH_PAIR_H

#include <stdatomic.h>

#include "job.h"

enum { PAIR_TRIPS = 20 }; // of the line, before a batch

struct pair {
    struct job j;
    MPI_Win window;
    _Atomic uint64_t *ball[2]; // each rank writes its own
    uint64_t turn;
    double *trip; // ticks, of each batch
};

static inline struct pair pair_begin(int argc, char **argv) {
    struct pair p = {.j = job_begin(argc, argv, 2)};
    for (int rank = 0; rank < 2; rank++) {
        MPI_Aint size = 4096; // each on a page of its own
        int unit;
        if (rank == 0) MPI_Win_allocate_shared(size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p.ball[0], &p.window);
        MPI_Win_shared_query(p.window, rank, &size, &unit, &p.ball[rank]);
    }
    *p.ball[p.j.rank] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    p.trip = malloc((size_t)p.j.m.batches * sizeof *p.trip);
    DEMAND(p.trip != NULL);
    return p;
}

static inline double pair_trip(struct pair *p) {
    _Atomic uint64_t *mine = p->ball[p->j.rank], *other = p->ball[1 - p->j.rank];
    uint64_t from = ticks();
    for (int i = 0; i < PAIR_TRIPS; i++) {
        p->turn++;
        if (p->j.rank == 0) atomic_store_explicit(mine, p->turn, memory_order_release);
        while (atomic_load_explicit(other, memory_order_acquire) != p->turn) {}
        if (p->j.rank != 0) atomic_store_explicit(mine, p->turn, memory_order_release);
    }
    return (double)(ticks() - from) / PAIR_TRIPS;
}

static inline void pair_report(struct pair *p, const char *name) {
    struct measure *m = &p->j.m;
    qsort(p->trip, (size_t)m->batches, sizeof *p->trip, measure_order);
    m->apart = p->trip[m->batches / 2];
    measure_report(m, name);
}

static inline int pair_end(struct pair *p) {
    MPI_Win_free(&p->window);
    free(p->trip);
    return job_end();
}

// MEASURE of measure.h, with the distance.
#define MEASURE_PAIR(p, name, calls, ...)                                      \
    do {                                                                       \
        struct measure *m_ = &(p)->j.m;                                        \
        for (int batch_ = -m_->batches / 10; batch_ < m_->batches; batch_++) { \
            double trip_ = pair_trip(p);                                       \
            uint64_t from_ = ticks();                                          \
            for (int call_ = 0; call_ < (calls); call_++) {                    \
                __VA_ARGS__;                                                   \
            }                                                                  \
            uint64_t to_ = ticks();                                            \
            if (batch_ < 0) continue;                                          \
            m_->batch[batch_] = (double)(to_ - from_) / (calls);               \
            (p)->trip[batch_] = trip_;                                         \
        }                                                                      \
        pair_report(p, name);                                                  \
    } while (0)

#endif
