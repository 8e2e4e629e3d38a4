// SPDX-License-Identifier: Apache-2.0
//
// patterns.c: programs that know nothing of checkpoints, for checkpoints at any moment.
//
//   patterns PATTERN ROUNDS
//
// Each pattern is deterministic and ends with one line "PATTERN RESULT" from rank 0, which must be
// the same whatever happened in between.  Between messages the ranks compute for random times,
// seeded by rank and round.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../testdata/work.h"

static int rank, size;

static void fail(const char *what, int round) {
    fprintf(stderr, "rank %d round %d: %s\n", rank, round, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

// Many non-blocking sends of all sizes around a ring, received late, some with wildcards.
static uint64_t ring(int rounds) {
    enum { N = 40 };
    uint64_t h = (uint64_t)rank;
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    static uint64_t *out[N], *in[N];
    for (int i = 0; i < N; i++) {
        size_t words = i % 10 == 9 ? 40000 : (size_t)(1 + i * i);
        out[i] = malloc(words * 8);
        in[i] = malloc(words * 8);
    }
    for (int r = 0; r < rounds; r++) {
        MPI_Request req[2 * N];
        int n = 0;
        for (int i = 0; i < N; i++) {
            int words = i % 10 == 9 ? 40000 : 1 + i * i;
            for (int w = 0; w < words; w++)
                out[i][w] = mix((uint64_t)rank * 1000003u + (uint64_t)r, (uint64_t)(i * 65536 + w));
            MPI_Isend(out[i], words, MPI_UINT64_T, next, i, MPI_COMM_WORLD, &req[n++]);
        }
        work((uint64_t)(rank * 7 + r), 3000);
        for (int i = 0; i < N; i += 2) {
            int words = i % 10 == 9 ? 40000 : 1 + i * i;
            MPI_Irecv(in[i], words, MPI_UINT64_T, i % 4 ? MPI_ANY_SOURCE : prev, i, MPI_COMM_WORLD,
                      &req[n++]);
        }
        work((uint64_t)(rank * 13 + r), 2000);
        for (int i = 1; i < N; i += 2) {
            int words = i % 10 == 9 ? 40000 : 1 + i * i;
            MPI_Status st;
            MPI_Recv(in[i], words, MPI_UINT64_T, i % 3 ? prev : MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &st);
            int count;
            MPI_Get_count(&st, MPI_UINT64_T, &count);
            if (count != words || st.MPI_SOURCE != prev || st.MPI_TAG != i) fail("status of a receive", r);
        }
        MPI_Status sts[2 * N];
        MPI_Waitall(n, req, sts);
        for (int k = N; k < n; k++)
            if (sts[k].MPI_SOURCE != prev || sts[k].MPI_TAG != 2 * (k - N)) fail("status of Waitall", r);
        for (int i = 0; i < N; i++) {
            int words = i % 10 == 9 ? 40000 : 1 + i * i;
            for (int w = 0; w < words; w++)
                if (in[i][w] != mix((uint64_t)prev * 1000003u + (uint64_t)r, (uint64_t)(i * 65536 + w)))
                    fail("content of a message", r);
            h = mix(h, in[i][words - 1]);
        }
    }
    return h;
}

// A farm: rank 0 gives out tasks and takes results from anybody.
static uint64_t farm(int rounds) {
    uint64_t sum = 0;
    if (rank == 0) {
        int given = 0, taken = 0;
        for (int w = 1; w < size; w++) {
            uint64_t task = (uint64_t)given;
            MPI_Send(&task, 1, MPI_UINT64_T, w, given < rounds ? 1 : 2, MPI_COMM_WORLD);
            given += given < rounds;
        }
        while (taken < rounds) {
            uint64_t result[2];
            MPI_Status st;
            if (taken % 2) {
                MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &st);
                MPI_Recv(result, 2, MPI_UINT64_T, st.MPI_SOURCE, st.MPI_TAG, MPI_COMM_WORLD, &st);
            } else {
                MPI_Message m;
                MPI_Mprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &m, &st);
                work((uint64_t)taken, 300);
                MPI_Mrecv(result, 2, MPI_UINT64_T, &m, &st);
            }
            sum += mix(result[0], result[1]);
            taken++;
            uint64_t task = (uint64_t)given;
            MPI_Send(&task, 1, MPI_UINT64_T, st.MPI_SOURCE, given < rounds ? 1 : 2, MPI_COMM_WORLD);
            given += given < rounds;
        }
        return sum;
    }
    for (;;) {
        uint64_t task;
        MPI_Status st;
        MPI_Recv(&task, 1, MPI_UINT64_T, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &st);
        if (st.MPI_TAG == 2) return 0;
        work(task, 4000);
        uint64_t result[2] = {task, mix(task, 5)};
        MPI_Send(result, 2, MPI_UINT64_T, 0, 3, MPI_COMM_WORLD);
    }
}

