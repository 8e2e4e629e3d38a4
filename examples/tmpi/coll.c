// SPDX-License-Identifier: Apache-2.0
//
// coll.c: collective calls, made of messages.
//
// Ranks form a binomial tree below rank 0: the parent of a rank is the rank without its lowest bit.  The shape depends
// on the number of ranks alone, and each rank combines its children in ascending order, so sums are the same to
// the last bit however ranks are divided among processes.  libckpt knows of each call from embed_enter to embed_return:
// while a checkpoint is wanted from outside, a rank is let in when all ranks have come, and is out again before it is made.
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
static void reduce(double *all, int n, enum tmpi_op op) {
    int rank = tmpi_rank();
    size_t bytes = (size_t)n * sizeof *all;
    double few[8], *part = n <= 8 ? few : tmpi_malloc(bytes);
    for (int bit = 1; bit < tmpi.size; bit *= 2) {
        if (rank & bit) {
            match_send(all, bytes, rank - bit, 0, CONTEXT_COLLECTIVE);
            break;
        }
        if (rank + bit >= tmpi.size) continue;
        match_recv(part, bytes, rank + bit, 0, CONTEXT_COLLECTIVE, NULL);
        for (int i = 0; i < n; i++) all[i] = combine(all[i], part[i], op);
    }
    if (part != few) tmpi_free(part);
}

static void broadcast(void *data, size_t bytes) {
    int rank = tmpi_rank(), bit = 1;
    while (bit < tmpi.size && !(rank & bit)) bit *= 2;
    if (rank != 0) match_recv(data, bytes, rank - bit, 0, CONTEXT_COLLECTIVE, NULL);
    while ((bit /= 2) > 0)
        if (rank + bit < tmpi.size) match_send(data, bytes, rank + bit, 0, CONTEXT_COLLECTIVE);
}

static void allreduce(const char *name, double *all, int n, enum tmpi_op op) {
    ckpt_coll call;
    embed_enter(name, &call);
    reduce(all, n, op);
    broadcast(all, (size_t)n * sizeof *all);
    embed_return(&call);
}

void tmpi_barrier(void) { allreduce("tmpi_barrier", NULL, 0, TMPI_SUM); }

void tmpi_allreduce(const double *in, double *out, int n, enum tmpi_op op) {
    if (in != out) memcpy(out, in, (size_t)n * sizeof *in);
    allreduce("tmpi_allreduce", out, n, op);
}
