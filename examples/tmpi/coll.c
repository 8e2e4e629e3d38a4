// SPDX-License-Identifier: Apache-2.0
//
// coll.c: collective calls, made of messages.
//
// Ranks form a binomial tree below rank 0: the parent of a rank is the rank without its lowest bit.  The shape depends
// on the number of ranks alone, and each rank combines its children in ascending order, so sums are the same to
// the last bit however ranks are divided among processes.  A rank that is saved in the middle of a collective call
// goes on in the middle of it: its messages are saved as any others are.
#include <stdlib.h>
#include <string.h>

#include "inside.h"

static double combine(double a, double b, enum tmpi_op op) {
    switch (op) {
    case TMPI_MIN:
        return b < a ? b : a;
    case TMPI_MAX:
        return b > a ? b : a;
    default:
        return a + b;
    }
}

// Leaves the result on rank 0, at all of it; other ranks' all has what is below them.
static void reduce(double *all, int n, enum tmpi_op op, int context) {
    int rank = tmpi_rank();
    size_t bytes = (size_t)n * sizeof *all;
    double few[8], *part = n <= 8 ? few : tmpi_malloc(bytes);
    for (int bit = 1; bit < tmpi.size; bit *= 2) {
        if (rank & bit) {
            match_send(all, bytes, rank - bit, 0, context);
            break;
        }
        if (rank + bit >= tmpi.size) continue;
        match_recv(part, bytes, rank + bit, 0, context, NULL);
        for (int i = 0; i < n; i++) all[i] = combine(all[i], part[i], op);
    }
    if (part != few) tmpi_free(part);
}

static void broadcast(void *data, size_t bytes, int context) {
    int rank = tmpi_rank(), bit = 1;
    while (bit < tmpi.size && !(rank & bit)) bit *= 2;
    if (rank != 0) match_recv(data, bytes, rank - bit, 0, context, NULL);
    while ((bit /= 2) > 0)
        if (rank + bit < tmpi.size) match_send(data, bytes, rank + bit, 0, context);
}

void coll_barrier(int context) {
    reduce(NULL, 0, TMPI_SUM, context);
    broadcast(NULL, 0, context);
}

void tmpi_barrier(void) { coll_barrier(CONTEXT_COLLECTIVE); }

void tmpi_allreduce(const double *in, double *out, int n, enum tmpi_op op) {
    if (in != out) memcpy(out, in, (size_t)n * sizeof *in);
    reduce(out, n, op, CONTEXT_COLLECTIVE);
    broadcast(out, (size_t)n * sizeof *out, CONTEXT_COLLECTIVE);
}
