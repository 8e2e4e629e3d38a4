// SPDX-License-Identifier: Apache-2.0
//
// core.c: libckpt.so.1, which programs and runtimes are linked with.  It is small: the core, which is written in
// Go and brings threads and signal handlers of its own, is loaded by the first call that needs it, from the folder
// ckpt beside this library.  A program that makes no such call has nothing of it, and may fork.
//
// The core does not live in a forked child, where its threads are missing: there each call fails, and says so.
// Under ckptrun the loader finds another library of this name in the program's half (front/stub.c), and the core is
// in the other half.
#define _GNU_SOURCE // dladdr
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt.h"
#include "ckpt/clock.h"
#include "embed/functions.h"
#include "mpix_checkpoint.h"

#define EXPORT __attribute__((visibility("default")))

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

// The core's function of this name, which is looked up once; NULL: there is none to be had, and error says why.
static void *find(void **known, const char *name, ckpt_error *error) {
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
    void *f = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (f != NULL) return f;
    f = dlsym(core, name);
    if (f == NULL)
        embed_say(error, CKPT_E_VERSION, "the core of libckpt is of another version than libckpt.so");
    __atomic_store_n(known, f, __ATOMIC_RELAXED);
    return f;
}

#define FORWARD(result, name, parameters, arguments, error, none)            \
    EXPORT result name parameters {                                          \
        static void *known;                                                  \
        __typeof__(&name) f = (__typeof__(&name))find(&known, #name, error); \
        if (f == NULL) return none;                                          \
        return f arguments;                                                  \
    }
CKPT_FUNCTIONS(FORWARD)

EXPORT int ckpt_checkpoint(ckpt_job *job, int local_task, ckpt_state *state, ckpt_error *error) {
    static void *known;
    __typeof__(&ckpt_checkpoint) f = (__typeof__(&ckpt_checkpoint))find(&known, "ckpt_checkpoint", error);
    if (f != NULL) return f(job, local_task, state, error);
    if (state != NULL) *state = CKPT_STATE_ERROR;
    return CKPT_E_NOTSUP;
}

// ---- mpix_checkpoint.h, for a program that was not started by ckptrun ----

enum { OK = 0, ERR_ARG = 12 };

EXPORT int MPIX_Checkpoint(MPIX_CR_state_t *state) {
    if (state == NULL) return ERR_ARG;
    *state = MPIX_CR_STATE_IGNORE;
    return OK;
}

EXPORT int MPIX_Checkpoint_reason(char *text, size_t bytes) {
    if (text == NULL || bytes == 0) return ERR_ARG;
    snprintf(text, bytes, "the program was not started by ckptrun");
    return OK;
}

EXPORT int MPIX_Checkpoint_protect(int id, void *base, size_t bytes) {
    (void)id, (void)base, (void)bytes;
    return OK;
}

EXPORT int MPIX_Checkpoint_recover(MPIX_CR_state_t *state) { return MPIX_Checkpoint(state); }
