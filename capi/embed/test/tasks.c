// SPDX-License-Identifier: Apache-2.0
//
// Tasks that meet: many of them on few kernel threads, which park and come back early, several times in a row, and
// some of which leave.  Under ThreadSanitizer: what a task wrote before it came the master reads, and what the
// master wrote all others read, both as plain memory.
#include "../say.c"
#include "../tasks.c"

#include "../../host/test/test.h"
#include "sched.h"

static struct embed_job job;

// ---- many tasks ----

enum { TASKS = 1000, THREADS = 4, ROUNDS = 6, LEAVERS = 200 };

static int tasks;
static int before[TASKS];    // the round that a task comes to; plain
static int presided;         // rounds that had their master; plain, written by masters alone
static int inside, living;   // tasks in embed_meet, and not yet about to leave
static bool leaves[TASKS];   // comes no more
static bool ended[TASKS];    // left; nobody may unpark it any more
static uint64_t seed[TASKS]; // each task's own
static void (*switch_to_others)(void);

static uint64_t random_of(int task, uint64_t n) {
    uint64_t *s = &seed[task];
    if (*s == 0) *s = 0x9e3779b97f4a7c15ull * (uint64_t)(task + 1);
    *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
    return *s % n;
}

static int code_of(int round) { return round % 4 == 2 ? CKPT_E_STATE : 0; }
static ckpt_state state_of(int round) {
    static const ckpt_state states[] = {CKPT_STATE_CHECKPOINT, CKPT_STATE_IGNORE, CKPT_STATE_ERROR,
                                        CKPT_STATE_RESTART};
    return states[round % 4];
}

int embed_checkpoint(struct embed_job *j, ckpt_state *state, ckpt_error *error) {
    CHECK(j == &job);
    int round = presided;
    SAME(__atomic_load_n(&inside, __ATOMIC_RELAXED), __atomic_load_n(&living, __ATOMIC_RELAXED));
    for (int turns = 0; turns < 20; turns++) {
        switch_to_others();
        SAME(presided, round); // there is one master
    }
    for (int i = 0; i < tasks; i++)
        if (!__atomic_load_n(&leaves[i], __ATOMIC_RELAXED)) SAME(before[i], round);
    *state = state_of(round);
    char why[100];
    snprintf(why, sizeof why, "round %d", round);
    embed_say(error, code_of(round), round % 4 == 3 ? "" : why);
    presided = round + 1;
    return code_of(round);
}

static int told_left; // the core: all have left
int ckpt_core_tasks_left(ckpt_job *j) {
    CHECK(j == &job.seen);
    told_left++;
    return 0;
}

static int local_tasks(void *ctx) {
    (void)ctx;
    return tasks;
}
static void yield(void *ctx) {
    (void)ctx;
    switch_to_others();
}

static void one_task(int task) {
    int rounds = task % (TASKS / LEAVERS) == 1 ? 1 + (int)random_of(task, ROUNDS - 1) : ROUNDS;
    for (int round = 0; round < rounds; round++) {
        if (round % 2 == 0) // odd ones follow at once
            for (uint64_t n = random_of(task, 4); n > 0; n--) switch_to_others();
        before[task] = round;
        ckpt_state state = CKPT_STATE_ERROR;
        ckpt_error error = {.size = sizeof error, .code = 77, .message = "old"};
        bool wanted = random_of(task, 4) != 0;
        __atomic_fetch_add(&inside, 1, __ATOMIC_RELAXED);
        int rc = embed_meet(&job, task, wanted ? &state : NULL, wanted ? &error : NULL);
        __atomic_fetch_sub(&inside, 1, __ATOMIC_RELAXED);
        SAME(rc, code_of(round));
        CHECK(presided > round); // another round may have its master before this task is here again: not so
        SAME(presided, round + 1);
        if (!wanted) continue;
        char why[100] = "";
        if (round % 4 != 3) snprintf(why, sizeof why, "round %d", round);
        SAME(state, state_of(round));
        SAME(error.code, code_of(round));
        CHECK(strcmp(error.message, why) == 0);
    }
    __atomic_fetch_sub(&living, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&leaves[task], true, __ATOMIC_RELAXED);
    SAME(embed_task_leave(&job, task), 0);
    __atomic_store_n(&ended[task], true, __ATOMIC_RELEASE);
}