// Never blocks: Iprobe, Improbe, Test, Testany, Testsome.
static uint64_t polling(int rounds) {
    uint64_t h = 0;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int r = 0; r < rounds; r++) {
        uint64_t mine = mix((uint64_t)rank, (uint64_t)r), got = 0;
        MPI_Request send[8];
        int sent = 0, have = 0, done = 0;
        for (int p = 0; p < size; p++)
            if (p != rank) MPI_Isend(&mine, 1, MPI_UINT64_T, p, r, comm, &send[sent++]);
        uint64_t sum = 0;
        while (have < size - 1 || !done) {
            int flag = 0;
            MPI_Status st;
            if (have < size - 1) {
                if (r % 3 == 0) {
                    MPI_Iprobe(MPI_ANY_SOURCE, r, comm, &flag, &st);
                    if (flag) MPI_Recv(&got, 1, MPI_UINT64_T, st.MPI_SOURCE, r, comm, &st);
                } else {
                    MPI_Message m;
                    MPI_Improbe(MPI_ANY_SOURCE, r, comm, &flag, &m, &st);
                    if (flag) {
                        MPI_Request q;
                        MPI_Imrecv(&got, 1, MPI_UINT64_T, &m, &q);
                        int f = 0, index;
                        while (!f)
                            if (r % 2)
                                MPI_Test(&q, &f, &st);
                            else
                                MPI_Testany(1, &q, &index, &f, &st);
                    }
                }
                if (flag) {
                    if (got != mix((uint64_t)st.MPI_SOURCE, (uint64_t)r)) fail("polled message", r);
                    sum += got;
                    have++;
                }
            }
            if (!done) MPI_Testall(sent, send, &done, MPI_STATUSES_IGNORE);
            work((uint64_t)(r * size + rank), 100);
        }
        h = mix(h, sum);
    }
    MPI_Comm_free(&comm);
    return h;
}

