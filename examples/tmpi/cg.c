// SPDX-License-Identifier: Apache-2.0
//
// cg: conjugate gradients for Poisson's equation on a square, five-point differences.
//
//     tmpirun -n 4 -r 128 cg [SIDE [ITERATIONS [REPORT [SAVE]]]]
//
// The square has SIDE x SIDE points, and each rank a band of rows.  Rank 0 prints the residual every REPORT
// iterations, in hexadecimal: two runs of as many ranks print the same, to the last bit.  Every SAVE iterations the
// job saves itself (0: it does not).
#include <stdio.h>
#include <stdlib.h>

#include "tmpi.h"

static struct band {
    int side, rows, first; // rows of this rank, the first one's number
    int up, down;          // neighbours; -1: the rim
} none;

// A field of the band, with a row of its neighbours above and below.
static double *field(const struct band *b) {
    return tmpi_malloc((size_t)(b->rows + 2) * b->side * sizeof(double));
}
static double *row(const struct band *b, double *f, int r) { return f + (size_t)(r + 1) * b->side; }

// Fetches the neighbours' rows.
static void exchange(const struct band *b, double *f) {
    size_t bytes = (size_t)b->side * sizeof *f;
    tmpi_request above = NULL, below = NULL;
    if (b->up >= 0) above = tmpi_irecv(row(b, f, -1), bytes, b->up, 1);
    if (b->down >= 0) below = tmpi_irecv(row(b, f, b->rows), bytes, b->down, 2);
    if (b->up >= 0) tmpi_send(row(b, f, 0), bytes, b->up, 2);
    if (b->down >= 0) tmpi_send(row(b, f, b->rows - 1), bytes, b->down, 1);
    if (above != NULL) tmpi_wait(above, NULL);
    if (below != NULL) tmpi_wait(below, NULL);
}

// out = A in
static void apply(const struct band *b, double *in, double *out) {
    exchange(b, in);
    for (int r = 0; r < b->rows; r++) {
        const double *at = row(b, in, r), *north = row(b, in, r - 1), *south = row(b, in, r + 1);
        double *to = row(b, out, r);
        for (int c = 0; c < b->side; c++) {
            double west = c > 0 ? at[c - 1] : 0, east = c < b->side - 1 ? at[c + 1] : 0;
            to[c] = 4 * at[c] - west - east - north[c] - south[c];
        }
    }
}

static double dot(const struct band *b, double *x, double *y) {
    double sum = 0;
    const double *p = row(b, x, 0), *q = row(b, y, 0);
    for (long i = 0; i < (long)b->rows * b->side; i++) sum += p[i] * q[i];
    tmpi_allreduce(&sum, &sum, 1, TMPI_SUM);
    return sum;
}

// y = a x + c y
static void combine(const struct band *b, double a, double *x, double c, double *y) {
    double *p = row(b, x, 0), *q = row(b, y, 0);
    for (long i = 0; i < (long)b->rows * b->side; i++) q[i] = a * p[i] + c * q[i];
}

static int body(int argc, char **argv) {
    int side = argc > 1 ? atoi(argv[1]) : 512, iterations = argc > 2 ? atoi(argv[2]) : 200;
    int report = argc > 3 ? atoi(argv[3]) : 20, save = argc > 4 ? atoi(argv[4]) : 0;
    int rank = tmpi_rank(), size = tmpi_size();
    if (side < size || report < 1) {
        if (rank == 0) fprintf(stderr, "cg: SIDE must be %d at least, and REPORT 1\n", size);
        return 2;
    }
    struct band band = none, *b = &band;
    b->side = side;
    b->first = (int)((long)side * rank / size);
    b->rows = (int)((long)side * (rank + 1) / size) - b->first;
    b->up = rank - 1;
    b->down = rank + 1 < size ? rank + 1 : -1;

    double *x = field(b), *residual = field(b), *search = field(b), *image = field(b);
    for (int r = 0; r < b->rows; r++)
        for (int c = 0; c < side; c++) // a right-hand side without symmetry
            row(b, residual, r)[c] = ((b->first + r) * 37L + c * 101L) % 257 / 256.0 - 0.5;
    combine(b, 1, residual, 0, search);

    double rr = dot(b, residual, residual);
    for (int i = 1; i <= iterations; i++) {
        apply(b, search, image);
        double alpha = rr / dot(b, search, image), old = rr;
        combine(b, alpha, search, 1, x);
        combine(b, -alpha, image, 1, residual);
        rr = dot(b, residual, residual);
        combine(b, 1, residual, rr / old, search);
        if (rank == 0 && i % report == 0) printf("iteration %d: %a\n", i, rr), fflush(stdout);
        if (save > 0 && i % save == 0 && i < iterations) {
            int state = tmpi_checkpoint();
            if (rank == 0 && state == 2) fprintf(stderr, "cg: continued after iteration %d\n", i);
        }
    }
    double xx = dot(b, x, x);
    if (rank == 0) printf("cg: %d ranks, residual %a, solution %a\n", size, rr, xx), fflush(stdout);
    tmpi_free(x), tmpi_free(residual), tmpi_free(search), tmpi_free(image);
    return 0;
}

int main(int argc, char **argv) { return tmpi_run(body, argc, argv); }
