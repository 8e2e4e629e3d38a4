// SPDX-License-Identifier: Apache-2.0
//
// syncs.c: synchronous sends among others to receivers that are late, for checkpoints at any moment.
//
//   syncs ROUNDS
//
// Whoever finds a synchronous send complete tells its receiver so.  A receiver looks for such words right
// before it starts each receive: none may be about a message that it receives then.  Rank 0 ends with one
// line "syncs RESULT", which follows from the rounds and the number of ranks alone.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../testdata/work.h"

enum { N = 9, RANKS = 8, TAGS = 3, WORDS = 3000, WORD = 90, CALL = 91 };
enum { PLAIN, SYNC, PERSISTENT, KINDS };

// A message: what rank `from` sends as number i of a round.
struct what {
    int to, tag, comm, kind, words;
};

static int rank, size;
static MPI_Comm comms[2];
static int told[RANKS][N + 1]; // this round: the senders' words; [N]: the blocking call
static int received[RANKS][N]; // this round
static uint64_t *out[N], in[WORDS], hash;

static void check(int good, const char *what, int round) {
    if (good) return;
    fprintf(stderr, "rank %d round %d: %s\n", rank, round, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static struct what what(int round, int from, int i) {
    uint64_t h = mix(mix((uint64_t)round, (uint64_t)from), (uint64_t)i);
    return (struct what){(int)(h % (uint64_t)size), (int)((h >> 8) % TAGS), (int)(h >> 16) & 1,
                         (int)((h >> 20) % KINDS), (h >> 24) % 12 == 0 ? WORDS : 2 + (int)((h >> 28) % 20)};
}

// ---- the sender ----

static MPI_Request sends[N], words[N + 1];
static int word_of[N + 1], nwords;

static void say(int to, int i) {
    word_of[nwords] = i;
    MPI_Isend(&word_of[nwords], 1, MPI_INT, to, WORD, MPI_COMM_WORLD, &words[nwords]);
    nwords++;
}

static void send_all(int round) {
    nwords = 0;
    for (int i = 0; i < N; i++) {
        struct what w = what(round, rank, i);
        out[i][0] = (uint64_t)i;
        for (int k = 1; k < w.words; k++) out[i][k] = mix((uint64_t)(round * 100 + i), (uint64_t)k);
        if (w.kind == PLAIN) {
            MPI_Isend(out[i], w.words, MPI_UINT64_T, w.to, w.tag, comms[w.comm], &sends[i]);
        } else if (w.kind == SYNC) {
            MPI_Issend(out[i], w.words, MPI_UINT64_T, w.to, w.tag, comms[w.comm], &sends[i]);
        } else {
            MPI_Ssend_init(out[i], w.words, MPI_UINT64_T, w.to, w.tag, comms[w.comm], &sends[i]);
            MPI_Start(&sends[i]);
        }
        if (i % 4 == 3) work(mix((uint64_t)round, (uint64_t)(rank + i)), 400);
    }
}

static void complete(int round, int i) {
    struct what w = what(round, rank, i);
    if (w.kind == PERSISTENT) MPI_Request_free(&sends[i]);
    if (w.kind != PLAIN) say(w.to, i);
}

// Looks for complete sends in one of the ways there are, or waits for one; 0 when none is left.
static int look(int round, unsigned way, int wait) {
    int index = MPI_UNDEFINED, flag = 0, n = 0, indices[N], left = 0;
    if (wait && way % 3 == 0) {
        MPI_Waitany(N, sends, &index, MPI_STATUS_IGNORE);
    } else if (way % 4 == 0) {
        MPI_Testany(N, sends, &index, &flag, MPI_STATUS_IGNORE);
    } else if (way % 4 == 1 || (wait && way % 3 == 1)) {
        if (wait)
            MPI_Waitsome(N, sends, &n, indices, MPI_STATUSES_IGNORE);
        else
            MPI_Testsome(N, sends, &n, indices, MPI_STATUSES_IGNORE);
        for (int k = 0; k < n && n != MPI_UNDEFINED; k++) complete(round, indices[k]);
    } else {
        for (int i = 0; i < N && !flag; i++) {
            if (sends[i] == MPI_REQUEST_NULL) continue;
            if (way % 4 == 2)
                MPI_Request_get_status(sends[i], &flag, MPI_STATUS_IGNORE);
            else
                MPI_Test(&sends[i], &flag, MPI_STATUS_IGNORE);
            if (flag && way % 4 == 2) MPI_Wait(&sends[i], MPI_STATUS_IGNORE);
            if (flag) complete(round, i);
        }
    }
    if (index != MPI_UNDEFINED) complete(round, index);
    for (int i = 0; i < N; i++) left += sends[i] != MPI_REQUEST_NULL;
    return left;
}

// ---- the receiver ----

static void hear(int round, int wait) {
    MPI_Status s;
    int flag = 1, i;
    for (;;) {
        if (!wait) MPI_Iprobe(MPI_ANY_SOURCE, WORD, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        if (!flag) return;
        MPI_Recv(&i, 1, MPI_INT, MPI_ANY_SOURCE, WORD, MPI_COMM_WORLD, &s);
        check(i >= 0 && i <= N && !told[s.MPI_SOURCE][i], "a word", round);
        told[s.MPI_SOURCE][i] = 1;
        if (wait) return;
    }
}

// The next message from there with that tag: those before it are received.
static int next_of(int round, int from, int tag, int comm) {
    for (int i = 0; i < N; i++) {
        struct what w = what(round, from, i);
        if (w.to == rank && w.tag == tag && w.comm == comm && !received[from][i]) return i;
    }
    return -1;
}

static void got(int round, const MPI_Status *s, int comm, const int (*before)[N + 1]) {
    int from = s->MPI_SOURCE, n = 0, i = (int)in[0];
    check(i == next_of(round, from, s->MPI_TAG, comm), "messages out of order", round);
    struct what w = what(round, from, i);
    MPI_Get_count(s, MPI_UINT64_T, &n);
    check(n == w.words, "a message's length", round);
    check(!before[from][i], "a synchronous send was complete before its message was received", round);
    for (int k = 1; k < n; k++)
        check(in[k] == mix((uint64_t)(round * 100 + i), (uint64_t)k), "a message's content", round);
    received[from][i] = 1;
    hash += mix(mix((uint64_t)round, (uint64_t)(from * 100 + i)), in[1]);
}

static int expected(int round, int comm) {
    int n = 0;
    for (int from = 0; from < size; from++)
        for (int i = 0; i < N; i++) {
            struct what w = what(round, from, i);
            n += w.to == rank && w.comm == comm && !received[from][i];
        }
    return n;
}

static void receive_one(int round, unsigned way) {
    int comm = expected(round, (int)(way & 1)) > 0 ? (int)(way & 1) : 1 - (int)(way & 1);
    int before[RANKS][N + 1], source = MPI_ANY_SOURCE, tag = MPI_ANY_TAG;
    MPI_Status s;
    MPI_Message m;
    MPI_Request q;
    for (int k = (int)(way >> 4) % (size * N), n = 0; n < size * N && way & 2;
         n++, k = (k + 1) % (size * N)) {
        struct what w = what(round, k / N, k % N);
        if (w.to == rank && w.comm == comm && !received[k / N][k % N]) {
            source = k / N;
            tag = way & 4 ? w.tag : MPI_ANY_TAG;
            break;
        }
    }
    // On the world there are words and calls too.
    if (tag == MPI_ANY_TAG && comm == 0) {
        int flag = 0;
        for (tag = 0; !flag; tag = flag ? tag : (tag + 1) % TAGS)
            MPI_Iprobe(source, tag, comms[comm], &flag, MPI_STATUS_IGNORE);
    }
    if (way % 5 == 1) MPI_Mprobe(source, tag, comms[comm], &m, MPI_STATUS_IGNORE);
    work(mix((uint64_t)round, way), 900);
    hear(round, 0);
    memcpy(before, told, sizeof before);
    if (way % 5 == 1) {
        MPI_Mrecv(in, WORDS, MPI_UINT64_T, &m, &s);
    } else if (way % 5 == 2) {
        MPI_Irecv(in, WORDS, MPI_UINT64_T, source, tag, comms[comm], &q);
        MPI_Wait(&q, &s);
    } else {
        MPI_Recv(in, WORDS, MPI_UINT64_T, source, tag, comms[comm], &s);
    }
    got(round, &s, comm, (const int(*)[N + 1]) before);
}

// One rank is in a call that its receiver lets wait.
static void call(int round) {
    int sender = round % size, to = (sender + 1) % size;
    uint64_t v = mix((uint64_t)round, 5), w = 0;
    if (size < 2) return;
    if (rank == sender) {
        MPI_Ssend(&v, 1, MPI_UINT64_T, to, CALL, MPI_COMM_WORLD);
        say(to, N);
    }
    if (rank == to) {
        work(v, 5000);
        hear(round, 0);
        check(!told[sender][N], "a synchronous call was complete before its message was received", round);
        MPI_Recv(&w, 1, MPI_UINT64_T, sender, CALL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(v == w, "the message of a call", round);
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(size <= RANKS, "too many ranks", 0);
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    for (int i = 0; i < N; i++) out[i] = malloc(WORDS * sizeof(uint64_t));
    for (int round = 0; round < rounds; round++) {
        memset(told, 0, sizeof told);
        memset(received, 0, sizeof received);
        int words_due = rank == (round % size + 1) % size && size > 1, words_heard = 0;
        for (int from = 0; from < size; from++)
            for (int i = 0; i < N; i++) {
                struct what w = what(round, from, i);
                words_due += w.to == rank && w.kind != PLAIN;
            }
        send_all(round);
        for (int n = expected(round, 0) + expected(round, 1); n > 0; n--) {
            unsigned way = (unsigned)mix(mix((uint64_t)round, (uint64_t)rank), (uint64_t)n);
            work(way, 900);
            look(round, way >> 7, 0);
            receive_one(round, way);
        }
        call(round);
        for (unsigned way = (unsigned)round; look(round, way, (int)way & 1); way++)
            ;
        for (int from = 0; from < size; from++)
            for (int i = 0; i <= N; i++) words_heard += told[from][i];
        for (; words_heard < words_due; words_heard++) hear(round, 1);
        MPI_Waitall(nwords, words, MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Comm_free(&comms[1]);
    uint64_t sum = 0;
    MPI_Reduce(&hash, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("syncs %016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
