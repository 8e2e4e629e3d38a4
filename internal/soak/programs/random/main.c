// SPDX-License-Identifier: Apache-2.0
//
// main.c: random SEED PHASES [MS]
//
// Plays so many phases of the script of a seed, and prints a digest of what each rank received.  MS
// milliseconds is about what a rank dallies in a phase at most.  See random.h.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "random.h"

struct gen script, own;
int rank, size, phase;
uint64_t digest;
static int dally_ms = 3;
static const char *doing = "start";

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "random: rank %d, phase %d (%s): ", rank, phase, doing);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    MPI_Abort(MPI_COMM_WORLD, 3);
    exit(3);
}

void *need(size_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (p == NULL) fail("no memory for %zu bytes", bytes);
    return p;
}

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000ll + t.tv_nsec / 1000;
}

void dally(void) {
    int how = pick(&own, 16), us = 1 + pick(&own, dally_ms * 1000 + 1);
    if (how == 0) {
        struct timespec t = {0, us * 1000};
        nanosleep(&t, NULL);
    } else if (how < 3) {
        for (int64_t end = now_us() + us / 2; now_us() < end;)
            ;
    } else if (how == 3) { // memory comes and goes
        size_t n = (size_t)us * 64;
        volatile char *p = need(n);
        for (size_t i = 0; i < n; i += 4096) p[i] = (char)i;
        free((void *)p);
    }
}

static const struct {
    const char *name;
    void (*play)(void);
    int weight;
} phases[] = {
    {"messages in order", phase_linear, 4},
    {"exchange", phase_exchange, 5},
    {"unexpected", phase_unexpected, 3},
    {"any source", phase_wild, 4},
    {"any tag", phase_any_tag, 2},
    {"persistent", phase_persistent, 3},
    {"ready", phase_ready, 1},
    {"sendrecv", phase_sendrecv, 2},
    {"cancel", phase_cancel, 1},
    {"burst", phase_burst, 2},
    {"later", phase_later, 4},
    {"communicators", phase_comm, 5},
    {"collectives", phase_collectives, 5},
    {"non-blocking collectives", phase_icollectives, 5},
    {"neighbours", phase_neighbours, 2},
    {"intercommunicator", phase_inter, 3},
};

static void play(int count) {
    int total = 0, kinds = (int)(sizeof phases / sizeof *phases);
    for (int i = 0; i < kinds; i++) total += phases[i].weight;
    for (phase = 0; phase < count; phase++) {
        doing = "what was started before";
        later_due(0);
        messages_flush();
        int at = 0;
        for (int w = pick(&script, total); w >= phases[at].weight; at++) w -= phases[at].weight;
        doing = phases[at].name;
        phases[at].play();
        fold((uint64_t)phase);
        dally();
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: random SEED PHASES [MS]\n");
        return 2;
    }
    uint64_t seed = strtoull(argv[1], NULL, 0);
    if (argc > 3) dally_ms = atoi(argv[3]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > RANKS) fail("made for %d ranks at most", RANKS);
    script.s = mix(seed, (uint64_t)size);
    own.s = mix(seed, 1000 + (uint64_t)rank);
    digest = mix(seed, (uint64_t)rank);
    comms_begin();
    messages_begin();
    colls_begin();
    play(atoi(argv[2]));
    doing = "end";
    later_due(1);
    persistent_forget(NULL);
    comms_end();
    colls_end();
    messages_end();
    uint64_t all[RANKS];
    MPI_Gather(&digest, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank == 0)
        for (int r = 0; r < size; r++) printf("rank %d digest %016llx\n", r, (unsigned long long)all[r]);
    MPI_Finalize();
    return 0;
}
