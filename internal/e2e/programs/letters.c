// SPDX-License-Identifier: Apache-2.0
//
// letters.c: the signals, all-gathers and barriers of ckpt.h, in a runtime in the program's half or without ckptrun.
//
//   CKPT_RANK=r CKPT_SIZE=n RELAY_MEET=folder letters ROUNDS EVERY      (or under an MPI launcher)
//   ... letters wrong
//
// In each round each process sends to each, itself too, letters of two kinds, whose lengths differ: those of one kind
// are taken by a handler, those of the other by ckpt_signal_recv, now and then.  Each must come once, in the order of its
// sender.  Every EVERY-th round the program calls ckpt_checkpoint with letters under way, which nobody has looked
// for.  "wrong" says what calls answer that are no good.
#include <ckpt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "meet.h"

enum { HANDLED = CKPT_SIGNAL_FIRST, TAKEN = CKPT_SIGNAL_LAST, MOST = 64, ROOM = 3000 };

static int rank, size;
static const char *meet;
static ckpt_job *job;
static ckpt_error error = {.size = sizeof error};
static uint64_t sent[2][MOST], come[2][MOST]; // by kind and process

struct letter {
    uint64_t number;
    int from, to;
    unsigned char rest[ROOM];
};

static void die(const char *what) {
    fprintf(stderr, "letters: rank %d: %s: %s\n", rank, what, error.message);
    exit(1);
}

static int op_rank(void *ctx) { return (void)ctx, rank; }
static int op_ranks(void *ctx) { return (void)ctx, size; }

static int op_allgather(void *ctx, const void *mine, void *all, size_t bytes) {
    return (void)ctx, meet_allgather(meet, rank, size, mine, all, bytes);
}

static size_t length(uint64_t number) { return offsetof(struct letter, rest) + number * 37 % ROOM; }

static void check(int kind, int from, const struct letter *l, size_t n) {
    uint64_t want = come[kind][from]++;
    int good = l->number == want && l->from == from && l->to == rank && n == length(want);
    for (size_t i = offsetof(struct letter, rest); good && i < n; i++)
        good = ((const unsigned char *)l)[i] == (unsigned char)(want + i);
    if (!good) {
        snprintf(error.message, sizeof error.message,
                 "number %llu of %zu bytes from %d to %d in place of number %llu from %d",
                 (unsigned long long)l->number, n, l->from, l->to, (unsigned long long)want, from);
        die(kind ? "taken" : "handled");
    }
}

static void handle(void *ctx, int from, const void *bytes, size_t n) {
    struct letter l;
    if (ctx != come) die("the handler's pointer");
    memcpy(&l, bytes, n); // it need not be aligned
    check(0, from, &l, n);
}

static void take(void) {
    static struct letter l;
    for (;;) {
        int from = -1;
        size_t n = 8;
        int r = ckpt_signal_recv(job, TAKEN, &from, &l, &n, &error);
        if (r == 0) return;
        if (r != CKPT_E_ARG || n <= 8) die("a letter that is longer than the room");
        size_t all = n;
        if (ckpt_signal_recv(job, TAKEN, &from, &l, &n, &error) != 1 || n != all) die("ckpt_signal_recv");
        check(1, from, &l, n);
    }
}

static void post(int to, int kind) {
    static struct letter l;
    l.number = sent[kind][to]++;
    l.from = rank, l.to = to;
    size_t n = length(l.number);
    for (size_t i = offsetof(struct letter, rest); i < n; i++)
        ((unsigned char *)&l)[i] = (unsigned char)(l.number + i);
    if (ckpt_signal_send(job, to, kind ? TAKEN : HANDLED, &l, n, &error)) die("ckpt_signal_send");
}

static void save(void) {
    static const char *const names[] = {"error", "checkpoint", "restart", "ignore"};
    ckpt_state s;
    ckpt_checkpoint(job, 0, &s, &error);
    fprintf(stderr, "letters: rank %d: %s: %s\n", rank, names[s], error.message);
}

// All must have come that were sent before the barrier, at last.
static void settle(uint64_t rounds) {
    for (int kind = 0; kind < 2; kind++)
        for (int r = 0; r < size; r++)
            while (come[kind][r] < rounds) {
                if (ckpt_poll(job) == CKPT_POLL_CHECKPOINT) save();
                take();
                sched_yield();
            }
}

static void say(const char *what, int code) {
    printf("%s: %d %s\n", what, code, code ? error.message : "");
    error.code = 0, error.message[0] = 0;
}

