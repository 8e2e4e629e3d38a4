// SPDX-License-Identifier: Apache-2.0
//
// complete.c: completing one request.
#include <stdlib.h>

#include "back/impl/error.h"
#include "back/request/complete.h"
#include "back/request/done.h"
#include "back/request/persistent.h"

// Whether the real MPI frees a persistent request that has failed, once a call has returned the error.
#if defined(OPEN_MPI)
enum { FAILURE_FREES = 1 };
#else
enum { FAILURE_FREES = 0 };
#endif

void back_complete_rare(ckpt_slot *s, ckpt_vid *vid, const MPI_Status *status, int rc) {
    back_assert(request_sound(s));
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, s->clock);
    int cancelled = (s->a & REQUEST_CANCELLED) && STATUS_CANCELLED(status);
    if (s->a & REQUEST_DONE) {
        ; // counted when it was drained
    } else if ((s->a & REQUEST_KIND) == REQUEST_RECV) {
        if (!cancelled && s->b != CANON_PROC_NULL && back_took(rc)) back_count_received(comm, status);
    } else if (cancelled && (s->a & REQUEST_KIND) == REQUEST_SEND && s->b >= 0 && comm->counters) {
        __atomic_fetch_sub(&ckpt_comm_of(comm)->peer[s->b].sent, 1, __ATOMIC_RELAXED);
    }
    if (s->a & REQUEST_IDUP) {
        const struct back_idup *d = back_idup_of(s);
        back_slot(CKPT_KIND_COMM, d->vid)->real = TO_REAL(d->comm);
    }
    if (s->a & REQUEST_SYNC) back_above.sync_ended(s);
    if (s->a & REQUEST_PERSISTENT && !(FAILURE_FREES && rc != MPI_SUCCESS && !(s->a & REQUEST_DONE))) {
        if (s->a & REQUEST_DONE) s->real = persistent_of(s)->real;
        s->a &= ~(REQUEST_ACTIVE | REQUEST_CANCELLED | REQUEST_DONE);
        return;
    }
    if (s->a & REQUEST_PERSISTENT)
        back_persistent_forget(s);
    else
        free((void *)(uintptr_t)s->extra);
    ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
    *vid = VID_REQUEST_NULL;
}

int back_inner_done(ckpt_slot *s, ckpt_vid *vid) {
    struct back_coll *c = back_coll_of(s);
    if (s->a & REQUEST_COLL) {
        s->a &= ~REQUEST_ACTIVE;
        return 1;
    }
    if (c->inner != VID_REQUEST_NULL) return 0;
    free(c);
    ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
    *vid = VID_REQUEST_NULL;
    return 1;
}

long back_wait_one(ckpt_vid *vid, long out, const char *call, int may_hold) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, *vid);
    if (is_null(s)) {
        if (*vid != VID_REQUEST_NULL) return CANON_ERR(REQUEST);
        empty_status(out);
        return 0;
    }
    if (is_inactive(s)) {
        empty_status(out);
        return 0;
    }
    if (is_compound(s)) {
        long canon;
        do canon = back_wait_one(inner_next(s), last_inner(s) ? out : 0, call, may_hold);
        while (!back_inner_done(s, vid) && canon == 0);
        return canon;
    }
    MPI_Status own, *status = status_for(out, &own);
    struct back_waiting w;
    int flag = 0, rc;
    unsigned turn = 0;
    for (;; turn = back_next(turn)) {
        if (!is_deferred(s)) {
            MPI_Request r = real_of(s);              // draining may put another real request into the slot
            rc = request_test(s, &r, &flag, status); // leaves status alone until it is complete
            if (__builtin_expect(flag || rc != MPI_SUCCESS, 1)) break;
        }
        slow_request(turn, &w, call, s);
        back_look();
        if (may_hold)
            back_turn(turn);
        else if (back_pending())
            back_attend();
    }
    back_over(turn, &w);
    status_of(s, status, out);
    complete(s, vid, status, rc);
    return back_error(rc);
}

long back_Wait(const long *a) {
    ARGS(Wait) p = (const void *)a;
    return back_wait_one(p->request, p->status, "MPI_Wait", 1);
}

long back_Test(const long *a) {
    ARGS(Test) p = (const void *)a;
    ckpt_vid *vid = p->request;
    int *flag = p->flag;
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, *vid);
    if (is_null(s) || is_inactive(s)) {
        if (is_null(s) && *vid != VID_REQUEST_NULL) return CANON_ERR(REQUEST);
        *flag = 1;
        empty_status(p->status);
        return 0;
    }
    if (is_compound(s)) {
        for (;;) {
            const long inner[] = {(long)inner_next(s), (long)p->flag, last_inner(s) ? p->status : 0};
            long canon = back_Test(inner);
            if (!*flag || back_inner_done(s, vid) || canon != 0) return canon;
        }
    }
    MPI_Status own, *status = status_for(p->status, &own);
    if (back_pending()) back_attend();
    back_look();
    *flag = 0;
    if (is_deferred(s)) return 0;
    MPI_Request r = real_of(s);
    int rc = request_test(s, &r, flag, status);
    if (*flag || rc != MPI_SUCCESS) {
        *flag = 1;
        status_of(s, status, p->status);
        complete(s, vid, status, rc);
    }
    return back_error(rc);
}

// Whether a request of a file is complete; if so it stays, with its status.  MPICH makes no progress with
// such a request in MPI_Request_get_status, so this tests it.
static int file_complete(ckpt_slot *s) {
    MPI_Request r = real_of(s);
    MPI_Status status;
    struct back_done ready = {0};
    if (s->a & REQUEST_DONE) return 1;
    if (back_done_begin(&ready) != MPI_SUCCESS) return 0; // nobody knows until there is memory for its status
    int flag = 0, rc = request_test(s, &r, &flag, &status);
    if (flag || rc != MPI_SUCCESS) back_request_done(s, &status, rc, &ready);
    back_done_drop(&ready);
    return flag || rc != MPI_SUCCESS;
}

long back_Request_get_status(const long *a) {
    ARGS(Request_get_status) p = (const void *)a;
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, p->request);
    int *flag = p->flag;
    if (is_compound(s)) {
        const struct back_coll *c = back_coll_of(s);
        const long send[] = {c->a[0], (long)p->flag, 0}, inner[] = {c->inner, (long)p->flag, p->status};
        long canon = s->a & REQUEST_PAIR ? back_Request_get_status(send) : 0;
        if (canon != 0 || (s->a & REQUEST_PAIR && !*flag)) return canon;
        return back_Request_get_status(inner);
    }
    if (is_null(s) || is_inactive(s)) {
        *flag = 1;
        empty_status(p->status);
        if (p->request == VID_REQUEST_NULL && status_form(p->status) == STATUS_MPICH)
            put_error(p->status, 0); // as MPICH does here, and nowhere else with an empty status
        return 0;
    }
    MPI_Status own, *status = status_for(p->status, &own);
    *flag = 0;
    if (back_pending()) back_attend();
    back_look();
    if (is_deferred(s) || (of_file(s) && !file_complete(s))) return 0;
    int rc = MPI_Request_get_status(real_of(s), flag, status);
    if (rc == MPI_SUCCESS && *flag) status_of(s, status, p->status);
    return back_error(rc);
}
