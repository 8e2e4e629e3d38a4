// SPDX-License-Identifier: Apache-2.0
//
// start.c: starting persistent requests, cancelling and freeing requests.
#include <stdlib.h>

#include "back/impl/error.h"
#include "back/request/compound.h"
#include "back/request/orphan.h"
#include "back/request/persistent.h"

static long start_checked(ckpt_vid v) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, v);
    if (is_null(s) || !is_inactive(s)) return CANON_ERR(REQUEST);
    return s->a & REQUEST_COLL ? back_above.coll_start(s) : back_error(back_above.message_start(v, s));
}

long back_Start(const long *a) {
    ARGS(Start) p = (const void *)a;
    return start_checked(*p->request);
}

long back_Startall(const long *a) {
    ARGS(Startall) p = (const void *)a;
    const ckpt_vid *v = p->requests;
    for (long i = 0; i < p->count; i++) {
        long rc = start_checked(v[i]);
        if (rc != 0) return rc;
    }
    return 0;
}

long back_Cancel(const long *a) {
    ARGS(Cancel) p = (const void *)a;
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, *p->request);
    if (is_null(s) || is_deferred(s) || s->a & (REQUEST_COLL | REQUEST_PAIR)) return CANON_ERR(REQUEST);
    MPI_Request r = real_of(s);
    if ((s->a & REQUEST_KIND) == REQUEST_SEND) back_above.sync_cancelled(s->clock, s->b);
    int rc = MPI_Cancel(&r);
    if (rc == MPI_SUCCESS) s->a |= REQUEST_CANCELLED;
    return back_error(rc);
}

long back_Request_free(const long *a) {
    ARGS(Request_free) args = (const void *)a;
    ckpt_vid *vid = args->request;
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, *vid);
    if (is_null(s) || is_deferred(s)) // MPI forbids it for collective calls
        return CANON_ERR(REQUEST);
    MPI_Request r = real_of(s);
    int rc = MPI_SUCCESS;
    if (s->a & (REQUEST_COLL | REQUEST_PAIR)) {
        struct back_coll *c = back_coll_of(s);
        if (s->a & REQUEST_COLL && !is_inactive(s)) // MPI: not for collectives
            return CANON_ERR(REQUEST);
        if (s->a & REQUEST_PAIR) {
            const long send[] = {(long)&c->a[0]}, recv[] = {(long)&c->inner};
            if (c->a[0] != VID_REQUEST_NULL) back_Request_free(send);
            back_Request_free(recv);
        }
        if (s->a & REQUEST_COLL)
            back_above.coll_end(c);
        else
            free(c);
        ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
        *vid = VID_REQUEST_NULL;
        return 0;
    }
    if ((s->a & (REQUEST_GENERALIZED | REQUEST_ENDED)) == REQUEST_GENERALIZED) {
        s->a |= REQUEST_FREED; // the id stays valid for MPI_Grequest_complete
        *vid = VID_REQUEST_NULL;
        return back_error(MPI_Request_free(&r));
    }
    if (s->a & REQUEST_DONE && s->a & REQUEST_PERSISTENT) {
        MPI_Request p = (MPI_Request)(uintptr_t)persistent_of(s)->real;
        MPI_Request_free(&p);
    }
    int kind = s->a & REQUEST_KIND;
    if (!is_inactive(s) && !(s->a & REQUEST_DONE) &&
        (kind == REQUEST_RECV || (kind == REQUEST_SEND && s->a & REQUEST_CANCELLED))) {
        if (s->a & REQUEST_SYNC) // nobody waits for its receiver any more
            back_above.sync_ended(s);
        s->a = (s->a & ~REQUEST_SYNC) | REQUEST_ORPHAN;
        if (kind == REQUEST_RECV || !back_end_orphan(*vid)) back_orphan(*vid);
        *vid = VID_REQUEST_NULL;
        return 0;
    }
    if (s->a & REQUEST_SYNC) back_above.sync_ended(s);
    rc = MPI_Request_free(&r);
    back_persistent_forget(s);
    ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
    *vid = VID_REQUEST_NULL;
    return back_error(rc);
}

void back_requests_gone(ckpt_vid comm) {
    uint32_t i = 0;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;)
        if (s->clock == comm) s->clock = VID_COMM_NULL;
}
