// SPDX-License-Identifier: Apache-2.0
//
// pmix.c: a client of PMIx.  The library stays loaded: its plugins do not take being unloaded.
#include "pmix.h"
#include "pmix_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int (*init)(struct abi_proc *, struct abi_info *, size_t);
    int (*put)(uint8_t, const char *, struct abi_value *);
    int (*commit)(void);
    int (*fence)(const struct abi_proc *, size_t, const struct abi_info *, size_t);
    int (*get)(const struct abi_proc *, const char *, const struct abi_info *, size_t, struct abi_value **);
    int (*finalize)(const struct abi_info *, size_t);
    const char *(*error)(int);
} lib;

static struct abi_proc me;

static int load(char *why, size_t n) {
    static const struct {
        const char *name;
        void *to;
    } functions[] = {{"PMIx_Init", &lib.init},         {"PMIx_Put", &lib.put},
                     {"PMIx_Commit", &lib.commit},     {"PMIx_Fence", &lib.fence},
                     {"PMIx_Get", &lib.get},           {"PMIx_Finalize", &lib.finalize},
                     {"PMIx_Error_string", &lib.error}};
    void *so = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) {
        snprintf(why, n, "the launcher speaks PMIx, whose library cannot be loaded: %s", dlerror());
        return -1;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(so, functions[i].name);
        if (f == NULL) {
            snprintf(why, n, "libpmix.so.2 has no %s", functions[i].name);
            return -1;
        }
        memcpy(functions[i].to, &f, sizeof f);
    }
    return 0;
}

static int result(const char *call, int r, char *why, size_t n) {
    if (r == ABI_SUCCESS) return 0;
    const char *text = lib.error(r);
    snprintf(why, n, "%s: %s (%d)", call, text != NULL ? text : "error", r);
    return -1;
}

// Gives back what PMIx_Get returned.
static void release(struct abi_value *v) {
    if (v->type == ABI_BYTE_OBJECT) free(v->data.bo.bytes);
    free(v);
}

// Asks for a value of a type; the caller releases it.
static int ask(uint32_t rank, const char *key, uint16_t type, struct abi_value **v, char *why, size_t n) {
    struct abi_proc of = me;
    of.rank = rank;
    if (result("PMIx_Get", lib.get(&of, key, NULL, 0, v), why, n) != 0) return -1;
    if (*v != NULL && (*v)->type == type) return 0;
    // A value of another type may own memory that only the library knows how to give back: it is lost.
    snprintf(why, n, "PMIx_Get: %s has type %d, want %d", key, *v != NULL ? (*v)->type : -1, type);
    return -1;
}

int pmix_begin(uint32_t *rank, uint32_t *ranks, char *why, size_t n) {
    struct abi_value *v;
    if (lib.init == NULL && load(why, n) != 0) return -1;
    if (result("PMIx_Init", lib.init(&me, NULL, 0), why, n) != 0) return -1;
    if (ask(ABI_RANK_WILDCARD, ABI_JOB_SIZE, ABI_UINT32, &v, why, n) != 0) {
        lib.finalize(NULL, 0);
        return -1;
    }
    *rank = me.rank;
    *ranks = v->data.uint32;
    release(v);
    return 0;
}

int pmix_put(const char *key, void *bytes, size_t size, char *why, size_t n) {
    struct abi_value v = {.type = ABI_BYTE_OBJECT, .data.bo = {bytes, size}};
    return result("PMIx_Put", lib.put(ABI_GLOBAL, key, &v), why, n);
}

int pmix_fence(char *why, size_t n) {
    struct abi_info collect = {.key = ABI_COLLECT_DATA, .value = {.type = ABI_BOOL, .data.flag = true}};
    if (result("PMIx_Commit", lib.commit(), why, n) != 0) return -1;
    return result("PMIx_Fence", lib.fence(NULL, 0, &collect, 1), why, n);
}

int pmix_get(uint32_t rank, const char *key, void **bytes, size_t *size, char *why, size_t n) {
    struct abi_value *v;
    if (ask(rank, key, ABI_BYTE_OBJECT, &v, why, n) != 0) return -1;
    *bytes = v->data.bo.bytes;
    *size = v->data.bo.size;
    v->data.bo.bytes = NULL;
    release(v);
    return 0;
}

int pmix_end(char *why, size_t n) { return result("PMIx_Finalize", lib.finalize(NULL, 0), why, n); }
