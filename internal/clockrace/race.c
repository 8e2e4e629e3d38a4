// SPDX-License-Identifier: Apache-2.0
//
// race.c: the thread, in C, with the inline functions of ckpt/clock.h.
#include "race.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "ckpt/clock.h"

enum { LINES = 1 << 19, LINE = 64, SLOW_STORES = 40 };

static struct {
    ckpt_job job;
    ckpt_vid comm;
    char *cold; // LINES lines: more than caches hold
    pthread_t thread;
    int asked;                    // the current call asked before it went on
    _Alignas(128) uint64_t gate;  // call that waits; 0: none
    _Alignas(128) uint64_t fast;  // last call that did not ask
    _Alignas(128) uint32_t ended; // the thread shall end
} race;

// What the inline functions call while a checkpoint is pending; libckpt is not here.
int ckpt_coll_call(ckpt_job *job, ckpt_vid comm, uint64_t k, int mode) {
    (void)job, (void)comm, (void)mode;
    race.asked = 1;
    __atomic_store_n(&race.gate, k, __ATOMIC_RELEASE);
    while (__atomic_load_n(&race.gate, __ATOMIC_ACQUIRE) != 0 &&
           !__atomic_load_n(&race.ended, __ATOMIC_RELAXED))
        sched_yield();
    return CKPT_COLL_ENTER;
}

void ckpt_coll_returned(ckpt_job *job, ckpt_vid comm, uint64_t k) { (void)job, (void)comm, (void)k; }

void ckpt_coll_withdrawn(ckpt_job *job, ckpt_vid comm, uint64_t k, int deferred) {
    (void)job, (void)comm, (void)k, (void)deferred;
}

static void *application(void *unused) {
    uint32_t at = 1;
    (void)unused;
    while (!__atomic_load_n(&race.ended, __ATOMIC_RELAXED)) {
        for (int i = 0; i < SLOW_STORES; i++) {
            at = at * 1664525u + 1013904223u;
            race.cold[(size_t)(at >> 13) % LINES * LINE] = (char)i;
        }
        ckpt_coll call;
        race.asked = 0;
        ckpt_coll_begin(&race.job, race.comm, "MPI_Barrier", CKPT_COLL_BLOCKING, &call);
        if (!race.asked) race.fast = call.k; // read by others while this thread waits only
        ckpt_coll_end(&race.job, &call);
    }
    return NULL;
}

int race_start(void *tables, uint32_t comm) {
    race.job.tables = tables;
    race.comm = comm;
    race.gate = race.fast = race.ended = 0;
    race.cold = calloc(LINES, LINE);
    return race.cold != NULL && pthread_create(&race.thread, NULL, application, NULL) == 0;
}

uint64_t race_gate(void) { return __atomic_load_n(&race.gate, __ATOMIC_ACQUIRE); }

uint64_t race_fast(void) { return race.fast; }

void race_go_on(void) { __atomic_store_n(&race.gate, 0, __ATOMIC_RELEASE); }

void race_end(void) {
    __atomic_store_n(&race.ended, 1, __ATOMIC_RELAXED);
    pthread_join(race.thread, NULL);
    free(race.cold);
}
