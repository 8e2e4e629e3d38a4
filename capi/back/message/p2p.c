// SPDX-License-Identifier: Apache-2.0
//
// p2p.c: messages.  A blocking call is made of the non-blocking one and back_wait_real, so that a thread is
// never held inside the real MPI.
#include <stdlib.h>

#include "back/impl/counts.h"
#include "back/impl/error.h"
#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/message/blocking.h"
#include "back/message/drained.h"
#include "back/message/sync.h"
#include "back/request/done.h"
#include "back/request/posted.h"
#include "back/request/wait.h"

typedef int isend_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

// buf, count, type, dest, tag, comm
static inline __attribute__((always_inline)) long send(const long *a, isend_fn *isend, const char *call,
                                                       struct back_sync *sync) {
    ARGS(Send) p = (const void *)a;
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, p->comm);
    int dest = real_rank(p->dest);
    MPI_Request r;
    back_sync_count(p->comm, p->dest, p->tag);
    int rc = isend(real_buf(p->buf), p->count, real_type(p->datatype), dest, real_tag(p->tag),
                   (MPI_Comm)(uintptr_t)comm->real, &r);
    if (rc != MPI_SUCCESS) {
        back_sync_uncount(p->comm, p->dest, p->tag);
        return back_error(rc);
    }
    back_count_sent(comm, p->dest);
    if (sync != NULL) back_sync_begin(sync, p->comm, p->dest, p->tag);
    return back_error(back_wait_send(&r, a + 3, sync, call, p->comm, p->tag));
}

// ..., request
static inline __attribute__((always_inline)) long start_send(const long *a, isend_fn *isend, int flags) {
    ARGS(Isend) p = (const void *)a;
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, p->comm);
    ckpt_vid v = back_take_request();
    MPI_Request r;
    if (__builtin_expect(v == CKPT_VID_NONE, 0)) return CANON_ERR(NO_MEM);
    back_sync_count(p->comm, p->dest, p->tag);
    int rc = isend(real_buf(p->buf), p->count, real_type(p->datatype), real_rank(p->dest), real_tag(p->tag),
                   (MPI_Comm)(uintptr_t)comm->real, &r);
    if (__builtin_expect(rc != MPI_SUCCESS, 0)) {
        back_give_id(CKPT_KIND_REQUEST, v);
        back_sync_uncount(p->comm, p->dest, p->tag);
        return back_error(rc);
    }
    back_count_sent(comm, p->dest);
    back_set_request(v, r, REQUEST_SEND | flags, p->dest, p->comm);
    *p->request = v;
    return 0;
}

long back_Send(const long *a) { return send(a, MPI_Isend, "MPI_Send", NULL); }
long back_Rsend(const long *a) { return send(a, MPI_Irsend, "MPI_Rsend", NULL); }

// Waiting may replace dest by BACK_AWAITED, and tag by the id of a request (sync.h).
long back_Ssend(const long *a) {
    struct back_sync sync = {0};
    long rc = 0;
    if (a[3] != BACK_AWAITED) {
        rc = send(a, MPI_Issend, "MPI_Ssend", &sync);
        back_sync_end(&sync);
    }
    if (__builtin_expect(a[3] == BACK_AWAITED, 0)) {
        ckpt_vid request = (ckpt_vid)a[4];
        const long wait[] = {(long)&request, 0};
        rc = back_Wait(wait);
    }
    return rc;
}

long back_Isend(const long *a) { return start_send(a, MPI_Isend, 0); }
long back_Issend(const long *a) {
    ARGS(Issend) p = (const void *)a;
    long rc = start_send(a, MPI_Issend, REQUEST_SYNC);
    if (rc == 0) back_sync_began(back_slot(CKPT_KIND_REQUEST, *p->request), p->tag);
    return rc;
}
long back_Irsend(const long *a) { return start_send(a, MPI_Irsend, 0); }

long back_Recv(const long *a) {
    ARGS(Recv) p = (const void *)a;
    const struct back_take take = {
        (void *)p->buf, p->count, real_type(p->datatype), p->source, p->tag, p->comm, NULL, "MPI_Recv"};
    return back_take(&take, p->status);
}

