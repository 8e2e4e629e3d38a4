// SPDX-License-Identifier: Apache-2.0
//
// drain.c: messages that are under way when the job is stopped are received, and kept until the application
// asks for them (drained.h).
#include "back/image/drain.h"
#include "back/impl/error.h"
#include "back/message/blocking.h"
#include "back/message/bsend.h"
#include "back/message/drained.h"
#include "back/request/done.h"

// 1 when the request must still end before the rank can be saved; or a CKPT_E code.
static int drain_request(ckpt_slot *s, struct back_done *ready) {
    back_assert(request_sound(s));
    if (request_state(s) != REQ_STARTED) return 0;
    MPI_Request r = real_of(s);
    MPI_Status st;
    int flag = 0, rc = back_done_begin(ready);
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "keeping a completed request for the image");
        return CKPT_E_SYSTEM;
    }
    rc = request_test(s, &r, &flag, &st);
    if (flag || rc != MPI_SUCCESS) {
        s->real = TO_REAL(r); // null when the real MPI freed a persistent request that failed
        back_request_done(s, &st, rc, ready);
        return 0;
    }
    return (s->a & REQUEST_KIND) != REQUEST_RECV || s->a & (REQUEST_MATCHED | REQUEST_CANCELLED);
}

static int drain_requests(void) {
    struct back_done ready = {0};
    int left = 0, one = 0;
    uint32_t i = 0;
    for (ckpt_slot *s; one >= 0 && (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;) {
        one = drain_request(s, &ready);
        left += one;
    }
    back_done_drop(&ready);
    return one < 0 ? one : left;
}

// Messages that the application has matched.
static int drain_matched(void) {
    int left = 0, one = 0;
    uint32_t i = 0;
    for (ckpt_slot *s; one >= 0 && (s = back_next_slot(CKPT_KIND_MESSAGE, &i)) != NULL;) {
        one = back_drained_arrive(back_matched_of(s));
        left += one;
    }
    return one < 0 ? one : left;
}

static int drain_held(void) {
    int left = 0;
    struct back_held *h;
    LIST_FOREACH(h, &back_held_sends, others) {
        int flag = *h->request == MPI_REQUEST_NULL;
        if (!flag) MPI_Test(h->request, &flag, MPI_STATUS_IGNORE);
        if (flag) *h->dest = CANON_PROC_NULL;
        left += !flag;
    }
    return left;
}

void back_drain_sends(void) {
    drain_requests();
    drain_held();
}

static int drain_comms(void) {
    uint32_t i = 0;
    int rc = 0;
    for (ckpt_slot *s; rc == 0 && (s = back_next_slot(CKPT_KIND_COMM, &i)) != NULL;) {
        MPI_Comm comm = (MPI_Comm)(uintptr_t)s->real;
        if (comm != MPI_COMM_NULL && s->counters != 0)
            rc = back_drained_match_all(CKPT_VID(CKPT_KIND_COMM, i - 1), comm);
    }
    return rc;
}

static int drain_arriving(void) {
    int left = 0, one = 0;
    struct drained *m;
    TAILQ_FOREACH(m, &back_drained_all, others) {
        if ((one = back_drained_arrive(m)) < 0) break;
        left += one;
    }
    return one < 0 ? one : left;
}

// After a failure the rest is still done: other ranks wait until their messages have been received, and the
// next attempt begins with what this one has left.
int back_drain(void *ctx) {
    static int (*const parts[])(void) = {drain_requests, drain_matched,  drain_held,
                                         drain_comms,    drain_arriving, back_buffered_left};
    int left = 0, failed = 0;
    (void)ctx;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int n = parts[i]();
        if (n < 0)
            failed = n;
        else
            left += n;
    }
    return failed != 0 ? failed : left;
}
