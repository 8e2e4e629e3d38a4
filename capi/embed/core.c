// SPDX-License-Identifier: Apache-2.0
//
// core.c: libckpt.so.1, which programs and runtimes are linked with, and its way to the core, which is written in Go
// and brings threads and signal handlers of its own.  It is loaded by the first call that needs it, from the folder
// ckpt beside this library.  A program that makes no such call has nothing of it, and may fork.
//
// The core does not live in a forked child, where its threads are missing: there each call fails, and says so.
// Under ckptrun the loader finds another library of this name in the program's half (gated.c), and the core is
// in the other half.
#define _GNU_SOURCE // dladdr
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "embed/embed.h"
#include "embed/functions.h"
#include "embed/talk.h"

// core is written once, before owner: who sees owner set sees core.
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static void *core;
static pid_t owner; // of the process that loaded it; 0: nobody has

// Where the core is, beside this library; -1 when that cannot be told.
static int core_path(char *path) {
    Dl_info here;
    char own[PATH_MAX];
    if (dladdr((void *)core_path, &here) == 0 || realpath(here.dli_fname, own) == NULL) return -1;
    char *slash = strrchr(own, '/');
    if (slash == NULL) return -1;
    *slash = 0;
    return snprintf(path, PATH_MAX, "%s/ckpt/libckpt-core.so", own) < PATH_MAX ? 0 : -1;
}

static void *load(ckpt_error *error) {
    char path[PATH_MAX], why[PATH_MAX + 600];
    if (core_path(path) != 0) {
        embed_say(error, CKPT_E_SYSTEM, "libckpt.so does not find the folder that it lies in");
        return NULL;
    }
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL) {
        snprintf(why, sizeof why, "the core of libckpt cannot be loaded: %s", dlerror());
        embed_say(error, CKPT_E_SYSTEM, why);
    }
    return lib;
}

// The core's function of this name; NULL: there is none to be had, and error says why.
void *embed_find(const char *name, ckpt_error *error) {
    pid_t by = __atomic_load_n(&owner, __ATOMIC_ACQUIRE);
    if (by == 0) {
        pthread_mutex_lock(&loading);
        if (core == NULL) core = load(error);
        if (core != NULL) __atomic_store_n(&owner, by = getpid(), __ATOMIC_RELEASE);
        pthread_mutex_unlock(&loading);
        if (core == NULL) return NULL;
    }
    if (by != getpid()) {
        embed_say(
            error, CKPT_E_NOTSUP,
            "this process was forked after libckpt was loaded, whose threads it does not have: exec first");
        return NULL;
    }
    void *f = dlsym(core, name);
    if (f == NULL)
        embed_say(error, CKPT_E_VERSION, "the core of libckpt is of another version than libckpt.so");
    return f;
}

enum { MOST_FUNCTIONS = 64, MOST_ARGUMENTS = 8 };

bool embed_below(int n, const char *name, const long *args, int nargs, ckpt_error *error, long *result) {
    static void *known[MOST_FUNCTIONS];
    long a[MOST_ARGUMENTS] = {0};
    if (__atomic_load_n(&owner, __ATOMIC_ACQUIRE) != getpid()) known[n] = NULL; // find says why
    void *f = __atomic_load_n(&known[n], __ATOMIC_RELAXED);
    if (f == NULL) f = embed_find(name, error);
    if (f == NULL) return false;
    __atomic_store_n(&known[n], f, __ATOMIC_RELAXED);
    memcpy(a, args, (size_t)nargs * sizeof *a);
    if (a[0] != 0) a[0] = (long)embed_of((ckpt_job *)a[0])->core;
    *result = ((long (*)(long, long, long, long, long, long, long, long))f)(a[0], a[1], a[2], a[3], a[4],
                                                                            a[5], a[6], a[7]);
    return true;
}

int embed_usable(ckpt_error *error) { return embed_find("ckpt_open", error) ? 0 : CKPT_E_NOTSUP; }

bool embed_talk_below(ckpt_talk *t, ckpt_error *error) {
    void (*f)(ckpt_talk *) = (void (*)(ckpt_talk *))embed_find("ckpt_host_talk", error);
    if (f != NULL)
        f(t);
    else
        t->ask = CKPT_ASK_NOTHING;
    return false;
}

