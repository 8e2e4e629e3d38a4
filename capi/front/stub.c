// SPDX-License-Identifier: Apache-2.0
//
// stub.c: libckpt.so.1 of the upper half.  A program that was linked with -lckpt finds this library
// when the program runs under ckptrun; the library passes the calls on.
#include <stdint.h>

#include "ckpt.h"
#include "ckpt/clock.h"
#include "ckpt/private/gate.h"
#include "embed/functions.h"
#include "mpix_checkpoint.h"

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, ERR_ARG = 12 };

static long call(unsigned fn, const void *args) {
    long rc;
    do rc = CKPT_GATE->gate(fn, args);
    while (rc == CKPT_GATE_RETRY);
    return rc;
}

EXPORT int MPIX_Checkpoint(MPIX_CR_state_t *state) {
    if (state == NULL) return ERR_ARG;
    int s = MPIX_CR_STATE_IGNORE;
    const long args[] = {(long)&s};
    long rc = call(CKPT_FN_CHECKPOINT, args);
    *state = rc == CKPT_GATE_RESTART ? MPIX_CR_STATE_RESTART : (MPIX_CR_state_t)s;
    return OK;
}

EXPORT int MPIX_Checkpoint_reason(char *text, size_t bytes) {
    const long args[] = {(long)text, (long)bytes};
    if (text == NULL || bytes == 0) return ERR_ARG;
    text[0] = 0;
    call(CKPT_FN_REASON, args);
    return OK;
}

// Regions mode is for programs that run without ckptrun: here the whole process is saved.

EXPORT int MPIX_Checkpoint_protect(int id, void *base, size_t bytes) {
    (void)id, (void)base, (void)bytes;
    return OK;
}

EXPORT int MPIX_Checkpoint_recover(MPIX_CR_state_t *state) {
    if (state == NULL) return ERR_ARG;
    *state = MPIX_CR_STATE_IGNORE;
    return OK;
}

// ---- ckpt.h ----
//
// A runtime in the program's half is part of the image, so its network must be closed for each checkpoint and opened
// again.  This mode (whole mode) does not exist yet.  Each call says so; without these functions the program would end
// with an undefined symbol.

static const char no_whole[] =
    "this program opens libckpt itself, as an MPI does, and was started by ckptrun, which saves a runtime with "
    "its program only in whole mode; this version has none: start the program without ckptrun";

#define REFUSE(result, name, parameters, arguments, error, none) \
    EXPORT result name parameters {                              \
        embed_say(error, CKPT_E_NOTSUP, no_whole);               \
        return none;                                             \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter"
CKPT_FUNCTIONS(REFUSE)

EXPORT int ckpt_checkpoint(ckpt_job *job, int local_task, ckpt_state *state, ckpt_error *error) {
    if (state != NULL) *state = CKPT_STATE_ERROR;
    embed_say(error, CKPT_E_NOTSUP, no_whole);
    return CKPT_E_NOTSUP;
}
