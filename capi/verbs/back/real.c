// SPDX-License-Identifier: Apache-2.0
//
// real.c: the machine's libibverbs, which is loaded when a program asks for devices.
#include "verbs/back/lower.h"

#include <dlfcn.h>

struct real real;

const char *real_open(void) {
    static char why[1000];
    // Memory that is hidden from forks would be missing in images.
    unsetenv("RDMAV_FORK_SAFE");
    unsetenv("IBV_FORK_SAFE");
    void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        snprintf(why, sizeof why, "%s", dlerror());
        return why;
    }
#define X(name)                                                                       \
    if (!(real.name = (typeof(real.name))dlsym(lib, #name))) {                        \
        snprintf(why, sizeof why, "libibverbs.so.1 of this machine lacks %s", #name); \
        return why;                                                                   \
    }
    REAL_FUNCTIONS(X)
#undef X
    return NULL;
}

int real_port(struct ibv_context *c, int port, struct ibv_port_attr *attr) {
    memset(attr, 0, sizeof *attr);
    struct verbs_context *v = verbs_get_ctx_op(c, query_port);
    if (v) return v->query_port(c, (uint8_t)port, attr, sizeof *attr);
    return real.ibv_query_port(c, (uint8_t)port, (struct _compat_ibv_port_attr *)attr);
}
