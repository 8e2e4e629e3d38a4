// SPDX-License-Identifier: Apache-2.0
//
// plate.c: heat in a plate of rows, spread over the ranks, which names its state (mpix_checkpoint.h) and is started by
// plain mpiexec, or compiled with -DALONE without MPI.
//
//   plate STEPS EVERY [word...]
//
//     spread   says how the rows are distributed, so that any number of ranks goes on
//     lazy     looks for what is saved first, and makes room for it as MPIX_Checkpoint_saved says
//     uneven   each rank has other numbers for its regions, and rank 1 has one more
//     grow     a region that has another size each time
//     other    a piece of rank 1 has another size than what is saved, at first
//     slow     waits a moment at each step
//     level1   to level4: of each checkpoint
//
// Each rank prints nothing but errors; rank 0 what was done, and the sum of all, bit for bit.
#include <mpix_checkpoint.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 96, COLUMNS = 512 };
static int rank, ranks = 1;

#ifdef ALONE
static void begin(void) {}
static void end(void) {}
static void halo(double *u, long rows) { (void)u, (void)rows; }
static void all_rows(const double *mine, long rows, double *all) {
    memcpy(all, mine, (size_t)rows * COLUMNS * sizeof *all);
}
#else
#include <mpi.h>
static void begin(void) {
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}
static void end(void) { MPI_Finalize(); }
// Row 0 and row rows + 1 are those of the neighbours.
static void halo(double *u, long rows) {
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(u + COLUMNS, COLUMNS, MPI_DOUBLE, up, 0, u + (rows + 1) * COLUMNS, COLUMNS, MPI_DOUBLE, down,
                 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(u + rows * COLUMNS, COLUMNS, MPI_DOUBLE, down, 0, u, COLUMNS, MPI_DOUBLE, up, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void all_rows(const double *mine, long rows, double *all) {
    int counts[64], places[64];
    for (int r = 0; r < ranks; r++) {
        places[r] = (int)(ROWS * r / ranks * COLUMNS);
        counts[r] = (int)(ROWS * (r + 1) / ranks * COLUMNS) - places[r];
    }
    MPI_Gatherv(mine, (int)(rows * COLUMNS), MPI_DOUBLE, all, counts, places, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}
#endif

static const char *why(void) {
    static char text[1000];
    MPIX_Checkpoint_reason(text, sizeof text);
    return text;
}

#define OK(call)                                                                \
    do {                                                                        \
        int ok_r = (call);                                                      \
        if (ok_r != 0) {                                                        \
            fprintf(stderr, "rank %d: %s: %d, %s\n", rank, #call, ok_r, why()); \
            _exit(1);                                                           \
        }                                                                       \
    } while (0)

static int argc_;
static int said(char **argv, const char *word) {
    for (int i = 3; i < argc_; i++)
        if (strcmp(argv[i], word) == 0) return 1;
    return 0;
}

int main(int argc, char **argv) {
    argc_ = argc;
    if (argc < 3) return 2;
    int64_t step = 0;
    const int64_t steps = atoll(argv[1]), every = atoll(argv[2]);
    begin();
    const long first = ROWS * rank / ranks, rows = ROWS * (rank + 1) / ranks - first;
    double *u = calloc((size_t)(rows + 2) * COLUMNS, sizeof *u),
           *next = calloc((size_t)(rows + 2) * COLUMNS, sizeof *u);
    const size_t bytes = (size_t)rows * COLUMNS * sizeof *u;
    char *log = malloc(1 << 20);
    char extra[100] = "of rank 1";
    MPIX_CR_state_t state;
    const int id = said(argv, "uneven") ? 100 * rank + 7 : 7;

    for (long i = 0; first == 0 && i < COLUMNS; i++) u[i] = 1; // the edge, which no step changes
    if (said(argv, "lazy") && MPIX_Checkpoint_recover(NULL) == 0) {
        size_t n;
        OK(MPIX_Checkpoint_saved(7, &n));
        if (n != bytes) return fprintf(stderr, "rank %d: %zu bytes saved of %zu\n", rank, n, bytes), 1;
        double *copy = malloc(n);
        OK(MPIX_Checkpoint_protect(7, copy, n));
        OK(MPIX_Checkpoint_recover_one(7));
        memcpy(u + COLUMNS, copy, n);
        OK(MPIX_Checkpoint_protect(1, &step, sizeof step));
        OK(MPIX_Checkpoint_recover_one(1));
        if (rank == 0) printf("recovered one by one at %ld\n", (long)step);
    }
    OK(MPIX_Checkpoint_protect(id, u + COLUMNS, bytes));
    OK(MPIX_Checkpoint_protect(1, &step, sizeof step));
    if (said(argv, "uneven") && rank == 1) OK(MPIX_Checkpoint_protect(1000, extra, sizeof extra));
    if (said(argv, "grow")) OK(MPIX_Checkpoint_protect(3, log, 0));
    if (said(argv, "spread")) {
        const size_t whole[2] = {ROWS, COLUMNS}, from[2] = {(size_t)first, 0},
                     count[2] = {(size_t)rows, COLUMNS};
        OK(MPIX_Checkpoint_distribute(7, 2, whole, from, count, sizeof *u));
        OK(MPIX_Checkpoint_distribute(1, 0, NULL, NULL, NULL, 0));
    }
    if (said(argv, "grow") && MPIX_Checkpoint_recover(NULL) == 0) {
        size_t n;
        OK(MPIX_Checkpoint_saved(3, &n));
        OK(MPIX_Checkpoint_protect(3, log, n));
    }
    if (said(argv, "other")) {
        OK(MPIX_Checkpoint_protect(id, u + COLUMNS, rank == 1 ? bytes - 8 : bytes));
        int r = MPIX_Checkpoint_recover(&state);
        printf("rank %d: other size: %d, %d, %s\n", rank, r, (int)state, why());
        for (long i = COLUMNS; i < (rows + 1) * COLUMNS; i++)
            if (u[i] != 0) return fprintf(stderr, "rank %d: word %ld is touched\n", rank, i), 1;
        OK(MPIX_Checkpoint_protect(id, u + COLUMNS, bytes));
    }
    if (!said(argv, "lazy")) {
        int r = MPIX_Checkpoint_recover(&state);
        if (r != 0) return fprintf(stderr, "rank %d: recover: %d, %d, %s\n", rank, r, (int)state, why()), 3;
        if (rank == 0 && *why() && state == MPIX_CR_STATE_RESTART) printf("lost: %s\n", why());
        if (rank == 0)
            printf(state == MPIX_CR_STATE_RESTART ? "restart at %ld\n" : "fresh at %ld\n", (long)step);
    }
    fflush(stdout);
    for (int level = 1; level <= 4; level++) {
        char word[] = {'l', 'e', 'v', 'e', 'l', (char)('0' + level), 0};
        if (said(argv, word)) OK(MPIX_Checkpoint_level(level));
    }
    while (step < steps) {
        if (first == 0)
            for (long i = 0; i < COLUMNS; i++) u[i] = 1;
        halo(u, rows);
        for (long y = 1; y <= rows; y++)
            for (long x = 1; x < COLUMNS - 1; x++) {
                const double *c = u + y * COLUMNS + x;
                next[y * COLUMNS + x] = 0.25 * (c[-1] + c[1] + c[-COLUMNS] + c[COLUMNS]);
            }
        memcpy(u + COLUMNS, next + COLUMNS, bytes);
        step++;
        if (said(argv, "slow")) usleep(2000);
        if (said(argv, "grow")) {
            memset(log, (int)(step % 251), (size_t)step * 100 % (1 << 20));
            OK(MPIX_Checkpoint_protect(3, log, (size_t)step * 100 % (1 << 20)));
        }
        if (every > 0 && step % every == 0) {
            OK(MPIX_Checkpoint(&state));
            if (state != MPIX_CR_STATE_CHECKPOINT)
                fprintf(stderr, "rank %d: step %ld: %d, %s\n", rank, (long)step, (int)state, why());
            if (rank == 0) printf("saved %ld\n", (long)step), fflush(stdout);
        }
    }
    double *all = calloc((size_t)ROWS * COLUMNS, sizeof *all);
    all_rows(u + COLUMNS, rows, all);
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS * sizeof *all; i++)
        sum = (sum ^ ((unsigned char *)all)[i]) * 1099511628211u;
    if (rank == 0) printf("end %016lx\n", (unsigned long)sum);
    end();
    return 0;
}
