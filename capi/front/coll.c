// SPDX-License-Identifier: Apache-2.0
//
// coll.c: operations, and the collectives that take an array of datatypes on each side.
#include <stdlib.h>

#include "front/front.h"

// ---- operations ----

// The lower half calls this for each piece of a reduction.
static long user_thunk(void *in, void *inout, int *len, long type, void *op) {
    const struct front_op *o = op;
    o->call(o, in, inout, len, out_type((ckpt_vid)type));
    return 0;
}

// Calls a function of the application that takes a large count.
static void call_large(const struct front_op *o, void *in, void *inout, int *len, MPI_Datatype type) {
    MPI_Count n = *len;
    ((void (*)(void *, void *, MPI_Count *, MPI_Datatype *))o->function)(in, inout, &n, &type);
}

static void call_c(const struct front_op *o, void *in, void *inout, int *len, MPI_Datatype type) {
    ((MPI_User_function *)o->function)(in, inout, len, &type);
}

int front_op_new(front_op_call *call, void *function, int commute, unsigned fn, MPI_Op *op) {
    struct front_op *o = front_alloc(sizeof *o);
    *o = (struct front_op){call, function, NULL, NULL};
    ckpt_vid v = VID_OP_NULL;
    ckpt_mpi_user_thunk *thunk = user_thunk;
    const struct Op_create_words a = {.function = o, .commute = commute, .op = &v, .thunk = thunk};
    long rc = front_call(CKPT_FN_MPI_OP_CREATE, &a);
    if (rc != 0) {
        free(o);
        return front_error(FRONT_COMM, VID_COMM_WORLD, fn, rc);
    }
    *op = out_op(v);
    return MPI_SUCCESS;
}

struct front_op *front_op(MPI_Op op) {
    ckpt_vid v = in_op(op);
    if (CKPT_VID_INDEX(v) < CKPT_VID_PREDEFINED) return NULL;
    return (struct front_op *)(uintptr_t)front_slot(CKPT_FN_MPI_OP_FREE, CKPT_KIND_OP, v)->extra;
}

FRONT(int, Op_create, (MPI_User_function * function, int commute, MPI_Op *op)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_OP_CREATE, op != NULL);
    return front_op_new(call_c, (void *)function, commute, CKPT_FN_MPI_OP_CREATE, op);
}

FRONT(int, Op_create_c, (void *user_fn, int commute, MPI_Op *op)) {
    return front_op_new(call_large, user_fn, commute, CKPT_FN_MPI_OP_CREATE_C, op);
}

// Operations that were freed while a reduction was under way: MPI may still call their functions.
static struct front_op *freed_later;

static void free_ops(struct front_op *o) {
    while (o != NULL) {
        struct front_op *next = o->next;
        free(o);
        o = next;
    }
}

FRONT(int, Op_free, (MPI_Op * op)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_OP_FREE, op != NULL);
    ckpt_vid v = in_op(*op);
    if (CKPT_VID_INDEX(v) < CKPT_VID_PREDEFINED) return FRONT_ERR(CKPT_FN_MPI_OP_FREE, OP);
    struct front_op *o = front_op(*op);
    int in_use = 0;
    const struct Op_free_words a = {.op = &v, .in_use = &in_use};
    struct front_op *others = __atomic_exchange_n(&freed_later, NULL, __ATOMIC_ACQ_REL);
    long rc = front_call(CKPT_FN_MPI_OP_FREE, &a);
    if (rc == 0)
        o->next = others;
    else
        o = others;
    if (rc == 0 && !in_use) {
        free_ops(o);
    } else if (o != NULL) {
        struct front_op *last = o;
        while (last->next != NULL) last = last->next;
        last->next = __atomic_load_n(&freed_later, __ATOMIC_ACQUIRE);
        while (
            !__atomic_compare_exchange_n(&freed_later, &last->next, o, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            ;
    }
    if (rc != 0) return front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_OP_FREE, rc);
    *op = MPI_OP_NULL;
    return MPI_SUCCESS;
}

