// SPDX-License-Identifier: Apache-2.0
//
// mailboxes.c: processes that pass a turn by System V semaphores and message queues, and look at all that can be seen of them.
//
//   mailboxes KEY STEPS FILE     a job of processes whose number is in CKPT_RANK or the like, else one by itself
//
// The semaphores and the queue that are found by KEY:
//   - a semaphore of each process, by which it gets its turn, and another one, which it holds with SEM_UNDO to its end
//   - a queue with a message for the process whose turn it is
// Private ones, whose ids the first process tells by messages:
//   - semaphores whose values change in every step
//   - a queue with a backlog: its first message becomes its last one
// All but one process always wait for their turn, by turns in semop, semtimedop and msgrcv.  The file FILE lets the program
// come to its end.
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 64, VALUES = 5, BACKLOG = 7, WORDS = 50, END_SECONDS = 60, OTHERS_MOST = 20 };

static int rank, ranks = 1;

#define CHECK(what)                                                                                 \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            fprintf(stderr, "rank %d, line %d: %s (%s)\n", rank, __LINE__, #what, strerror(errno)); \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

struct turn {
    long type; // whose it is, and 1
    long step;
    int values, backlog; // ids of what is private
    int last;            // there are no more steps
    uint64_t word[WORDS];
};

struct kept {
    long type;
    long number;
};

static uint64_t value(long step, int i) {
    uint64_t x = (uint64_t)step * 0x9e3779b97f4a7c15u + (uint64_t)i * 1000003u;
    return x ^ x >> 29;
}

static int operate(int set, int number, int add, int flags) {
    struct sembuf op = {(unsigned short)number, (short)add, (short)flags};
    return semop(set, &op, 1);
}

static int one_of(int set, int number) { return semctl(set, number, GETVAL); }

static void number_of(const char *const names[], int *to) {
    for (int i = 0; names[i]; i++)
        if (getenv(names[i])) *to = atoi(getenv(names[i]));
}

// Gets the turn of this step: the message and the semaphore come in an order that the step tells.
static struct turn get(long step, int set, int queue) {
    struct turn t;
    struct sembuf op = {(unsigned short)rank, -1, 0};
    struct timespec long_enough = {3600, 0};
    long how = step / ranks % 3;
    if (how == 0) CHECK(operate(set, rank, -1, 0) == 0);
    if (how == 1) CHECK(semtimedop(set, &op, 1, &long_enough) == 0);
    CHECK(msgrcv(queue, &t, sizeof t - sizeof t.type, rank + 1, how == 2 ? 0 : IPC_NOWAIT) ==
          sizeof t - sizeof t.type);
    if (how == 2) CHECK(operate(set, rank, -1, IPC_NOWAIT) == 0);
    CHECK(t.step == step);
    for (int i = 0; i < WORDS; i++) CHECK(t.word[i] == value(step, i));
    return t;
}

static void give(struct turn *t, int set, int queue) {
    int next = (int)(++t->step % ranks);
    t->type = next + 1;
    for (int i = 0; i < WORDS; i++) t->word[i] = value(t->step, i);
    bool first = t->step / ranks % 3 == 2; // the semaphore, as the other one waits for the message
    if (first) CHECK(operate(set, next, 1, 0) == 0);
    CHECK(msgsnd(queue, t, sizeof *t - sizeof t->type, 0) == 0);
    if (!first) CHECK(operate(set, next, 1, 0) == 0);
}

// After a restart it is the one who has made it again: once for each.
static void used_by_me(pid_t last) {
    static int others;
    CHECK(last == getpid() || ++others <= OTHERS_MOST);
}

static void look(const struct turn *t, int set, int queue, key_t key) {
    struct semid_ds sd;
    struct msqid_ds qd, bd;
    unsigned short values[VALUES];
    CHECK(semget(key, 0, 0) == set && msgget(key, 0) == queue);
    CHECK(semctl(set, 0, IPC_STAT, &sd) == 0 && sd.sem_nsems == (unsigned)(2 * ranks));
    CHECK((sd.sem_perm.mode & 07777) == 0640 && sd.sem_perm.__key == key);
    CHECK(msgctl(queue, IPC_STAT, &qd) == 0 && qd.msg_qnum == 0 && qd.msg_perm.__key == key);
    CHECK((qd.msg_perm.mode & 07777) == 0620);
    used_by_me(qd.msg_lrpid);
    CHECK(msgctl(t->backlog, IPC_STAT, &bd) == 0 && bd.msg_qnum == BACKLOG && bd.msg_qbytes == 4096);
    CHECK(semctl(t->values, 0, GETALL, values) == 0);
    for (int i = 0; i < VALUES; i++) CHECK(values[i] == (value(t->step, i) & 0x7fff));
    for (int r = 0; r < ranks; r++) // in the last round processes end
        CHECK((one_of(set, ranks + r) == 0 || t->last) && one_of(set, r) == 0);
    used_by_me(semctl(set, ranks + rank, GETPID));
}

