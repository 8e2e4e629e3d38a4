// SPDX-License-Identifier: Apache-2.0
//
// orders.c: persistent collectives that each rank starts, waits for and frees in an order of its own, which
// MPI 4 allows; only they are made in one order.
//
//   orders GENERATIONS
//
// Each generation has a communicator, which is freed while the requests are still in use; each rank frees one
// of them a generation later, and not the same one.  Ends with one line "orders RESULT" from rank 0, which
// must be the same whatever happened in between.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../testdata/work.h"

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define PERSISTENT(name) MPIX_##name##_init
#else
#define PERSISTENT(name) MPI_##name##_init
#endif

enum { K = 7, N = 40, ROUNDS = 6 };

static int rank, size;
static uint64_t in[K][N], out[K][N];

// In an order of this rank's own.
static void shuffle(int *order, uint64_t seed) {
    for (int i = 0; i < K; i++) {
        int j = (int)(mix(seed, (uint64_t)(rank * K + i)) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

static void make(MPI_Comm c, MPI_Request *q) {
    MPI_Datatype word = MPI_UINT64_T;
    PERSISTENT(Bcast)(out[0], 3, word, 0, c, MPI_INFO_NULL, &q[0]);
    PERSISTENT(Bcast)(out[1], N, word, size - 1, c, MPI_INFO_NULL, &q[1]);
    PERSISTENT(Allreduce)(in[2], out[2], N / 2, word, MPI_SUM, c, MPI_INFO_NULL, &q[2]);
    PERSISTENT(Allreduce)(in[3], out[3], 1, word, MPI_BXOR, c, MPI_INFO_NULL, &q[3]);
    PERSISTENT(Allgather)(in[4], 2, word, out[4], 2, word, c, MPI_INFO_NULL, &q[4]);
    PERSISTENT(Neighbor_allgather)(in[5], 2, word, out[5], 2, word, c, MPI_INFO_NULL, &q[5]);
    PERSISTENT(Barrier)(c, MPI_INFO_NULL, &q[6]);
}

// What all have after a round; 0 when it is not what it should be.
static uint64_t look(uint64_t seed) {
    uint64_t h = 1, sum[N] = {0}, all = 0;
    for (int r = 0; r < size; r++) {
        all ^= mix(seed, (uint64_t)(r * 1000 + 300));
        for (int i = 0; i < N / 2; i++) sum[i] += mix(seed, (uint64_t)(r * 1000 + 200 + i));
    }
    int ok = out[3][0] == all;
    for (int i = 0; i < N; i++) {
        ok &= i >= 3 || out[0][i] == mix(seed, (uint64_t)i);
        ok &= out[1][i] == mix(seed, (uint64_t)((size - 1) * 1000 + 100 + i));
        ok &= i >= N / 2 || out[2][i] == sum[i];
        ok &= i >= 2 * size || out[4][i] == mix(seed, (uint64_t)(i / 2 * 1000 + 400 + i % 2));
        int neighbour = (rank + (i < 2 ? size - 1 : 1)) % size;
        ok &= i >= 4 || out[5][i] == mix(seed, (uint64_t)(neighbour * 1000 + 500 + i % 2));
        h = mix(mix(mix(h, out[1][i]), out[2][i]), out[4][i]);
    }
    return ok ? h : 0;
}

static uint64_t use(MPI_Request *q, uint64_t seed) {
    int order[K];
    for (int k = 0; k < K; k++)
        for (int i = 0; i < N; i++) {
            in[k][i] = mix(seed, (uint64_t)(rank * 1000 + 100 * k + i));
            out[k][i] = k < 2 ? in[k][i] : 0;
        }
    shuffle(order, seed);
    for (int i = 0; i < K; i++) {
        MPI_Start(&q[order[i]]);
        work(seed + (uint64_t)(rank * 11 + i), 1500);
    }
    shuffle(order, seed + 1);
    for (int i = 0; i < K; i++)
        if (i % 2)
            MPI_Wait(&q[order[i]], MPI_STATUS_IGNORE);
        else
            for (int flag = 0; !flag;) MPI_Test(&q[order[i]], &flag, MPI_STATUS_IGNORE);
    uint64_t h = look(seed);
    if (h == 0) {
        fprintf(stderr, "rank %d: wrong data\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    return h;
}

int main(int argc, char **argv) {
    int generations = argc > 1 ? atoi(argv[1]) : 5, one = 1, order[K];
    uint64_t h = 0, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Request q[K], left = MPI_REQUEST_NULL;
    for (int g = 0; g < generations; g++) {
        MPI_Comm c;
        MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &one, 0, &c);
        make(c, q);
        for (int r = 0; r < ROUNDS; r++) {
            h = mix(h, use(q, (uint64_t)(g * 100 + r)));
            if (r == ROUNDS / 2) MPI_Comm_free(&c);
        }
        if (left != MPI_REQUEST_NULL) MPI_Request_free(&left);
        shuffle(order, (uint64_t)g);
        for (int i = 1; i < K; i++) {
            MPI_Request_free(&q[order[i]]);
            work((uint64_t)(g * 13 + rank + i), 2000);
        }
        left = q[order[0]];
    }
    MPI_Request_free(&left);
    MPI_Reduce(&h, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("orders %016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
