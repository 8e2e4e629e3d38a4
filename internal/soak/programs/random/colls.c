// SPDX-License-Identifier: Apache-2.0
//
// colls.c: collectives of all kinds, blocking or started and awaited later.
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum which {
    BARRIER,
    BCAST,
    REDUCE,
    ALLREDUCE,
    ALLREDUCE_IN_PLACE,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    SCAN,
    EXSCAN,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    COLLS
};

// A call, with memory that lives as long as it is under way.
struct coll {
    enum which which;
    struct comm *c;
    int n, root; // words for or of each rank
    MPI_Op op;
    uint64_t *in, *out;
    size_t words; // of out, all of which is folded
    int counts[RANKS], at[RANKS];
};

// ---- operations of ours ----

static MPI_Op ours[2]; // one commutes, the other does not
static MPI_Datatype pair;

static void each_product(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    const uint64_t *a = in;
    uint64_t *b = inout;
    for (int i = 0; i < *n; i++) b[i] = (a[i] | 1) * (b[i] | 1);
}

// x -> a x + b, one after the other
static void each_map(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    const uint64_t *f = in;
    uint64_t *g = inout;
    for (int i = 0; i < *n; i++) {
        uint64_t a = f[2 * i], b = f[2 * i + 1];
        g[2 * i + 1] += g[2 * i] * b;
        g[2 * i] *= a;
    }
}

void colls_begin(void) {
    MPI_Op_create(each_product, 1, &ours[0]);
    MPI_Op_create(each_map, 0, &ours[1]);
    MPI_Type_contiguous(2, MPI_UINT64_T, &pair);
    MPI_Type_commit(&pair);
}

void colls_end(void) {
    MPI_Op_free(&ours[0]);
    MPI_Op_free(&ours[1]);
    MPI_Type_free(&pair);
}

static MPI_Op some_op(void) {
    switch (pick(&script, 6)) {
    case 0:
        return MPI_BXOR;
    case 1:
        return MPI_BOR; // Open MPI 4.1 takes unsigned numbers for signed in MPI_MAX
    case 2:
        return ours[0];
    default:
        return MPI_SUM;
    }
}

// ---- one call ----

// The blocking call, or the one that starts it.
#define CALL(name, iname, ...) (r ? iname(__VA_ARGS__, r) : name(__VA_ARGS__))

static void call(struct coll *k, MPI_Request *r) {
    MPI_Comm comm = k->c->comm;
    const MPI_Datatype w = MPI_UINT64_T;
    int n = k->n, me = seat(k->c, 0);
    uint64_t *in = k->in, *out = k->out;
    switch (k->which) {
    case BARRIER:
        CALL(MPI_Barrier, MPI_Ibarrier, comm);
        break;
    case BCAST:
        if (me == k->root) memcpy(out, in, (size_t)n * 8);
        CALL(MPI_Bcast, MPI_Ibcast, out, n, w, k->root, comm);
        break;
    case REDUCE:
        CALL(MPI_Reduce, MPI_Ireduce, in, out, n, w, k->op, k->root, comm);
        break;
    case ALLREDUCE:
        if (k->op == ours[0] && n % 2 == 0) // the one that does not commute
            CALL(MPI_Allreduce, MPI_Iallreduce, in, out, n / 2, pair, ours[1], comm);
        else
            CALL(MPI_Allreduce, MPI_Iallreduce, in, out, n, w, k->op, comm);
        break;
    case ALLREDUCE_IN_PLACE:
        memcpy(out, in, (size_t)n * 8);
        CALL(MPI_Allreduce, MPI_Iallreduce, MPI_IN_PLACE, out, n, w, k->op, comm);
        break;
    case GATHER:
        CALL(MPI_Gather, MPI_Igather, in, n, w, out, n, w, k->root, comm);
        break;
    case GATHERV:
        CALL(MPI_Gatherv, MPI_Igatherv, in, k->counts[me], w, out, k->counts, k->at, w, k->root, comm);
        break;
    case SCATTER:
        CALL(MPI_Scatter, MPI_Iscatter, in, n, w, out, n, w, k->root, comm);
        break;
    case SCATTERV:
        CALL(MPI_Scatterv, MPI_Iscatterv, in, k->counts, k->at, w, out, k->counts[me], w, k->root, comm);
        break;
    case ALLGATHER:
        CALL(MPI_Allgather, MPI_Iallgather, in, n, w, out, n, w, comm);
        break;
    case ALLGATHERV:
        CALL(MPI_Allgatherv, MPI_Iallgatherv, in, k->counts[me], w, out, k->counts, k->at, w, comm);
        break;
    case ALLTOALL:
        CALL(MPI_Alltoall, MPI_Ialltoall, in, n, w, out, n, w, comm);
        break;
    case ALLTOALLV: // rank i sends as much to each as it receives from that one
        CALL(MPI_Alltoallv, MPI_Ialltoallv, in, k->counts, k->at, w, out, k->counts, k->at, w, comm);
        break;
    case SCAN:
        CALL(MPI_Scan, MPI_Iscan, in, out, n, w, k->op, comm);
        break;
    case EXSCAN:
        CALL(MPI_Exscan, MPI_Iexscan, in, out, n, w, k->op, comm);
        break;
    case REDUCE_SCATTER:
        CALL(MPI_Reduce_scatter, MPI_Ireduce_scatter, in, out, k->counts, w, k->op, comm);
        break;
    default:
        CALL(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, in, out, n, w, k->op, comm);
    }
}

