// SPDX-License-Identifier: Apache-2.0
//
// heat: how a plate of grained material warms up, with checkpoints.
//
//     mpiexec -n 4 heat PARAMETERS [NAME=VALUE...]
//
// An explicit finite-volume scheme on a 2-D grid of cells.  The result depends, to the last bit, on
// the parameters only, not on the number of ranks.  Rank 0 writes a log while the run goes on and the
// whole field at its end.  Every checkpoint_every steps the job saves itself, when it was started
// with ckptrun; otherwise MPIX_Checkpoint says that it did not, and the run goes on.
#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <mpix_checkpoint.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"
#include "plate.h"

// ---- start --------------------------------------------------------------------------------------

// A number in [0, 1) for a cell of the plate, the same however the plate is divided (splitmix64).
static double noise(long seed, long row, long column, long columns) {
    uint64_t z = (uint64_t)seed + 0x9e3779b97f4a7c15u * (uint64_t)(row * columns + column + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

// Grained material, and a temperature that is zero but for noise.
static void set_start(struct plate *b, const struct params *p) {
    for (int r = 0; r < b->rows; r++)
        for (int c = 0; c < b->columns; c++) {
            int row = b->first_row + r, column = b->first_column + c;
            *cell(b, b->conductivity, r, c) = 0.5 + noise(p->seed, row, column, p->columns);
            *cell(b, b->now, r, c) = noise(p->seed + 1, row, column, p->columns);
        }
    // Halo that no neighbour fills stays 0: no heat flows over the rim.
    plate_exchange(b, b->conductivity);
}

// Sets the cells of the sources in field to their temperatures.
static void heat_sources(const struct plate *b, const struct params *p, double *field) {
    for (int i = 0; i < p->nsources; i++) {
        const struct source *s = &p->sources[i];
        double row = s->y * p->rows, column = s->x * p->columns;
        double radius = s->radius * (p->rows < p->columns ? p->rows : p->columns);
        int r0 = (int)fmax(floor(row - radius) - b->first_row, 0);
        int r1 = (int)fmin(ceil(row + radius) - b->first_row, b->rows - 1);
        for (int r = r0; r <= r1; r++) {
            double dr = b->first_row + r + 0.5 - row;
            for (int c = 0; c < b->columns; c++) {
                double dc = b->first_column + c + 0.5 - column;
                if (dr * dr + dc * dc <= radius * radius) *cell(b, field, r, c) = s->temperature;
            }
        }
    }
}

// ---- one step -----------------------------------------------------------------------------------

// What flows into a cell from a neighbour: harmonic mean of the conductivities, 0 at the rim.
static inline double flow(double k, double t, double k_next, double t_next) {
    return 2 * k * k_next / (k + k_next) * (t_next - t);
}

// Computes next from now and swaps them.  Returns the largest change of a cell on this rank.
static double step(struct plate *b, const struct params *p) {
    double largest = 0;
    const int w = b->width;

    plate_exchange(b, b->now);
    for (int r = 0; r < b->rows; r++) {
        const double *t = cell(b, b->now, r, 0), *k = cell(b, b->conductivity, r, 0);
        double *next = cell(b, b->next, r, 0);
        for (int c = 0; c < b->columns; c++)
            next[c] =
                t[c] + p->diffusivity *
                           (flow(k[c], t[c], k[c - w], t[c - w]) + flow(k[c], t[c], k[c + w], t[c + w]) +
                            flow(k[c], t[c], k[c - 1], t[c - 1]) + flow(k[c], t[c], k[c + 1], t[c + 1]));
    }
    heat_sources(b, p, b->next);
    for (int r = 0; r < b->rows; r++) {
        const double *t = cell(b, b->now, r, 0), *next = cell(b, b->next, r, 0);
        for (int c = 0; c < b->columns; c++) largest = fmax(largest, fabs(next[c] - t[c]));
    }
    double *old = b->now;
    b->now = b->next;
    b->next = old;
    return largest;
}

// ---- what is said of it ---------------------------------------------------------------------------

// One line of the log: the residual, and the heat in rank 0's row of blocks.
static void report(const struct plate *b, FILE *log, int n, double residual) {
    double mine = 0, row;
    for (int r = 0; r < b->rows; r++)
        for (int c = 0; c < b->columns; c++) mine += *cell(b, b->now, r, c);
    MPI_Allreduce(&mine, &row, 1, MPI_DOUBLE, MPI_SUM, b->row);
    if (log != NULL)
        fprintf(log, "step %6d  residual %.17g  heat of the first row of blocks %.17g\n", n, residual, row);
}

// Collective over all ranks.
static void save_job(const struct plate *b, int n) {
    MPIX_CR_state_t state;
    char reason[512] = "";
    if (MPIX_Checkpoint(&state) != MPI_SUCCESS) state = MPIX_CR_STATE_ERROR;
    MPIX_Checkpoint_reason(reason, sizeof reason);
    if (b->rank != 0) return;
    switch (state) {
    case MPIX_CR_STATE_CHECKPOINT:
        printf("step %d: saved\n", n);
        break;
    case MPIX_CR_STATE_RESTART:
        printf("step %d: continued from what was saved here\n", n);
        break;
    case MPIX_CR_STATE_IGNORE:
        printf("step %d: not saved: %s\n", n, reason);
        break;
    case MPIX_CR_STATE_ERROR:
        printf("step %d: saving failed: %s\n", n, reason);
        break;
    }
    fflush(stdout);
}

// 64-bit FNV-1a.
static uint64_t digest(const void *bytes, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const unsigned char *p = bytes; n > 0; n--) h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

// Collective.  Returns 0, or -1 after saying what went wrong; the same on every rank.
static int write_field(const struct plate *b, const struct params *p, int steps) {
    size_t cells = (size_t)p->rows * p->columns;
    double *whole = b->rank == 0 ? malloc(cells * sizeof(double)) : NULL;
    int good = b->rank != 0 || whole != NULL;

    MPI_Bcast(&good, 1, MPI_INT, 0, b->grid);
    if (!good) {
        if (b->rank == 0) fprintf(stderr, "heat: no memory to gather %zu cells\n", cells);
        return -1;
    }
    plate_gather(b, p, whole);
    if (b->rank == 0) {
        FILE *f = fopen(p->output, "wb");
        good = f != NULL && fwrite(whole, sizeof(double), cells, f) == cells;
        good = (f == NULL || fclose(f) == 0) && good;
        if (good)
            printf("%d steps; field of %d x %d cells in %s, FNV-1a %016llx\n", steps, p->rows, p->columns,
                   p->output, (unsigned long long)digest(whole, cells * sizeof(double)));
        else
            fprintf(stderr, "heat: %s: %s\n", p->output, strerror(errno));
        free(whole);
    }
    MPI_Bcast(&good, 1, MPI_INT, 0, b->grid);
    return good ? 0 : -1;
}

// ---- the run --------------------------------------------------------------------------------------

static int run(const struct params *p, FILE *log) {
    struct plate plate, *b = &plate;
    double largest, residual = 0;
    int n;

    if (plate_make(b, p, MPI_COMM_WORLD) != 0) {
        if (b->rank == 0)
            fprintf(stderr, "heat: %d x %d cells do not fit on %d ranks\n", p->rows, p->columns, b->ranks);
        return -1;
    }
    set_start(b, p);
    heat_sources(b, p, b->now);
    for (n = 1; n <= p->steps; n++) {
        largest = step(b, p);
        if (n % p->report_every == 0 || n == p->steps) {
            MPI_Allreduce(&largest, &residual, 1, MPI_DOUBLE, MPI_MAX, b->grid);
            report(b, log, n, residual);
            if (residual < p->tolerance) break;
        }
        if (p->checkpoint_every > 0 && n % p->checkpoint_every == 0 && n < p->steps) save_job(b, n);
    }
    int rc = write_field(b, p, n <= p->steps ? n : p->steps);
    plate_free(b);
    return rc;
}

// Rank 0 reads the parameters and opens the log; every rank gets the same answer.
static int start(int argc, char **argv, struct params *p, FILE **log) {
    char why[1024];
    int rank, good = 1;

    *log = NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        if (argc < 2)
            snprintf(why, sizeof why, "usage: heat PARAMETERS [NAME=VALUE...]"), good = 0;
        else if (params_read(p, argv[1], argv + 2, why, sizeof why) != 0)
            good = 0;
        else if ((*log = fopen(p->log, "w")) == NULL)
            snprintf(why, sizeof why, "%s: %s", p->log, strerror(errno)), good = 0;
        if (!good) fprintf(stderr, "heat: %s\n", why);
    }
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (good) MPI_Bcast(p, sizeof *p, MPI_BYTE, 0, MPI_COMM_WORLD);
    return good ? 0 : -1;
}

int main(int argc, char **argv) {
    struct params p;
    FILE *log;

    MPI_Init(&argc, &argv);
    int rc = start(argc, argv, &p, &log);
    if (rc == 0) rc = run(&p, log);
    if (log != NULL && fclose(log) != 0 && rc == 0) {
        fprintf(stderr, "heat: %s: %s\n", p.log, strerror(errno));
        rc = -1;
    }
    MPI_Finalize();
    return rc == 0 ? 0 : 1;
}