// Blocking and non-blocking collectives on several communicators, members at different times.
static uint64_t colls(int rounds) {
    uint64_t h = 0;
    MPI_Comm half, dup;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    for (int r = 0; r < rounds; r++) {
        uint64_t mine = mix((uint64_t)rank, (uint64_t)r), all, part, later;
        MPI_Request q[2];
        work((uint64_t)(rank * 31 + r), 3000);
        MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        work((uint64_t)(rank * 37 + r), 3000);
        MPI_Iallreduce(&mine, &later, 1, MPI_UINT64_T, MPI_BXOR, dup, &q[0]);
        MPI_Ibarrier(MPI_COMM_WORLD, &q[1]);
        work((uint64_t)(rank * 41 + r), 2000);
        MPI_Allreduce(&mine, &part, 1, MPI_UINT64_T, MPI_SUM, half);
        uint64_t root = rank == r % size ? all : 0;
        MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
        MPI_Bcast(&root, 1, MPI_UINT64_T, r % size, dup);
        if (root != all) fail("broadcast", r);
        MPI_Allreduce(MPI_IN_PLACE, &part, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        h = mix(mix(mix(h, all), part), later);
        if (r % 16 == 0) { // communicators come and go
            MPI_Comm_free(&dup);
            MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        }
        if (r % 8 == 0) MPI_Barrier(half);
    }
    MPI_Comm_free(&half);
    MPI_Comm_free(&dup);
    return h;
}

// Persistent requests, Sendrecv, buffered sends, a derived datatype.
static uint64_t halo(int rounds) {
    enum { N = 300 };
    static double a[N][N];
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    MPI_Datatype column;
    MPI_Request q[4];
    MPI_Type_vector(N, 1, N, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    static char buffer[1 << 20];
    MPI_Buffer_attach(buffer, sizeof buffer);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) a[i][k] = rank + i * 0.5 + k * 0.25;
    MPI_Recv_init(&a[0][0], 1, column, prev, 1, MPI_COMM_WORLD, &q[0]);
    MPI_Recv_init(&a[0][N - 1], 1, column, next, 2, MPI_COMM_WORLD, &q[1]);
    MPI_Send_init(&a[0][1], 1, column, prev, 2, MPI_COMM_WORLD, &q[2]);
    MPI_Send_init(&a[0][N - 2], 1, column, next, 1, MPI_COMM_WORLD, &q[3]);
    for (int r = 0; r < rounds; r++) {
        MPI_Startall(4, q);
        work((uint64_t)(rank * 3 + r), 2000);
        MPI_Waitall(4, q, MPI_STATUSES_IGNORE);
        for (int i = 0; i < N; i++)
            for (int k = 1; k < N - 1; k++) a[i][k] = 0.25 * a[i][k - 1] + 0.5 * a[i][k] + 0.25 * a[i][k + 1];
        double edge = a[r % N][1], other = 0;
        MPI_Sendrecv(&edge, 1, MPI_DOUBLE, next, 9, &other, 1, MPI_DOUBLE, prev, 9, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        a[r % N][2] += 1e-3 * other;
        MPI_Sendrecv_replace(&other, 1, MPI_DOUBLE, prev, 10, next, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        a[r % N][3] += 1e-3 * other;
        MPI_Bsend(&edge, 1, MPI_DOUBLE, next, 11, MPI_COMM_WORLD);
        work((uint64_t)(rank * 5 + r), 1000);
        MPI_Recv(&other, 1, MPI_DOUBLE, prev, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        a[r % N][4] += 1e-3 * other;
        int peer = rank ^ 1;
        if (r % 5 == 0 && peer < size) { // synchronous: even ranks first
            if (rank % 2 == 0) MPI_Ssend(&edge, 1, MPI_DOUBLE, peer, 12, MPI_COMM_WORLD);
            MPI_Recv(&other, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank % 2 == 1) MPI_Ssend(&edge, 1, MPI_DOUBLE, peer, 12, MPI_COMM_WORLD);
        }
    }
    double sum = 0;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) sum += a[i][k];
    for (int i = 0; i < 4; i++) MPI_Request_free(&q[i]);
    void *p;
    int n;
    MPI_Buffer_detach(&p, &n);
    MPI_Type_free(&column);
    uint64_t bits;
    memcpy(&bits, &sum, 8);
    return bits;
}

// One rank computes for long while the others wait for it in a barrier.
static uint64_t stuck(int rounds) {
    uint64_t h = 0;
    for (int r = 0; r < rounds; r++) {
        if (rank == r % size) work(1, 0), work((uint64_t)r, 60000);
        MPI_Barrier(MPI_COMM_WORLD);
        h = mix(h, (uint64_t)r);
    }
    return h;
}

// Communicators that some members have freed while others still compute: with collective calls on
// them, with messages only, and with neither.
static uint64_t leaving(int rounds) {
    uint64_t h = 0;
    for (int r = 0; r < rounds; r++) {
        MPI_Comm dup, half;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        MPI_Comm_split(dup, rank % 2, rank, &half);
        uint64_t v = mix((uint64_t)rank, (uint64_t)r), got = v;
        if (r % 3 == 0)
            MPI_Bcast(&got, 1, MPI_UINT64_T, r % size, dup);
        else if (r % 3 == 1)
            MPI_Sendrecv(&v, 1, MPI_UINT64_T, (rank + 1) % size, 1, &got, 1, MPI_UINT64_T,
                         (rank + size - 1) % size, 1, dup, MPI_STATUS_IGNORE);
        h = mix(h, got);
        if (rank == r % size) work((uint64_t)r, 200000);
        MPI_Comm_free(&dup);
        if (rank == (r + 1) % size) work((uint64_t)r, 200000);
        MPI_Comm_free(&half);
    }
    return h;
}

static void add(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) ((uint64_t *)inout)[i] += ((uint64_t *)in)[i];
}

// What MPI needs longer than the program: datatypes and operations of calls that are under way, receives,
// communicators.
static uint64_t freeing(int rounds) {
    enum { N = 8 };
    uint64_t h = 0;
    int next = (rank + 1) % size, prev = (rank + size - 1) % size;
    for (int r = 0; r < rounds; r++) {
        static uint64_t to[N * 64], from[N * 64];
        int counts[64], at[64];
        uint64_t mine = mix((uint64_t)rank, (uint64_t)r), sum = 0, early = 0, late = 0, other = 0;
        MPI_Datatype types[64], every;
        MPI_Op plus;
        MPI_Request q[5];
        MPI_Comm dup, twin;
        MPI_Comm_idup(MPI_COMM_WORLD, &twin, &q[3]);
        MPI_Wait(&q[3], MPI_STATUS_IGNORE); // Open MPI 4.1 mixes its steps up with other non-blocking calls
        MPI_Irecv(&early, 1, MPI_UINT64_T, prev, 1, MPI_COMM_WORLD, &q[0]);
        MPI_Request_free(&q[0]);
        uint64_t apart[N] = {0}; // every second word, received in the end
        MPI_Type_vector(N / 2, 1, 2, MPI_UINT64_T, &every);
        MPI_Type_commit(&every);
        MPI_Irecv(apart, 1, every, prev, 5, MPI_COMM_WORLD, &q[4]);
        MPI_Type_free(&every);
        work((uint64_t)(rank * 31 + r), 4000);
        MPI_Op_create(add, 1, &plus);
        MPI_Iallreduce(&mine, &sum, 1, MPI_UINT64_T, plus, MPI_COMM_WORLD, &q[0]);
        MPI_Op_free(&plus);
        for (int p = 0; p < size; p++) { // every second word
            MPI_Type_vector(N / 2, 1, 2, MPI_UINT64_T, &types[p]);
            MPI_Type_commit(&types[p]);
            counts[p] = 1;
            at[p] = p * N * 8;
            for (int i = 0; i < N; i++) to[p * N + i] = mix(mine, (uint64_t)(p * N + i)), from[p * N + i] = 0;
        }
        MPI_Ialltoallw(to, counts, at, types, from, counts, at, types, MPI_COMM_WORLD, &q[1]);
        for (int p = 0; p < size; p++) MPI_Type_free(&types[p]);
        uint64_t word[2 * N];
        for (int i = 0; i < 2 * N; i++) word[i] = rank == r % size ? mix((uint64_t)r, (uint64_t)i) : 0;
        MPI_Type_vector(N, 1, 2, MPI_UINT64_T, &every);
        MPI_Type_commit(&every);
        MPI_Ibcast(word, 1, every, r % size, MPI_COMM_WORLD, &q[2]);
        MPI_Type_free(&every);
        work((uint64_t)(rank * 37 + r), 4000);
        MPI_Send(&mine, 1, MPI_UINT64_T, next, 1, MPI_COMM_WORLD);
        MPI_Waitall(3, q, MPI_STATUSES_IGNORE);
        MPI_Sendrecv(&mine, 1, MPI_UINT64_T, next, 2, &late, 1, MPI_UINT64_T, prev, 2, twin,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(&mine, 1, MPI_UINT64_T, next, 3, &late, 1, MPI_UINT64_T, prev, 3, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE); // behind the first one
        MPI_Comm_free(&twin);
        // Received when its communicator is gone, and another one has its place.
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        MPI_Irecv(&other, 1, MPI_UINT64_T, prev, 4, dup, &q[0]);
        MPI_Isend(&mine, 1, MPI_UINT64_T, next, 4, dup, &q[1]);
        MPI_Comm_free(&dup);
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
        work((uint64_t)(rank * 41 + r), 4000);
        MPI_Comm_free(&dup);
        uint64_t close[N / 2];
        for (int i = 0; i < N / 2; i++) close[i] = mix((uint64_t)r, (uint64_t)(i + 7));
        MPI_Send(close, N / 2, MPI_UINT64_T, next, 5, MPI_COMM_WORLD);
        MPI_Wait(&q[4], MPI_STATUS_IGNORE);
        for (int i = 0; i < N; i++)
            if (apart[i] != (i % 2 ? 0 : close[i / 2])) fail("a message whose datatype was freed", r);
        if (early != late || other != late) fail("a message", r);
        h = mix(mix(h, sum), early);
        for (int i = 0; i < size * N; i++) h = mix(h, from[i]);
        for (int i = 0; i < 2 * N; i++) h = mix(h, word[i]);
    }
    return h;
}

// Communicators whose members have none of their own before: a part of the world, and two groups that
// do not know each other; while collective calls on the old ones are under way.
static uint64_t meeting(int rounds) {
    uint64_t h = 0;
    MPI_Comm half;
    MPI_Group everyone;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_group(MPI_COMM_WORLD, &everyone);
    for (int r = 0; r < rounds; r++) {
        uint64_t mine = mix((uint64_t)rank, (uint64_t)r), all, later, theirs = 0, merged = 0, few = 0;
        MPI_Comm inter, both, part;
        MPI_Request q[2];
        work((uint64_t)(rank * 31 + r), 6000);
        MPI_Iallreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD, &q[0]);
        MPI_Iallreduce(&mine, &later, 1, MPI_UINT64_T, MPI_SUM, half, &q[1]);
        work((uint64_t)(rank * 37 + r), 6000);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, r % 5, &inter);
        MPI_Allreduce(&mine, &theirs, 1, MPI_UINT64_T, MPI_SUM, inter);
        work((uint64_t)(rank * 41 + r), 6000);
        MPI_Intercomm_merge(inter, rank % 2, &both);
        MPI_Comm_free(&inter);
        MPI_Allreduce(&mine, &merged, 1, MPI_UINT64_T, MPI_BXOR, both);
        MPI_Comm_free(&both);
        int pair[2] = {r % size, (r + 1) % size};
        if (rank == pair[0] || rank == pair[1]) {
            MPI_Group group;
            MPI_Group_incl(everyone, 2, pair, &group);
            work((uint64_t)(rank * 43 + r), 6000);
            MPI_Comm_create_group(MPI_COMM_WORLD, group, r % 3, &part);
            MPI_Group_free(&group);
            MPI_Allreduce(&mine, &few, 1, MPI_UINT64_T, MPI_SUM, part);
            MPI_Comm_free(&part);
        }
        MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
        h = mix(mix(mix(mix(mix(h, all), later), theirs), merged), few);
    }
    MPI_Group_free(&everyone);
    MPI_Comm_free(&half);
    return h;
}

// Takes the message that is under way on a communicator, and frees it.
static uint64_t close_one(MPI_Comm *comm, MPI_Request *sent, uint64_t h) {
    int me, n, token;
    MPI_Comm_rank(*comm, &me);
    MPI_Comm_size(*comm, &n);
    if (n > 1) {
        MPI_Recv(&token, 1, MPI_INT, (me + n - 1) % n, 3, *comm, MPI_STATUS_IGNORE);
        MPI_Wait(sent, MPI_STATUS_IGNORE);
        h = mix(h, (uint64_t)token);
    }
    MPI_Comm_free(comm);
    return h;
}

// Many communicators, made and freed one after the other, and used by calls that wait for nobody: a rank may have made,
// used and freed some that another one has not come to.  Some stay for long; some have a message under way.
static uint64_t plenty(int rounds) {
    enum { OPEN = 7, EACH = 12 };
    uint64_t h = (uint64_t)rank;
    MPI_Comm open[OPEN];
    MPI_Request sent[OPEN];
    for (int i = 0; i < OPEN; i++) open[i] = MPI_COMM_NULL;
    for (int r = 0; r < rounds; r++) {
        // Who comes first sends, and frees all of them, before another one has begun.
        MPI_Comm few[OPEN];
        for (int i = 0; i < OPEN; i++) MPI_Comm_dup(MPI_COMM_WORLD, &few[i]);
        work((uint64_t)(rank * 29 + r), 12000);
        for (int i = 0; i < OPEN; i++) {
            uint64_t word = mix((uint64_t)r, (uint64_t)(rank + i));
            MPI_Bcast(&word, 1, MPI_UINT64_T, r % size, few[i]);
            MPI_Comm_free(&few[i]);
            h = mix(h, word);
        }
        for (int k = 0; k < EACH; k++) {
            uint64_t turn = mix((uint64_t)r, (uint64_t)k); // the same on all ranks
            int i = (int)(turn % OPEN), me, n;
            if (open[i] != MPI_COMM_NULL && turn % 5 != 0) // else it stays
                h = close_one(&open[i], &sent[i], h);
            if (open[i] == MPI_COMM_NULL) {
                if (turn / 7 % 3 == 0)
                    MPI_Comm_dup(MPI_COMM_WORLD, &open[i]);
                else
                    MPI_Comm_split(MPI_COMM_WORLD, (int)(((unsigned)rank + turn / 11) % 2),
                                   (int)(turn / 13 % 2) ? -rank : rank, &open[i]);
                if (turn / 17 % 4 == 0) MPI_Comm_set_name(open[i], "one of many");
                MPI_Comm_rank(open[i], &me);
                MPI_Comm_size(open[i], &n);
                static int tokens[OPEN]; // until the message is sent
                tokens[i] = (int)(turn >> 40) + me;
                if (n > 1) MPI_Isend(&tokens[i], 1, MPI_INT, (me + 1) % n, 3, open[i], &sent[i]);
            }
            uint64_t word = mix(turn, (uint64_t)rank), sum = 0;
            MPI_Comm_size(open[i], &n);
            MPI_Bcast(&word, 1, MPI_UINT64_T, (int)(turn / 19 % (unsigned)n), open[i]);
            MPI_Reduce(&word, &sum, 1, MPI_UINT64_T, MPI_SUM, (int)(turn / 23 % (unsigned)n), open[i]);
            h = mix(mix(h, word), sum);
        }
    }
    for (int i = 0; i < OPEN; i++)
        if (open[i] != MPI_COMM_NULL) h = close_one(&open[i], &sent[i], h);
    return h;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        uint64_t (*run)(int);
    } patterns[] = {{"ring", ring},       {"farm", farm},    {"polling", polling}, {"colls", colls},
                    {"halo", halo},       {"stuck", stuck},  {"leaving", leaving}, {"meeting", meeting},
                    {"freeing", freeing}, {"plenty", plenty}};
    int rounds = argc > 2 ? atoi(argv[2]) : 100;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (argc > 1 && strcmp(argv[1], patterns[i].name) == 0) {
            uint64_t mine = patterns[i].run(rounds), sum = 0;
            MPI_Reduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
            if (rank == 0) printf("%s %016llx\n", argv[1], (unsigned long long)sum);
            MPI_Finalize();
            return 0;
        }
    fprintf(stderr,
            "usage: patterns ring|farm|polling|colls|halo|stuck|leaving|meeting|freeing|plenty ROUNDS\n");
    MPI_Finalize();
    return 2;
}
