// SPDX-License-Identifier: Apache-2.0
//
// job.c: the functions of ckpt.h in the runtime's half.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/clock.h"
#include "embed/embed.h"
#include "embed/functions.h"

#define EXPORT __attribute__((visibility("default")))

// ---- by number -----------------------------------------------------------------------------------

#define NUMBER(result, name, parameters, arguments, error, none) NUMBER_##name,
enum { CKPT_FORWARDED(NUMBER, NUMBER) };

// LONGS(a, b) is (long)a, (long)b: all arguments are words.
#define LONGS1(a) (long)(a)
#define LONGS2(a, ...) (long)(a), LONGS1(__VA_ARGS__)
#define LONGS3(a, ...) (long)(a), LONGS2(__VA_ARGS__)
#define LONGS4(a, ...) (long)(a), LONGS3(__VA_ARGS__)
#define LONGS5(a, ...) (long)(a), LONGS4(__VA_ARGS__)
#define LONGS6(a, ...) (long)(a), LONGS5(__VA_ARGS__)
#define LONGS7(a, ...) (long)(a), LONGS6(__VA_ARGS__)
#define LONGS8(a, ...) (long)(a), LONGS7(__VA_ARGS__)
#define NTH(_1, _2, _3, _4, _5, _6, _7, _8, n, ...) LONGS##n
#define LONGS(...) NTH(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1)(__VA_ARGS__)

