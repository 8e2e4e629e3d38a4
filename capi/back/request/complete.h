// SPDX-License-Identifier: Apache-2.0
//
// complete.h: completing a request, for the calls on one and on several.
#ifndef CKPT_BACK_COMPLETE_H
#define CKPT_BACK_COMPLETE_H

#include "back/impl/counts.h"
#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/request/compound.h"
#include "back/request/wait.h"

#pragma GCC visibility push(hidden)

// Gives the program the status of a complete request, unless the real MPI wrote it there itself.
static inline void status_of(const ckpt_slot *s, const MPI_Status *real, long out) {
    if (__builtin_expect((s->a & REQUEST_KIND) == REQUEST_RECV && s->b == CANON_PROC_NULL, 0))
        proc_null_status(out);
    else if (real != status_at(out))
        give_status(real, out);
}

// Completes a request that is neither a plain send nor a plain receive.
__attribute__((noinline)) void back_complete_rare(ckpt_slot *s, ckpt_vid *vid, const MPI_Status *status,
                                                  int rc);

// Counts what the completed request moved, and frees its id unless it is persistent.
static inline void complete(ckpt_slot *s, ckpt_vid *vid, const MPI_Status *status, int rc) {
    if (__builtin_expect((s->a & ~REQUEST_KIND) != 0 || s->extra != 0 || rc != MPI_SUCCESS, 0)) {
        back_complete_rare(s, vid, status, rc);
        return;
    }
    if (s->a == REQUEST_RECV && s->b != CANON_PROC_NULL)
        back_count_received(back_slot(CKPT_KIND_COMM, s->clock), status);
    ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
    *vid = VID_REQUEST_NULL;
}

// back_slow for a request: finds out whom its message is from or for.
static inline void slow_request(unsigned turn, struct back_waiting *w, const char *call, const ckpt_slot *s) {
    int kind = s->a & REQUEST_KIND;
    int matched = s->a & REQUEST_MATCHED;
    back_slow(turn, w,
              kind == REQUEST_SEND               ? CKPT_WAIT_RECEIVER
              : kind == REQUEST_RECV && !matched ? CKPT_WAIT_MESSAGE
                                                 : CKPT_WAIT_REQUEST,
              call, s->clock, s->b, CANON_ANY_TAG);
}

// ---- requests that consist of others: persistent collectives that are active, and pairs ----

static inline int is_compound(const ckpt_slot *s) {
    return __builtin_expect(s->a & REQUEST_PAIR ||
                                (s->a & (REQUEST_COLL | REQUEST_ACTIVE)) == (REQUEST_COLL | REQUEST_ACTIVE),
                            0);
}

// The request that the compound one waits for next: a pair's send, then its receive.
static inline ckpt_vid *inner_next(const ckpt_slot *s) {
    struct back_coll *c = back_coll_of(s);
    if (s->a & REQUEST_PAIR && c->a[0] != VID_REQUEST_NULL) return (ckpt_vid *)&c->a[0]; // little-endian
    return &c->inner;
}

// Whether the compound request is complete with this inner one, and takes the status of this one.
static inline int last_inner(const ckpt_slot *s) { return inner_next(s) == &back_coll_of(s)->inner; }

// The inner request that was waited for is complete; 1 when the compound request now is too.
int back_inner_done(ckpt_slot *s, ckpt_vid *vid);

// The slot that says whether the request is complete.
static inline ckpt_slot *waited(ckpt_vid v) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, v);
    return is_compound(s) ? back_slot(CKPT_KIND_REQUEST, *inner_next(s)) : s;
}

// ---- calls on one request ----

// Waits for one request of any state.  may_hold: the call can be issued again, for this request.
long back_wait_one(ckpt_vid *vid, long out, const char *call, int may_hold);

// Puts MPI_SUCCESS or an error into a status of a call on several requests.
static inline void put_error(long status, long rc) {
    if (status != 0) status_set_error(status, (int)rc);
}

#pragma GCC visibility pop

#endif