FRONT(int, Op_commutative, (MPI_Op op, int *commute)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_OP_COMMUTATIVE, commute != NULL);
    const ckpt_slot *s = front_slot(CKPT_FN_MPI_OP_COMMUTATIVE, CKPT_KIND_OP, in_op(op));
    if (front_is_null(CKPT_KIND_OP, s)) return FRONT_ERR(CKPT_FN_MPI_OP_COMMUTATIVE, OP);
    *commute = s->a;
    return MPI_SUCCESS;
}

// ---- all-to-all with a datatype for each peer ----

int front_blocks(MPI_Comm comm, int neighbors, int *out, int *in) {
    int rc, flag;
    if (!neighbors) {
        if ((rc = PMPI_Comm_test_inter(comm, &flag)) != MPI_SUCCESS) return rc;
        rc = flag ? PMPI_Comm_remote_size(comm, out) : PMPI_Comm_size(comm, out);
        *in = *out;
        return rc;
    }
    if ((rc = PMPI_Topo_test(comm, &flag)) != MPI_SUCCESS) return rc;
    *out = *in = 0;
    if (flag == out_topo(CANON_CART)) {
        rc = PMPI_Cartdim_get(comm, out);
        *in = *out = 2 * *out;
    } else if (flag == out_topo(CANON_GRAPH)) {
        int rank;
        PMPI_Comm_rank(comm, &rank);
        rc = PMPI_Graph_neighbors_count(comm, rank, out);
        *in = *out;
    } else if (flag == out_topo(CANON_DIST_GRAPH)) {
        rc = PMPI_Dist_graph_neighbors_count(comm, in, out, &flag);
    }
    return rc;
}

struct side {
    ckpt_vid small[FRONT_SMALL], *vids;
};

static void convert(struct side *s, const MPI_Datatype *types, int n) {
    s->vids = front_vids(s->small, n);
    for (int i = 0; i < n; i++) s->vids[i] = in_type(types[i]);
}

// Counts and displacements are arrays of int or MPI_Aint, which are passed on as they are.  The back
// copies the datatypes when the call is not blocking.
static int alltoallw(unsigned fn, int neighbors, const void *sendbuf, const void *sendcounts,
                     const void *sdispls, const MPI_Datatype *sendtypes, void *recvbuf,
                     const void *recvcounts, const void *rdispls, const MPI_Datatype *recvtypes,
                     MPI_Comm comm, ckpt_vid *request) {
    int out, in, rc = front_blocks(comm, neighbors, &out, &in);
    if (rc != MPI_SUCCESS) return rc;
    struct side s, r;
    int in_place = in_buf(sendbuf) == CANON_IN_PLACE;
    convert(&s, sendtypes, in_place ? 0 : out);
    convert(&r, recvtypes, in);
    const struct Alltoallw_words a = {.sendbuf = in_buf(sendbuf),
                                      .sendcounts = sendcounts,
                                      .sdispls = sdispls,
                                      .sendtypes = s.vids,
                                      .recvbuf = (long)recvbuf,
                                      .recvcounts = recvcounts,
                                      .rdispls = rdispls,
                                      .recvtypes = r.vids,
                                      .comm = in_comm(comm),
                                      .request = request,
                                      .sends = in_place ? 0 : out,
                                      .receives = in};
    long below = front_call(fn, &a);
    front_vids_done(s.vids, s.small);
    front_vids_done(r.vids, r.small);
    return below ? front_error(FRONT_COMM, in_comm(comm), fn, below) : MPI_SUCCESS;
}

FRONT(int, Alltoallw,
      (const void *sendbuf, const int *sendcounts, const int *sdispls, const MPI_Datatype *sendtypes,
       void *recvbuf, const int *recvcounts, const int *rdispls, const MPI_Datatype *recvtypes,
       MPI_Comm comm)) {
    return alltoallw(CKPT_FN_MPI_ALLTOALLW, 0, sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts,
                     rdispls, recvtypes, comm, NULL);
}

