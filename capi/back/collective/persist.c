// SPDX-License-Identifier: Apache-2.0
//
// persist.c: persistent collectives.
//
// The request remembers the arguments.  Each start makes the non-blocking call with them; the request of that
// call, the inner one, is then waited for instead.  So a start is counted, deferred and drained like any
// non-blocking collective, above every MPI.  Each request has a communicator of its own (persist_comm.c), so
// that the starts of different requests need no order.
#include <stddef.h>
#include <stdlib.h>

#include "back/collective/clock.h"
#include "back/collective/op.h"
#include "back/collective/persist.h"
#include "back/impl/error.h"
#include "back/object/type.h"

// Makes a datatype of our own: the application may free the one that it gave.
static long own_type(ckpt_vid type, ckpt_vid *own) {
    long rc = back_type_again(type, own);
    if (rc == 0 && CKPT_VID_INDEX(*own) >= CKPT_VID_PREDEFINED) {
        const long a[] = {(long)own};
        rc = back_Type_commit(a);
    }
    return rc;
}

static void disown(ckpt_vid type) {
    const long a[] = {(long)&type};
    if (CKPT_VID_INDEX(type) >= CKPT_VID_PREDEFINED) back_Type_free(a);
}

static void coll_free(struct back_coll *c) {
    for (int i = 0; i < c->ntypes; i++) disown(c->types[i]);
    free(c);
}

void back_coll_end(struct back_coll *c) {
    if (c->own) back_own_comm_free((ckpt_vid)c->a[c->request - 1]);
    coll_free(c);
}

// Gives c a communicator of its own and an id, or frees c.  Steps that may fail on this member alone come
// before those in which all members take part.
static long announce(struct back_coll *c, long rc, const char *name, ckpt_vid *vid) {
    ckpt_vid comm = (ckpt_vid)c->a[c->request - 1], own, v = VID_REQUEST_NULL;
    if (rc == 0 && real_comm(comm) == MPI_COMM_NULL) rc = CANON_ERR(COMM);
    if (rc == 0) rc = back_new_request(MPI_REQUEST_NULL, REQUEST_PERSISTENT | REQUEST_COLL, 0, comm, &v);
    if (rc == 0) rc = back_own_comm_new(comm, name, &own);
    if (rc != 0) {
        if (v != VID_REQUEST_NULL) back_give_id(CKPT_KIND_REQUEST, v);
        coll_free(c);
        return rc;
    }
    c->own = own != comm;
    c->a[c->request - 1] = own;
    back_slot(CKPT_KIND_REQUEST, v)->extra = (uint64_t)(uintptr_t)c;
    back_calls_later();
    *vid = v;
    return 0;
}

static long init(int function, const char *name, const long *a, int n, unsigned types) {
    struct back_coll *c = back_coll_new(__builtin_popcount(types));
    long rc = 0;
    if (c == NULL) return CANON_ERR(NO_MEM);
    c->function = function;
    c->nargs = n;
    c->request = n - 1;
    for (int i = 0; i < n - 1; i++) c->a[i] = a[i];
    for (int i = 0; i < n - 1 && rc == 0; i++)
        if (types & 1u << i) {
            rc = own_type((ckpt_vid)a[i], &c->types[c->ntypes]);
            if (rc == 0) c->a[i] = c->types[c->ntypes++];
        }
    return announce(c, rc, name, (ckpt_vid *)a[n - 1]);
}

// The last argument is the place for the request's id, the one before it the communicator.  The call makes a
// communicator, so it is counted like other collective calls: all members have made it, or none.
long back_coll_init(int function, const char *name, const long *a, int n, unsigned types) {
    ckpt_coll call;
    back_gate(a[n - 2], name, CKPT_COLL_BLOCKING, &call);
    long rc = init(function, name, a, n, types);
    back_gate_return(&call, rc);
    return rc;
}

// Arguments as those of MPI_Ialltoallw (coll.c).
static long init_w(int function, const char *name, const long *a) {
    ARGS(Alltoallw_init) p = (const void *)a;
    struct back_coll *c = back_coll_new((int)(p->sends + p->receives));
    long rc = 0;
    if (c == NULL) return CANON_ERR(NO_MEM);
    c->function = function;
    c->nargs = sizeof *p / sizeof(long);
    c->request = offsetof(struct Alltoallw_init_args, request) / sizeof(long);
    c->arrays = 1;
    memcpy(c->a, a, sizeof *p);
    for (int i = 0; i < p->sends + p->receives && rc == 0; i++) {
        const ckpt_vid *v = i < p->sends ? p->sendtypes + i : p->recvtypes + i - p->sends;
        rc = own_type(*v, &c->types[i]);
        c->ntypes += rc == 0;
    }
    return announce(c, rc, name, p->request);
}

static long coll_init_w(int function, const char *name, const long *a) {
    ARGS(Alltoallw_init) p = (const void *)a;
    ckpt_coll call;
    back_gate(p->comm, name, CKPT_COLL_BLOCKING, &call);
    long rc = init_w(function, name, a);
    back_gate_return(&call, rc);
    return rc;
}

long back_Alltoallw_init(const long *a) {
    return coll_init_w(CKPT_FN_MPI_IALLTOALLW - CKPT_FN_MPI, "MPI_Alltoallw_init", a);
}

long back_Neighbor_alltoallw_init(const long *a) {
    return coll_init_w(CKPT_FN_MPI_INEIGHBOR_ALLTOALLW - CKPT_FN_MPI, "MPI_Neighbor_alltoallw_init", a);
}

long back_coll_start(ckpt_slot *s) {
    struct back_coll *c = back_coll_of(s);
    long a[14];
    memcpy(a, c->a, sizeof a);
    if (c->arrays) {
        struct Ialltoallw_args *p = (void *)a;
        p->sendtypes = c->types;
        p->recvtypes = c->types + p->sends;
    }
    c->inner = VID_REQUEST_NULL;
    a[c->request] = (long)&c->inner;
    long rc = back.counted[c->function](a);
    if (rc == 0) s->a |= REQUEST_ACTIVE;
    return rc;
}