#define OWN(result, name, parameters, arguments, error, none)                                       \
    result name parameters {                                                                        \
        const long args[] = {LONGS arguments};                                                      \
        long r = 0;                                                                                 \
        if (!embed_below(NUMBER_##name, #name, args, (int)(sizeof args / sizeof *args), error, &r)) \
            return none;                                                                            \
        return (result)r;                                                                           \
    }
#define FORWARD(...) EXPORT OWN(__VA_ARGS__)
CKPT_FORWARDED(FORWARD, OWN)

// ---- opening -------------------------------------------------------------------------------------

static struct embed_job *volatile open_job; // of this process

int embed_take(void *to, size_t mine, size_t least, const void *from, const char *what, const char *since,
               ckpt_error *error) {
    size_t size;
    char text[400];
    memcpy(&size, from, sizeof size);
    if (size < least) {
        snprintf(
            text, sizeof text,
            "the runtime's %s has %zu bytes, and version %s of ckpt.h has %zu: its size is not set, or it was "
            "compiled against an older header",
            what, size, since, least);
        embed_say(error, CKPT_E_VERSION, text);
        return CKPT_E_VERSION;
    }
    memcpy(to, from, size < mine ? size : mine);
    for (size_t i = mine; i < size; i++)
        if (((const char *)from)[i] != 0) {
            snprintf(
                text, sizeof text,
                "the runtime uses a part of %s (at byte %zu) that this libckpt does not know: it was compiled "
                "against a newer ckpt.h than %d.%d",
                what, i, CKPT_API_MAJOR, CKPT_API_MINOR);
            embed_say(error, CKPT_E_VERSION, text);
            return CKPT_E_VERSION;
        }
    memcpy(to, &mine, sizeof mine);
    return 0;
}

// Sizes in version 1.0, the least that a runtime may have.  They never change.
static int take_ops(struct embed_ops *to, const ckpt_runtime_ops *from, ckpt_error *error) {
    int e = embed_take(&to->runtime, sizeof to->runtime, 88, from, "ckpt_runtime_ops", "1.0", error);
#define LAYER(name, least)                                                                                   \
    if (!e && to->runtime.name) {                                                                            \
        e = embed_take(&to->name, sizeof to->name, least, to->runtime.name, LAYER_NAME(name), "1.0", error); \
        to->runtime.name = &to->name;                                                                        \
    }
#define LAYER_NAME(name) LAYER_NAME_##name
#define LAYER_NAME_objects "ckpt_object_ops"
#define LAYER_NAME_messages "ckpt_message_ops"
#define LAYER_NAME_sync "ckpt_sync_ops"
#define LAYER_NAME_state "ckpt_state_ops"
    LAYER(objects, 24)
    LAYER(messages, 56)
    LAYER(sync, 40)
    LAYER(state, 48)
    return e;
}

static ckpt_job *refuse(struct embed_job *job, int code, const char *why, ckpt_error *error) {
    if (why) embed_say(error, code, why);
    free(job);
    return NULL;
}

EXPORT ckpt_job *ckpt_open(const ckpt_config *config, const ckpt_runtime_ops *ops, void *ctx,
                           ckpt_error *error) {
    if (config == NULL || ops == NULL)
        return refuse(NULL, CKPT_E_ARG, "ckpt_open was given no config or no ops", error);
    if (embed_usable(error) != 0) return NULL;
    struct embed_job *job = calloc(1, sizeof *job);
    if (job == NULL) return refuse(job, CKPT_E_SYSTEM, "no memory", error);
    if (take_ops(&job->all, ops, error) != 0) return refuse(job, 0, NULL, error);
    const ckpt_runtime_ops *r = &job->all.runtime;
    if (!r->rank || !r->ranks || !r->oob_allgather)
        return refuse(job, CKPT_E_ARG,
                      "ckpt_runtime_ops lacks rank, ranks or oob_allgather, which every runtime needs",
                      error);
    job->ops = *r;
    job->ctx = ctx;
    if (!__sync_bool_compare_and_swap(&open_job, NULL, job))
        return refuse(job, CKPT_E_STATE, "this process has an open job already", error);
    if (embed_open(job, config, error) != 0) {
        open_job = NULL;
        return refuse(job, 0, NULL, error);
    }
    return &job->seen;
}

EXPORT int ckpt_close(ckpt_job *job, ckpt_error *error) {
    if (job == NULL || embed_of(job) != open_job) {
        embed_say(error, CKPT_E_ARG, "this is no open job: it was not returned by ckpt_open, or was closed");
        return CKPT_E_ARG;
    }
    int e = embed_close(embed_of(job), error);
    if (e == CKPT_E_STATE) return e;
    open_job = NULL; // its tables stay mapped, and this memory stays: the application may still hold ids
    embed_rails_end(embed_of(job));
    embed_tasks_end(embed_of(job));
    return e;
}

// ---- saving --------------------------------------------------------------------------------------

int embed_checkpoint(struct embed_job *job, ckpt_state *state, ckpt_error *error) {
    return embed_save(job, state, error);
}

EXPORT int ckpt_checkpoint(ckpt_job *job, int local_task, ckpt_state *state, ckpt_error *error) {
    ckpt_state ignored;
    if (state == NULL) state = &ignored;
    *state = CKPT_STATE_ERROR;
    if (job == NULL || embed_of(job) != open_job) {
        embed_say(error, CKPT_E_ARG, "this is no open job: it was not returned by ckpt_open, or was closed");
        return CKPT_E_ARG;
    }
    return embed_meet(embed_of(job), local_task, state, error);
}

EXPORT int ckpt_task_leave(ckpt_job *job, int local_task) {
    return job == NULL ? CKPT_E_ARG : embed_task_leave(embed_of(job), local_task);
}

EXPORT int ckpt_vid_task(ckpt_job *job, ckpt_vid comm, int local_task) {
    if (job == NULL || local_task < 0) return CKPT_E_ARG;
    const struct embed_job *j = embed_of(job);
    int n = j->ops.local_tasks != NULL ? j->ops.local_tasks(j->ctx) : 1;
    return local_task < n ? ckpt_core_vid_task(job, comm, local_task) : CKPT_E_ARG;
}

EXPORT int ckpt_restarted(ckpt_job *job) { return job != NULL && embed_of(job)->restarted; }
// A process that is continued has its runtime in its memory, as far as it was started.
EXPORT int ckpt_restart_thread_level(void) { return -1; }
EXPORT void *ckpt_runtime_state(ckpt_job *job, size_t bytes) {
    return job == NULL ? NULL : embed_runtime_state(embed_of(job), bytes);
}

// ---- threads: nobody stops a thread of this half inside the runtime --------------------------------

EXPORT int ckpt_thread_is_mine(ckpt_job *job) { return job == NULL ? CKPT_E_ARG : CKPT_OK; }
EXPORT int ckpt_hold(ckpt_job *job) { return job == NULL ? CKPT_E_ARG : CKPT_OK; }
EXPORT long ckpt_upcall(ckpt_job *job, void *function, const long args[6]) {
    (void)job;
    return ((long (*)(long, long, long, long, long, long))function)(args[0], args[1], args[2], args[3],
                                                                    args[4], args[5]);
}

int embed_ignore_fd(struct embed_job *job, int fd, bool on) {
    return ckpt_core_ignore_fd(&job->seen, fd, on);
}

struct embed_job *embed_job_open(void) {
    return open_job;
}