static void prepare(struct coll *k) {
    int size = k->c->n[0];
    size_t most = (size_t)k->n * (size_t)size + 1;
    k->in = need(most * 8);
    k->out = need(most * 8);
    int me = seat(k->c, 0), at_root = k->which == REDUCE || k->which == GATHER || k->which == GATHERV;
    // Elsewhere an MPI may leave there what it likes.
    k->words = (at_root && me != k->root) || (k->which == EXSCAN && me == 0) ? 0 : most;
    for (size_t i = 0; i < most; i++) k->in[i] = mix(digest, i);
    for (int i = 0; i < size; i++) {
        // Of ranks i and j, alltoallv needs a number that both know.
        k->counts[i] = k->which == ALLTOALLV ? k->n * ((i + me) % 3) / 2 : k->n * (i % 3) / 2;
        k->at[i] = k->n * i;
    }
}

void coll_start(struct op *o, struct comm *c, int blocking) {
    struct coll k = {.c = c};
    int heavy = pick(&script, 10) == 0;
    k.which = (enum which)pick(&script, COLLS);
    k.n = 1 + some_size(heavy ? 20000 : 200);
    k.root = pick(&script, c->n[0]);
    k.op = some_op();
    memset(o, 0, sizeof *o);
    o->held = MPI_MESSAGE_NULL;
    if (seat(c, 0) < 0) return;
    prepare(&k);
    o->what = OP_COLL;
    o->coll = need(sizeof k);
    *o->coll = k;
    if (blocking) {
        call(o->coll, NULL);
        coll_finish(o);
    } else {
        call(o->coll, &o->req);
    }
}

void coll_finish(struct op *o) {
    struct coll *k = o->coll;
    for (size_t i = 0; i < k->words; i++) fold(k->out[i]);
    free(k->in);
    free(k->out);
    free(k);
    o->what = OP_NONE;
    o->coll = NULL;
}

// ---- phases ----

void phase_collectives(void) {
    struct op o;
    int same = pick(&script, 3) == 0;
    struct comm *c = some_comm();
    for (int n = between(&script, 1, 10); n > 0; n--) {
        if (!same) c = some_comm();
        dally();
        coll_start(&o, c, 1);
    }
    if (pick(&script, 4) == 0 && member(c)) // as fast as it goes
        for (int i = 0; i < 100; i++) {
            uint64_t v = mix(digest, (uint64_t)i), sum;
            if (i % 10 == 0) MPI_Barrier(c->comm);
            MPI_Allreduce(&v, &sum, 1, MPI_UINT64_T, MPI_SUM, c->comm);
            fold(sum);
        }
}

// Several under way, with messages and blocking collectives between them.
void phase_icollectives(void) {
    enum { MOST = 8 };
    struct op ops[3 * MOST];
    int n = 0;
    for (int left = between(&script, 1, MOST); left > 0; left--) {
        coll_start(&ops[n], some_comm(), 0);
        n += ops[n].what == OP_COLL;
        dally();
        int between_them = pick(&script, 6);
        if (between_them == 0) {
            struct op o;
            coll_start(&o, some_comm(), 1);
        } else if (between_them < 3) {
            struct msg m = some_msg(some_comm(), 6000);
            if (is_dst(&m)) post_recv(&ops[n++], &m, 0);
            if (is_src(&m)) post_send(&ops[n++], &m);
        }
    }
    complete(ops, n);
}

