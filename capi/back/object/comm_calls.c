// SPDX-License-Identifier: Apache-2.0
//
// comm_calls.c: the calls that make, free and name communicators; what is kept of one is in comm.c.
#include <stdlib.h>

#include "back/impl/above.h"
#include "back/impl/error.h"
#include "back/impl/special.h"
#include "back/object/comm.h"
#include "back/request/request.h"

// A call that made comm from the parent at a[0].
static long made(int rc, MPI_Comm comm, const long *a, long out) {
    return rc == MPI_SUCCESS ? back_new_comm(comm, comm, (ckpt_vid)a[0], 0, (ckpt_vid *)out) : back_error(rc);
}

long back_Comm_dup(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Info info = back_info((const char *)a[2]);
    int rc = info == MPI_INFO_NULL ? MPI_Comm_dup(real_comm(a[0]), &comm)
                                   : MPI_Comm_dup_with_info(real_comm(a[0]), info, &comm);
    back_info_done(&info);
    return made(rc, comm, a, a[1]);
}

long back_Comm_dup_with_info(const long *a) { return back_Comm_dup(a); }

// The duplicate's id is given out at once, described like the parent; its real handle is there when
// the request is complete.  promised: the id, CKPT_VID_NONE when it has none yet.
static long idup(const long *a, ckpt_vid promised) {
    MPI_Request r = MPI_REQUEST_NULL;
    MPI_Comm parent = real_comm(a[0]);
    struct back_idup *d = calloc(1, sizeof *d);
    if (d == NULL) return CANON_ERR(NO_MEM);
    int rc = MPI_Comm_idup(parent, &d->comm, &r);
    if (rc != MPI_SUCCESS) {
        free(d);
        return back_error(rc);
    }
    d->vid = promised;
    long canon = promised != CKPT_VID_NONE ? back_keep_promise((ckpt_vid)a[0], promised)
                                           : back_new_comm(MPI_COMM_NULL, parent, (ckpt_vid)a[0], 0, &d->vid);
    if (canon == 0)
        canon = back_new_request(r, REQUEST_OTHER | REQUEST_IDUP, 0, (ckpt_vid)a[0], (ckpt_vid *)a[2]);
    if (canon == 0) back_slot(CKPT_KIND_REQUEST, *(ckpt_vid *)a[2])->extra = (uint64_t)(uintptr_t)d;
    if (canon == 0 && promised == CKPT_VID_NONE) *(ckpt_vid *)a[1] = d->vid;
    return canon; // d stays when the id of the request is missing: MPI will write to it
}

long back_Comm_idup(const long *a) { return idup(a, CKPT_VID_NONE); }

// parent, the id itself, request
long back_idup_promised(const long *a) { return idup(a, (ckpt_vid)a[1]); }

long back_Comm_split(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    int color = (int)a[1] == CANON_UNDEFINED ? MPI_UNDEFINED : (int)a[1];
    int rc = MPI_Comm_split(real_comm(a[0]), color, (int)a[2], &comm);
    return made(rc, comm, a, a[3]);
}

// An MPI that knows no parts of nodes finds none: nobody gets a communicator then.
#ifndef MPI_COMM_TYPE_HW_GUIDED
#define MPI_COMM_TYPE_HW_GUIDED MPI_UNDEFINED
#define MPI_COMM_TYPE_HW_UNGUIDED MPI_UNDEFINED
#endif
#ifndef MPIX_COMM_TYPE_NEIGHBORHOOD // those of a node have a directory and a network in common
#define MPIX_COMM_TYPE_NEIGHBORHOOD MPI_COMM_TYPE_SHARED
#endif

long back_Comm_split_type(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Info info = back_info((const char *)a[3]);
    int type = a[1] == CANON_COMM_TYPE_SHARED         ? MPI_COMM_TYPE_SHARED
               : a[1] == CANON_COMM_TYPE_HW_GUIDED    ? MPI_COMM_TYPE_HW_GUIDED
               : a[1] == CANON_COMM_TYPE_HW_UNGUIDED  ? MPI_COMM_TYPE_HW_UNGUIDED
               : a[1] == CANON_COMM_TYPE_NEIGHBORHOOD ? MPIX_COMM_TYPE_NEIGHBORHOOD
               : a[1] == CANON_UNDEFINED              ? MPI_UNDEFINED
                                                      : BACK_NO_VALUE;
    int rc = MPI_Comm_split_type(real_comm(a[0]), type, (int)a[2], info, &comm), found;
    if (rc == MPI_SUCCESS && comm != MPI_COMM_NULL && a[1] == CANON_COMM_TYPE_HW_UNGUIDED && a[5] != 0 &&
        info != MPI_INFO_NULL)
        MPI_Info_get(info, CANON_HW_RESOURCE, CANON_HW_RESOURCE_BYTES - 1, (char *)a[5], &found);
    back_info_done(&info);
    return made(rc, comm, a, a[4]);
}