static void wrong(void) {
    static char big[CKPT_SIGNAL_BYTES + 1];
    int from;
    size_t n;
    say("kind below", ckpt_signal_send(job, 0, CKPT_SIGNAL_FIRST - 1, "x", 1, &error));
    say("kind above", ckpt_signal_send(job, 0, CKPT_SIGNAL_LAST + 1, "x", 1, &error));
    say("kind far above", ckpt_signal_send(job, 0, 0x11000, "x", 1, &error));
    say("process below", ckpt_signal_send(job, -1, HANDLED, "x", 1, &error));
    say("process above", ckpt_signal_send(job, size, HANDLED, "x", 1, &error));
    say("too long", ckpt_signal_send(job, 0, HANDLED, big, sizeof big, &error));
    say("tag", ckpt_barrier(job, (uint64_t)1 << 62, &error));
    say("handler's kind", ckpt_signal_handle(job, 1, handle, NULL));
    say("no room", ckpt_signal_recv(job, TAKEN, &from, NULL, (n = 5, &n), &error));
    say("no length", ckpt_signal_recv(job, TAKEN, &from, big, NULL, &error));
    say("no job", ckpt_signal_send(NULL, 0, HANDLED, "x", 1, &error));
    say("none there", ckpt_signal_recv(job, TAKEN, &from, big, (n = sizeof big, &n), &error));
    say("longest", ckpt_signal_send(job, rank, TAKEN, big, sizeof big - 1, &error));
    do n = sizeof big;
    while (ckpt_signal_recv(job, TAKEN, &from, big, &n, &error) == 0);
    printf("longest: %zu\n", n);
    say("empty", ckpt_signal_send(job, rank, TAKEN, NULL, 0, &error));
    do n = 0, from = -1;
    while (ckpt_signal_recv(job, TAKEN, &from, NULL, &n, &error) == 0);
    printf("empty: %zu, from itself: %d\n", n, from == rank);
    int mine[2] = {rank, 5}, all[2 * MOST];
    say("sizes", ckpt_allgather(job, 1, mine, all, rank == 1 ? 8 : 4, &error));
    say("barrier", ckpt_barrier(job, ((uint64_t)1 << 62) - 1, &error));
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    rank = meet_rank();
    size = meet_size();
    meet = getenv("RELAY_MEET");
    ckpt_runtime_ops ops = {
        .size = sizeof ops, .rank = op_rank, .ranks = op_ranks, .oob_allgather = op_allgather};
    ckpt_config config = {.size = sizeof config,
                          .api_major = CKPT_API_MAJOR,
                          .api_minor = CKPT_API_MINOR,
                          .runtime = "letters",
                          .runtime_version = "1"};
    job = ckpt_open(&config, &ops, NULL, &error);
    if (!job) die("ckpt_open");
    if (argc < 3) {
        wrong();
    } else {
        uint64_t rounds = strtoull(argv[1], NULL, 10), every = strtoull(argv[2], NULL, 10);
        if (ckpt_signal_handle(job, HANDLED, handle, come)) die("ckpt_signal_handle");
        for (uint64_t i = 1; i <= rounds; i++) {
            for (int to = 0; to < size; to++) post(to, 0), post(to, 1);
            if (every && i % every == 0) save();
            if (i % 3 == 0 && ckpt_poll(job) == CKPT_POLL_CHECKPOINT) save();
            if (i % 5 == 0) take();
            if (i % 64) continue;
            settle(i); // nobody is far ahead
            uint64_t mine = i + (uint64_t)rank, all[MOST];
            if (ckpt_allgather(job, 3, &mine, all, sizeof mine, &error)) die("ckpt_allgather");
            for (int r = 0; r < size; r++)
                if (all[r] != i + (uint64_t)r) die("what the all-gather gives");
        }
        settle(rounds);
        if (ckpt_barrier(job, 4, &error)) die("ckpt_barrier");
        // None came twice: all that were sent to this process before the barrier are here.
        if (ckpt_poll(job) == CKPT_POLL_CHECKPOINT) save();
        take();
        for (int kind = 0; kind < 2; kind++)
            for (int r = 0; r < size; r++)
                if (come[kind][r] != rounds) die("a letter came twice");
        printf("letters: rank %d: %llu rounds\n", rank, (unsigned long long)rounds);
    }
    if (ckpt_close(job, &error)) die("ckpt_close");
    return 0;
}
