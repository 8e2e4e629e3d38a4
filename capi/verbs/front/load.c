// SPDX-License-Identifier: Apache-2.0
//
// load.c: the root of all objects, and calls into the lower half.
#include "verbs/front/front.h"

#include <pthread.h>

static struct v_root root;
static int loaded;
static long failure;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static long call(unsigned fn, const long *args) {
    long r;
    do r = CKPT_GATE->gate(fn, args);
    while (r == CKPT_GATE_RETRY);
    return r;
}

long front_load(void) {
    if (__atomic_load_n(&loaded, __ATOMIC_ACQUIRE)) return failure;
    pthread_mutex_lock(&mutex);
    if (!loaded) {
        root.magic = V_MAGIC;
        root.version = V_VERSION;
        root.bytes = sizeof root;
        v_sizes(root.sizes);
        long r = call(CKPT_FN_LOAD_VERBS, (const long[]){(long)&root});
        failure = r < 0 ? -r : r;
        __atomic_store_n(&loaded, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mutex);
    return failure;
}

long front_cross(enum v_function number, const long *args) { return call(CKPT_FN_VERBS + number, args); }