// A request for a message that was drained; 0 when there is none.
static int recv_drained(const long *a, ckpt_vid v, long *canon) {
    ARGS(Recv) p = (const void *)a;
    const struct back_take take = {
        (void *)p->buf, p->count, real_type(p->datatype), p->source, p->tag, p->comm, NULL, NULL};
    struct back_done ready = {0};
    ckpt_mpi_status st;
    MPI_Message message;
    MPI_Request r;
    int rc;
    if (!back_drained_probe(p->source, p->tag, p->comm, &st)) return 0;
    *canon = back_error(back_done_begin(&ready));
    if (*canon != 0) return 1;
    if (!back_drained_recv(&take, &st, &rc, &message)) { // another thread has it
        back_done_drop(&ready);
        return 0;
    }
    if (message == MPI_MESSAGE_NULL) {
        back_set_request(v, back_done_end(&ready, &st, rc), REQUEST_RECV | REQUEST_DONE, p->source, p->comm);
    } else {
        back_done_drop(&ready);
        *canon = back_error(MPI_Imrecv(take.buf, take.count, take.type, &message, &r));
        if (*canon != 0) return 1;
        back_set_request(v, r, REQUEST_RECV | REQUEST_MATCHED, p->source, p->comm);
    }
    *(ckpt_vid *)p->status = v;
    return 1;
}

long back_Irecv(const long *a) {
    ARGS(Irecv) p = (const void *)a;
    MPI_Request r;
    long canon = 0;
    ckpt_vid v = back_take_request();
    if (__builtin_expect(v == CKPT_VID_NONE, 0)) return CANON_ERR(NO_MEM);
    if (__builtin_expect(back.drained, 0) && recv_drained(a, v, &canon)) {
        if (canon != 0) back_give_id(CKPT_KIND_REQUEST, v);
        return canon;
    }
    ckpt_slot *type = back_slot(CKPT_KIND_DATATYPE, p->datatype);
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, p->comm);
    int rc = MPI_Irecv((void *)p->buf, p->count, (MPI_Datatype)(uintptr_t)type->real, real_rank(p->source),
                       real_tag(p->tag), (MPI_Comm)(uintptr_t)comm->real, &r);
    if (__builtin_expect(rc != MPI_SUCCESS, 0)) {
        back_give_id(CKPT_KIND_REQUEST, v);
        return back_error(rc);
    }
    back_set_request(v, r, REQUEST_RECV, p->source, p->comm);
    *p->request = v;
    if (BACK_COUNTS) back_posted(v, a, type, comm);
    return 0;
}

// Both halves.  The send is posted first, and only then are the drained messages searched for the receive.
// dest, source and status point into the call's own arguments.
static long sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, long sendtag,
                     const struct back_take *what, const long *dest, const long *source, const long *status) {
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, what->comm);
    MPI_Request s;
    back_sync_count(what->comm, *dest, sendtag);
    int rc = MPI_Isend(sendbuf, sendcount, sendtype, real_rank(*dest), real_tag(sendtag),
                       (MPI_Comm)(uintptr_t)comm->real, &s);
    if (rc != MPI_SUCCESS) {
        back_sync_uncount(what->comm, *dest, sendtag);
        return back_error(rc);
    }
    back_count_sent(comm, (int)*dest);
    struct back_held h = {.request = &s, .dest = (long *)dest};
    struct back_take take = *what;
    take.send = &h;
    long canon = back_take(&take, *status);
    // When the call is issued again, it has only its send left.
    *(long *)source = CANON_PROC_NULL;
    *(long *)status = 0;
    rc = canon == 0 ? back_wait_send(&s, dest, NULL, what->call, what->comm, sendtag)
                    : back_wait_real(&s, MPI_STATUS_IGNORE);
    return canon ? canon : back_error(rc);
}

long back_Sendrecv(const long *a) {
    ARGS(Sendrecv) p = (const void *)a;
    const struct back_take take = {
        (void *)p->recvbuf, p->recvcount, real_type(p->recvtype), p->source, p->recvtag, p->comm, NULL,
        "MPI_Sendrecv"};
    return sendrecv((void *)p->sendbuf, p->sendcount, real_type(p->sendtype), p->sendtag, &take, a + 3, a + 8,
                    a + 11);
}

// The outgoing message is packed first, which frees the buffer for the incoming one.
long back_Sendrecv_replace(const long *a) {
    ARGS(Sendrecv_replace) p = (const void *)a;
    MPI_Datatype type = real_type(p->datatype);
    MPI_Comm comm = real_comm(p->comm);
    int bytes = 0, at = 0;
    int rc = MPI_Pack_size(p->count, type, comm, &bytes);
    if (rc != MPI_SUCCESS) return back_error(rc);
    char *packed = malloc(bytes ? (size_t)bytes : 1);
    if (packed == NULL) return CANON_ERR(NO_MEM);
    rc = MPI_Pack((void *)p->buf, p->count, type, packed, bytes, &at, comm);
    const struct back_take take = {(void *)p->buf, p->count, type, p->source,
                                   p->recvtag,     p->comm,  NULL, "MPI_Sendrecv_replace"};
    long canon = rc == MPI_SUCCESS ? sendrecv(packed, at, MPI_PACKED, p->sendtag, &take, a + 3, a + 5, a + 8)
                                   : back_error(rc);
    free(packed);
    return canon;
}
