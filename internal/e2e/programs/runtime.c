// SPDX-License-Identifier: Apache-2.0
//
// runtime.c: a runtime of its own, which knows libckpt by its public headers alone.
//
//   runtime WHAT
//
// Two processes on a socketpair are its ranks; they make one communicator, three collective calls, and a few
// checkpoints.  Without ckptrun nothing is saved: what counts is what each function answers.  WHAT:
//
//   job        all of that; the last line is "runtime: good"
//   idle       links libckpt and calls nothing: prints its threads, and how many signals have handlers
//   fork       opens a job, forks, and has the child try; then the parent goes on
//   versions   opens with structures of other sizes and versions; prints what each is answered
//   open       opens a job and prints the answer, under ckptrun too
//   alone      one rank, which saves itself once, under ckptrun --whole too, and prints what that did; then it waits
//              for its end, if it has been saved and not continued
#include <ckpt.h>
#include <ckpt/clock.h>
#include <ckpt/vid.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 2 };
static int me, ranks = RANKS, wire[RANKS], bad;
static pthread_t caller; // the thread that is inside a ckpt call
static int binds, callbacks;

static void check(int ok, const char *what) {
    if (!ok) printf("rank %d: %s is wrong\n", me, what), bad++;
}

// ---- the runtime: two ranks and a socket ----

static void here(void) {
    callbacks++;
    check(pthread_equal(pthread_self(), caller), "the thread of a callback");
}

static int op_rank(void *ctx) {
    here();
    return *(int *)ctx;
}

static int op_ranks(void *ctx) {
    (void)ctx;
    here();
    return ranks;
}

static int op_allgather(void *ctx, const void *mine, void *all, size_t bytes) {
    int rank = *(int *)ctx;
    here();
    memcpy((char *)all + (size_t)rank * bytes, mine, bytes);
    if (ranks == 1) return 0;
    if (write(wire[rank], mine, bytes) != (ssize_t)bytes) return CKPT_E_PEER;
    for (size_t got = 0; got < bytes;) {
        ssize_t n = read(wire[rank], (char *)all + (size_t)(1 - rank) * bytes + got, bytes - got);
        if (n <= 0) return CKPT_E_PEER;
        got += (size_t)n;
    }
    return 0;
}

static int op_bind(void *ctx, ckpt_job *job) {
    (void)ctx;
    here();
    binds++;
    return ckpt_vid_bind(job, CKPT_VID(CKPT_KIND_COMM, 0), 0);
}

static int op_rebuild(void *ctx, ckpt_kind kind, ckpt_vid vid, const void *d, size_t bytes, uint64_t *real) {
    (void)ctx, (void)kind, (void)vid, (void)d, (void)bytes;
    *real = 1;
    return 0;
}

static const ckpt_object_ops objects = {.size = sizeof objects, .bind = op_bind, .rebuild = op_rebuild};
static const ckpt_runtime_ops full = {.size = sizeof full,
                                      .rank = op_rank,
                                      .ranks = op_ranks,
                                      .oob_allgather = op_allgather,
                                      .objects = &objects};
// An all-gather alone is enough.
static const ckpt_runtime_ops least = {
    .size = sizeof least, .rank = op_rank, .ranks = op_ranks, .oob_allgather = op_allgather};
static const ckpt_config config = {.size = sizeof config,
                                   .api_major = CKPT_API_MAJOR,
                                   .api_minor = CKPT_API_MINOR,
                                   .runtime = "tiny",
                                   .thread_level = CKPT_THREAD_SINGLE};

static ckpt_job *open_job(const ckpt_config *c, const ckpt_runtime_ops *ops, ckpt_error *error) {
    *error = (ckpt_error){.size = sizeof *error};
    caller = pthread_self();
    return ckpt_open(c, ops, &me, error);
}

// ---- job ----

static void *elsewhere(void *job) {
    ckpt_state state = CKPT_STATE_ERROR;
    ckpt_error error = {.size = sizeof error};
    caller = pthread_self();
    int rc = ckpt_checkpoint(job, 0, &state, &error);
    check(rc == 0 && state == CKPT_STATE_IGNORE, "a checkpoint by another thread");
    return NULL;
}

static long twice(long a) { return 2 * a; }

