// SPDX-License-Identifier: Apache-2.0
//
// threads.c: programs with several threads, for checkpoints at any moment.  They know nothing of
// those.
//
//   threads PATTERN ROUNDS THREADS [FILE]
//
// Each pattern is deterministic and ends with one line "PATTERN RESULT" from rank 0, which must be
// the same whatever happened in between.
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../testdata/work.h"

static int rank, size, rounds, nthreads;

static void fail(const char *what, int thread, int round) {
    fprintf(stderr, "rank %d thread %d round %d: %s\n", rank, thread, round, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

// One thread's part of a pattern.
struct part {
    int thread;
    MPI_Comm comm;
    uint64_t h;
};

typedef void body(struct part *);

static void *run_part(void *p) {
    void **job = p;
    body *f;
    memcpy(&f, &job[0], sizeof f);
    f(job[1]);
    return NULL;
}

// Runs n parts at once, each in a thread, and returns when all have ended.
static void together(body *f, struct part *parts, int n) {
    pthread_t id[n];
    void *job[n][2];
    for (int i = 0; i < n; i++) {
        memcpy(&job[i][0], &f, sizeof f);
        job[i][1] = &parts[i];
        if (pthread_create(&id[i], NULL, run_part, job[i]) != 0) fail("pthread_create", i, 0);
    }
    for (int i = 0; i < n; i++) pthread_join(id[i], NULL);
}

static uint64_t sum_of(const struct part *parts, int n) {
    uint64_t h = 0;
    for (int i = 0; i < n; i++) h = mix(h, parts[i].h);
    return h;
}

// Threads of OpenMP compute a row each; one thread exchanges the edges (FUNNELED).
static uint64_t funneled(void) {
    enum { N = 96 };
    static double a[N + 2][N], b[N + 2][N];
    int up = rank ? rank - 1 : MPI_PROC_NULL, down = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    for (int i = 0; i < N + 2; i++)
        for (int k = 0; k < N; k++) a[i][k] = b[i][k] = rank * 3 + i * 0.5 + k * 0.25;
    double change = 0;
#pragma omp parallel num_threads(nthreads)
    for (int r = 0; r < rounds; r++) {
#pragma omp master
        {
            MPI_Sendrecv(a[1], N, MPI_DOUBLE, up, 1, a[N + 1], N, MPI_DOUBLE, down, 1, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            MPI_Sendrecv(a[N], N, MPI_DOUBLE, down, 2, a[0], N, MPI_DOUBLE, up, 2, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            change = 0;
        }
#pragma omp barrier
#pragma omp for reduction(max : change)
        for (int i = 1; i <= N; i++)
            for (int k = 1; k < N - 1; k++) {
                b[i][k] = 0.25 * (a[i - 1][k] + a[i + 1][k] + a[i][k - 1] + a[i][k + 1]);
                double d = b[i][k] > a[i][k] ? b[i][k] - a[i][k] : a[i][k] - b[i][k];
                change = d > change ? d : change;
            }
#pragma omp for
        for (int i = 1; i <= N; i++) memcpy(a[i], b[i], sizeof a[i]);
#pragma omp master
        {
            double all;
            MPI_Allreduce(&change, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            a[1 + r % N][2] += 1e-6 * all;
        }
#pragma omp barrier
    }
    uint64_t h = 0, bits;
    for (int i = 1; i <= N; i++)
        for (int k = 0; k < N; k++) {
            memcpy(&bits, &a[i][k], 8);
            h = mix(h, bits);
        }
    return h;
}

// ---- one at a time: MPI_THREAD_SERIALIZED ----

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Each thread talks with its like on the neighbours; a call never blocks while it has the mutex.
static void serial_part(struct part *p) {
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    for (int r = 0; r < rounds; r++) {
        uint64_t out[200], in[200];
        for (int i = 0; i < 200; i++)
            out[i] = mix((uint64_t)(rank * 100 + p->thread), (uint64_t)(r * 200 + i));
        MPI_Request q[2];
        pthread_mutex_lock(&mutex);
        MPI_Irecv(in, 200, MPI_UINT64_T, prev, p->thread, MPI_COMM_WORLD, &q[0]);
        MPI_Isend(out, 200, MPI_UINT64_T, next, p->thread, MPI_COMM_WORLD, &q[1]);
        pthread_mutex_unlock(&mutex);
        work((uint64_t)(rank * 7 + r * 3 + p->thread), 500);
        for (int done = 0; !done;) {
            pthread_mutex_lock(&mutex);
            MPI_Testall(2, q, &done, MPI_STATUSES_IGNORE);
            pthread_mutex_unlock(&mutex);
            work((uint64_t)r, 20);
        }
        for (int i = 0; i < 200; i++)
            if (in[i] != mix((uint64_t)(prev * 100 + p->thread), (uint64_t)(r * 200 + i)))
                fail("content of a message", p->thread, r);
        p->h = mix(p->h, in[r % 200]);
    }
}

static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;

// Threads take turns; the one whose turn it is blocks in MPI while the others wait for it.
static void turns_part(struct part *p) {
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    for (int r = 0; r < rounds; r++) {
        pthread_mutex_lock(&mutex);
        while (turn != p->thread) pthread_cond_wait(&turned, &mutex);
        uint64_t mine = mix((uint64_t)rank, (uint64_t)(r * nthreads + p->thread)), got = 0;
        work((uint64_t)(rank + r + p->thread), 300);
        MPI_Sendrecv(&mine, 1, MPI_UINT64_T, next, 5, &got, 1, MPI_UINT64_T, prev, 5, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Allreduce(MPI_IN_PLACE, &got, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        p->h = mix(p->h, got);
        turn = (turn + 1) % nthreads;
        pthread_cond_broadcast(&turned);
        pthread_mutex_unlock(&mutex);
    }
}

// ---- all at once: MPI_THREAD_MULTIPLE ----

// Each thread has a communicator of its own, and waits in another kind of call each round.
static void multiple_part(struct part *p) {
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    MPI_Comm c = p->comm;
    for (int r = 0; r < rounds; r++) {
        uint64_t mine = mix((uint64_t)(rank * 64 + p->thread), (uint64_t)r), got = 0, other = 0;
        uint64_t want = mix((uint64_t)(prev * 64 + p->thread), (uint64_t)r);
        MPI_Request q[2];
        MPI_Status st;
        work((uint64_t)(rank * 31 + r * 7 + p->thread), 1500);
        switch ((r + p->thread) % 7) {
        case 0: // a ring of blocking calls
            if (rank == 0) {
                MPI_Send(&mine, 1, MPI_UINT64_T, next, 1, c);
                MPI_Recv(&got, 1, MPI_UINT64_T, prev, 1, c, &st);
            } else {
                MPI_Recv(&got, 1, MPI_UINT64_T, MPI_ANY_SOURCE, 1, c, &st);
                MPI_Send(&mine, 1, MPI_UINT64_T, next, 1, c);
            }
            break;
        case 1:
            MPI_Isend(&mine, 1, MPI_UINT64_T, next, 2, c, &q[0]);
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, c, &st);
            MPI_Recv(&got, 1, MPI_UINT64_T, st.MPI_SOURCE, st.MPI_TAG, c, &st);
            MPI_Wait(&q[0], MPI_STATUS_IGNORE);
            break;
        case 2:
            MPI_Irecv(&got, 1, MPI_UINT64_T, prev, 3, c, &q[0]);
            MPI_Isend(&mine, 1, MPI_UINT64_T, next, 3, c, &q[1]);
            MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
            break;
        case 3: {
            MPI_Message m;
            MPI_Isend(&mine, 1, MPI_UINT64_T, next, 4, c, &q[0]);
            MPI_Mprobe(MPI_ANY_SOURCE, 4, c, &m, &st);
            work((uint64_t)r, 200);
            MPI_Mrecv(&got, 1, MPI_UINT64_T, &m, &st);
            MPI_Wait(&q[0], MPI_STATUS_IGNORE);
            break;
        }
        case 4: {
            int index, first;
            MPI_Irecv(&got, 1, MPI_UINT64_T, prev, 5, c, &q[0]);
            MPI_Issend(&mine, 1, MPI_UINT64_T, next, 5, c, &q[1]);
            MPI_Waitany(2, q, &first, MPI_STATUS_IGNORE);
            MPI_Waitsome(2, q, &index, (int[2]){0}, MPI_STATUSES_IGNORE);
            break;
        }
        case 5:
            MPI_Sendrecv(&mine, 1, MPI_UINT64_T, next, 6, &got, 1, MPI_UINT64_T, prev, 6, c, &st);
            MPI_Ibarrier(c, &q[0]);
            work((uint64_t)(r + rank), 300);
            MPI_Wait(&q[0], MPI_STATUS_IGNORE);
            break;
        default:
            got = want;
            MPI_Iallreduce(&mine, &other, 1, MPI_UINT64_T, MPI_SUM, c, &q[0]);
            MPI_Ibcast(&got, 1, MPI_UINT64_T, r % size, c, &q[1]);
            MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
            p->h = mix(p->h, mix(other, got));
            got = want;
        }
        if (got != want) fail("content of a message", p->thread, r);
        if (r % 2 == 0)
            MPI_Allreduce(&mine, &other, 1, MPI_UINT64_T, MPI_BXOR, c);
        else
            MPI_Barrier(c);
        p->h = mix(p->h, mix(got, other));
    }
}

// Threads come and go: each makes one exchange, some start another one.
static void short_leaf(struct part *p) {
    p->h = mix(p->h, (uint64_t)p->thread);
    work(p->h, 200);
}

static void short_part(struct part *p) {
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    uint64_t mine = mix(p->h, (uint64_t)(rank * 64 + p->thread)), got = 0;
    if (p->thread % 2) {
        struct part leaf = {p->thread, p->comm, mine};
        together(short_leaf, &leaf, 1);
        mine = leaf.h;
    }
    MPI_Sendrecv(&mine, 1, MPI_UINT64_T, next, 1, &got, 1, MPI_UINT64_T, prev, 1, p->comm, MPI_STATUS_IGNORE);
    MPI_Allreduce(MPI_IN_PLACE, &got, 1, MPI_UINT64_T, MPI_SUM, p->comm);
    p->h = mix(p->h, got);
}

// All threads of a rank use one communicator: sends to one peer at once, tags tell who is meant.
static void shared_part(struct part *p) {
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    for (int r = 0; r < rounds; r++) {
        enum { BURST = 12 };
        static const int words[] = {1, 3, 700, 12000};
        uint64_t *out = malloc(12000 * 8), *in = malloc(12000 * 8);
        MPI_Request q[BURST];
        for (int w = 0; w < 12000; w++)
            out[w] = mix((uint64_t)(rank * 64 + p->thread), (uint64_t)(r * 12000 + w));
        for (int i = 0; i < BURST; i++)
            MPI_Isend(out, words[i % 4], MPI_UINT64_T, next, p->thread, p->comm, &q[i]);
        work((uint64_t)(rank * 5 + r + p->thread), 1000);
        for (int i = 0; i < BURST; i++) {
            MPI_Status st;
            int n = 0;
            memset(in, 0, 8);
            MPI_Recv(in, 12000, MPI_UINT64_T, i % 2 ? prev : MPI_ANY_SOURCE, p->thread, p->comm, &st);
            MPI_Get_count(&st, MPI_UINT64_T, &n);
            if (n != words[i % 4] || st.MPI_SOURCE != prev ||
                in[n - 1] != mix((uint64_t)(prev * 64 + p->thread), (uint64_t)(r * 12000 + n - 1)))
                fail("order or content of messages", p->thread, r);
            p->h = mix(p->h, in[n - 1]);
        }
        MPI_Waitall(BURST, q, MPI_STATUSES_IGNORE);
        free(out);
        free(in);
    }
}

// Workers of a rank take tasks from one queue: whoever is first.
static void farm_part(struct part *p) {
    for (;;) {
        uint64_t task, result[2];
        MPI_Status st;
        MPI_Recv(&task, 1, MPI_UINT64_T, 0, MPI_ANY_TAG, p->comm, &st);
        if (st.MPI_TAG == 2) return;
        work(task, 1500);
        result[0] = task;
        result[1] = mix(task, 5);
        MPI_Send(result, 2, MPI_UINT64_T, 0, 3, p->comm);
    }
}

static void master_part(struct part *p) {
    int tasks = rounds * nthreads, workers = (size - 1) * nthreads;
    uint64_t given = 0;
    for (int w = 0; w < workers; w++, given++)
        MPI_Send(&given, 1, MPI_UINT64_T, 1 + w % (size - 1), 1, p->comm);
    for (int ends = 0; ends < workers;) {
        uint64_t result[2];
        MPI_Status st;
        MPI_Recv(result, 2, MPI_UINT64_T, MPI_ANY_SOURCE, 3, p->comm, &st);
        p->h += mix(result[0], result[1]); // in any order
        int more = given < (uint64_t)tasks;
        MPI_Send(&given, 1, MPI_UINT64_T, st.MPI_SOURCE, more ? 1 : 2, p->comm);
        given += (uint64_t)more;
        ends += !more;
    }
}

// Threads make and free objects: communicators of their own, datatypes, operations, attributes.
static void keep_larger(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    const uint64_t *x = in;
    uint64_t *y = inout;
    for (int i = 0; i < *n; i++) y[i] = x[i] > y[i] ? x[i] : y[i];
}

static void makers_part(struct part *p) {
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    for (int r = 0; r < rounds; r++) {
        MPI_Comm dup, part;
        MPI_Datatype column, both;
        MPI_Op larger;
        uint64_t out[64], in[64] = {0}, best = 0, mine = mix((uint64_t)(rank + r), p->h);
        MPI_Comm_dup(p->comm, &dup);
        MPI_Comm_split(dup, rank % 2, -rank, &part);
        MPI_Type_vector(8, 1, 8, MPI_UINT64_T, &column);
        MPI_Type_contiguous(1, column, &both);
        MPI_Type_commit(&both);
        MPI_Op_create(keep_larger, 1, &larger);
        for (int i = 0; i < 64; i++) out[i] = mix((uint64_t)(rank * 64 + p->thread), (uint64_t)(r * 64 + i));
        MPI_Sendrecv(out, 1, both, next, 7, in, 1, both, prev, 7, dup, MPI_STATUS_IGNORE);
        for (int i = 0; i < 64; i += 8)
            if (in[i] != mix((uint64_t)(prev * 64 + p->thread), (uint64_t)(r * 64 + i)))
                fail("content of a column", p->thread, r);
        work((uint64_t)(rank * 3 + r * 5 + p->thread), 500);
        MPI_Allreduce(&mine, &best, 1, MPI_UINT64_T, larger, dup);
        MPI_Allreduce(&best, &mine, 1, MPI_UINT64_T, MPI_SUM, part);
        MPI_Op_free(&larger);
        MPI_Type_free(&column);
        MPI_Type_free(&both);
        MPI_Comm_free(&part);
        MPI_Comm_free(&dup);
        p->h = mix(p->h, mix(best, mine));
    }
}

// One thread starts collectives and another one completes them: requests go from hand to hand.
enum { HANDS = 8 };
struct hand {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    MPI_Request q[HANDS];
    uint64_t in[HANDS], out[HANDS];
    int put, got;
};
static struct hand *hands;

static void hand_part(struct part *p) {
    struct hand *h = &hands[p->thread / 2];
    for (int r = 0; r < rounds; r++) {
        int i = r % HANDS;
        pthread_mutex_lock(&h->mutex);
        while (p->thread % 2 ? h->put == r : h->put - h->got == HANDS)
            pthread_cond_wait(&h->changed, &h->mutex);
        pthread_mutex_unlock(&h->mutex);
        if (p->thread % 2 == 0) {
            h->out[i] = mix((uint64_t)(rank * 64 + p->thread), (uint64_t)r);
            MPI_Iallreduce(&h->out[i], &h->in[i], 1, MPI_UINT64_T, MPI_SUM, p->comm, &h->q[i]);
            work((uint64_t)(rank + r * 3), 400);
        } else {
            uint64_t want = 0;
            for (int k = 0; k < size; k++) want += mix((uint64_t)(k * 64 + p->thread - 1), (uint64_t)r);
            if (r % 3 == 0) {
                for (int done = 0; !done;) MPI_Test(&h->q[i], &done, MPI_STATUS_IGNORE);
            } else if (r % 3 == 1) {
                int index;
                MPI_Waitany(1, &h->q[i], &index, MPI_STATUS_IGNORE);
            } else {
                MPI_Wait(&h->q[i], MPI_STATUS_IGNORE);
            }
            if (h->in[i] != want) fail("result of a reduction", p->thread, r);
            p->h = mix(p->h, h->in[i]);
        }
        pthread_mutex_lock(&h->mutex);
        *(p->thread % 2 ? &h->got : &h->put) += 1;
        pthread_cond_broadcast(&h->changed);
        pthread_mutex_unlock(&h->mutex);
    }
}

// The root of a broadcast waits, outside MPI, until another rank says in a file that it has come: who
// started the broadcast may make no call before it is complete.
static const char *file;

static uint64_t beside(void) {
    uint64_t h = 0;
    FILE *says = rank == 1 ? fopen(file, "w") : NULL;
    if (rank == 1 && says == NULL) fail(file, 0, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 0; r < rounds; r++) {
        MPI_Request q;
        uint64_t word = rank == 0 ? mix(1, (uint64_t)r) : 0;
        if (rank == 0) work((uint64_t)r, 20000);
        MPI_Ibcast(&word, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD, &q);
        if (rank == 0) {
            struct stat st;
            while (stat(file, &st) != 0 || st.st_size <= r) usleep(300);
        }
        MPI_Wait(&q, MPI_STATUS_IGNORE);
        if (rank == 1 && (fputc('.', says) == EOF || fflush(says) != 0)) fail(file, 0, r);
        h = mix(h, word);
    }
    if (rank == 1) fclose(says);
    return h;
}

// ---- the patterns ----

static uint64_t with_parts(body *f, MPI_Comm *comms) {
    struct part parts[nthreads];
    for (int i = 0; i < nthreads; i++)
        parts[i] = (struct part){i, comms ? comms[i] : MPI_COMM_WORLD, (uint64_t)i};
    together(f, parts, nthreads);
    return sum_of(parts, nthreads);
}

static uint64_t serial(void) { return with_parts(serial_part, NULL); }

static uint64_t turns(void) { return with_parts(turns_part, NULL); }

// Runs f with a communicator for each thread.
static uint64_t with_comms(body *f) {
    MPI_Comm comms[nthreads];
    for (int i = 0; i < nthreads; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    uint64_t h = with_parts(f, comms);
    for (int i = 0; i < nthreads; i++) MPI_Comm_free(&comms[i]);
    return h;
}

static uint64_t multiple(void) { return with_comms(multiple_part); }

static uint64_t makers(void) { return with_comms(makers_part); }

static uint64_t shared(void) { return with_parts(shared_part, NULL); }

static uint64_t churn(void) {
    MPI_Comm comms[nthreads];
    struct part parts[nthreads];
    for (int i = 0; i < nthreads; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
        parts[i] = (struct part){i, comms[i], (uint64_t)i};
    }
    for (int r = 0; r < rounds; r++) together(short_part, parts, 1 + r % nthreads);
    for (int i = 0; i < nthreads; i++) MPI_Comm_free(&comms[i]);
    return sum_of(parts, nthreads);
}

static uint64_t farm(void) {
    if (rank > 0) return with_parts(farm_part, NULL);
    struct part p = {0, MPI_COMM_WORLD, 0};
    together(master_part, &p, 1);
    return p.h;
}

static uint64_t handover(void) {
    int pairs = nthreads / 2;
    MPI_Comm comms[2 * pairs];
    struct part parts[2 * pairs];
    hands = calloc((size_t)pairs, sizeof *hands);
    for (int i = 0; i < 2 * pairs; i++) {
        if (i % 2 == 0) {
            MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
            pthread_mutex_init(&hands[i / 2].mutex, NULL);
            pthread_cond_init(&hands[i / 2].changed, NULL);
        }
        parts[i] = (struct part){i, comms[i - i % 2], (uint64_t)i};
    }
    together(hand_part, parts, 2 * pairs);
    for (int i = 0; i < 2 * pairs; i += 2) MPI_Comm_free(&comms[i]);
    free(hands);
    return sum_of(parts, 2 * pairs);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int level;
        uint64_t (*run)(void);
    } patterns[] = {{"funneled", MPI_THREAD_FUNNELED, funneled}, {"serial", MPI_THREAD_SERIALIZED, serial},
                    {"turns", MPI_THREAD_SERIALIZED, turns},     {"multiple", MPI_THREAD_MULTIPLE, multiple},
                    {"churn", MPI_THREAD_MULTIPLE, churn},       {"shared", MPI_THREAD_MULTIPLE, shared},
                    {"farm", MPI_THREAD_MULTIPLE, farm},         {"makers", MPI_THREAD_MULTIPLE, makers},
                    {"handover", MPI_THREAD_MULTIPLE, handover}, {"beside", MPI_THREAD_SINGLE, beside}};
    rounds = argc > 2 ? atoi(argv[2]) : 10;
    nthreads = argc > 3 ? atoi(argv[3]) : 4;
    file = argc > 4 ? argv[4] : "beside";
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (argc > 1 && strcmp(argv[1], patterns[i].name) == 0) {
            int provided;
            MPI_Init_thread(&argc, &argv, patterns[i].level, &provided);
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
            MPI_Comm_size(MPI_COMM_WORLD, &size);
            if (provided < patterns[i].level) fail("the thread level is too low", 0, 0);
            uint64_t mine = patterns[i].run(), sum = 0;
            MPI_Reduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
            if (rank == 0) printf("%s %016llx\n", argv[1], (unsigned long long)sum);
            MPI_Finalize();
            return 0;
        }
    fprintf(stderr, "usage: threads PATTERN ROUNDS THREADS [FILE]\n");
    return 2;
}
