// SPDX-License-Identifier: Apache-2.0
//
// Threads that elect, without a lock, while rails are registered and endpoints are listed: under ThreadSanitizer.  An
// endpoint is seen as its rail wrote it, once; nobody is asked for the same process twice at a time.
#include "../rails.c"
#include "../say.c"

#include <pthread.h>

#include "../../host/test/test.h"

enum { THREADS = 4, PROCESSES = 64, RAILS = 3, ROUNDS = 20 };

int embed_ignore_fd(struct embed_job *job, int fd, bool on) {
    (void)job, (void)fd, (void)on;
    return 0;
}
void embed_signals_take(struct embed_job *job) { (void)job; }

struct way {
    ckpt_endpoint endpoint;
    int made_for; // plain: written before it is listed
};
struct raced {
    ckpt_rail *rail;
    int reopened, inside[PROCESSES], connects[PROCESSES];
    struct way way[PROCESSES];
};
static struct embed_job job;
static struct raced raced[RAILS];
static pthread_barrier_t gather;

static int processes(void *ctx) {
    (void)ctx;
    return PROCESSES;
}
static int nothing(void *ctx) {
    (void)ctx;
    return 0;
}
static int reopen(void *ctx, int why) {
    struct raced *r = ctx;
    (void)why;
    r->reopened++; // plain: one thread opens, and the others wait for it
    return 0;
}
// Every second time the endpoint is not ready yet.
static int connect_to(void *ctx, int process, ckpt_endpoint **out) {
    struct raced *r = ctx;
    struct way *w = &r->way[process];
    SAME(__atomic_fetch_add(&r->inside[process], 1, __ATOMIC_RELAXED), 0);
    bool ready = r->connects[process]++ % 2 == 1; // plain: one at a time
    sched_yield();
    if (ready) {
        w->endpoint = (ckpt_endpoint){.rail = r->rail, .process = process};
        w->made_for = process;
        *out = &w->endpoint;
    }
    SAME(__atomic_fetch_sub(&r->inside[process], 1, __ATOMIC_RELAXED), 1);
    return ready ? 0 : CKPT_E_AGAIN;
}
// A rail takes messages of its own size alone, so that the walk goes on to it.
static int gate(void *ctx, size_t bytes, int kind) {
    const struct raced *r = ctx;
    (void)kind;
    // Between the look at the state and what follows from it: others come first.
    if (r == &raced[bytes] && r->rail != NULL && state_of(r->rail) == DUE) sched_yield();
    return r == &raced[bytes];
}

static void *sends(void *arg) {
    int me = (int)(intptr_t)arg;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&gather); // main: a new job
        if (me < RAILS) {
            ckpt_rail_ops ops = {sizeof ops, "raced",    me,   CKPT_RAIL_ON_DEMAND | CKPT_RAIL_LAZY,
                                 gate,       connect_to, NULL, nothing,
                                 reopen};
            SAME(ckpt_rail_register(&job.seen, &ops, &raced[me], &raced[me].rail, NULL), 0);
        }
        pthread_barrier_wait(&gather); // main: all are due
        pthread_barrier_wait(&gather);
        for (int i = 0; i < PROCESSES * RAILS; i++) {
            int to = (i + me * 7) % PROCESSES, rail = i % RAILS;
            ckpt_endpoint *e;
            while ((e = ckpt_elect(&job.seen, to, (size_t)rail, CKPT_MSG_EAGER)) == NULL) {
                int rc = ckpt_route(&job.seen, to, (size_t)rail, CKPT_MSG_EAGER, &e, NULL);
                if (rc == 0) break;
                SAME(rc, CKPT_E_AGAIN);
                sched_yield();
            }
            CHECK(e->rail == raced[rail].rail && e->process == to && ((struct way *)e)->made_for == to);
        }
        pthread_barrier_wait(&gather);
    }
    return NULL;
}

int main(void) {
    pthread_t thread[THREADS];
    pthread_barrier_init(&gather, NULL, THREADS + 1);
    for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&thread[i], NULL, sends, (void *)i) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        memset(raced, 0, sizeof raced);
        memset(&job, 0, sizeof job);
        job.ops.size = sizeof job.ops;
        job.ops.ranks = processes;
        pthread_barrier_wait(&gather);
        pthread_barrier_wait(&gather);
        SAME(embed_rails_quiet(&job, NULL), 1);
        SAME(embed_rails_close(&job, NULL), 0);
        SAME(embed_rails_reopen(&job, CKPT_WHY_CONTINUED, NULL), 0);
        pthread_barrier_wait(&gather);
        pthread_barrier_wait(&gather);
        for (int r = 0; r < RAILS; r++) SAME(raced[r].reopened, 1);
        for (int p = 0; p < PROCESSES; p++) {
            const ckpt_endpoint *e = job.rails.routes.first[p];
            for (int r = RAILS - 1; r >= 0; r--, e = e->next) CHECK(e != NULL && e->rail == raced[r].rail);
            CHECK(e == NULL);
            for (int r = 0; r < RAILS; r++) SAME(raced[r].connects[p], 2);
        }
        embed_rails_end(&job);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    printf("rails_race: %d threads, %d processes, %d rails, %d rounds\n", THREADS, PROCESSES, RAILS, ROUNDS);
    return 0;
}
