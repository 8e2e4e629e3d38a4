// SPDX-License-Identifier: Apache-2.0
//
// comm_calls.c: calls that make, free and name communicators and need code of their own (the others are in
// gen/zz_comm.c and gen/zz_topo.c).  What is kept of a communicator is in comm.c.
#include <stdlib.h>

#include "back/impl/above.h"
#include "back/impl/error.h"
#include "back/impl/special.h"
#include "back/object/comm.h"
#include "back/object/untold.h"
#include "back/request/request.h"

// A call that made comm from the parent at a[0].
static long made(int rc, MPI_Comm comm, const long *a, ckpt_vid *out) {
    return rc == MPI_SUCCESS ? back_new_comm(comm, comm, (ckpt_vid)a[0], 0, out) : back_error(rc);
}

long back_Comm_dup(const long *a) {
    ARGS(Comm_dup) p = (const void *)a;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Info info = back_info(p->info);
    int rc = info == MPI_INFO_NULL ? MPI_Comm_dup(real_comm(p->comm), &comm)
                                   : MPI_Comm_dup_with_info(real_comm(p->comm), info, &comm);
    back_info_done(&info);
    return made(rc, comm, a, p->newcomm);
}

long back_Comm_dup_with_info(const long *a) { return back_Comm_dup(a); }

static void gone(ckpt_vid v) {
    for (void (*const *tell)(ckpt_vid) = back_above.comm_gone; *tell != NULL; tell++) (*tell)(v);
    comm_free(v);
}

void back_comm_unborn(ckpt_vid parent, ckpt_vid child) {
    const ckpt_slot *p = back_slot(CKPT_KIND_COMM, parent);
    if (p->counters != 0) ckpt_comm_of(p)->children--;
    if (child != VID_COMM_NULL) gone(child);
}

// The duplicate gets its id at once, with the parent's descriptor; its real handle is there when the request
// is complete.  promised: the id, if it was given out before; else CKPT_VID_NONE.
// What takes memory comes first: once the real MPI has the call, nothing can be taken back.
static long idup(const long *a, ckpt_vid promised) {
    ARGS(Comm_idup) p = (const void *)a;
    MPI_Request r = MPI_REQUEST_NULL;
    MPI_Comm parent = real_comm(p->comm);
    struct back_idup *d = malloc(sizeof *d);
    ckpt_vid request = d == NULL ? CKPT_VID_NONE : back_take_request(), v = promised;
    if (request == CKPT_VID_NONE) {
        free(d);
        return back_nothing_done(CANON_ERR(NO_MEM));
    }
    long canon = promised != CKPT_VID_NONE ? back_keep_promise(p->comm, promised)
                                           : back_new_comm(MPI_COMM_NULL, parent, p->comm, 0, &v);
    *d = (struct back_idup){.vid = v, .comm = MPI_COMM_NULL};
    int asked = canon == 0;
    if (asked) canon = back_error(MPI_Comm_idup(parent, &d->comm, &r));
    if (canon != 0) {
        back_give_id(CKPT_KIND_REQUEST, request);
        free(d);
        if (promised == CKPT_VID_NONE) back_comm_unborn(p->comm, v);
        return asked ? canon : back_nothing_done(canon);
    }
    back_set_request(request, r, REQUEST_OTHER | REQUEST_IDUP, 0, p->comm)->extra = (uint64_t)(uintptr_t)d;
    *p->request = request;
    if (promised == CKPT_VID_NONE) *p->newcomm = v;
    return 0;
}

long back_Comm_idup(const long *a) { return idup(a, CKPT_VID_NONE); }

// parent, the id itself, request
long back_idup_promised(const long *a) { return idup(a, (ckpt_vid)a[1]); }

