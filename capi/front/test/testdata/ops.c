// SPDX-License-Identifier: Apache-2.0
//
// ops.c: operations that are made and freed for each reduction, as BLACS does, beside some that live on; a freed one is
// recognized, and one that is freed while a persistent reduction may still be started serves this reduction.  With
// "save" as argument checkpoints are made in between.  Prints "ops: ok" on rank 0, and "ops: ok, restarted" after a
// restart.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define ALLREDUCE_INIT MPIX_Allreduce_init
#else
#define ALLREDUCE_INIT MPI_Allreduce_init
#endif

enum { LIVES = 3, ROUNDS = 400, MANY = 100 };

static int size, saves, restarted, calls[4];

#define OPERATION(k, expression)                                           \
    static void op##k(void *in, void *inout, int *n, MPI_Datatype *type) { \
        const int *a = in;                                                 \
        int *b = inout;                                                    \
        CHECK(*type == MPI_INT);                                           \
        for (int i = 0; i < *n; i++) b[i] = expression;                    \
        calls[k]++;                                                        \
    }
OPERATION(0, a[i] + b[i])
OPERATION(1, a[i] > b[i] ? a[i] : b[i])
OPERATION(2, a[i] * b[i])
OPERATION(3, a[i]) // does not commute

static MPI_User_function *const functions[] = {op0, op1, op2, op3};

static void reduce(MPI_Op op, int k) {
    int in = rank + 1, out = -1, want[4] = {0, size, 1, 1}, before = calls[k], commute = -1;
    for (int i = 1; i <= size; i++) want[0] += i, want[2] *= i;
    OK(MPI_Allreduce(&in, &out, 1, MPI_INT, op, MPI_COMM_WORLD));
    CHECK(out == want[k]);
    OK(MPI_Reduce_local(&in, &out, 1, MPI_INT, op));
    CHECK(calls[k] > before);
    OK(MPI_Op_commutative(op, &commute));
    CHECK(commute == (k < 3));
}

// Uses a freed operation.
static void stale(MPI_Op op) {
    int x = 1, y = 1;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CHECK(MPI_Reduce_local(&x, &y, 1, MPI_INT, op) != MPI_SUCCESS);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
}

// Makes, uses and frees.  kept: a persistent reduction keeps all of them.
static void often(int kept) {
    MPI_Op seen[ROUNDS];
    int n = 0;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Op op, old;
        OK(MPI_Op_create(functions[i % 4], i % 4 < 3, &op));
        reduce(op, i % 4);
        old = op;
        OK(MPI_Op_free(&op));
        CHECK(op == MPI_OP_NULL);
        if (saves && !kept) stale(old);
        int k = 0;
        while (k < n && seen[k] != old) k++;
        if (k == n) seen[n++] = old;
    }
    if (saves && !kept) CHECK(n > 8 && n < ROUNDS / 4); // used again, and not at once
}

static void many(void) {
    MPI_Op ops[MANY];
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < MANY; i++) OK(MPI_Op_create(functions[i % 4], i % 4 < 3, &ops[i]));
        for (int i = 0; i < MANY; i++) reduce(ops[i], i % 4);
        for (int i = 0; i < MANY; i++) OK(MPI_Op_free(&ops[i]));
    }
}

static void save(void) {
    MPIX_CR_state_t state;
    if (!saves) return;
    OK(MPIX_Checkpoint(&state));
    CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
    restarted |= state == MPIX_CR_STATE_RESTART;
}

int main(int argc, char **argv) {
    int in, out = -1, product = 1;
    MPI_Request r;
    MPI_Op lives[LIVES], late;
    saves = argc > 1 && strcmp(argv[1], "save") == 0;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Op_create(op0, 1, &lives[0])); // one that libckpt hears of in a checkpoint
    save();
    often(0);
    OK(MPI_Op_create(op1, 1, &lives[1])); // and ones that were others before
    OK(MPI_Op_create(op3, 0, &lives[2]));
    many();
    save();
    reduce(lives[0], 0);
    reduce(lives[1], 1);
    reduce(lives[2], 3);
    often(0);
    OK(MPI_Op_free(&lives[1]));
    save();
    in = rank + 1;
    for (int i = 1; i <= size; i++) product *= i;
    OK(MPI_Op_create(op2, 1, &late));
    OK(ALLREDUCE_INIT(&in, &out, 1, MPI_INT, late, MPI_COMM_WORLD, MPI_INFO_NULL, &r));
    if (saves) OK(MPI_Op_free(&late)); // Open MPI itself does not keep it for the request
    for (int turn = 0; turn < 2; turn++) {
        often(1);
        out = -1;
        OK(MPI_Start(&r));
        OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
        CHECK(out == product);
        save();
    }
    OK(MPI_Request_free(&r));
    if (!saves) OK(MPI_Op_free(&late));
    often(0);
    reduce(lives[0], 0);
    reduce(lives[2], 3);
    OK(MPI_Op_free(&lives[0]));
    OK(MPI_Op_free(&lives[2]));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) printf("ops: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