// Regions mode is a conversation, as that of a runtime under ckptrun.
static bool wants_regions(const ckpt_config *config) {
    return config->size >= offsetof(ckpt_config, flags) + sizeof config->flags &&
           (config->flags & CKPT_OPEN_REGIONS);
}

static int open_regions(struct embed_job *job, const ckpt_config *config, ckpt_error *error) {
    ckpt_talk t = {.subject = CKPT_TALK_OPEN, .a = {(uint64_t)config, embed_callbacks(job)}};
    void *(*core_job)(void) = (void *(*)(void))embed_find("ckpt_host_job", error);
    if (core_job == NULL) return CKPT_E_NOTSUP;
    embed_talk(job, &t);
    if (t.error.code != 0) return embed_pass(&t, error);
    job->seen.tables = (ckpt_tables *)t.result;
    job->core = core_job();
    __typeof__(&ckpt_restarted) restarted = (__typeof__(&ckpt_restarted))embed_find("ckpt_restarted", NULL);
    job->restarted = restarted != NULL && restarted(job->core);
    job->regions = true;
    return 0;
}

int embed_open(struct embed_job *job, const ckpt_config *config, ckpt_error *error) {
    if (wants_regions(config)) return open_regions(job, config, error);
    __typeof__(&ckpt_open) f = (__typeof__(&ckpt_open))embed_find("ckpt_open", error);
    if (f == NULL) return CKPT_E_NOTSUP;
    // The core would give bind its own job.
    ckpt_object_ops objects = job->all.objects;
    ckpt_runtime_ops ops = job->all.runtime;
    objects.bind = NULL;
    if (ops.objects) ops.objects = &objects;
    job->core = f(config, &ops, job->ctx, error);
    if (job->core == NULL) return CKPT_E_SYSTEM;
    job->seen.tables = job->core->tables;
    if (job->all.objects.bind == NULL || job->all.objects.bind(job->ctx, &job->seen) == 0) return 0;
    char text[800];
    const char *why = job->ops.failure ? job->ops.failure(job->ctx) : "";
    snprintf(text, sizeof text, "the runtime could not bind its predefined objects: %s",
             why && *why ? why : "it does not say why");
    embed_close(job, NULL);
    embed_say(error, CKPT_E_SYSTEM, text);
    return CKPT_E_SYSTEM;
}

int embed_close(struct embed_job *job, ckpt_error *error) {
    if (job->regions) {
        ckpt_talk t = {.subject = CKPT_TALK_CLOSE};
        embed_talk(job, &t);
        return embed_pass(&t, error);
    }
    __typeof__(&ckpt_close) f = (__typeof__(&ckpt_close))embed_find("ckpt_close", error);
    return f == NULL ? CKPT_E_NOTSUP : f(job->core, error);
}

static int save_regions(struct embed_job *job, ckpt_state *state, ckpt_error *error) {
    ckpt_talk t = {.subject = CKPT_TALK_CHECKPOINT,
                   .a = {__atomic_exchange_n(&job->asked, false, __ATOMIC_RELAXED),
                         (uint64_t)__builtin_frame_address(0)}};
    embed_talk(job, &t);
    *state = (ckpt_state)t.result;
    int code = embed_pass(&t, error);
    return *state == CKPT_STATE_IGNORE ? CKPT_OK : code;
}

// Without ckptrun processes are not saved.
int embed_save(struct embed_job *job, ckpt_state *state, ckpt_error *error) {
    if (job->regions) return save_regions(job, state, error);
    __typeof__(&ckpt_checkpoint) f = (__typeof__(&ckpt_checkpoint))embed_find("ckpt_checkpoint", error);
    return f == NULL ? CKPT_E_NOTSUP : f(job->core, 0, state, error);
}

void *embed_runtime_state(struct embed_job *job, size_t bytes) {
    __typeof__(&ckpt_runtime_state) f =
        (__typeof__(&ckpt_runtime_state))embed_find("ckpt_runtime_state", NULL);
    return f == NULL ? NULL : f(job->core, bytes);
}