FRONT(int, Ialltoallw,
      (const void *sendbuf, const int *sendcounts, const int *sdispls, const MPI_Datatype *sendtypes,
       void *recvbuf, const int *recvcounts, const int *rdispls, const MPI_Datatype *recvtypes, MPI_Comm comm,
       MPI_Request *request)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_IALLTOALLW, request != NULL);
    ckpt_vid v = VID_REQUEST_NULL;
    int rc = alltoallw(CKPT_FN_MPI_IALLTOALLW, 0, sendbuf, sendcounts, sdispls, sendtypes, recvbuf,
                       recvcounts, rdispls, recvtypes, comm, &v);
    if (rc == MPI_SUCCESS) *request = out_request(v);
    return rc;
}

FRONT(int, Neighbor_alltoallw,
      (const void *sendbuf, const int *sendcounts, const MPI_Aint *sdispls, const MPI_Datatype *sendtypes,
       void *recvbuf, const int *recvcounts, const MPI_Aint *rdispls, const MPI_Datatype *recvtypes,
       MPI_Comm comm)) {
    return alltoallw(CKPT_FN_MPI_NEIGHBOR_ALLTOALLW, 1, sendbuf, sendcounts, sdispls, sendtypes, recvbuf,
                     recvcounts, rdispls, recvtypes, comm, NULL);
}

FRONT(int, Ineighbor_alltoallw,
      (const void *sendbuf, const int *sendcounts, const MPI_Aint *sdispls, const MPI_Datatype *sendtypes,
       void *recvbuf, const int *recvcounts, const MPI_Aint *rdispls, const MPI_Datatype *recvtypes,
       MPI_Comm comm, MPI_Request *request)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_INEIGHBOR_ALLTOALLW, request != NULL);
    ckpt_vid v = VID_REQUEST_NULL;
    int rc = alltoallw(CKPT_FN_MPI_INEIGHBOR_ALLTOALLW, 1, sendbuf, sendcounts, sdispls, sendtypes, recvbuf,
                       recvcounts, rdispls, recvtypes, comm, &v);
    if (rc == MPI_SUCCESS) *request = out_request(v);
    return rc;
}

// The persistent calls.  info holds only hints.

FRONT(int, Alltoallw_init,
      (const void *sendbuf, const int *sendcounts, const int *sdispls, const MPI_Datatype *sendtypes,
       void *recvbuf, const int *recvcounts, const int *rdispls, const MPI_Datatype *recvtypes, MPI_Comm comm,
       MPI_Info info, MPI_Request *request)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_ALLTOALLW_INIT, request != NULL);
    (void)info;
    ckpt_vid v = VID_REQUEST_NULL;
    int rc = alltoallw(CKPT_FN_MPI_ALLTOALLW_INIT, 0, sendbuf, sendcounts, sdispls, sendtypes, recvbuf,
                       recvcounts, rdispls, recvtypes, comm, &v);
    if (rc == MPI_SUCCESS) *request = out_request(v);
    return rc;
}

FRONT(int, Neighbor_alltoallw_init,
      (const void *sendbuf, const int *sendcounts, const MPI_Aint *sdispls, const MPI_Datatype *sendtypes,
       void *recvbuf, const int *recvcounts, const MPI_Aint *rdispls, const MPI_Datatype *recvtypes,
       MPI_Comm comm, MPI_Info info, MPI_Request *request)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_NEIGHBOR_ALLTOALLW_INIT, request != NULL);
    (void)info;
    ckpt_vid v = VID_REQUEST_NULL;
    int rc = alltoallw(CKPT_FN_MPI_NEIGHBOR_ALLTOALLW_INIT, 1, sendbuf, sendcounts, sdispls, sendtypes,
                       recvbuf, recvcounts, rdispls, recvtypes, comm, &v);
    if (rc == MPI_SUCCESS) *request = out_request(v);
    return rc;
}

FRONT_EXTENSION(Alltoallw_init)
FRONT_EXTENSION(Neighbor_alltoallw_init)
