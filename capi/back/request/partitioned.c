// SPDX-License-Identifier: Apache-2.0
//
// partitioned.c: partitioned communication, where the real MPI has it.
//
// What part of a message has come is known to the real MPI alone, so such a request holds a
// checkpoint back until it is freed.
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
    if (rc != MPI_SUCCESS) return back_error(rc);
    return back_new_request(r, REQUEST_OTHER | REQUEST_PERSISTENT | REQUEST_PARTITIONED, (int)a[4],
                            (ckpt_vid)a[6], (ckpt_vid *)a[7]);
}

// buffer, partitions, count, type, peer, tag, comm, id out
long back_Psend_init(const long *a) {
    MPI_Request r = MPI_REQUEST_NULL;
    int rc = PARTITIONED(MPI_Psend_init(real_buf(a[0]), (int)a[1], a[2], real_type(a[3]), real_rank(a[4]),
                                        real_tag(a[5]), real_comm(a[6]), MPI_INFO_NULL, &r));
    return made(rc, r, a);
}

long back_Precv_init(const long *a) {
    MPI_Request r = MPI_REQUEST_NULL;
    int rc = PARTITIONED(MPI_Precv_init(real_buf(a[0]), (int)a[1], a[2], real_type(a[3]), real_rank(a[4]),
                                        real_tag(a[5]), real_comm(a[6]), MPI_INFO_NULL, &r));
    return made(rc, r, a);
}

long back_Pready(const long *a) {
    if (!is_ours(a[1])) return CANON_ERR(REQUEST);
    return back_error(PARTITIONED(MPI_Pready((int)a[0], real_request(a[1]))));
}

long back_Pready_range(const long *a) {
    if (!is_ours(a[2])) return CANON_ERR(REQUEST);
    return back_error(PARTITIONED(MPI_Pready_range((int)a[0], (int)a[1], real_request(a[2]))));
}

long back_Pready_list(const long *a) {
    if (!is_ours(a[2])) return CANON_ERR(REQUEST);
    return back_error(PARTITIONED(MPI_Pready_list((int)a[0], (int *)a[1], real_request(a[2]))));
}

long back_Parrived(const long *a) {
    if (!is_ours(a[0])) return CANON_ERR(REQUEST);
    return back_error(PARTITIONED(MPI_Parrived(real_request(a[0]), (int)a[1], (int *)a[2])));
}
