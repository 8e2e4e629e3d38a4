// SPDX-License-Identifier: Apache-2.0
//
// isendrecv.c: a send and a receive in one request.  The back has a request for each; the application sees
// one request, which is complete when both are.
#include <stdlib.h>

#include "back/impl/error.h"
#include "back/impl/special.h"
#include "back/request/compound.h"

// The send was refused, so the receive must not take a message.
static void take_back(ckpt_vid recv) {
    const long a[] = {(long)&recv, 0};
    back_Cancel(a);
    back_Wait(a);
}

// Whether the real MPI would take the send, which it does not begin.
static long sound(const long *send) {
    ARGS(Send) p = (const void *)send;
    MPI_Request r;
    int rc = MPI_Send_init(real_buf(p->buf), p->count, real_type(p->datatype), real_rank(p->dest),
                           real_tag(p->tag), real_comm(p->comm), &r);
    if (rc == MPI_SUCCESS) MPI_Request_free(&r);
    return back_error(rc);
}

// Starts both, each with an id of its own.  What takes memory, and what looks at arguments, comes first: neither
// half can be taken back once it has a message, and a call that fails must leave the messages to the next one.
static long both(const long *send, const long *recv, void *copy, ckpt_vid *vid) {
    ckpt_vid s = VID_REQUEST_NULL, r = VID_REQUEST_NULL;
    ckpt_vid v = back_take_request(), spare = back_take_id(CKPT_KIND_REQUEST);
    struct back_coll *c = v == CKPT_VID_NONE || spare == CKPT_VID_NONE ? NULL : back_coll_new(0);
    long out[7], in[7], canon = c == NULL ? CANON_ERR(NO_MEM) : sound(send);
    memcpy(out, send, 6 * sizeof(long));
    memcpy(in, recv, 6 * sizeof(long));
    out[6] = (long)&s;
    in[6] = (long)&r;
    if (canon == 0) canon = back_Irecv(in);
    if (spare != CKPT_VID_NONE) back_give_id(CKPT_KIND_REQUEST, spare); // that of the send
    if (canon == 0) canon = back_Isend(out);
    if (canon != 0) {
        if (v != CKPT_VID_NONE) back_give_id(CKPT_KIND_REQUEST, v);
        free(c);
        free(copy);
        if (r != VID_REQUEST_NULL) take_back(r);
        return canon;
    }
    back_slot(CKPT_KIND_REQUEST, s)->extra = (uint64_t)(uintptr_t)copy; // freed with it
    c->function = CKPT_FN_MPI_ISENDRECV - CKPT_FN_MPI;
    c->nargs = 2;
    c->a[0] = s;
    c->inner = r;
    back_set_request(v, MPI_REQUEST_NULL, REQUEST_PAIR, 0, (ckpt_vid)send[5])->extra = (uint64_t)(uintptr_t)c;
    *vid = v;
    return 0;
}

long back_Isendrecv(const long *a) {
    ARGS(Isendrecv) p = (const void *)a;
    const long send[] = {p->sendbuf, p->sendcount, p->sendtype, p->dest, p->sendtag, p->comm};
    const long recv[] = {p->recvbuf, p->recvcount, p->recvtype, p->source, p->recvtag, p->comm};
    return both(send, recv, NULL, p->request);
}

// What is sent is copied: the receive may come first.
long back_Isendrecv_replace(const long *a) {
    ARGS(Isendrecv_replace) p = (const void *)a;
    int size = 0, position = 0;
    int rc = MPI_Pack_size(p->count, real_type(p->datatype), real_comm(p->comm), &size);
    void *copy = rc == MPI_SUCCESS ? malloc((size_t)size + 1) : NULL;
    if (copy == NULL) return rc == MPI_SUCCESS ? CANON_ERR(NO_MEM) : back_error(rc);
    rc =
        MPI_Pack((void *)p->buf, p->count, real_type(p->datatype), copy, size, &position, real_comm(p->comm));
    if (rc != MPI_SUCCESS) {
        free(copy);
        return back_error(rc);
    }
    const ckpt_vid packed = CKPT_VID(CKPT_KIND_DATATYPE, CANON_DATATYPE_PACKED);
    const long send[] = {(long)copy, position, packed, p->dest, p->sendtag, p->comm};
    const long recv[] = {p->buf, p->count, p->datatype, p->source, p->recvtag, p->comm};
    return both(send, recv, copy, p->request);
}
