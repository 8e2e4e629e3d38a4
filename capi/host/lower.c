// SPDX-License-Identifier: Apache-2.0
//
// lower.c: loads libckpt-core.so and the back of the real MPI into the lower half, and holds the table of
// functions that the gate calls.
#include "host.h"
#include "crossing.h"
#include "fds.h"
#include "lower.h"
#include "thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/back.h"

#define FUNCTIONS 1024 // GATE_LIMIT in gate.S

static long (*functions[FUNCTIONS])(const long *);
static const struct ckpt_back *back;
static const char *back_path, *no_back; // from the plan

_Noreturn void die(int status, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    char text[6000];
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (text[0] != 0) dprintf(2, "ckptrun: %s\n", text); // else another rank has said why
    if (status == EXIT_FAILURE) fds_abort_job(status);
    _exit(status);
}

static long fn_missing(const long *a) {
    (void)a;
    return -ENOSYS;
}

static void *need(void *lib, const char *name) {
    void *p = dlsym(lib, name);
    if (!p) die(1, "libckpt-core.so lacks %s: the installation mixes two versions", name);
    return p;
}

static void *core; // libckpt-core.so

void *core_function(const char *name) { return dlsym(core, name); }

void lower_open(void) {
    char path[4200];
    snprintf(path, sizeof path, "%s/ckpt/libckpt-core.so", host.libdir);
    void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!lib) die(1, "cannot load %s: %s", path, dlerror());
    core = lib;
    host.go.plan = need(lib, "ckpt_host_plan");
    host.go.start = need(lib, "ckpt_host_start");
    host.go.restore = need(lib, "ckpt_host_restore");
    host.go.come = need(lib, "ckpt_host_come");
    host.go.checkpoint = need(lib, "ckpt_host_checkpoint");
    host.go.ending = need(lib, "ckpt_host_ending");
    host.go.serve = need(lib, "ckpt_host_serve");
    host.go.hooks = need(lib, "ckpt_host_hooks");
    host.go.memory = need(lib, "ckpt_host_memory");
    host.go.talk = need(lib, "ckpt_host_talk");
    host.go.job = need(lib, "ckpt_host_job");
    host.go.verbs_job = need(lib, "ckpt_host_verbs_job");
    host.go.verbs_ask = need(lib, "ckpt_host_verbs_ask");
    host.go.verbs_say = need(lib, "ckpt_host_verbs_say");
    static const struct host_hooks hooks = {.mine = back_mine, .hold = back_hold, .upcall = upcall};
    host.go.hooks(&hooks);
    for (int i = 0; i < FUNCTIONS; i++) functions[i] = fn_missing;
    functions[CKPT_FN_LOAD_BACK] = fn_load_back;
    functions[CKPT_FN_CHECKPOINT] = fn_checkpoint;
    functions[CKPT_FN_REASON] = fn_reason;
    functions[CKPT_FN_API] = fn_api;
    functions[CKPT_FN_TALK] = fn_talk;
    functions[CKPT_FN_LOAD_VERBS] = fn_load_verbs;
    gate_page_set_functions(functions);
}

void lower_functions(unsigned first, long (*const *fn)(const long *), unsigned n) {
    for (unsigned i = 0; i < n && first + i < FUNCTIONS; i++)
        if (fn[i]) functions[first + i] = fn[i];
}

// ---- the back ----------------------------------------------------------------------------------

static const char *back_load(void) {
    static char why[5000], reason[1000];
    if (back) return NULL;
    if (!back_path || !*back_path)
        return no_back && *no_back ? no_back : "no MPI was chosen: name one with --mpi";
    // MPI's threads inherit this thread's mask, and should not hear the application's signals.  UCX must
    // leave fault handlers alone (docs/split-process.md P3).
    kmask old = block_all();
    setenv("UCX_HANDLE_ERRORS", "none", 1);
    void *lib = dlopen(back_path, RTLD_NOW | RTLD_GLOBAL);
    const struct ckpt_back *(*entry)(const struct ckpt_back_host *) =
        lib ? (const struct ckpt_back *(*)(const struct ckpt_back_host *))dlsym(lib, "ckpt_back_entry")
            : NULL;
    static struct ckpt_back_host ours = {.size = sizeof ours, .why = reason, .why_bytes = sizeof reason};
    ours.two_phase = host.two_phase;
    if (entry) back = entry(&ours);
    set_kernel_mask(old);
    if (!back) {
        snprintf(why, sizeof why, "cannot load the real MPI through %s: %s", back_path,
                 reason[0] ? reason
                 : lib     ? "it is no back of this version of libckpt"
                           : dlerror());
        if (!reason[0])
            strncat(why, "; `ckptctl back list` says which MPI each back was compiled for",
                    sizeof why - strlen(why) - 1);
        return why;
    }
    for (unsigned i = 0; i < back->nfn && CKPT_FN_MPI + i < FUNCTIONS; i++)
        if (back->fn[i]) functions[CKPT_FN_MPI + i] = back->fn[i];
    signals_wrap_lower();
    return NULL;
}

// const char *abi: the front's.  Ends the process when the MPI cannot be loaded: the front's constructor has
// nobody to report to.
long fn_load_back(const long *a) {
    (void)a;
    const char *error = back_load();
    if (error) die(1, "%s", error);
    return 0;
}

bool back_calls_up(void) { return back && back->calls_up(); }

void back_choose(const char *path, const char *none) {
    back_path = path;
    no_back = none;
}

int back_restart(char **message) {
    static ckpt_error error = {.size = sizeof error};
    const char *why = back_load();
    if (!why && back->restart(&error) == 0) return 0;
    *message = why ? (char *)why : error.message;
    return 1;
}

// ---- MPIX --------------------------------------------------------------------------------------

static char reason[1000]; // why the last checkpoint was not made

long fn_checkpoint(const long *a) {
    struct thread *t = self();
    int *state = (int *)a[0];
    if (host.child || t->upcalls) {
        *state = CKPT_STATE_IGNORE;
        snprintf(reason, sizeof reason, "%s",
                 host.child ? "this is a forked child of the job" : "called from a callback of MPI");
        return 0;
    }
    bool mpi = back && back->job();
    if (mpi) {
        back->enter();
    } else {
        char why[sizeof reason] = "";
        t->retry = true; // who waits is in no epoch of this call: after a restart it waits again
        thread_hold(t);
        int come = host.go.come(state, why, sizeof why);
        thread_unhold(t);
        t->retry = false;
        if (come == HOST_AGAIN) return CKPT_GATE_RETRY;
        if (come == HOST_STAY) {
            memcpy(reason, why, sizeof reason);
            return 0;
        }
    }
    // This thread is at a place from which it can be continued.
    thread_hold(t);
    long r = 0;
    ckpt_error error = {.size = sizeof error};
    if (mpi)
        r = back->checkpoint(state, &error);
    else
        *state = host.go.checkpoint(error.message, sizeof error.message);
    memcpy(reason, error.message, sizeof reason);
    thread_unhold(t);
    // A failed checkpoint is not an error of the call; the state tells.
    return r == CKPT_E_ARG ? r : 0;
}

long fn_reason(const long *a) {
    if (!a[1]) return 0;
    size_t n = strnlen(reason, sizeof reason - 1);
    if (n > (size_t)a[1] - 1) n = (size_t)a[1] - 1;
    memcpy((char *)a[0], reason, n);
    ((char *)a[0])[n] = 0;
    return 0;
}
