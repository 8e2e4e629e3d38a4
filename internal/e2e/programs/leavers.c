// SPDX-License-Identifier: Apache-2.0
//
// leavers.c: a runtime whose ranks are threads of two processes, and those of one process end early (ckptrun --whole).
//
//   CKPT_RANK=r CKPT_SIZE=2 RELAY_MEET=folder leavers STEPS EVERY
//
// Process 0 has ranks 0 and 1, process 1 ranks 3 and 2.  Ranks 0 and 1 take STEPS steps with a barrier each; every
// EVERY-th step both call ckpt_checkpoint (0: never, but they take part when somebody else asks).  The others make one
// barrier and leave; their process polls until process 0 tells it to end.  What rank 0 prints is the same on each run.
#include <ckpt.h>
#include <ckpt/clock.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "meet.h"

enum { TASKS = 2, IDENTITY = 5000, SIGNAL_END = CKPT_SIGNAL_FIRST };

static int process, ended;
static long steps, every;
static const char *meet;
static ckpt_job *job;
static ckpt_vid view[TASKS];
static int wanted, taken[TASKS]; // checkpoints that others asked for
static unsigned came;            // to the barrier
static uint64_t x[TASKS];

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "leavers: process %d: %s\n", process, what);
    exit(1);
}

// ---- the runtime -------------------------------------------------------------------------------

static int rank_of(int task) { return process == 0 ? task : 3 - task; }

static int op_rank(void *ctx) { return (void)ctx, process; }
static int op_ranks(void *ctx) { return (void)ctx, 2; }
static int op_local_tasks(void *ctx) { return (void)ctx, TASKS; }
static int op_task_rank(void *ctx, int task) { return (void)ctx, rank_of(task); }

static int op_allgather(void *ctx, const void *mine, void *all, size_t bytes) {
    return (void)ctx, meet_allgather(meet, process, 2, mine, all, bytes);
}

static int tell_members(int task) {
    const int both[] = {2 * process, 2 * process + 1};
    return ckpt_comm_set_members(job, view[task], both, TASKS, IDENTITY + (uint64_t)process);
}

static int op_rebuild(void *ctx, ckpt_kind kind, ckpt_vid vid, const void *task, size_t bytes,
                      uint64_t *real) {
    (void)ctx, (void)kind, (void)vid, (void)bytes, (void)real;
    return tell_members(*(const int *)task);
}

static void make_view(int task) {
    const int wrong[] = {2 - 2 * process, 3 - 2 * process};
    view[task] = ckpt_vid_new(job, CKPT_KIND_COMM, (uint64_t)task + 1, &task, sizeof task, NULL, 0, 0);
    must(view[task] != CKPT_VID_NONE, "ckpt_vid_new");
    must(ckpt_vid_task(job, view[task], TASKS) == CKPT_E_ARG, "a view of a task that there is not");
    must(ckpt_vid_task(job, view[task], -1) == CKPT_E_ARG, "a view of task -1");
    must(ckpt_vid_task(job, view[task], task) == 0, "ckpt_vid_task");
    int rank = rank_of(task) - 2 * process;
    must(ckpt_comm_describe(job, view[task], rank, TASKS, NULL, 0, IDENTITY + (uint64_t)process) == 0,
         "ckpt_comm_describe");
    must(ckpt_vid_task(job, view[task], 1 - task) == CKPT_E_STATE, "a view that changes its task");
    if (getenv("LEAVERS_WHOLE"))
        must(ckpt_comm_set_members(job, view[task], wrong, TASKS, 1) == CKPT_E_ARG, "others' members");
    must(tell_members(task) == 0, "ckpt_comm_set_members");
}

static void checkpoint(int task, const char *who) {
    static const char *const names[] = {"error", "checkpoint", "restart", "ignore"};
    ckpt_error error = {.size = sizeof error};
    ckpt_state s;
    ckpt_checkpoint(job, task, &s, &error);
    fprintf(stderr, "leavers: rank %d: %s: %s: %s\n", rank_of(task), who, names[s], error.message);
}

