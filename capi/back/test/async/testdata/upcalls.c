// SPDX-License-Identifier: Apache-2.0
//
// upcalls.c: a checkpoint has to complete a reduction with an operation of the program's own, while the
// program is far from any call of MPI.
//
//   upcalls DIRECTORY
//
// In each stage two ranks begin a reduction, rank 0 first, and then are where the stage says until the
// file of its name is in DIRECTORY; in.STAGE.RANK says that a rank is there.  The operation needs much
// stack, memory, and system calls.  inside.STAGE.RANK has how often it was called meanwhile.  It ends with
// one line "upcalls RESULT" from rank 0: 0 when all is right.
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xmmintrin.h>

enum { N = 500, DEEP = 48 << 10, FRAME = 64 << 10, SMALL = 16 << 10, FENCE = 128 << 10 };

static int rank, bad;
static volatile int inside, away;
static const char *directory, *stage;

static void complain(const char *what) {
    fprintf(stderr, "rank %d, stage %s: %s\n", rank, stage, what);
    bad++;
}

static void told(const char *what, int value) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s.%d", directory, what, stage, rank);
    FILE *f = fopen(path, "w");
    fprintf(f, "%d\n", value);
    fclose(f);
}

static int there(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static int intact(const volatile unsigned char *b, size_t n, unsigned char value) {
    for (size_t i = 0; i < n; i++)
        if (b[i] != value) return 0;
    return 1;
}

// The operation: a rounded sum, and everything that a function of a program may do besides.
static void plus(void *in, void *inout, int *n, MPI_Datatype *type) {
    volatile unsigned char deep[DEEP];
    const double *a = in;
    double *b = inout;
    int bytes = 0;
    inside += away;
    for (int i = 0; i < DEEP; i++) deep[i] = 0xa5;
    char *big = malloc(3 << 20), *small = malloc(5000); // the first is a mapping of its own
    if (big == NULL || small == NULL) {
        complain("no memory in the operation");
        return;
    }
    memset(big, 1, 3 << 20);
    memset(small, 1, 5000);
    usleep(500);
    MPI_Type_size(*type, &bytes);
    for (int i = 0; i < *n; i++) b[i] = a[i] / 3 + b[i];
    free(small);
    free(big);
    if (bytes != sizeof(double)) complain("the operation was given another datatype");
    if (!intact(deep, DEEP, 0xa5)) complain("the operation's own stack was overwritten");
}

// ---- where a rank is meanwhile ----

static void computes(void) {
    volatile unsigned char frame[FRAME];
    volatile double x = 1;
    for (int i = 0; i < FRAME; i++) frame[i] = 0x5a;
    while (!there(stage))
        for (int i = 0; i < 2000000; i++) x = x * 1.0000001 + 1e-9;
    if (!intact(frame, FRAME, 0x5a)) complain("a local array was overwritten");
}

static void sleeps(void) {
    volatile unsigned char frame[FRAME];
    for (int i = 0; i < FRAME; i++) frame[i] = 0x5a;
    while (!there(stage)) usleep(50000);
    if (!intact(frame, FRAME, 0x5a)) complain("a local array was overwritten");
}

static void handle(int sig) {
    (void)sig;
    while (!there(stage))
        for (volatile int i = 0; i < 2000000; i++)
            ;
}

// On a signal stack that has room for a handler, and not for the operation.
static void handles(void) {
    unsigned char *all = malloc(FENCE + SMALL + FENCE);
    stack_t old, own = {.ss_sp = all + FENCE, .ss_size = SMALL};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    memset(all, 0x5a, FENCE + SMALL + FENCE);
    sigaltstack(&own, &old);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    sigaltstack(&old, NULL);
    if (!intact(all, FENCE, 0x5a) || !intact(all + FENCE + SMALL, FENCE, 0x5a))
        complain("memory beside a signal stack was overwritten");
    free(all);
}

// Somewhere in the C library, whose locks the operation needs: memory that all threads share.
static void *allocate(void *seed) {
    unsigned n = *(unsigned *)seed;
    char *p[32] = {NULL};
    for (unsigned turn = 1; turn % 20000 != 0 || !there(stage); turn++) {
        unsigned i = (n = n * 1664525 + 1013904223) >> 27;
        size_t bytes = 1100 + (n >> 8) % 60000;
        if (p[i] != NULL && *p[i] != (char)i) complain("allocated memory was overwritten");
        free(p[i]);
        if ((p[i] = malloc(bytes)) == NULL) {
            complain("no memory");
            return NULL;
        }
        *p[i] = (char)i;
    }
    for (int i = 0; i < 32; i++) free(p[i]);
    return NULL;
}

static void allocates(void) {
    unsigned seeds[2] = {(unsigned)rank + 1, (unsigned)rank + 1000};
    pthread_t other;
    pthread_create(&other, NULL, allocate, &seeds[0]);
    allocate(&seeds[1]);
    pthread_join(other, NULL);
}

// Rounds down, and has no numbers smaller than the normal ones.
static void rounds(void) { computes(); }

// ----

static void in_stage(const char *name, MPI_Op op, void (*where)(void)) {
    double mine[N], other[N], want[N], got[N];
    MPI_Request q;
    unsigned mode = _mm_getcsr();
    stage = name;
    if (where == rounds) _mm_setcsr(mode | 0x8040 | _MM_ROUND_DOWN);
    for (int i = 0; i < N; i++) {
        double x[2] = {i % 3 ? i + 0.1 : i * 1e-310, i % 3 ? i / 7.0 : 3e-308 - i * 1e-310};
        mine[i] = x[rank];
        other[i] = x[!rank];
    }
    memcpy(want, rank == 0 ? other : mine, sizeof want); // what the first rank has comes first
    int n = N;
    MPI_Datatype type = MPI_DOUBLE;
    plus(rank == 0 ? mine : other, want, &n, &type);
    MPI_Barrier(MPI_COMM_WORLD);
    char first[100];
    snprintf(first, sizeof first, "in.%s.0", stage);
    while (rank != 0 && !there(first)) // so it is not complete there before MPI is called again
        usleep(1000);
    MPI_Iallreduce(mine, got, N, MPI_DOUBLE, op, MPI_COMM_WORLD, &q);
    inside = 0;
    away = 1;
    told("in", 0);
    where();
    away = 0;
    told("inside", inside);
    MPI_Wait(&q, MPI_STATUS_IGNORE);
    if (memcmp(got, want, sizeof got) != 0) complain("the sum is another one");
    _mm_setcsr(mode);
}

int main(int argc, char **argv) {
    MPI_Op op;
    int provided, all = 0;
    directory = argc > 1 ? argv[1] : ".";
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Op_create(plus, 0, &op);
    in_stage("computes", op, computes);
    in_stage("sleeps", op, sleeps);
    in_stage("handles", op, handles);
    in_stage("rounds", op, rounds);
    in_stage("allocates", op, allocates);
    MPI_Op_free(&op);
    MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("upcalls %d\n", all);
    MPI_Finalize();
    return 0;
}
