// SPDX-License-Identifier: Apache-2.0
//
// verbs.c: loads what is below the program's libibverbs, when the program asks for devices for the first time.
#include "host.h"
#include "arena.h"
#include "lower.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "ckpt/private/gate.h"
#include "verbs/back.h"

#define PAGE 4096ull
#define UP(x) (((x) + PAGE - 1) & ~(PAGE - 1))

static const struct verbs_back *loaded;
static char failure[1000];

// Memory of the program's half, which the lower half writes to: messages that the program has not asked for yet.
static void *map(size_t bytes) {
    bytes = UP(bytes);
    kmask old = block_all();
    lock();
    uint64_t at = arena_reserve(bytes, PAGE);
    void *p = NULL;
    if (at) {
        p = mmap((void *)at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                 -1, 0);
        if (p == MAP_FAILED) {
            arena_free(at, at + bytes);
            p = NULL;
        }
    }
    unlock();
    set_kernel_mask(old);
    return p;
}

static void unmap(void *p, size_t bytes) {
    bytes = UP(bytes);
    kmask old = block_all();
    lock();
    if (munmap(p, bytes) == 0) arena_free((uint64_t)p, (uint64_t)p + bytes);
    unlock();
    set_kernel_mask(old);
}

static const struct verbs_back *load(void) {
    static uint32_t busy; // programs may ask on several threads
    static bool tried;
    ckpt_mutex_take(&busy);
    if (!tried) {
        static struct verbs_host ours = {.version = VERBS_BACK_VERSION, .map = map, .unmap = unmap};
        char path[4200];
        tried = true;
        ours.ask = host.go.verbs_ask;
        ours.say = host.go.verbs_say;
        host.go.verbs_job(&ours.rank, &ours.ranks);
        snprintf(path, sizeof path, "%s/ckpt/back/libckptverbs-ibv.so", host.libdir);
        // Its threads inherit this thread's mask, and should not hear the application's signals.
        kmask old = block_all();
        void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const struct verbs_back *(*entry)(const struct verbs_host *, char *, size_t) =
            lib ? (const struct verbs_back *(*)(const struct verbs_host *, char *, size_t))dlsym(
                      lib, "ckpt_verbs_entry")
                : NULL;
        if (!entry)
            snprintf(failure, sizeof failure, "%s", dlerror());
        else
            loaded = entry(&ours, failure, sizeof failure);
        set_kernel_mask(old);
        if (loaded) lower_functions(CKPT_FN_VERBS, loaded->fn, loaded->functions);
        if (loaded) signals_wrap_lower();
        if (!loaded) host.go.verbs_say(failure);
    }
    ckpt_mutex_give(&busy);
    return loaded;
}

// struct v_root *: 0, or an error number.  Without a library of the machine it is as on a kernel without InfiniBand.
long fn_load_verbs(const long *a) {
    if (host.child) return ENOSYS;
    const struct verbs_back *b = load();
    return b ? b->load((uint64_t)a[0]) : ENOSYS;
}

const struct verbs_calls *verbs_calls(int must, char *why, size_t bytes) {
    if (must && !load()) snprintf(why, bytes, "%s", failure);
    return loaded ? loaded->calls : NULL;
}
