// SPDX-License-Identifier: Apache-2.0
//
// real.c: the machine's libibverbs, which is loaded when a program asks for devices; or in its place the one of ours
// that needs no device (capi/verbs/tcp), by CKPT_VERBS=tcp.
#define _GNU_SOURCE
#include "verbs/back/lower.h"

#include <dlfcn.h>

struct real real;
bool real_over_tcp;

static char why[1000];

static const char *functions_of(void *lib, const char *name) {
    struct real all;
    if (!lib) {
        snprintf(why, sizeof why, "%s", dlerror());
        return why;
    }
#define X(function)                                                      \
    if (!(all.function = (typeof(all.function))dlsym(lib, #function))) { \
        snprintf(why, sizeof why, "%s lacks %s", name, #function);       \
        return why;                                                      \
    }
    REAL_FUNCTIONS(X)
#undef X
    real = all;
    return NULL;
}

// It lies beside this library.
static const char *real_tcp(void) {
    static const char name[] = "libckptverbs-tcp.so";
    Dl_info here;
    char path[4096];
    const char *end = dladdr(&real, &here) ? strrchr(here.dli_fname, '/') : NULL;
    int n = end ? (int)(end + 1 - here.dli_fname) : 0;
    if (snprintf(path, sizeof path, "%.*s%s", n, n ? here.dli_fname : "", name) >= (int)sizeof path)
        return "its path is too long";
    const char *wrong = functions_of(dlopen(path, RTLD_NOW | RTLD_LOCAL), name);
    if (!wrong) real_over_tcp = true;
    return wrong;
}

const char *real_open(void) {
    const char *which = getenv("CKPT_VERBS");
    if (which && !strcmp(which, "tcp")) return real_tcp();
    if (which && strcmp(which, "ibv") && strcmp(which, "auto")) {
        snprintf(why, sizeof why, "CKPT_VERBS=%s: it can be ibv, tcp or auto", which);
        return why;
    }
    // Memory that is hidden from forks would be missing in images.
    unsetenv("RDMAV_FORK_SAFE");
    unsetenv("IBV_FORK_SAFE");
    return functions_of(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL), "libibverbs.so.1 of this machine");
}

// Where the program's devices are not: over TCP, unless it is said that they must be there.
const char *real_without_devices(void) {
    const char *which = getenv("CKPT_VERBS");
    int n = 0;
    if (which && !strcmp(which, "ibv")) return NULL;
    struct ibv_device **list = real.ibv_get_device_list(&n);
    if (list) real.ibv_free_device_list(list);
    if (n > 0) return NULL;
    const char *wrong = real_tcp();
    if (!wrong) say("no InfiniBand device here: continuing over TCP");
    return wrong;
}

int real_port(struct ibv_context *c, int port, struct ibv_port_attr *attr) {
    memset(attr, 0, sizeof *attr);
    struct verbs_context *v = verbs_get_ctx_op(c, query_port);
    if (v) return v->query_port(c, (uint8_t)port, attr, sizeof *attr);
    return real.ibv_query_port(c, (uint8_t)port, (struct _compat_ibv_port_attr *)attr);
}
