// SPDX-License-Identifier: Apache-2.0
//
// done.c: complete requests in place of real ones that no longer exist.
//
// A done request is a generalized request of ours with a status and an error code.  Making one takes memory,
// and what it stands for cannot be undone: a message was received, a request has ended.  So there are two
// steps: back_done_begin comes before, and may fail; back_done_end comes after, and cannot fail.
#include "back/impl/counts.h"
#include "back/impl/reserve.h"
#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/request/done.h"
#include "back/request/persistent.h"

struct done {
    ckpt_mpi_status status;
    int rc;
};

static __thread const struct done *queried; // by this thread, last

static int done_query(void *state, MPI_Status *status) {
    const struct done *d = state;
    queried = d;
    MPI_Status_set_elements_x(status, MPI_BYTE, d->status.bytes);
    MPI_Status_set_cancelled(status, d->status.cancelled);
    status->MPI_SOURCE = real_rank(d->status.source);
    status->MPI_TAG = real_tag(d->status.tag);
    return d->rc;
}

static int done_free(void *state) {
    back_release(state);
    return MPI_SUCCESS;
}

static int done_cancel(void *state, int complete) {
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

int back_done_begin(struct back_done *b) {
    if (b->d != NULL) return MPI_SUCCESS;
    struct done *d = back_reserve(sizeof *d);
    if (d == NULL) return MPI_ERR_NO_MEM;
    *d = (struct done){canon_empty, MPI_SUCCESS};
    int rc = MPI_Grequest_start(done_query, done_free, done_cancel, d, &b->request);
    if (rc != MPI_SUCCESS)
        back_release(d);
    else
        b->d = d;
    return rc;
}

MPI_Request back_done_end(struct back_done *b, const ckpt_mpi_status *status, int rc) {
    b->d->status = *status;
    b->d->rc = rc;
    MPI_Grequest_complete(b->request); // fails only for what is not a generalized request
    b->d = NULL;
    return b->request;
}

void back_done_drop(struct back_done *b) {
    if (b->d == NULL) return;
    MPI_Request r = back_done_end(b, &canon_empty, MPI_SUCCESS);
    MPI_Request_free(&r);
}

int back_done_request(const ckpt_mpi_status *status, int rc, MPI_Request *request) {
    struct back_done ready = {0};
    int failed = back_done_begin(&ready);
    if (failed == MPI_SUCCESS) *request = back_done_end(&ready, status, rc);
    return failed;
}

// Open MPI's MPI_Request_get_status forgets what a query function returns.
int back_done_status(MPI_Request request, MPI_Status *status) {
    int flag, rc;
    queried = NULL;
    rc = MPI_Request_get_status(request, &flag, status);
    return queried != NULL ? queried->rc : rc;
}

void back_request_done(ckpt_slot *s, const MPI_Status *status, int rc, struct back_done *ready) {
    ckpt_slot *comm = back_slot(CKPT_KIND_COMM, s->clock);
    int kind = s->a & REQUEST_KIND, cancelled = (s->a & REQUEST_CANCELLED) && STATUS_CANCELLED(status);
    ckpt_mpi_status canon;
    if (kind == REQUEST_RECV && s->b == CANON_PROC_NULL)
        canon = canon_proc_null;
    else if (kind == REQUEST_RECV || cancelled)
        canon_status(status, &canon);
    else
        canon = canon_empty;
    if (CKPT_VID_KIND(s->clock) == CKPT_KIND_FILE && STATUS_BYTES(status) > 0)
        canon.bytes = STATUS_BYTES(status); // all that MPI says of a failed request; the rest may be garbage
    if (kind == REQUEST_RECV && !cancelled && s->b != CANON_PROC_NULL && back_took(rc))
        back_count_received(comm, status);
    if (kind == REQUEST_SEND && cancelled && s->b >= 0 && comm->counters)
        __atomic_fetch_sub(&ckpt_comm_of(comm)->peer[s->b].sent, 1, __ATOMIC_RELAXED);
    if (s->a & REQUEST_IDUP) {
        const struct back_idup *d = back_idup_of(s);
        back_slot(CKPT_KIND_COMM, d->vid)->real = TO_REAL(d->comm);
        s->a &= ~REQUEST_IDUP;
    }
    if (s->a & REQUEST_PERSISTENT) persistent_of(s)->real = s->real;
    s->real = TO_REAL(back_done_end(ready, &canon, rc));
    s->a |= REQUEST_DONE;
}
