// SPDX-License-Identifier: Apache-2.0
//
// diary.c: opens its logs for each line that it appends, and looks at the end whether each line is there once.
//
//   diary ROUNDS DIR       by itself
//   diary HOLD             compiled with -DMPI=1: all ranks, for as long as the file HOLD is there
//
// Each rank has a log of its own, and all have one together.  One is held open for some lines at a time, and one is written by
// a description of which there are two descriptors, as shells do it.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if MPI
#include <mpi.h>
#endif

static int rank, ranks = 1;
static long wrong;

static void path_of(char to[4200], const char *dir, const char *name, int of) {
    snprintf(to, 4200, "%s/diary-%s-%d", dir, name, of);
}

static void expect(int good, const char *what, long round) {
    if (good || wrong++ > 10) return;
    fprintf(stderr, "diary: rank %d, round %ld: %s\n", rank, round, what);
}

static void append(const char *dir, const char *name, int of, long round) {
    char path[4200];
    path_of(path, dir, name, of);
    FILE *f = fopen(path, "a");
    expect(f && fprintf(f, "%d %ld\n", rank, round) > 0 && fclose(f) == 0, "a line", round);
}

static void twice(const char *dir, long round) {
    char path[4200], line[64];
    path_of(path, dir, "twice", rank);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600), other = dup(fd);
    int n = snprintf(line, sizeof line, "%d %ld\n", rank, round);
    expect(fd >= 0 && close(fd) == 0 && write(other, line, (size_t)n) == n && close(other) == 0,
           "a line by a copy", round);
}

// A line of each of the first ranks, for each round; all lines of a rank in order.
static void look(const char *dir, const char *name, int of, int first, int past, long rounds) {
    char path[4200];
    long next[64] = {0}, n;
    int r;
    path_of(path, dir, name, of);
    FILE *f = fopen(path, "r");
    while (f && fscanf(f, "%d %ld\n", &r, &n) == 2)
        if (r < first || r >= past || n != next[r]++) return expect(0, path, n);
    for (r = first; r < past; r++) expect(next[r] == rounds, path, next[r]);
    if (f) fclose(f);
}

int main(int argc, char **argv) {
    long rounds = 0, lines = 0;
    int go = 1;
#if MPI
    const char *dir = ".";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#else
    const char *dir = argc > 2 ? argv[2] : ".";
    long most = argc > 1 ? atol(argv[1]) : 100;
#endif
    FILE *held = NULL;
    for (; go; rounds++) {
        append(dir, "own", rank, rounds);
        append(dir, "all", 0, rounds);
        twice(dir, rounds);
        if (rounds % 8 == 0) {
            char path[4200];
            path_of(path, dir, "held", rank);
            expect((held = fopen(path, "a")) != NULL, "opening one for some lines", rounds);
        }
        if (held)
            expect(fprintf(held, "%d %ld\n", rank, lines++) > 0 && fflush(held) == 0, "one of some lines",
                   rounds);
        if (held && rounds % 8 == 5) fclose(held), held = NULL;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
#if MPI
        if (rank == 0) go = access(argv[1], F_OK) == 0;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (rank == 0 && rounds == 20) printf("writing\n"), fflush(stdout);
#else
        go = rounds + 1 < most;
        if (rounds % 50 == 49) printf("%ld\n", rounds);
#endif
    }
#if MPI
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    look(dir, "own", rank, rank, rank + 1, rounds);
    if (held) fclose(held);
    look(dir, "held", rank, rank, rank + 1, lines);
    look(dir, "twice", rank, rank, rank + 1, rounds);
    look(dir, "all", 0, 0, ranks, rounds);
#if MPI
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf(wrong ? "%ld wrong\n" : "good\n", wrong);
    MPI_Finalize();
#else
    printf(wrong ? "diary: %ld wrong\n" : "diary: good\n", wrong);
#endif
    return wrong != 0;
}