static void neighbours_once(const struct comm *c, int degree, int n, int how, int later) {
    size_t words = (size_t)degree * (size_t)n;
    uint64_t *in = need(words * 8), *out = need(words * 8);
    int counts[2 * RANKS], at[2 * RANKS];
    MPI_Request request, *r = later ? &request : NULL;
    const MPI_Datatype w = MPI_UINT64_T;
    MPI_Datatype types[2 * RANKS];
    MPI_Aint bytes[2 * RANKS];
    for (size_t i = 0; i < words; i++) in[i] = mix(digest, i);
    for (int i = 0; i < degree; i++) {
        counts[i] = n;
        at[i] = n * i;
        types[i] = w;
        bytes[i] = 8 * (MPI_Aint)at[i];
    }
    if (how == 0)
        CALL(MPI_Neighbor_allgather, MPI_Ineighbor_allgather, in, n, w, out, n, w, c->comm);
    else if (how == 1)
        CALL(MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, in, n, w, out, counts, at, w, c->comm);
    else if (how == 2)
        CALL(MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, in, n, w, out, n, w, c->comm);
    else if (how == 3)
        CALL(MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, in, counts, at, w, out, counts, at, w, c->comm);
    else
        CALL(MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, in, counts, bytes, types, out, counts, bytes,
             types, c->comm);
    dally();
    if (later) MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (size_t i = 0; i < words; i++) fold(out[i]);
    free(in);
    free(out);
}

void phase_neighbours(void) {
    struct comm *c = some_comm_of(pick(&script, 2) ? CART : GRAPH);
    for (int rounds = between(&script, 1, 5); rounds > 0; rounds--) {
        int n = 1 + some_size(3000), how = pick(&script, 5), later = pick(&script, 2);
        if (c == NULL || !member(c)) continue;
        neighbours_once(c, c->kind == CART ? 2 * c->ndims : c->degree, n, how, later);
        dally();
    }
}

// Collectives between the two sides.
void phase_inter(void) {
    struct comm *c = some_comm_of(INTER);
    for (int rounds = between(&script, 1, 6); rounds > 0; rounds--) {
        int how = pick(&script, 5), n = 1 + some_size(2000), root_side = pick(&script, 2);
        int later = pick(&script, 2);
        int root = c ? pick(&script, c->n[root_side]) : 0;
        // MPICH 4.0.2 delivers nothing of an MPI_Ibcast between groups whose root is not the first of its group.
        if (how == 1 && later) root = 0;
        if (c == NULL || !member(c)) continue;
        int side = side_of(c), me = seat(c, side);
        size_t words = (size_t)n * RANKS;
        uint64_t *in = need(words * 8), *out = need(words * 8);
        MPI_Request request, *r = later ? &request : NULL;
        const MPI_Datatype w = MPI_UINT64_T;
        int to = side != root_side ? root : me == root ? MPI_ROOT : MPI_PROC_NULL;
        for (size_t i = 0; i < words; i++) in[i] = mix(digest, i);
        if (how == 0) {
            CALL(MPI_Barrier, MPI_Ibarrier, c->comm);
        } else if (how == 1) {
            uint64_t *buf = to == MPI_ROOT ? in : out;
            CALL(MPI_Bcast, MPI_Ibcast, buf, n, w, to, c->comm);
        } else if (how == 2) {
            CALL(MPI_Allreduce, MPI_Iallreduce, in, out, n, w, MPI_SUM, c->comm);
        } else if (how == 3) {
            CALL(MPI_Allgather, MPI_Iallgather, in, n, w, out, n, w, c->comm);
        } else {
            CALL(MPI_Reduce, MPI_Ireduce, in, out, n, w, MPI_BXOR, to, c->comm);
        }
        dally();
        if (later) MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (size_t i = 0; i < words && (how != 4 || to == MPI_ROOT); i++) fold(out[i]);
        free(in);
        free(out);
    }
}
