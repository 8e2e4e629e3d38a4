// SPDX-License-Identifier: Apache-2.0
//
// partitioned.c: partitioned communication, where the real MPI has it.
//
// Only the real MPI knows which parts of a message have come, so a partitioned request holds a checkpoint
// back until it is freed.
#include "back/impl/special.h"
#include "back/request/request.h"

#if MPI_VERSION >= 4
#define PARTITIONED(call) (call)
#else
#define PARTITIONED(call) MPI_ERR_UNSUPPORTED_OPERATION
#endif

static inline MPI_Request real_request(long v) {
    return (MPI_Request)(uintptr_t)back_slot(CKPT_KIND_REQUEST, v)->real;
}

static int is_ours(long v) {
    const ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, v);
    return (s->generation & 1) && (s->a & REQUEST_PARTITIONED);
}

static long made(int rc, MPI_Request r, const long *a) {
    ARGS(Psend_init) p = (const void *)a;
    if (rc != MPI_SUCCESS) return back_error(rc);
    return back_new_request(r, REQUEST_OTHER | REQUEST_PERSISTENT | REQUEST_PARTITIONED, p->dest, p->comm,
                            p->request);
}

long back_Psend_init(const long *a) {
    ARGS(Psend_init) p = (const void *)a;
    (void)p; // of an MPI that has none
    MPI_Request r = MPI_REQUEST_NULL;
    int rc = PARTITIONED(MPI_Psend_init(real_buf(p->buf), p->partitions, p->count, real_type(p->datatype),
                                        real_rank(p->dest), real_tag(p->tag), real_comm(p->comm),
                                        MPI_INFO_NULL, &r));
    return made(rc, r, a);
}

long back_Precv_init(const long *a) {
    ARGS(Precv_init) p = (const void *)a;
    (void)p; // of an MPI that has none
    MPI_Request r = MPI_REQUEST_NULL;
    int rc = PARTITIONED(MPI_Precv_init(real_buf(p->buf), p->partitions, p->count, real_type(p->datatype),
                                        real_rank(p->source), real_tag(p->tag), real_comm(p->comm),
                                        MPI_INFO_NULL, &r));
    return made(rc, r, a);
}

long back_Pready(const long *a) {
    ARGS(Pready) p = (const void *)a;
    if (!is_ours(p->request)) return CANON_ERR(REQUEST);
    return back_error(PARTITIONED(MPI_Pready(p->partition, real_request(p->request))));
}

long back_Pready_range(const long *a) {
    ARGS(Pready_range) p = (const void *)a;
    if (!is_ours(p->request)) return CANON_ERR(REQUEST);
    return back_error(
        PARTITIONED(MPI_Pready_range(p->partition_low, p->partition_high, real_request(p->request))));
}

long back_Pready_list(const long *a) {
    ARGS(Pready_list) p = (const void *)a;
    if (!is_ours(p->request)) return CANON_ERR(REQUEST);
    return back_error(
        PARTITIONED(MPI_Pready_list(p->length, (int *)p->array_of_partitions, real_request(p->request))));
}

long back_Parrived(const long *a) {
    ARGS(Parrived) p = (const void *)a;
    if (!is_ours(p->request)) return CANON_ERR(REQUEST);
    return back_error(PARTITIONED(MPI_Parrived(real_request(p->request), p->partition, p->flag)));
}
