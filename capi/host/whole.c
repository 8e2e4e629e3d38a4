// SPDX-License-Identifier: Apache-2.0
//
// whole.c: the gate for a runtime in the upper half that calls libckpt itself (--whole).  Its calls go to the core's
// functions of the same name, with the core's own job, of which the upper half keeps no address.
#include "host.h"
#include "crossing.h"
#include "lower.h"
#include "thread.h"

#include <stdio.h>

#include "ckpt/private/gate.h"
#include "ckpt/private/talk.h"
#include "embed/functions.h"

typedef long (*function)(long, long, long, long, long, long, long, long);

#define NAME(result, name, parameters, arguments, error, none) #name,
static const char *const names[] = {CKPT_FORWARDED(NAME, NAME)};
enum { FUNCTIONS = sizeof names / sizeof *names };

// a: the number of a function, then its arguments.
long fn_api(const long *a) {
    static function known[FUNCTIONS];
    if (!host.whole || host.child || (unsigned long)a[0] >= FUNCTIONS) return CKPT_GATE_REFUSED;
    void *job = a[1] ? host.go.job() : NULL;
    if (a[1] && !job) return CKPT_GATE_REFUSED;
    function f = __atomic_load_n(&known[a[0]], __ATOMIC_RELAXED);
    if (!f) f = (function)core_function(names[a[0]]);
    if (!f) return CKPT_GATE_REFUSED;
    __atomic_store_n(&known[a[0]], f, __ATOMIC_RELAXED);
    return f((long)job, a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
}

static long refuse(ckpt_talk *t, int code, const char *why) {
    t->ask = CKPT_ASK_NOTHING;
    t->error.code = code;
    snprintf(t->error.message, sizeof t->error.message, "%s", why);
    return code;
}

long fn_talk(const long *a) {
    struct thread *t = self();
    ckpt_talk *talk = (ckpt_talk *)a[0];
    if (talk->bytes != sizeof *talk)
        return refuse(talk, CKPT_E_VERSION, "libckpt.so and ckptrun are of different versions");
    if (!host.whole)
        return refuse(
            talk, CKPT_E_NOTSUP,
            "this program opens libckpt itself, as an MPI does, and was started by ckptrun, which saves "
            "a runtime with its program only with --whole: start it as `ckptrun --whole`");
    if (host.child)
        return refuse(
            talk, CKPT_E_NOTSUP,
            "this process was forked after libckpt was loaded, whose threads it does not have: exec first");
    if (t->upcalls) return refuse(talk, CKPT_E_STATE, "called from a callback of the lower half");
    // This thread is at a place from which it can be continued.
    thread_hold(t);
    host.go.talk(talk);
    thread_unhold(t);
    return 0;
}
