// SPDX-License-Identifier: Apache-2.0
//
// heat: how a plate warms up that is hot at one edge, explicit differences.
//
//     tmpirun -n 4 -r 128 heat [ROWS [COLUMNS [STEPS [REPORT [SAVE]]]]]
//
// Each rank has a band of rows.  Rank 0 prints the largest change of a step every REPORT steps, and at the end the
// field's sum, which it adds up row by row as they come: any number of ranks prints the same, to the last bit.
// Every SAVE steps the job saves itself (0: it does not).  Rows longer than 32 KiB travel over tcp.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tmpi.h"

enum { TAG_UP = 1, TAG_DOWN, TAG_GATHER };

static struct plate {
    int columns, rows, first; // rows of this rank, the first one's number
    double *now, *next;       // with a row of the neighbours' above and below
} none;

static double *row(const struct plate *p, double *f, int r) { return f + (size_t)(r + 1) * p->columns; }

static void exchange(const struct plate *p) {
    int rank = tmpi_rank(), last = tmpi_size() - 1;
    size_t bytes = (size_t)p->columns * sizeof(double);
    if (rank > 0) tmpi_send(row(p, p->now, 0), bytes, rank - 1, TAG_UP);
    if (rank < last) tmpi_send(row(p, p->now, p->rows - 1), bytes, rank + 1, TAG_DOWN);
    if (rank > 0) tmpi_recv(row(p, p->now, -1), bytes, rank - 1, TAG_DOWN, NULL);
    if (rank < last) tmpi_recv(row(p, p->now, p->rows), bytes, rank + 1, TAG_UP, NULL);
}

// Returns the largest change on this rank.
static double step(struct plate *p) {
    double largest = 0;
    exchange(p);
    for (int r = 0; r < p->rows; r++) {
        const double *at = row(p, p->now, r), *north = row(p, p->now, r - 1), *south = row(p, p->now, r + 1);
        double *to = row(p, p->next, r);
        for (int c = 0; c < p->columns; c++) {
            double west = c > 0 ? at[c - 1] : 0, east = c < p->columns - 1 ? at[c + 1] : 0;
            double change = 0.2 * (west + east + north[c] + south[c] - 4 * at[c]);
            to[c] = at[c] + change;
            largest = fmax(largest, fabs(change));
        }
    }
    double *old = p->now;
    p->now = p->next, p->next = old;
    return largest;
}

// On rank 0: the sum of all cells.
static double gather(const struct plate *p, int rows) {
    int rank = tmpi_rank(), size = tmpi_size();
    size_t bytes = (size_t)p->columns * sizeof(double);
    if (rank > 0) {
        for (int r = 0; r < p->rows; r++) tmpi_send(row(p, p->now, r), bytes, 0, TAG_GATHER);
        return 0;
    }
    double sum = 0, *line = tmpi_malloc(bytes);
    for (int from = 0, at = 0; at < rows; at++) {
        while (at >= (int)((long)rows * (from + 1) / size)) from++;
        if (from == 0)
            memcpy(line, row(p, p->now, at), bytes);
        else
            tmpi_recv(line, bytes, from, TAG_GATHER, NULL);
        for (int c = 0; c < p->columns; c++) sum += line[c];
    }
    tmpi_free(line);
    return sum;
}

static int body(int argc, char **argv) {
    int rows = argc > 1 ? atoi(argv[1]) : 512, columns = argc > 2 ? atoi(argv[2]) : 256;
    int steps = argc > 3 ? atoi(argv[3]) : 400, report = argc > 4 ? atoi(argv[4]) : 40;
    int save = argc > 5 ? atoi(argv[5]) : 0, rank = tmpi_rank(), size = tmpi_size();
    if (rows < size || columns < 1 || report < 1) {
        if (rank == 0) fprintf(stderr, "heat: ROWS must be %d at least, COLUMNS and REPORT 1\n", size);
        return 2;
    }
    struct plate plate = none, *p = &plate;
    p->columns = columns;
    p->first = (int)((long)rows * rank / size);
    p->rows = (int)((long)rows * (rank + 1) / size) - p->first;
    p->now = tmpi_malloc((size_t)(p->rows + 2) * columns * sizeof(double));
    p->next = tmpi_malloc((size_t)(p->rows + 2) * columns * sizeof(double));
    if (rank == 0) // beyond the first row it is hot
        for (int c = 0; c < columns; c++) row(p, p->now, -1)[c] = row(p, p->next, -1)[c] = 1 + c % 7;

    for (int i = 1; i <= steps; i++) {
        double change = step(p);
        if (i % report == 0) {
            tmpi_allreduce(&change, &change, 1, TMPI_MAX);
            if (rank == 0) printf("step %d: %a\n", i, change), fflush(stdout);
        }
        if (save > 0 && i % save == 0 && i < steps) {
            int state = tmpi_checkpoint();
            if (rank == 0 && state == 2) fprintf(stderr, "heat: continued after step %d\n", i);
        }
    }
    double sum = gather(p, rows);
    if (rank == 0) printf("heat: %d rows, sum %a\n", rows, sum), fflush(stdout);
    tmpi_free(p->now), tmpi_free(p->next);
    return 0;
}

int main(int argc, char **argv) { return tmpi_run(body, argc, argv); }
