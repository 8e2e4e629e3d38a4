// SPDX-License-Identifier: Apache-2.0
//
// relay.c: a runtime in the program's half, and a program on it (ckptrun --whole).
//
//   CKPT_RANK=r CKPT_SIZE=n RELAY_MEET=folder relay STEPS EVERY [FAULT [CALL]]     (or under an MPI launcher)
//
// Processes stand in a ring; in each of STEPS steps each sends a number over a TCP connection to the next one, and
// mixes what comes from the one before into its own.  Every EVERY-th step the program calls ckpt_checkpoint (0:
// never), and again when all are told that it failed; in its waits it looks whether somebody else asks.  Each tells
// on stderr what it was told.  The last line is the number, the same on each run.
//
// FAULT is what goes wrong once on rank 1, in the CALL-th call (1): the callback quiesce, drain, quiet, close, reopen or
// holds fails; "mute": rank 1 never polls; "leave": it ends there without a word; "late": it
// comes a second late to each call.
// RELAY_TELL=n: it says on stdout that n steps are done, and n more.
#include <arpa/inet.h>
#include <ckpt.h>
#include <ckpt/rail.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "meet.h"

static int rank, size, before = -1, next = -1;
static const char *meet, *fault = "";
static long call, fault_at = 1;
static ckpt_job *job;
static ckpt_error error = {.size = sizeof error};
static int opened_for, closes, reopens;
// What came before the program wanted it.  Counts are of the connections of now.
static char in[4096];
static size_t in_n;
static int ended; // the one before has closed the connection
static uint64_t sent, acked, received, told;

static void die(const char *what) {
    fprintf(stderr, "relay: rank %d: %s: %s\n", rank, what, error.message);
    exit(1);
}

static int faulty(const char *name) {
    if (rank != 1 || call < fault_at || strcmp(fault, name)) return 0;
    fault = "";
    return 1;
}

// ---- the runtime -------------------------------------------------------------------------------

static int op_rank(void *ctx) { return (void)ctx, rank; }
static int op_ranks(void *ctx) { return (void)ctx, size; }

static int op_allgather(void *ctx, const void *mine, void *all, size_t bytes) {
    return (void)ctx, meet_allgather(meet, rank, size, mine, all, bytes);
}

static const char *op_failure(void *ctx) { return (void)ctx, "the test wants it so"; }
static int op_holds(void *ctx, char *why, size_t n) {
    (void)ctx;
    if (faulty("holds")) return snprintf(why, n, "the test holds it back"), 1;
    return 0;
}
static int op_drain(void *ctx) { return (void)ctx, faulty("drain") ? CKPT_E_SYSTEM : 0; }
static int quiet_now;
static int op_quiesce(void *ctx, int on) {
    (void)ctx;
    if (on && faulty("quiesce")) return CKPT_E_SYSTEM;
    quiet_now = on;
    return 0;
}

// ---- its rail ----------------------------------------------------------------------------------

static void checkpoint(const char *who);

// Reads what has come from the one before, and how much the next one has read.
static void progress(void) {
    ssize_t k = in_n < sizeof in ? recv(before, in + in_n, sizeof in - in_n, MSG_DONTWAIT) : 0;
    if (k > 0) in_n += (size_t)k, received += (uint64_t)k;
    if (k == 0 && in_n < sizeof in) ended = 1;
    uint64_t a;
    while (recv(next, &a, sizeof a, MSG_DONTWAIT | MSG_PEEK) == sizeof a) {
        if (recv(next, &a, sizeof a, 0) != sizeof a) die("an acknowledgement");
        acked = a;
    }
}

static void put(const uint64_t *x) {
    if (send(next, x, sizeof *x, MSG_NOSIGNAL) != sizeof *x) die("send");
    sent += sizeof *x;
}

// A wait is where others are heard: they may wait for this process in ckpt_checkpoint.
static void get(uint64_t *y) {
    int mute = rank == 1 && !strcmp(fault, "mute");
    while (in_n < sizeof *y) {
        progress();
        if (ended && in_n < sizeof *y) die("the one before has ended");
        if (!mute && ckpt_poll(job) == CKPT_POLL_CHECKPOINT) checkpoint("asked");
        sched_yield();
    }
    memcpy(y, in, sizeof *y);
    memmove(in, in + sizeof *y, in_n -= sizeof *y);
}