long back_Comm_create(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Group group = back_group((const ckpt_mpi_group *)a[1]);
    int rc = MPI_Comm_create(real_comm(a[0]), group, &comm);
    back_group_done(&group);
    return made(rc, comm, a, a[2]);
}

// Only the group's members call this: their parent's count would differ from the others'.
long back_Comm_create_group(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Group group = back_group((const ckpt_mpi_group *)a[1]);
    int rc = MPI_Comm_create_group(real_comm(a[0]), group, (int)a[2], &comm);
    back_group_done(&group);
    if (rc != MPI_SUCCESS) return back_error(rc);
    uint64_t identity = comm == MPI_COMM_NULL ? 1 : back_agree_identity(comm);
    return back_new_comm(comm, comm, (ckpt_vid)a[0], identity, (ckpt_vid *)a[3]);
}

long back_Intercomm_create(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    int rc = MPI_Intercomm_create(real_comm(a[0]), (int)a[1], real_comm(a[2]), real_rank(a[3]),
                                  real_tag(a[4]), &comm);
    if (rc != MPI_SUCCESS) return back_error(rc);
    return back_new_comm(comm, comm, (ckpt_vid)a[0], back_agree_identity(comm), (ckpt_vid *)a[5]);
}

long back_Intercomm_merge(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    int rc = MPI_Intercomm_merge(real_comm(a[0]), (int)a[1], &comm);
    return made(rc, comm, a, a[2]);
}

long back_Cart_create(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    int rc =
        MPI_Cart_create(real_comm(a[0]), (int)a[1], (const int *)a[2], (const int *)a[3], (int)a[4], &comm);
    return made(rc, comm, a, a[5]);
}

long back_Cart_sub(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    int rc = MPI_Cart_sub(real_comm(a[0]), (const int *)a[1], &comm);
    return made(rc, comm, a, a[2]);
}

long back_Graph_create(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    int rc =
        MPI_Graph_create(real_comm(a[0]), (int)a[1], (const int *)a[2], (const int *)a[3], (int)a[4], &comm);
    return made(rc, comm, a, a[5]);
}

long back_Dist_graph_create_adjacent(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Info info = back_info((const char *)a[7]);
    int rc = MPI_Dist_graph_create_adjacent(real_comm(a[0]), (int)a[1], (const int *)a[2], real_weights(a[3]),
                                            (int)a[4], (const int *)a[5], real_weights(a[6]), info, (int)a[8],
                                            &comm);
    back_info_done(&info);
    return made(rc, comm, a, a[9]);
}

long back_Dist_graph_create(const long *a) {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Info info = back_info((const char *)a[6]);
    int rc = MPI_Dist_graph_create(real_comm(a[0]), (int)a[1], (const int *)a[2], (const int *)a[3],
                                   (const int *)a[4], real_weights(a[5]), info, (int)a[7], &comm);
    back_info_done(&info);
    return made(rc, comm, a, a[8]);
}

static void gone(ckpt_vid v) {
    for (void (*const *tell)(ckpt_vid) = back_above.comm_gone; *tell != NULL; tell++) (*tell)(v);
    ckpt_vid_free(back.job, v);
}

long back_Comm_free(const long *a) {
    ckpt_vid v = *(ckpt_vid *)a[0];
    MPI_Comm comm = real_comm(v);
    int rc = MPI_Comm_free(&comm);
    if (rc == MPI_SUCCESS) gone(v);
    return back_error(rc);
}

long back_Comm_disconnect(const long *a) {
    ckpt_vid v = *(ckpt_vid *)a[0];
    MPI_Comm comm = real_comm(v);
    int rc = MPI_Comm_disconnect(&comm);
    if (rc == MPI_SUCCESS) gone(v);
    return back_error(rc);
}

// For messages about the communicator; the application's copy of the name is in the front.
long back_Comm_set_name(const long *a) {
    MPI_Comm comm = real_comm(a[0]);
    if (comm == MPI_COMM_NULL) return CANON_ERR(COMM);
    int rc = MPI_Comm_set_name(comm, (const char *)a[1]);
    if (rc == MPI_SUCCESS) ckpt_vid_name(back.job, (ckpt_vid)a[0], (const char *)a[1]);
    return back_error(rc);
}