// An MPI that does not know parts of nodes finds none: no rank gets a communicator then.
#ifndef MPI_COMM_TYPE_HW_GUIDED
#define MPI_COMM_TYPE_HW_GUIDED MPI_UNDEFINED
#define MPI_COMM_TYPE_HW_UNGUIDED MPI_UNDEFINED
#endif
#ifndef MPIX_COMM_TYPE_NEIGHBORHOOD // those of a node have a directory and a network in common
#define MPIX_COMM_TYPE_NEIGHBORHOOD MPI_COMM_TYPE_SHARED
#endif

long back_Comm_split_type(const long *a) {
    ARGS(Comm_split_type) p = (const void *)a;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Info info = back_info(p->info);
    int type = p->split_type == CANON_COMM_TYPE_SHARED         ? MPI_COMM_TYPE_SHARED
               : p->split_type == CANON_COMM_TYPE_HW_GUIDED    ? MPI_COMM_TYPE_HW_GUIDED
               : p->split_type == CANON_COMM_TYPE_HW_UNGUIDED  ? MPI_COMM_TYPE_HW_UNGUIDED
               : p->split_type == CANON_COMM_TYPE_NEIGHBORHOOD ? MPIX_COMM_TYPE_NEIGHBORHOOD
               : p->split_type == CANON_UNDEFINED              ? MPI_UNDEFINED
                                                               : BACK_NO_VALUE;
    int rc = MPI_Comm_split_type(real_comm(p->comm), type, p->key, info, &comm), found;
    if (rc == MPI_SUCCESS && comm != MPI_COMM_NULL && p->split_type == CANON_COMM_TYPE_HW_UNGUIDED &&
        p->resource != 0 && info != MPI_INFO_NULL)
        MPI_Info_get(info, CANON_HW_RESOURCE, CANON_HW_RESOURCE_BYTES - 1, p->resource, &found);
    back_info_done(&info);
    return made(rc, comm, a, p->newcomm);
}

// Only the group's members call this: their parent's count would differ from the others'.
long back_Comm_create_group(const long *a) {
    ARGS(Comm_create_group) p = (const void *)a;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Group group = back_group(p->group);
    int rc = MPI_Comm_create_group(real_comm(p->comm), group, p->tag, &comm);
    back_group_done(&group);
    if (rc != MPI_SUCCESS) return back_error(rc);
    uint64_t identity = comm == MPI_COMM_NULL ? 1 : back_agree_identity(comm);
    return back_new_comm(comm, comm, p->comm, identity, p->newcomm);
}

long back_Intercomm_create(const long *a) {
    ARGS(Intercomm_create) p = (const void *)a;
    MPI_Comm comm = MPI_COMM_NULL;
    int rc = MPI_Intercomm_create(real_comm(p->local_comm), p->local_leader, real_comm(p->bridge_comm),
                                  real_rank(p->remote_leader), real_tag(p->tag), &comm);
    if (rc != MPI_SUCCESS) return back_error(rc);
    return back_new_comm(comm, comm, p->local_comm, back_agree_identity(comm), p->newintercomm);
}

long back_Comm_free(const long *a) {
    ARGS(Comm_free) p = (const void *)a;
    ckpt_vid v = *p->comm;
    MPI_Comm comm = real_comm(v);
    int rc = MPI_Comm_free(&comm);
    if (rc == MPI_SUCCESS) gone(v);
    return back_error(rc);
}

long back_Comm_disconnect(const long *a) {
    ARGS(Comm_disconnect) p = (const void *)a;
    ckpt_vid v = *p->comm;
    MPI_Comm comm = real_comm(v);
    int rc = MPI_Comm_disconnect(&comm);
    if (rc == MPI_SUCCESS) gone(v);
    return back_error(rc);
}

// For messages about the communicator; the application's copy of the name is in the front.
long back_Comm_set_name(const long *a) {
    ARGS(Comm_set_name) p = (const void *)a;
    MPI_Comm comm = real_comm(p->comm);
    if (comm == MPI_COMM_NULL) return CANON_ERR(COMM);
    int rc = MPI_Comm_set_name(comm, p->comm_name);
    if (rc == MPI_SUCCESS) comm_name(p->comm, p->comm_name);
    return back_error(rc);
}