// For waits: task 0 looks, and both come.
static void attend(int task) {
    if (every != 0) return;
    if (task == 0 && wanted == taken[0] && ckpt_poll(job) == CKPT_POLL_CHECKPOINT)
        __atomic_store_n(&wanted, wanted + 1, __ATOMIC_RELEASE);
    if (__atomic_load_n(&wanted, __ATOMIC_ACQUIRE) == taken[task]) return;
    checkpoint(task, "asked");
    taken[task]++;
}

static void barrier(int task) {
    ckpt_coll call;
    int answer = ckpt_coll_begin(job, view[task], "barrier", CKPT_COLL_BLOCKING, &call);
    while (answer == CKPT_COLL_WAIT) {
        attend(task);
        sched_yield();
        answer = ckpt_coll_again(job, CKPT_COLL_BLOCKING, &call);
    }
    unsigned all = (__atomic_fetch_add(&came, 1, __ATOMIC_ACQ_REL) / TASKS + 1) * TASKS;
    while (__atomic_load_n(&came, __ATOMIC_ACQUIRE) < all) sched_yield(); // no checkpoint is made meanwhile
    ckpt_coll_end(job, &call);
}

// ---- the program -------------------------------------------------------------------------------

static void *run(void *arg) {
    int task = (int)(intptr_t)arg;
    x[task] = 0x9e3779b97f4a7c15u * (uint64_t)(task + 1);
    for (long i = 1; process == 0 && i <= steps; i++) {
        for (int k = 0; k < 1000; k++)
            x[task] = (x[task] ^ (x[task] >> 29)) * 0xbf58476d1ce4e5b9u + (uint64_t)i;
        nanosleep(&(struct timespec){0, 500000}, NULL);
        attend(task);
        barrier(task);
        uint64_t other = x[1 - task];
        barrier(task);
        x[task] ^= other >> 1;
        if (every != 0 && i % every == 0) checkpoint(task, "called");
    }
    if (process == 1) barrier(task);
    must(ckpt_task_leave(job, task) == 0, "ckpt_task_leave");
    return NULL;
}

static void end(void *ctx, int from, const void *bytes, size_t n) {
    (void)ctx, (void)from, (void)bytes, (void)n;
    ended = 1;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    process = atoi(getenv("CKPT_RANK"));
    meet = getenv("RELAY_MEET");
    steps = atol(argv[1]), every = atol(argv[2]);
    ckpt_error error = {.size = sizeof error};
    ckpt_object_ops objects = {.size = sizeof objects, .rebuild = op_rebuild};
    ckpt_runtime_ops ops = {.size = sizeof ops,
                            .rank = op_rank,
                            .ranks = op_ranks,
                            .oob_allgather = op_allgather,
                            .objects = &objects,
                            .local_tasks = op_local_tasks,
                            .task_rank = op_task_rank};
    ckpt_config config = {.size = sizeof config,
                          .api_major = CKPT_API_MAJOR,
                          .api_minor = CKPT_API_MINOR,
                          .runtime = "leavers"};
    job = ckpt_open(&config, &ops, NULL, &error);
    must(job != NULL, error.message);
    must(ckpt_signal_handle(job, SIGNAL_END, end, NULL) == 0, "ckpt_signal_handle");
    pthread_t thread[TASKS];
    for (int i = 0; i < TASKS; i++) make_view(i);
    for (int i = 0; i < TASKS; i++)
        must(pthread_create(&thread[i], NULL, run, (void *)(intptr_t)i) == 0, "pthread_create");
    for (int i = 0; i < TASKS; i++) must(pthread_join(thread[i], NULL) == 0, "pthread_join");
    if (process == 0) {
        printf("leavers: %016llx %016llx\n", (unsigned long long)x[0], (unsigned long long)x[1]);
        must(ckpt_signal_send(job, 1, SIGNAL_END, NULL, 0, &error) == 0, error.message);
    } else {
        fprintf(stderr, "leavers: all have left\n");
        while (!ended) { // for the others' checkpoints, too
            ckpt_poll(job);
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
    }
    must(ckpt_close(job, &error) == 0, error.message);
    return 0;
}
