// SPDX-License-Identifier: Apache-2.0
//
// tasks.c: several ranks of one process, each a task (a user-level thread, often), save it together.
//
// Tasks wait in callbacks of the runtime, which may switch to another task of the same kernel thread.  So nothing
// but C of this half may be on their stacks meanwhile: neither frames of Go nor those of the gate, both of which are
// stacks of kernel threads.  One task alone, the master, goes on to the core; any of them may be it, on any thread.
//
// Nobody misses the end of a meeting: the generation is read before a task's arrival is seen by others, and the
// runtime remembers an unpark that comes before the park.
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed/embed.h"
#include "embed/functions.h"
#include "embed/lock.h"

#define TASK_LEFT UINT64_MAX

__attribute__((format(printf, 3, 4))) static int refuse(ckpt_error *error, int code, const char *format,
                                                        ...) {
    char why[300];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    embed_say(error, code, why);
    return code;
}

// A turn of waiting.  A runtime that parks without a way to unpark is not left asleep.
static void turn(struct embed_job *job, int task, bool may_park) {
    const ckpt_runtime_ops *ops = &job->ops;
    if (may_park && ops->park != NULL && ops->unpark != NULL)
        ops->park(job->ctx, task);
    else if (ops->yield != NULL)
        ops->yield(job->ctx);
    else
        sched_yield();
}

// How many local tasks there are, with room for a mark of each; or a CKPT_E code.
static int tasks_now(struct embed_job *job, ckpt_error *error) {
    struct embed_tasks *t = &job->tasks;
    int n = job->ops.local_tasks(job->ctx);
    if (n <= 0) return refuse(error, CKPT_E_ARG, "the runtime says that this process has %d local tasks", n);
    embed_lock(&t->lock);
    int room = t->room;
    embed_unlock(&t->lock);
    if (n <= room) return n;
    uint64_t *more = calloc((size_t)n, sizeof *more), *old = more;
    if (more == NULL) return refuse(error, CKPT_E_SYSTEM, "no memory for %d local tasks", n);
    embed_lock(&t->lock);
    if (n > t->room) {
        if (t->room > 0) memcpy(more, t->mark, (size_t)t->room * sizeof *more);
        old = t->mark;
        t->mark = more;
        t->room = n;
    }
    embed_unlock(&t->lock);
    free(old);
    return n;
}

// Whether everybody has come.  Under lock.
static bool complete(const struct embed_tasks *t) { return t->arrived > 0 && t->arrived == t->n - t->left; }

// The first one to come says how many are waited for.  Under lock.
static void begin(struct embed_tasks *t, int n) {
    t->n = n;
    t->left = 0;
    for (int i = 0; i < n; i++) t->left += t->mark[i] == TASK_LEFT;
}

// Counts the task among those who came: 0, or 1 when it is the last one; or a CKPT_E code.
static int arrive(struct embed_job *job, int task, uint64_t *generation, ckpt_error *error) {
    struct embed_tasks *t = &job->tasks;
    int n = tasks_now(job, error);
    if (n < 0) return n;
    if (task < 0 || task >= n)
        return refuse(error, CKPT_E_ARG, "there is no local task %d: this process has %d", task, n);

    embed_lock(&t->lock);
    bool gone = t->gone;
    if (t->arrived == 0) begin(t, n);
    bool known = task < t->n, left = known && t->mark[task] == TASK_LEFT;
    *generation = t->generation;
    bool twice = known && t->mark[task] == *generation + 1, last = false;
    n = t->n;
    if (known && !left && !twice && !gone) {
        t->mark[task] = *generation + 1;
        t->arrived++;
        last = complete(t);
    }
    embed_unlock(&t->lock);

    if (!known)
        return refuse(error, CKPT_E_STATE,
                      "local task %d was added while %d tasks meet: it can save the next time", task, n);
    if (left) return refuse(error, CKPT_E_STATE, "local task %d has left", task);
    if (gone) return refuse(error, CKPT_E_STATE, "local task %d was added after all others had left", task);
    if (twice) return refuse(error, CKPT_E_STATE, "local task %d is in ckpt_checkpoint already", task);
    return last;
}

// Waits until the meeting is over, or until the task is chosen to be its master: 1.
static bool wait(struct embed_job *job, int task, uint64_t generation) {
    struct embed_tasks *t = &job->tasks;
    while (__atomic_load_n(&t->generation, __ATOMIC_ACQUIRE) == generation) {
        if (__atomic_load_n(&t->chosen, __ATOMIC_ACQUIRE) == task + 1) {
            __atomic_store_n(&t->chosen, 0, __ATOMIC_RELAXED);
            return true;
        }
        turn(job, task, true);
    }
    return false;
}

