// SPDX-License-Identifier: Apache-2.0
//
// coll.c: the collectives with a datatype for each peer.
//
// Blocking collectives are the real MPI's own.  Those that have begun when a checkpoint is asked for are
// completed first; later ones are entered by all members or by none.  So no thread stays inside one.
//
// Arguments: sendbuf, counts, displacements, types, recvbuf, ..., comm, request, numbers of types.
#include <stdlib.h>

#include "back/collective/coll.h"
#include "back/impl/error.h"
#include "back/impl/special.h"
#include "back/request/request.h"

static MPI_Datatype *types_new(const long *a) {
    ARGS(Alltoallw) p = (const void *)a;
    return malloc(((size_t)p->sends + (size_t)p->receives + 1) * sizeof(MPI_Datatype));
}

static void fill_types(const long *a, MPI_Datatype *t) {
    ARGS(Alltoallw) p = (const void *)a;
    const ckpt_vid *s = p->sendtypes, *r = p->recvtypes;
    for (long i = 0; i < p->sends; i++) t[i] = real_type(s[i]);
    for (long i = 0; i < p->receives; i++) t[p->sends + i] = real_type(r[i]);
}

static MPI_Datatype *real_types(const long *a) {
    MPI_Datatype *t = types_new(a);
    if (t != NULL) fill_types(a, t);
    return t;
}

long back_Alltoallw(const long *a) {
    ARGS(Alltoallw) p = (const void *)a;
    MPI_Datatype *t = real_types(a);
    int rc = t == NULL ? MPI_ERR_NO_MEM
                       : MPI_Alltoallw(real_buf(p->sendbuf), p->sendcounts, p->sdispls, t, (void *)p->recvbuf,
                                       p->recvcounts, p->rdispls, t + p->sends, real_comm(p->comm));
    free(t);
    return back_error(rc);
}

long back_Neighbor_alltoallw(const long *a) {
    ARGS(Neighbor_alltoallw) p = (const void *)a;
    MPI_Datatype *t = real_types(a);
    int rc = t == NULL ? MPI_ERR_NO_MEM
                       : MPI_Neighbor_alltoallw(real_buf(p->sendbuf), p->sendcounts, p->sdispls, t,
                                                (void *)p->recvbuf, p->recvcounts, p->rdispls, t + p->sends,
                                                real_comm(p->comm));
    free(t);
    return back_error(rc);
}

// The real MPI may read the array of datatypes until the request is complete: the request frees it.
static long started(int rc, MPI_Request r, MPI_Datatype *t, const long *a) {
    ARGS(Ialltoallw) p = (const void *)a;
    ckpt_vid *vid = p->request;
    long canon = rc == MPI_SUCCESS ? back_new_request(r, REQUEST_OTHER, 0, p->comm, vid) : back_error(rc);
    if (canon == 0)
        back_slot(CKPT_KIND_REQUEST, *vid)->extra = (uint64_t)(uintptr_t)t;
    else
        free(t);
    return canon;
}

long back_start_w(const long *a, MPI_Datatype *t) {
    ARGS(Ialltoallw) p = (const void *)a;
    MPI_Request r = MPI_REQUEST_NULL;
    fill_types(a, t);
    int rc = MPI_Ialltoallw(real_buf(p->sendbuf), p->sendcounts, p->sdispls, t, (void *)p->recvbuf,
                            p->recvcounts, p->rdispls, t + p->sends, real_comm(p->comm), &r);
    return started(rc, r, t, a);
}

long back_start_neighbor_w(const long *a, MPI_Datatype *t) {
    ARGS(Ineighbor_alltoallw) p = (const void *)a;
    MPI_Request r = MPI_REQUEST_NULL;
    fill_types(a, t);
    int rc = MPI_Ineighbor_alltoallw(real_buf(p->sendbuf), p->sendcounts, p->sdispls, t, (void *)p->recvbuf,
                                     p->recvcounts, p->rdispls, t + p->sends, real_comm(p->comm), &r);
    return started(rc, r, t, a);
}

long back_Ialltoallw(const long *a) {
    MPI_Datatype *t = types_new(a);
    return t == NULL ? CANON_ERR(NO_MEM) : back_start_w(a, t);
}

long back_Ineighbor_alltoallw(const long *a) {
    MPI_Datatype *t = types_new(a);
    return t == NULL ? CANON_ERR(NO_MEM) : back_start_neighbor_w(a, t);
}
