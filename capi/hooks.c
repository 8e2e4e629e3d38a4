// SPDX-License-Identifier: Apache-2.0
//
// hooks.c: the functions of ckpt.h that concern the thread which calls them.  They never enter Go: a thread that
// is held stands in them while others are asked to run Go, and one that calls up leaves its stack.  Under ckptrun
// they are ckptrun's; elsewhere nobody is ever held.
#include "host/hostgo.h"

#include "ckpt.h"

static struct host_hooks hooks;

void ckpt_host_hooks(const struct host_hooks *h) { hooks = *h; }

int ckpt_thread_is_mine(ckpt_job *job) {
    if (job == NULL) return CKPT_E_ARG;
    if (hooks.mine) hooks.mine();
    return CKPT_OK;
}

int ckpt_hold(ckpt_job *job) {
    if (job == NULL) return CKPT_E_ARG;
    if (hooks.hold) hooks.hold();
    return CKPT_OK;
}

long ckpt_upcall(ckpt_job *job, void *function, const long args[6]) {
    (void)job;
    if (hooks.upcall) return hooks.upcall(function, args);
    return ((long (*)(long, long, long, long, long, long))function)(args[0], args[1], args[2], args[3],
                                                                    args[4], args[5]);
}