// Collective: all listen, tell their ports, and connect to the next one.
static int rail_open(void *ctx, int why) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int ports[64], listener = socket(AF_INET, SOCK_STREAM, 0);
    (void)ctx;
    opened_for = why;
    reopens++;
    if (bind(listener, (void *)&at, n) || listen(listener, 4) || getsockname(listener, (void *)&at, &n))
        return CKPT_E_SYSTEM;
    int mine = at.sin_port;
    if (ckpt_allgather(job, 7, &mine, ports, sizeof mine, &error)) return error.code;
    at.sin_port = (in_port_t)ports[(rank + 1) % size];
    next = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(next, (void *)&at, sizeof at)) return CKPT_E_SYSTEM;
    before = accept(listener, NULL, NULL);
    close(listener);
    if (why && faulty("reopen")) { // the others have connected
        close(before), close(next);
        before = next = -1;
    }
    return before < 0 ? CKPT_E_SYSTEM : 0;
}

static int rail_close(void *ctx) {
    (void)ctx;
    closes++;
    if (!quiet_now) die("the rail is closed before quiesce");
    close(before);
    close(next);
    before = next = -1;
    ended = 0;
    sent = acked = received = told = 0;
    return faulty("close") ? CKPT_E_SYSTEM : 0;
}

static int rail_quiet(void *ctx) {
    (void)ctx;
    if (faulty("quiet")) return CKPT_E_SYSTEM;
    progress();
    if (told != received && send(before, &received, sizeof received, MSG_NOSIGNAL) == sizeof received)
        told = received;
    return acked == sent;
}

static ckpt_endpoint endpoint;

// ---- the program -------------------------------------------------------------------------------

static void checkpoint(const char *who) {
    static const char *const names[] = {"error", "checkpoint", "restart", "ignore"};
    ckpt_state s;
    int tries = 0;
    if (*who == 'c') call++;
    if (faulty("leave")) _exit(9);
    do {
        error.message[0] = 0;
        ckpt_checkpoint(job, 0, &s, &error);
        fprintf(stderr, "relay: rank %d: %s: %s, opened for %d: %s\n", rank, who, names[s], opened_for,
                error.message);
        // All are told the same, so all come again.
    } while (s == CKPT_STATE_ERROR && *who == 'c' && ++tries < 3);
    if (s == CKPT_STATE_RESTART && ckpt_restarted(job) != 1) die("restarted");
}

// Comes late to the program's call, while the others wait in theirs.
static void linger(void) {
    struct timespec t, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec++;
    do {
        progress();
        if (ckpt_poll(job) == CKPT_POLL_CHECKPOINT) checkpoint("asked");
        clock_gettime(CLOCK_MONOTONIC, &t);
    } while (t.tv_sec < end.tv_sec || (t.tv_sec == end.tv_sec && t.tv_nsec < end.tv_nsec));
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    rank = meet_rank();
    size = meet_size();
    meet = getenv("RELAY_MEET");
    long steps = atol(argv[1]), every = atol(argv[2]);
    long tell = getenv("RELAY_TELL") ? atol(getenv("RELAY_TELL")) : 0;
    if (argc > 3) fault = argv[3];
    if (argc > 4) fault_at = atol(argv[4]);
    ckpt_state_ops state = {.size = sizeof state, .holds = op_holds};
    ckpt_message_ops messages = {.size = sizeof messages, .drain = op_drain};
    ckpt_runtime_ops ops = {.size = sizeof ops,
                            .rank = op_rank,
                            .ranks = op_ranks,
                            .oob_allgather = op_allgather,
                            .failure = op_failure,
                            .messages = &messages,
                            .state = &state,
                            .quiesce = op_quiesce};
    ckpt_config config = {.size = sizeof config,
                          .api_major = CKPT_API_MAJOR,
                          .api_minor = CKPT_API_MINOR,
                          .runtime = "relay",
                          .runtime_version = "1"};
    ckpt_rail_ops rail = {
        .size = sizeof rail, .name = "tcp", .quiet = rail_quiet, .close = rail_close, .reopen = rail_open};
    ckpt_rail *r;
    job = ckpt_open(&config, &ops, NULL, &error);
    if (!job) die("ckpt_open");
    if (ckpt_rail_register(job, &rail, NULL, &r, &error)) die("ckpt_rail_register");
    if (rail_open(NULL, 0)) die("opening the rail");
    endpoint = (ckpt_endpoint){.rail = r, .process = (rank + 1) % size, .flags = CKPT_EP_STATIC};
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(rank + 1), y;
    for (long i = 1; i <= steps; i++) {
        put(&x);
        get(&y);
        for (int k = 0; k < 2000; k++) x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u + y + (uint64_t)i;
        if (tell && i % tell == 0) printf("relay: rank %d: step %ld\n", rank, i), fflush(stdout);
        if (every && i % every == 0 && rank == 1 && !strcmp(fault, "late")) linger();
        if (every && i % every == 0) checkpoint("called");
    }
    (void)endpoint;
    printf("relay: rank %d: %016llx after %ld steps\n", rank, (unsigned long long)x, steps);
    if (ckpt_close(job, &error)) die("ckpt_close");
    return 0;
}