static void use(ckpt_job *job) {
    ckpt_error error = {.size = sizeof error};
    const int world[RANKS] = {0, 1};
    const ckpt_vid none[1] = {0};
    ckpt_vid comm = ckpt_vid_new(job, CKPT_KIND_COMM, 4711, "world", 5, none, 0, 1);
    check(comm != CKPT_VID_NONE && ckpt_vid_real(job, CKPT_KIND_COMM, comm) == 4711,
          "the id of a communicator");
    check(ckpt_vid_find(job, CKPT_KIND_COMM, 4711) == comm, "finding it");
    char d[8] = "";
    check(ckpt_vid_descriptor(job, comm, d, sizeof d) == 5 && strcmp(d, "world") == 0, "its descriptor");
    check(ckpt_comm_describe(job, comm, me, RANKS, world, RANKS, 7) == 0, "describing it");
    check(ckpt_comm_set_members(job, comm, world, RANKS, 7) == 0, "its members");
    check(ckpt_vid_set_name(job, comm, "all") == 0, "its name");
    ckpt_slot *slot = ckpt_vid_slot(job->tables, CKPT_KIND_COMM, comm);
    for (int i = 0; i < 3; i++) {
        ckpt_coll call;
        char all[RANKS];
        check(ckpt_coll_begin(job, comm, "barrier", CKPT_COLL_BLOCKING, &call) == CKPT_COLL_ENTER,
              "a collective call");
        check(op_allgather(&me, "x", all, 1) == 0, "an all-gather");
        ckpt_coll_end(job, &call);
        check(call.k == (uint64_t)i + 1, "its number");
        ckpt_sent(slot, 1 - me, 0), ckpt_received(slot, 1 - me, 0);
    }
    check(ckpt_comm_of(slot)->peer[1 - me].sent == 3, "the messages that were counted");

    ckpt_state state = CKPT_STATE_ERROR;
    check(ckpt_checkpoint(job, 0, &state, &error) == 0 && state == CKPT_STATE_IGNORE &&
              strstr(error.message, "not started by ckptrun"),
          "a checkpoint without ckptrun");
    check(ckpt_checkpoint(job, 1, &state, &error) == CKPT_E_NOTSUP && state == CKPT_STATE_ERROR &&
              strstr(error.message, "local task 1"),
          "a checkpoint of another task");
    pthread_t t;
    pthread_create(&t, NULL, elsewhere, job);
    pthread_join(t, NULL);
    caller = pthread_self();

    check(open_job(&config, &full, &error) == NULL && error.code == CKPT_E_STATE &&
              strstr(error.message, "open job already"),
          "a second job");
    const long args[6] = {21};
    check(ckpt_upcall(job, (void *)twice, args) == 42, "calling up");
    check(ckpt_hold(job) == 0 && ckpt_thread_is_mine(job) == 0, "holding");
    int *kept = ckpt_runtime_state(job, sizeof *kept);
    check(kept != NULL && *kept == 0 && ckpt_runtime_state(job, sizeof *kept) == kept,
          "what the runtime keeps");
    check(ckpt_restarted(job) == 0 && ckpt_restart_thread_level() == -1, "that nothing was restarted");
    check(ckpt_vid_free(job, comm) == 0 && ckpt_vid_free(job, comm) == CKPT_E_ARG, "freeing it");
}

static void a_job(void) {
    ckpt_error error, little = {.size = offsetof(ckpt_error, message) + 12};
    ckpt_job *job = open_job(&config, &full, &error);
    check(job != NULL && error.code == 0, error.message);
    if (job == NULL) return;
    check(binds == 1 && callbacks > 0, "the callbacks of opening");
    use(job);
    check(ckpt_close(job, &error) == 0, "closing");
    check(ckpt_close(job, &little) == CKPT_E_ARG && little.code == CKPT_E_ARG && strlen(little.message) == 11,
          "closing what is closed, told in little room");
    job = open_job(&config, &least, &error);
    ckpt_state state = CKPT_STATE_ERROR;
    check(job != NULL && ckpt_checkpoint(job, 0, &state, NULL) == 0 && state == CKPT_STATE_IGNORE,
          "a runtime with an all-gather alone");
    check(ckpt_close(job, NULL) == 0, "closing it");
}

// ---- versions ----

// A structure with more than there is today, as a newer header may have; and one of the size that version 1.0 has.
static void versions(void) {
    struct {
        ckpt_runtime_ops ops;
        void *more[64]; // newer than what libckpt was compiled from, whichever headers this was
    } newer = {.ops = full};
    struct {
        ckpt_config c;
        void *more[2];
    } config_newer = {.c = config};
    ckpt_error error;
    ckpt_job *job;
#define TRY(name, c, o)                                     \
    job = open_job(c, o, &error);                           \
    printf("%s: %d %s\n", name, error.code, error.message); \
    if (job != NULL) ckpt_close(job, NULL)
    newer.ops.size = sizeof newer, config_newer.c.size = sizeof config_newer;
    TRY("newer, unused", &config_newer.c, &newer.ops);
    newer.more[63] = &newer;
    TRY("newer, used", &config, &newer.ops);
    ckpt_config other = config;
    other.api_major++;
    TRY("another major", &other, &full);
    other = config, other.api_minor += 7;
    TRY("another minor", &other, &full);
    other = config, other.size = 0;
    TRY("no size", &other, &full);
    ckpt_runtime_ops none = full;
    none.oob_allgather = NULL;
    TRY("no all-gather", &config, &none);
    TRY("no ops", &config, NULL);
}