static void reset(int n) {
    tasks = living = n, inside = presided = 0;
    memset(leaves, 0, sizeof leaves);
    memset(ended, 0, sizeof ended);
    memset(&job, 0, sizeof job);
    job.ops.size = sizeof job.ops;
    job.ops.local_tasks = local_tasks;
}

// ---- their waiting, in each way that a runtime may have ----

static void green_park(void *ctx, int task) {
    (void)ctx;
    SAME(sched_here()->task->number, task);
    if (random_of(task, 3) != 0)
        sched_park();
    else if (random_of(task, 2) != 0) // early
        sched_yield_task();
}
static void green_unpark(void *ctx, int task) {
    (void)ctx;
    CHECK(!__atomic_load_n(&ended[task], __ATOMIC_ACQUIRE));
    sched_unpark(task);
    if (random_of(sched_here()->task->number, 8) == 0) sched_yield_task();
    CHECK(!__atomic_load_n(&ended[task], __ATOMIC_ACQUIRE)); // nor has it ended meanwhile
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t come;
    bool token;
} seat[TASKS];

static void kernel_park(void *ctx, int task) {
    (void)ctx;
    if (random_of(task, 4) == 0) return;
    pthread_mutex_lock(&seat[task].lock);
    while (!seat[task].token) pthread_cond_wait(&seat[task].come, &seat[task].lock);
    seat[task].token = false;
    pthread_mutex_unlock(&seat[task].lock);
}
static void kernel_unpark(void *ctx, int task) {
    (void)ctx;
    CHECK(!__atomic_load_n(&ended[task], __ATOMIC_ACQUIRE));
    pthread_mutex_lock(&seat[task].lock);
    seat[task].token = true;
    pthread_cond_signal(&seat[task].come);
    pthread_mutex_unlock(&seat[task].lock);
}
static void kernel_switch(void) { sched_yield(); }
static void *kernel_task(void *number) {
    one_task((int)(intptr_t)number);
    return NULL;
}

static void green(int n, bool parks) {
    reset(n);
    switch_to_others = sched_yield_task;
    job.ops.yield = yield;
    if (parks) job.ops.park = green_park, job.ops.unpark = green_unpark;
    sched_run(n, THREADS, one_task);
    SAME(presided, ROUNDS);
    embed_tasks_end(&job);
}

