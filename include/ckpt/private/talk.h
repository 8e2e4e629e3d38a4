/* SPDX-License-Identifier: Apache-2.0
 *
 * talk.h: a call of a runtime in the program's half that needs the runtime's callbacks (whole mode).
 *
 * No callback is made from below: the core asks for it by returning.  The caller makes it where it stands, on its own
 * stack, with nothing of the lower half under it, so the callback may call libckpt, and may switch user-level
 * threads; then the caller comes again with the result.
 *
 *     caller                                         core
 *       | subject, arguments ----------------------->  the call begins, on a goroutine of its own
 *       | <----------------- ask, arguments, or CKPT_ASK_NOTHING: result, error
 *       |  the callback
 *       | result ----------------------------------->  goes on
 *
 * The structure lies in the program's half, and so in an image: when the caller is continued from one, the
 * core is new, and knows nothing of the call.
 */
#ifndef CKPT_TALK_H
#define CKPT_TALK_H

#include "ckpt.h"

/* What is called. */
enum {
    CKPT_TALK_OPEN = 1, /* a: const ckpt_config *, bits of CKPT_HAS_*; result: address of the tables */
    CKPT_TALK_CLOSE = 2,
    CKPT_TALK_CHECKPOINT =
        3, /* a: 1 when ckpt_poll has asked, an address of the caller's stack; result: ckpt_state */
    CKPT_TALK_REOPEN = 4 /* a: as OPEN: the second step of a restart */
};

/* What is asked back, with the arguments of the callback. */
enum {
    CKPT_ASK_NOTHING = 0,
    CKPT_ASK_RANK = 1,
    CKPT_ASK_RANKS = 2,
    CKPT_ASK_ALLGATHER = 3, /* mine, all, bytes */
    CKPT_ASK_PROGRESS = 4,
    CKPT_ASK_FAILURE = 5, /* char *text, bytes */
    CKPT_ASK_BIND = 6,
    CKPT_ASK_REBUILD = 7, /* kind, vid, descriptor, bytes, uint64_t *real */
    CKPT_ASK_HOLDS = 8,   /* char *why, bytes */
    CKPT_ASK_ONE_SIDED = 9,
    CKPT_ASK_SETTLE = 10,
    CKPT_ASK_DRAIN = 11,
    CKPT_ASK_QUIESCE =
        12, /* on; 1 when the calls of the programs are answered, not only a request of others */
    CKPT_ASK_RAILS_QUIET = 13,  /* signals that have come are taken, too */
    CKPT_ASK_RAILS_CLOSE = 14,  /* ckpt_error * */
    CKPT_ASK_RAILS_REOPEN = 15, /* why, ckpt_error * */
    CKPT_ASK_LOCAL_TASKS = 16,
    CKPT_ASK_TASK_RANK = 17 /* local task */
};

/* Callbacks that the runtime has, of those that need not be asked for otherwise. */
#define CKPT_HAS_PROGRESS 1u
#define CKPT_HAS_REBUILD 2u
#define CKPT_HAS_DRAIN 4u
#define CKPT_HAS_ONE_SIDED 8u
#define CKPT_HAS_HOLDS 16u
#define CKPT_HAS_TASKS 32u /* local_tasks and task_rank */

typedef struct ckpt_talk {
    uint32_t bytes;   /* sizeof(ckpt_talk) */
    uint32_t subject; /* CKPT_TALK_*; 0: this is an answer */
    uint32_t ask;     /* CKPT_ASK_* */
    uint32_t reserved;
    uint64_t a[6];
    int64_t result;
    ckpt_error error; /* of the call, when it is over */
} ckpt_talk;

#endif
