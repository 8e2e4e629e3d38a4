/* SPDX-License-Identifier: Apache-2.0
 *
 * isendrecv.c: a send and a receive in one request: two requests, of which the application sees one
 * that is complete when both are.
 */
#include <stdlib.h>

#include "impl.h"

long back_Isend(const long *a);
long back_Irecv(const long *a);

/* Both were started with an id each. */
static long pair(ckpt_vid send, ckpt_vid recv, ckpt_vid comm, ckpt_vid *vid) {
    struct back_coll *c = back_coll_new(0);
    if (c == NULL)
        return CANON_ERR(NO_MEM);
    c->function = CKPT_FN_MPI_ISENDRECV - CKPT_FN_MPI;
    c->nargs = 2;
    c->a[0] = send;
    c->inner = recv;
    long canon = back_new_request(MPI_REQUEST_NULL, REQUEST_PAIR, 0, comm, vid);
    if (canon == 0)
        back_slot(CKPT_KIND_REQUEST, *vid)->extra = (uint64_t)(uintptr_t)c;
    else
        free(c);
    return canon;
}

static long both(const long *send, const long *recv, void *copy, ckpt_vid *vid) {
    ckpt_vid s = VID_REQUEST_NULL, r = VID_REQUEST_NULL;
    long out[7], in[7];
    memcpy(out, send, 6 * sizeof(long));
    memcpy(in, recv, 6 * sizeof(long));
    out[6] = (long)&s;
    in[6] = (long)&r;
    long canon = back_Isend(out);
    if (canon != 0) {
        free(copy);
        return canon;
    }
    back_slot(CKPT_KIND_REQUEST, s)->extra = (uint64_t)(uintptr_t)copy; /* freed with it */
    canon = back_Irecv(in);
    return canon ? canon : pair(s, r, (ckpt_vid)send[5], vid);
}

long back_Isendrecv(const long *a) {
    const long send[] = {a[0], a[1], a[2], a[3], a[4], a[10]};
    const long recv[] = {a[5], a[6], a[7], a[8], a[9], a[10]};
    return both(send, recv, NULL, (ckpt_vid *)a[11]);
}

/* What is sent is copied: the receive may come first. */
long back_Isendrecv_replace(const long *a) {
    int size = 0, position = 0;
    int rc = MPI_Pack_size((int)a[1], real_type(a[2]), real_comm(a[7]), &size);
    void *copy = rc == MPI_SUCCESS ? malloc((size_t)size + 1) : NULL;
    if (copy == NULL)
        return rc == MPI_SUCCESS ? CANON_ERR(NO_MEM) : back_error(rc);
    rc = MPI_Pack((void *)a[0], (int)a[1], real_type(a[2]), copy, size, &position,
                  real_comm(a[7]));
    if (rc != MPI_SUCCESS) {
        free(copy);
        return back_error(rc);
    }
    const ckpt_vid packed = CKPT_VID(CKPT_KIND_DATATYPE, CANON_DATATYPE_PACKED);
    const long send[] = {(long)copy, position, packed, a[3], a[4], a[7]};
    const long recv[] = {a[0], a[1], a[2], a[5], a[6], a[7]};
    return both(send, recv, copy, (ckpt_vid *)a[8]);
}