// ---- idle, fork ----

static void idle(void) {
    char line[256];
    int threads = 0, handlers = 0;
    FILE *f = fopen("/proc/self/status", "r");
    unsigned long long caught = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        sscanf(line, "Threads: %d", &threads);
        sscanf(line, "SigCgt: %llx", &caught);
    }
    for (; caught; caught &= caught - 1) handlers++;
    // Its stand-in is what makes the linker keep the library.
    volatile int never = 0;
    if (never) ckpt_restart_thread_level();
    printf("idle: %d threads, %d handlers\n", threads, handlers);
}

static void forked(void) {
    ckpt_error error;
    ckpt_job *job = open_job(&config, &full, &error);
    fflush(stdout);
    alarm(20); // a child that hangs is what this is about
    pid_t child = fork();
    if (child == 0) {
        ckpt_error why;
        alarm(20);
        check(open_job(&config, &full, &why) == NULL && why.code == CKPT_E_NOTSUP &&
                  strstr(why.message, "exec"),
              "opening in a forked child");
        ckpt_state state;
        why = (ckpt_error){.size = sizeof why};
        check(ckpt_checkpoint(job, 0, &state, &why) == CKPT_E_NOTSUP && why.code == CKPT_E_NOTSUP,
              "a checkpoint in a forked child");
        check(ckpt_vid_bind(job, CKPT_VID(CKPT_KIND_COMM, 1), 1) == CKPT_E_NOTSUP, "an id in a forked child");
        fflush(stdout);
        _exit(bad != 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    check(status == 0, "the child");
    check(ckpt_vid_bind(job, CKPT_VID(CKPT_KIND_COMM, 1), 1) == 0 && ckpt_close(job, NULL) == 0,
          "the parent");
}

static void alone(void) {
    static const char *const names[] = {"error", "checkpoint", "restart", "ignore"};
    ckpt_error error;
    ckpt_state state = CKPT_STATE_ERROR;
    ranks = 1;
    ckpt_job *job = open_job(&config, &full, &error);
    check(job != NULL, error.message);
    if (job == NULL) return;
    ckpt_vid comm = ckpt_vid_new(job, CKPT_KIND_COMM, 4711, "world", 5, NULL, 0, 1);
    caller = pthread_self();
    error = (ckpt_error){.size = sizeof error};
    int code = ckpt_checkpoint(job, 0, &state, &error);
    printf("alone: %d %s, restarted %d, %llu %s\n", code, names[state], ckpt_restarted(job),
           (unsigned long long)ckpt_vid_real(job, CKPT_KIND_COMM, comm), error.message);
    fflush(stdout);
    while (state == CKPT_STATE_CHECKPOINT) pause();
    check(ckpt_close(job, &error) == 0, "closing");
}

// ---- main ----

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "job";
    if (strcmp(what, "idle") == 0) return idle(), 0;
    if (strcmp(what, "alone") == 0) return alone(), bad;
    int pair[2], status = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 2;
    wire[0] = pair[0], wire[1] = pair[1];
    pid_t other = fork(); // before libckpt's core is loaded
    me = other == 0;
    if (strcmp(what, "versions") == 0) {
        if (me == 0)
            versions();
        else {
            // The answers above need a peer for those that succeed.
            ckpt_error error;
            for (int i = 0; i < 2; i++) {
                ckpt_config other_minor = config;
                if (i == 1) other_minor.api_minor += 7; // as on the other process, and as in each job
                ckpt_job *job = open_job(&other_minor, &full, &error);
                if (job != NULL) ckpt_close(job, NULL);
            }
        }
    } else if (strcmp(what, "fork") == 0) {
        forked();
    } else if (strcmp(what, "open") == 0) {
        ckpt_error error;
        ckpt_job *job = open_job(&config, &full, &error);
        if (me == 0) printf("open: %s %d %s\n", job ? "a job" : "none", error.code, error.message);
        if (job != NULL) ckpt_close(job, NULL);
    } else {
        a_job();
    }
    fflush(stdout);
    if (me == 1) _exit(bad != 0);
    waitpid(other, &status, 0);
    if (bad == 0 && status == 0) printf("runtime: good\n");
    return bad != 0 || status != 0;
}
