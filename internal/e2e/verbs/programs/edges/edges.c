// SPDX-License-Identifier: Apache-2.0
//
// edges.c: edges CASE DIR
//
// Two ranks (CKPT_RANK) do what makes a checkpoint hard, say "ready", wait for DIR/go, and look at what became of it:
// "right".  They meet by files in DIR.
#include "edges.h"

static void fork_safe(void) { good(ibv_fork_init(), "fork_init"); }

static void impatient(void) { rnr_retry = 1, rnr_timer = 0; } // 2 * 0.66 s

// A connection that leads out of the job.
static void foreign(void) {
    lead(0x2b1, 5, gid);
    printf("rank 0: ready\n");
    fflush(stdout);
    for (;;) nap();
}

static void small(void) {
    ready();
    writes();
}

static const struct {
    const char *name;
    void (*first)(void); // before anything is open
    void (*run)(void);
    int alone; // it has no other rank
} cases[] = {
    {"late", NULL, late, 0},        {"event", NULL, event, 0},     {"numbers", NULL, numbers, 0},
    {"forks", fork_safe, forks, 0}, {"adds", NULL, adds, 0},       {"limit", NULL, limit, 0},
    {"events", NULL, events, 0},    {"reply", NULL, reply, 0},     {"stream", impatient, stream, 0},
    {"shared", NULL, shared, 0},    {"blocked", NULL, blocked, 0}, {"idle", idle, writes, 0},
    {"windows", NULL, windows, 0},  {"small", NULL, small, 0},     {"vanishes", NULL, vanishes, 0},
    {"foreign", NULL, foreign, 1},  {"flushed", NULL, flushed, 0}, {"looked", NULL, looked, 0},
};

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: edges CASE DIR\n"), 2;
    dir = argv[2];
    rank = getenv("CKPT_RANK") ? atoi(getenv("CKPT_RANK")) : 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name)) continue;
        if (cases[i].first) cases[i].first();
        open_all();
        if (!cases[i].alone) meet();
        cases[i].run();
        printf("rank %d: right\n", rank);
        return 0;
    }
    wrong("no such case");
    return 1;
}