static void change(const struct turn *t, int set) {
    unsigned short values[VALUES];
    struct kept k;
    for (int i = 0; i < VALUES; i++) values[i] = (unsigned short)(value(t->step + 1, i) & 0x7fff);
    if (t->step % 2)
        CHECK(semctl(t->values, 0, SETALL, values) == 0);
    else
        for (int i = 0; i < VALUES; i++) CHECK(semctl(t->values, i, SETVAL, (int)values[i]) == 0);
    CHECK(msgrcv(t->backlog, &k, sizeof k.number, 0, IPC_NOWAIT) == sizeof k.number && k.number == t->step);
    CHECK(k.type == 1 + t->step % 3);
    k.number = t->step + BACKLOG;
    k.type = 1 + k.number % 3;
    CHECK(msgsnd(t->backlog, &k, sizeof k.number, IPC_NOWAIT) == 0);
    // What is undone in the end is the sum.
    CHECK(operate(set, ranks + rank, 2, SEM_UNDO) == 0 && operate(set, ranks + rank, -2, SEM_UNDO) == 0);
}

static struct turn begin(int set, int queue) {
    struct turn t = {.step = -1};
    unsigned short values[VALUES];
    struct msqid_ds ds;
    CHECK((t.values = semget(IPC_PRIVATE, VALUES, 0600)) >= 0);
    CHECK((t.backlog = msgget(IPC_PRIVATE, 0600)) >= 0);
    CHECK(msgctl(t.backlog, IPC_STAT, &ds) == 0);
    ds.msg_qbytes = 4096;
    CHECK(msgctl(t.backlog, IPC_SET, &ds) == 0);
    for (int i = 0; i < VALUES; i++) values[i] = (unsigned short)(value(0, i) & 0x7fff);
    CHECK(semctl(t.values, 0, SETALL, values) == 0);
    for (long i = 0; i < BACKLOG; i++) {
        struct kept k = {1 + i % 3, i};
        CHECK(msgsnd(t.backlog, &k, sizeof k.number, 0) == 0);
    }
    give(&t, set, queue);
    return t;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    key_t key = (key_t)strtol(argv[1], NULL, 0);
    long steps = atol(argv[2]);
    number_of((const char *const[]){"CKPT_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", NULL}, &rank);
    number_of((const char *const[]){"CKPT_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", NULL}, &ranks);
    CHECK(ranks <= RANKS_MOST);

    int set, queue;
    if (rank == 0) {
        CHECK((set = semget(key, 2 * ranks, IPC_CREAT | IPC_EXCL | 0640)) >= 0);
        for (int r = 0; r < ranks; r++) CHECK(semctl(set, ranks + r, SETVAL, 1) == 0);
        CHECK((queue = msgget(key, IPC_CREAT | IPC_EXCL | 0620)) >= 0);
    } else {
        while ((queue = msgget(key, 0)) < 0) usleep(10000);
        CHECK((set = semget(key, 0, 0)) >= 0);
    }
    CHECK(operate(set, ranks + rank, -1, SEM_UNDO) == 0);
    while (rank == 0) { // until all hold theirs
        int held = 0;
        for (int r = 0; r < ranks; r++) held += one_of(set, ranks + r) == 0;
        if (held == ranks) break;
        usleep(1000);
    }
    if (rank == 0) begin(set, queue);

    struct turn t;
    for (long s = rank;; s += ranks) {
        t = get(s, set, queue);
        look(&t, set, queue, key);
        change(&t, set);
        if (s < ranks) printf("begun\n"), fflush(stdout);
        if (t.last && rank == 0) break;
        usleep(500);
        // The last round begins with the first process.
        if (rank == 0 && s >= steps && access(argv[3], F_OK) == 0) t.last = 1;
        give(&t, set, queue);
        if (t.last && rank != 0) break;
    }
    if (rank == 0) { // the turn has come back: the others have ended, or do so
        for (int r = 1; r < ranks; r++) {
            struct sembuf op = {(unsigned short)(ranks + r), -1, 0};
            CHECK(semtimedop(set, &op, 1, &(struct timespec){END_SECONDS, 0}) == 0);
        }
        CHECK(one_of(set, ranks) == 0);
        CHECK(semctl(t.values, 0, IPC_RMID) == 0 && msgctl(t.backlog, IPC_RMID, NULL) == 0);
        CHECK(semctl(set, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
        errno = 0;
        CHECK(semctl(t.values, 0, GETVAL) < 0 && errno == EINVAL);
        CHECK(msgctl(t.backlog, IPC_RMID, NULL) < 0 && errno == EINVAL);
    }
    printf("good\n");
    return 0;
}