static void kernel(int n, bool parks) {
    static pthread_t thread[TASKS];
    reset(n);
    switch_to_others = kernel_switch;
    if (parks) job.ops.park = kernel_park, job.ops.unpark = kernel_unpark;
    for (int i = 0; i < n; i++) {
        pthread_mutex_init(&seat[i].lock, NULL);
        pthread_cond_init(&seat[i].come, NULL);
        seat[i].token = false;
        CHECK(pthread_create(&thread[i], NULL, kernel_task, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    SAME(presided, ROUNDS);
    embed_tasks_end(&job);
}

// ---- a few tasks, and what is refused ----

static int arrived(void) {
    embed_lock(&job.tasks.lock);
    int n = job.tasks.arrived;
    embed_unlock(&job.tasks.lock);
    return n;
}

static void *meets(void *number) {
    int task = (int)(intptr_t)number;
    ckpt_state state;
    ckpt_error error = {.size = sizeof error};
    SAME(embed_meet(&job, task, &state, &error), 0);
    SAME(state, CKPT_STATE_CHECKPOINT);
    CHECK(strcmp(error.message, "round 0") == 0);
    return NULL;
}

static void is_refused(int task, int code, const char *why) {
    ckpt_state state = CKPT_STATE_CHECKPOINT;
    ckpt_error error = {.size = sizeof error};
    SAME(embed_meet(&job, task, &state, &error), code);
    SAME(state, CKPT_STATE_ERROR);
    SAME(error.code, code);
    if (strcmp(error.message, why) != 0) printf("\"%s\", expected \"%s\"\n", error.message, why), exit(1);
}

static void refusals(void) {
    pthread_t thread;
    reset(3);
    switch_to_others = kernel_switch;
    is_refused(-1, CKPT_E_ARG, "there is no local task -1: this process has 3");
    is_refused(3, CKPT_E_ARG, "there is no local task 3: this process has 3");
    pthread_create(&thread, NULL, meets, (void *)0);
    while (arrived() < 1) sched_yield();
    is_refused(0, CKPT_E_STATE, "local task 0 is in ckpt_checkpoint already");
    SAME(embed_task_leave(&job, 0), CKPT_E_STATE);
    SAME(embed_task_leave(&job, 5), CKPT_E_ARG);
    tasks = 4;
    is_refused(3, CKPT_E_STATE, "local task 3 was added while 3 tasks meet: it can save the next time");
    SAME(embed_task_leave(&job, 2), 0);
    SAME(embed_task_leave(&job, 2), CKPT_E_STATE);
    is_refused(2, CKPT_E_STATE, "local task 2 has left");
    before[0] = before[1] = 0, inside = living = 0, leaves[2] = true;
    meets((void *)1); // the last one: this thread is the master
    pthread_join(thread, NULL);
    SAME(presided, 1);
    embed_tasks_end(&job);

    reset(0);
    is_refused(0, CKPT_E_ARG, "the runtime says that this process has 0 local tasks");
}

// The last one that was missing leaves: one of those who wait becomes the master.
static void leaves_last(void) {
    pthread_t thread[2];
    reset(3);
    switch_to_others = kernel_switch;
    for (intptr_t i = 0; i < 2; i++) pthread_create(&thread[i], NULL, meets, (void *)i);
    while (arrived() < 2) sched_yield();
    living = inside = 0, before[0] = before[1] = 0, leaves[2] = true;
    SAME(embed_task_leave(&job, 2), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    SAME(presided, 1);
    embed_tasks_end(&job);
}

// When all have left, the core is told once, and ckpt_poll takes their part.
static void all_leave(void) {
    reset(3);
    switch_to_others = kernel_switch;
    told_left = 0, inside = living = 0;
    for (int i = 0; i < 3; i++) {
        CHECK(!embed_tasks_answer(&job));
        leaves[i] = true;
        SAME(embed_task_leave(&job, i), 0);
        SAME(told_left, i == 2);
    }
    CHECK(embed_tasks_answer(&job));
    SAME(presided, 1);
    job.tasks.answering = 1; // another thread does
    CHECK(embed_tasks_answer(&job));
    SAME(presided, 1);
    SAME(embed_task_leave(&job, 1), CKPT_E_STATE);
    SAME(told_left, 1);
    tasks = 4;
    is_refused(3, CKPT_E_STATE, "local task 3 was added after all others had left");
    embed_tasks_end(&job);
}

// Tasks that come to be in a process between two meetings are waited for in the second one.
static void more_tasks(void) {
    reset(1);
    switch_to_others = kernel_switch;
    before[0] = 0, inside = living = 0;
    meets((void *)0);
    pthread_t thread;
    tasks = 2, presided = 0, before[1] = 0;
    pthread_create(&thread, NULL, meets, (void *)1);
    while (arrived() < 1) sched_yield();
    meets((void *)0);
    pthread_join(thread, NULL);
    embed_tasks_end(&job);
}

// One rank a process: no meeting, and nothing is allocated.
static void one_rank(void) {
    reset(1);
    switch_to_others = kernel_switch;
    job.ops.local_tasks = NULL;
    before[0] = 0, inside = living = 0;
    meets((void *)0);
    CHECK(job.tasks.mark == NULL);
    is_refused(1, CKPT_E_NOTSUP, "there is no local task 1: this process has one rank, whose task is 0");
    SAME(embed_task_leave(&job, 0), 0);
    SAME(embed_task_leave(&job, 1), CKPT_E_ARG);
}

int main(void) {
    refusals();
    leaves_last();
    all_leave();
    more_tasks();
    one_rank();
    green(TASKS, true);
    green(50, false);
    green(1, true);
    kernel(64, true);
    kernel(8, false);
    printf("tasks: %d on %d kernel threads, %d rounds\n", TASKS, THREADS, ROUNDS);
    return 0;
}