// Saves the job, and lets the others go.  After a restart it is this stack that returns from embed_checkpoint.
static void preside(struct embed_job *job, int task) {
    struct embed_tasks *t = &job->tasks;
    t->error.size = sizeof t->error;
    t->error.code = CKPT_OK;
    t->error.message[0] = 0;
    t->state = CKPT_STATE_ERROR;
    t->code = embed_checkpoint(job, &t->state, &t->error);

    embed_lock(&t->lock);
    int n = t->n;
    uint64_t over = t->generation + 1;
    t->arrived = 0;
    __atomic_fetch_add(&t->waking, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&t->generation, over, __ATOMIC_RELEASE);
    embed_unlock(&t->lock);
    // A task may go as soon as it sees the generation, and even be back.  One whose mark has changed needs no waking;
    // one that ends waits in embed_task_leave until this is over.
    for (int i = 0; i < n; i++) {
        if (i == task) continue;
        embed_lock(&t->lock);
        bool waits = t->mark[i] == over;
        embed_unlock(&t->lock);
        if (waits && job->ops.unpark != NULL) job->ops.unpark(job->ctx, i);
    }
    __atomic_fetch_sub(&t->waking, 1, __ATOMIC_RELEASE);
}

int embed_meet(struct embed_job *job, int task, ckpt_state *state, ckpt_error *error) {
    ckpt_state nobody;
    if (state == NULL) state = &nobody;
    *state = CKPT_STATE_ERROR;
    if (job->ops.local_tasks == NULL) {
        if (task == 0) return embed_checkpoint(job, state, error);
        return refuse(error, CKPT_E_NOTSUP,
                      "there is no local task %d: this process has one rank, whose task is 0", task);
    }
    struct embed_tasks *t = &job->tasks;
    uint64_t generation = 0;
    int last = arrive(job, task, &generation, error);
    if (last < 0) return last;
    if (last || wait(job, task, generation)) preside(job, task);
    *state = t->state;
    embed_say(error, t->code != 0 ? t->code : t->error.code, t->error.message);
    return t->code;
}

static bool all_left(const struct embed_tasks *t, int n) {
    for (int i = 0; i < n; i++)
        if (t->mark[i] != TASK_LEFT) return false;
    return true;
}

bool embed_tasks_answer(struct embed_job *job) {
    struct embed_tasks *t = &job->tasks;
    if (!__atomic_load_n(&t->gone, __ATOMIC_ACQUIRE)) return false;
    if (__atomic_exchange_n(&t->answering, 1, __ATOMIC_ACQUIRE)) return true;
    ckpt_state nobody = CKPT_STATE_ERROR;
    embed_checkpoint(job, &nobody, NULL); // the others are told what became of it
    __atomic_store_n(&t->answering, 0, __ATOMIC_RELEASE);
    return true;
}

int embed_task_leave(struct embed_job *job, int task) {
    struct embed_tasks *t = &job->tasks;
    if (job->ops.local_tasks == NULL) return task == 0 ? 0 : CKPT_E_ARG;
    int n = tasks_now(job, NULL);
    if (n < 0) return n;
    if (task < 0 || task >= n) return CKPT_E_ARG;
    // Whoever wakes others may be about to wake this one, and its task shall not be gone by then.
    while (__atomic_load_n(&t->waking, __ATOMIC_ACQUIRE) != 0) turn(job, task, false);

    int chosen = -1;
    embed_lock(&t->lock);
    uint64_t now = t->generation + 1;
    bool here = t->mark[task] == TASK_LEFT || t->mark[task] == now;
    if (!here) {
        t->mark[task] = TASK_LEFT;
        if (t->arrived > 0 && task < t->n) {
            t->left++;
            // It was the last one that was missing: one of those who wait is the master.
            for (int i = 0; complete(t) && chosen < 0 && i < t->n; i++)
                if (t->mark[i] == now) chosen = i;
        }
    }
    if (chosen >= 0) {
        __atomic_fetch_add(&t->waking, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&t->chosen, chosen + 1, __ATOMIC_RELEASE);
    }
    bool gone = !here && all_left(t, n);
    if (gone) __atomic_store_n(&t->gone, true, __ATOMIC_RELEASE);
    embed_unlock(&t->lock);
    if (here) return CKPT_E_STATE;
    if (gone) ckpt_core_tasks_left(&job->seen);
    if (chosen >= 0) {
        if (job->ops.unpark != NULL) job->ops.unpark(job->ctx, chosen);
        __atomic_fetch_sub(&t->waking, 1, __ATOMIC_RELEASE);
    }
    return 0;
}

void embed_tasks_end(struct embed_job *job) {
    free(job->tasks.mark);
    memset(&job->tasks, 0, sizeof job->tasks);
}
