// SPDX-License-Identifier: Apache-2.0
//
// start.c: starting persistent requests, cancelling and freeing requests.
#include <stdlib.h>

#include "back/object/keep.h"
#include "back/request/request.h"
#include "back/image/sync.h"

// ---- persistent requests ----

// A receive whose message was drained: *taken says that it was that one.  The real MPI's code.
static int start_drained(ckpt_slot *s, struct persistent *p, int *taken) {
    const struct back_take take = {
        (void *)p->a[0], (int)p->a[1], real_type(p->a[2]), p->a[3], p->a[4], p->a[5], NULL, NULL};
    struct back_done ready = {0};
    ckpt_mpi_status st;
    int rc;
    if (!back_drained_probe(p->a[3], p->a[4], p->a[5], &st)) return MPI_SUCCESS;
    MPI_Message message;
    int began = back_done_begin(&ready);
    if (began != MPI_SUCCESS) return began;
    *taken = back_drained_recv(&take, &st, &rc, &message);
    if (*taken && message != MPI_MESSAGE_NULL) {
        MPI_Request r;
        MPI_Status real;
        rc = MPI_Imrecv(take.buf, take.count, take.type, &message, &r);
        if (rc == MPI_SUCCESS) rc = back_wait(&r, &real);
        if (rc == MPI_SUCCESS) canon_status(&real, &st);
        if (back_took(rc)) back_count_received(back_slot(CKPT_KIND_COMM, s->clock), &real);
    }
    if (*taken) {
        p->real = s->real;
        s->real = TO_REAL(back_done_end(&ready, &st, rc));
        s->a |= REQUEST_ACTIVE | REQUEST_DONE;
    }
    back_done_drop(&ready);
    return MPI_SUCCESS;
}

static int start(ckpt_vid v, ckpt_slot *s) {
    MPI_Request r = real_of(s);
    struct persistent *p = (struct persistent *)(uintptr_t)s->extra;
    if (__builtin_expect(back.drained, 0) && (s->a & REQUEST_KIND) == REQUEST_RECV && p != NULL) {
        int taken = 0, rc = start_drained(s, p, &taken);
        if (taken || rc != MPI_SUCCESS) return rc;
    }
    if ((s->a & REQUEST_KIND) == REQUEST_SEND && p != NULL && p->mode == PERSISTENT_BSEND) {
        p->real = s->real;
        int rc = back_buffered_request(p->a, &r);
        if (rc == MPI_SUCCESS) {
            s->real = TO_REAL(r);
            s->a |= REQUEST_ACTIVE | REQUEST_DONE;
        }
        return rc;
    }
    int send = (s->a & REQUEST_KIND) == REQUEST_SEND && p != NULL;
    if (send) back_sync_count((long)s->clock, s->b, p->a[4]);
    int rc = MPI_Start(&r);
    if (rc != MPI_SUCCESS && send) back_sync_uncount((long)s->clock, s->b, p->a[4]);
    if (rc == MPI_SUCCESS) {
        s->real = TO_REAL(r);
        s->a |= REQUEST_ACTIVE;
        if (send) back_count_sent(back_slot(CKPT_KIND_COMM, s->clock), s->b);
        if (send && s->a & REQUEST_SYNC)
            back_sync_began(s, p->a[4]);
        else if ((s->a & REQUEST_KIND) == REQUEST_RECV && p != NULL)
            back_posted(v, p->a, back_slot(CKPT_KIND_DATATYPE, p->a[2]),
                        back_slot(CKPT_KIND_COMM, p->a[5])); // its place among the receives that are posted
    }
    return rc;
}

static long start_checked(ckpt_vid v) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, v);
    if (is_null(s) || !is_inactive(s)) return CANON_ERR(REQUEST);
    return s->a & REQUEST_COLL ? back_coll_start(s) : back_error(start(v, s));
}

long back_Start(const long *a) { return start_checked(*(ckpt_vid *)a[0]); }

long back_Startall(const long *a) {
    const ckpt_vid *v = (const ckpt_vid *)a[1];
    for (long i = 0; i < a[0]; i++) {
        long rc = start_checked(v[i]);
        if (rc != 0) return rc;
    }
    return 0;
}

long back_Cancel(const long *a) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, *(ckpt_vid *)a[0]);
    if (is_null(s) || is_deferred(s) || s->a & (REQUEST_COLL | REQUEST_PAIR)) return CANON_ERR(REQUEST);
    MPI_Request r = real_of(s);
    if ((s->a & REQUEST_KIND) == REQUEST_SEND) back_sync_cancelled(s->clock, s->b);
    int rc = MPI_Cancel(&r);
    if (rc == MPI_SUCCESS) s->a |= REQUEST_CANCELLED;
    return back_error(rc);
}

long back_Request_free(const long *a) {
    ckpt_vid *vid = (ckpt_vid *)a[0];
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
            back_coll_end(c);
        else
            back_coll_free(c);
        ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
        *vid = VID_REQUEST_NULL;
        return 0;
    }
    if ((s->a & (REQUEST_GENERALIZED | REQUEST_ENDED)) == REQUEST_GENERALIZED) {
        s->a |= REQUEST_FREED; // the id is still good for MPI_Grequest_complete
        *vid = VID_REQUEST_NULL;
        return back_error(MPI_Request_free(&r));
    }
    if (s->a & REQUEST_DONE && s->a & REQUEST_PERSISTENT) {
        MPI_Request p = (MPI_Request)(uintptr_t)((struct persistent *)(uintptr_t)s->extra)->real;
        MPI_Request_free(&p);
    }
    int kind = s->a & REQUEST_KIND;
    if (!is_inactive(s) && !(s->a & REQUEST_DONE) &&
        (kind == REQUEST_RECV || (kind == REQUEST_SEND && s->a & REQUEST_CANCELLED))) {
        if (s->a & REQUEST_SYNC) // nobody waits for its receiver any more
            back_sync_ended(s);
        s->a = (s->a & ~REQUEST_SYNC) | REQUEST_ORPHAN;
        if (kind == REQUEST_RECV || !back_end_orphan(*vid)) back_orphan(*vid);
        *vid = VID_REQUEST_NULL;
        return 0;
    }
    if (s->a & REQUEST_SYNC) back_sync_ended(s);
    rc = MPI_Request_free(&r);
    keep_forget(s);
    ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
    *vid = VID_REQUEST_NULL;
    return back_error(rc);
}
