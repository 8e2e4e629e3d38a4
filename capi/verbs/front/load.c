// SPDX-License-Identifier: Apache-2.0
//
// load.c: the root of all objects, and calls into the lower half.
#include "verbs/front/front.h"

#include <pthread.h>

struct v_root front_root;
static int loaded;
static long failure;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static long call(unsigned fn, const long *args) {
    long r;
    do r = CKPT_GATE->gate(fn, args);
    while (r == CKPT_GATE_RETRY);
    return r;
}

static long load(void) {
    long r = call(CKPT_FN_LOAD_VERBS, (const long[]){(long)&front_root});
    return r < 0 ? -r : r;
}

long front_load(void) {
    if (__atomic_load_n(&loaded, __ATOMIC_ACQUIRE)) return failure;
    pthread_mutex_lock(&mutex);
    if (!loaded) {
        front_root.magic = V_MAGIC;
        front_root.version = V_VERSION;
        front_root.bytes = sizeof front_root;
        v_sizes(front_root.sizes);
        failure = load();
        __atomic_store_n(&loaded, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mutex);
    return failure;
}

// A program that had no device open is continued without anything of verbs below (ckpt/infiniband.go).
static long begin_again(enum v_function number, const long *args) {
    if (!load()) return call(CKPT_FN_VERBS + number, args);
    return number == V_DEVICES ? -ENOSYS : ENOSYS;
}

long front_cross(enum v_function number, const long *args) {
    long r = call(CKPT_FN_VERBS + number, args);
    return __builtin_expect(r == -ENOSYS, 0) ? begin_again(number, args) : r;
}
