// SPDX-License-Identifier: Apache-2.0
//
// objects.c: makes one of each MPI object, checks that all work, saves the job when it runs under
// ckptrun and is told to ("save" as argument), and checks them again: those of before and, on
// restart, those that were made again.  Prints "objects: ok" on rank 0; any failed check ends the
// job with status 1.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

static int size;

// ---- communicators ----

static MPI_Comm dup, half, cart, row, sub, inter, merged, graph, dist, again;

static void make_comms(void) {
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    OK(MPI_Comm_set_name(dup, "copy"));
    OK(MPI_Comm_split(dup, rank % 2, -rank, &half));
    int dims[2] = {0, 0}, periods[2] = {1, 0}, keep[2] = {0, 1};
    OK(MPI_Dims_create(size, 2, dims));
    OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart));
    OK(MPI_Cart_sub(cart, keep, &row));
    MPI_Group world, few;
    int first = 0;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_excl(world, 1, &first, &few));
    sub = MPI_COMM_NULL;
    if (rank > 0) OK(MPI_Comm_create_group(MPI_COMM_WORLD, few, 5, &sub));
    OK(MPI_Group_free(&few));
    OK(MPI_Group_free(&world));
    inter = merged = MPI_COMM_NULL;
    if (size > 1) {
        int me = rank % 2;
        OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, me ? (size - 1) / 2 * 2 : (size - 2) / 2 * 2 + 1, 9,
                                &inter));
        OK(MPI_Intercomm_merge(inter, me, &merged));
    }
    MPI_Request request;
    OK(MPI_Comm_idup(cart, &again, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    int *index = malloc(size * sizeof *index), *edges = malloc(size * sizeof *edges);
    for (int i = 0; i < size; i++) {
        index[i] = i + 1;
        edges[i] = (i + 1) % size;
    }
    OK(MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &graph));
    free(index);
    free(edges);
    int from = (rank + size - 1) % size, to = (rank + 1) % size;
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED,
                                      MPI_INFO_NULL, 0, &dist));
}

static int sum_over(MPI_Comm comm) {
    int one = 1, sum = 0;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    return sum;
}

static void check_comms(void) {
    int n, r, result, kind, dims[2], periods[2], coords[2], back[2];
    char name[MPI_MAX_OBJECT_NAME];
    CHECK(sum_over(MPI_COMM_WORLD) == size && sum_over(dup) == size);
    OK(MPI_Comm_get_name(dup, name, &n));
    CHECK(strcmp(name, "copy") == 0 && n == 4);
    OK(MPI_Comm_compare(MPI_COMM_WORLD, dup, &result));
    CHECK(result == MPI_CONGRUENT);
    OK(MPI_Comm_size(half, &n));
    OK(MPI_Comm_rank(half, &r));
    CHECK(n == (size + 1 - rank % 2) / 2 && sum_over(half) == n && r == n - 1 - rank / 2);
    OK(MPI_Topo_test(cart, &kind));
    CHECK(kind == MPI_CART);
    OK(MPI_Cart_get(cart, 2, dims, periods, coords));
    CHECK(dims[0] * dims[1] == size && periods[0] == 1 && periods[1] == 0);
    OK(MPI_Cart_rank(cart, coords, &r));
    OK(MPI_Comm_rank(cart, &n));
    CHECK(r == n);
    OK(MPI_Cart_coords(cart, r, 2, back));
    CHECK(back[0] == coords[0] && back[1] == coords[1]);
    int up, down, v = rank, w = -1;
    OK(MPI_Cart_shift(cart, 1, 1, &up, &down));
    CHECK((coords[1] == 0) == (up == MPI_PROC_NULL));
    MPI_Status st;
    OK(MPI_Sendrecv(&v, 1, MPI_INT, down, 3, &w, 1, MPI_INT, up, 3, cart, &st));
    CHECK(up == MPI_PROC_NULL ? w == -1 && st.MPI_SOURCE == MPI_PROC_NULL : st.MPI_SOURCE == up);
    OK(MPI_Comm_size(row, &n));
    CHECK(n == dims[1] && sum_over(row) == n);
    if (rank > 0) CHECK(sum_over(sub) == size - 1);
    if (inter != MPI_COMM_NULL) {
        int flag, remote;
        OK(MPI_Comm_test_inter(inter, &flag));
        OK(MPI_Comm_remote_size(inter, &remote));
        OK(MPI_Comm_size(inter, &n));
        CHECK(flag && n + remote == size && sum_over(inter) == remote);
        CHECK(sum_over(merged) == size);
    }
    OK(MPI_Topo_test(again, &kind));
    OK(MPI_Comm_compare(cart, again, &result));
    CHECK(kind == MPI_CART && result == MPI_CONGRUENT && sum_over(again) == size);
    OK(MPI_Graph_neighbors_count(graph, rank, &n));
    CHECK(n == 1);
    int in, out, weighted;
    OK(MPI_Dist_graph_neighbors_count(dist, &in, &out, &weighted));
    CHECK(in == 1 && out == 1 && !weighted);
    OK(MPI_Neighbor_allgather(&rank, 1, MPI_INT, &v, 1, MPI_INT, dist));
    CHECK(v == (rank + size - 1) % size);
}

// ---- datatypes ----

enum { TYPES = 12 };
static MPI_Datatype types[TYPES];

static void make_types(void) {
    int lengths[2] = {1, 2}, offsets[2] = {0, 3}, sizes[2] = {6, 6}, part[2] = {2, 3};
    int start[2] = {1, 2}, distrib[1] = {MPI_DISTRIBUTE_CYCLIC}, darg[1] = {2}, gsize[1] = {12};
    int procs[1] = {2};
    MPI_Aint where[2] = {0, 24};
    MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE}, inner;
    OK(MPI_Type_contiguous(3, MPI_INT, &types[0]));
    OK(MPI_Type_vector(3, 1, 2, MPI_INT, &types[1]));
    OK(MPI_Type_create_hvector(3, 1, 8, MPI_INT, &types[2]));
    OK(MPI_Type_indexed(2, lengths, offsets, MPI_INT, &types[3]));
    OK(MPI_Type_create_hindexed(2, lengths, where, MPI_INT, &types[4]));
    OK(MPI_Type_create_indexed_block(2, 2, offsets, MPI_INT, &types[5]));
    OK(MPI_Type_create_struct(2, lengths, where, parts, &types[6]));
    OK(MPI_Type_create_subarray(2, sizes, part, start, MPI_ORDER_C, MPI_INT, &types[7]));
    OK(MPI_Type_create_darray(2, 1, 1, gsize, distrib, darg, procs, MPI_ORDER_C, MPI_INT, &types[8]));
    OK(MPI_Type_dup(types[1], &inner));
    OK(MPI_Type_create_resized(inner, 0, 64, &types[9]));
    OK(MPI_Type_free(&inner)); // types[9] still needs it
    OK(MPI_Type_create_hindexed_block(2, 2, where, MPI_INT, &types[10]));
    OK(MPI_Type_vector(2, 1, 2, types[9], &types[11]));
    for (int i = 0; i < TYPES; i++) OK(MPI_Type_commit(&types[i]));
}

static void check_types(void) {
    static const int want[TYPES] = {12, 12, 12, 12, 12, 16, 20, 24, 24, 12, 16, 24};
    int in[64], out[64];
    for (int i = 0; i < TYPES; i++) {
        int n, nints, naddr, ntypes, combiner, elements;
        MPI_Status st;
        MPI_Aint lb, extent;
        OK(MPI_Type_size(types[i], &n));
        CHECK(n == want[i]);
        for (int k = 0; k < 64; k++) {
            in[k] = 100 * rank + k;
            out[k] = -1;
        }
        OK(MPI_Sendrecv(in, 1, types[i], rank, i, out, 1, types[i], rank, i, MPI_COMM_WORLD, &st));
        OK(MPI_Get_count(&st, types[i], &n));
        OK(MPI_Get_elements(&st, types[i], &elements));
        CHECK(n == 1 && elements == (i == 6 ? 3 : want[i] / 4) && st.MPI_TAG == i);
        int moved = 0;
        for (int k = 0; k < 64; k++) {
            CHECK(out[k] == -1 || out[k] == in[k]);
            moved += out[k] != -1;
        }
        CHECK(moved * 4 == want[i]);
        OK(MPI_Type_get_extent(types[i], &lb, &extent));
        CHECK(i != 9 || extent == 64);
        OK(MPI_Type_get_envelope(types[i], &nints, &naddr, &ntypes, &combiner));
        int *v = malloc((nints + 1) * sizeof *v);
        MPI_Aint *a = malloc((naddr + 1) * sizeof *a);
        MPI_Datatype *t = malloc((ntypes + 1) * sizeof *t);
        OK(MPI_Type_get_contents(types[i], nints, naddr, ntypes, v, a, t));
        if (i == 7) CHECK(combiner == MPI_COMBINER_SUBARRAY && v[7] == MPI_ORDER_C && t[0] == MPI_INT);
        if (i == 8) CHECK(v[4] == MPI_DISTRIBUTE_CYCLIC && v[5] == 2);
        if (i == 9) {
            CHECK(combiner == MPI_COMBINER_RESIZED && a[1] == 64);
            OK(MPI_Type_free(&t[0]));
        }
        if (i == 11) OK(MPI_Type_free(&t[0]));
        free(v), free(a), free(t);
    }
    char name[MPI_MAX_OBJECT_NAME];
    int n;
    OK(MPI_Type_get_name(MPI_DOUBLE, name, &n));
    CHECK(strcmp(name, "MPI_DOUBLE") == 0);
}

// ---- operations ----

static MPI_Op op;

static void weighted_sum(void *in, void *inout, int *len, MPI_Datatype *type) {
    int n;
    CHECK(*type == MPI_INT || *type == types[0]);
    MPI_Type_size(*type, &n);
    for (int i = 0; i < *len * n / 4; i++) ((int *)inout)[i] += 2 * ((int *)in)[i];
}

static void check_op(void) {
    int a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, commute, result = 0, triple[3] = {0};
    OK(MPI_Reduce_local(a, b, 3, MPI_INT, op));
    CHECK(b[0] == 12 && b[1] == 24 && b[2] == 36);
    OK(MPI_Op_commutative(op, &commute));
    CHECK(commute);
    OK(MPI_Allreduce(a, &result, 1, MPI_INT, op, MPI_COMM_WORLD));
    CHECK(size == 1 || result > 1);
    OK(MPI_Allreduce(a, triple, 1, types[0], op, MPI_COMM_WORLD));
}

// ---- attributes, error handlers, infos, groups ----

static int keyval, copies, deletes, errors;
static MPI_Errhandler handler;
static MPI_Info info;
static MPI_Group group;
static MPI_Group left; // of a communicator that was freed

static int copy_attr(MPI_Comm c, int k, void *extra, void *in, void *out, int *flag) {
    (void)c, (void)k;
    CHECK(extra == &keyval);
    copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attr(MPI_Comm c, int k, void *value, void *extra) {
    (void)c, (void)k, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static void on_error(MPI_Comm *comm, int *code, ...) {
    CHECK(*comm == dup);
    int class;
    MPI_Error_class(*code, &class);
    CHECK(class == MPI_ERR_RANK);
    errors++;
}

// A communicator gives its group out as often as it is asked; each handle is freed by itself, and the
// group outlives the communicator.
static void make_groups(void) {
    MPI_Comm copy;
    MPI_Group other;
    OK(MPI_Comm_group(half, &group));
    OK(MPI_Comm_dup(half, &copy));
    OK(MPI_Comm_group(copy, &left));
    OK(MPI_Comm_group(copy, &other));
    OK(MPI_Group_free(&other));
    CHECK(other == MPI_GROUP_NULL);
    OK(MPI_Comm_free(&copy));
}

static void check_groups(void) {
    int n, me, mine, same;
    MPI_Group again;
    OK(MPI_Group_size(group, &n));
    CHECK(n == (size + 1 - rank % 2) / 2);
    OK(MPI_Group_rank(left, &me));
    OK(MPI_Comm_rank(half, &mine));
    CHECK(me == mine);
    OK(MPI_Group_compare(group, left, &same));
    CHECK(same == MPI_IDENT);
    OK(MPI_Comm_group(half, &again));
    OK(MPI_Group_compare(group, again, &same));
    CHECK(same == MPI_IDENT);
    OK(MPI_Group_free(&again));
}

static void make_others(void) {
    static int value = 42;
    OK(MPI_Comm_create_keyval(copy_attr, delete_attr, &keyval, &keyval));
    OK(MPI_Comm_set_attr(dup, keyval, &value));
    OK(MPI_Comm_create_errhandler(on_error, &handler));
    OK(MPI_Comm_set_errhandler(dup, handler));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "first", "1"));
    OK(MPI_Info_set(info, "second", "two"));
    make_groups();
    OK(MPI_Op_create(weighted_sum, 1, &op));
}

static void check_others(void) {
    int *value, flag, n, *tag_ub;
    char text[64];
    MPI_Comm copy;
    OK(MPI_Comm_get_attr(dup, keyval, &value, &flag));
    CHECK(flag && *value == 42);
    copies = deletes = 0;
    OK(MPI_Comm_dup(dup, &copy));
    OK(MPI_Comm_get_attr(copy, keyval, &value, &flag));
    CHECK(flag && *value == 42 && copies == 1);
    OK(MPI_Comm_free(&copy));
    CHECK(deletes == 1 && copy == MPI_COMM_NULL);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &flag));
    CHECK(flag && *tag_ub >= 32767);
    errors = 0;
    CHECK(REFUSED(MPI_Send(&n, 1, MPI_INT, size + 5, 0, dup)) && errors == 1);
    OK(MPI_Info_get(info, "second", 63, text, &flag));
    CHECK(flag && strcmp(text, "two") == 0);
    OK(MPI_Info_get_nkeys(info, &n));
    CHECK(n == 2);
    check_groups();
}

// ---- messages ----

static void check_messages(void) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size, out[8], in[8], index, flag, n;
    MPI_Request r[8];
    MPI_Status st[8];
    for (int i = 0; i < 4; i++) {
        out[i] = rank * 10 + i;
        OK(MPI_Irecv(&in[i], 1, MPI_INT, from, i, dup, &r[i]));
    }
    for (int i = 0; i < 4; i++)
        OK(i % 2 ? MPI_Isend(&out[i], 1, MPI_INT, to, i, dup, &r[4 + i])
                 : MPI_Issend(&out[i], 1, MPI_INT, to, i, dup, &r[4 + i]));
    OK(MPI_Waitall(8, r, st));
    for (int i = 0; i < 4; i++)
        CHECK(in[i] == from * 10 + i && st[i].MPI_SOURCE == from && st[i].MPI_TAG == i &&
              r[i] == MPI_REQUEST_NULL);
    OK(MPI_Irecv(&in[0], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, dup, &r[0]));
    r[1] = MPI_REQUEST_NULL;
    OK(MPI_Send(&out[3], 1, MPI_INT, to, 17, dup));
    OK(MPI_Waitany(2, r, &index, &st[0]));
    CHECK(index == 0 && st[0].MPI_TAG == 17 && st[0].MPI_SOURCE == from);
    OK(MPI_Waitany(2, r, &index, &st[0]));
    CHECK(index == MPI_UNDEFINED && st[0].MPI_SOURCE == MPI_ANY_SOURCE);
    OK(MPI_Isend(out, 4, MPI_INT, to, 18, dup, &r[0]));
    OK(MPI_Probe(from, MPI_ANY_TAG, dup, &st[0]));
    OK(MPI_Get_count(&st[0], MPI_INT, &n));
    CHECK(n == 4 && st[0].MPI_TAG == 18);
    MPI_Message m;
    OK(MPI_Mprobe(from, 18, dup, &m, &st[0]));
    OK(MPI_Mrecv(in, 4, MPI_INT, &m, &st[0]));
    CHECK(in[3] == from * 10 + 3 && m == MPI_MESSAGE_NULL);
    do OK(MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE));
    while (!flag);
    OK(MPI_Send_init(out, 1, MPI_INT, to, 19, dup, &r[0]));
    OK(MPI_Recv_init(in, 1, MPI_INT, from, 19, dup, &r[1]));
    for (int i = 0; i < 3; i++) {
        out[0] = i;
        OK(MPI_Startall(2, r));
        OK(MPI_Waitall(2, r, st));
        CHECK(in[0] == i && r[1] != MPI_REQUEST_NULL);
    }
    OK(MPI_Request_free(&r[0]));
    OK(MPI_Request_free(&r[1]));
    out[0] = rank;
    OK(MPI_Sendrecv_replace(out, 1, MPI_INT, to, 20, from, 20, dup, &st[0]));
    CHECK(out[0] == from);
    OK(MPI_Irecv(in, 1, MPI_INT, MPI_ANY_SOURCE, 21, dup, &r[0]));
    OK(MPI_Cancel(&r[0]));
    OK(MPI_Wait(&r[0], &st[0]));
    OK(MPI_Test_cancelled(&st[0], &flag));
    CHECK(flag);
    int *all = malloc(size * sizeof *all);
    OK(MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, dup));
    for (int i = 0; i < size; i++) CHECK(all[i] == i);
    all[rank] = 7;
    OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INT, dup));
    CHECK(all[size - 1] == 7);
    OK(MPI_Ibcast(all, size, MPI_INT, 0, dup, &r[0]));
    OK(MPI_Wait(&r[0], MPI_STATUS_IGNORE));
    free(all);
}

static void check_all(void) {
    check_comms();
    check_types();
    check_op();
    check_others();
    check_messages();
}

int main(int argc, char **argv) {
    int save = argc > 1 && strcmp(argv[1], "save") == 0;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    make_comms();
    make_types();
    make_others();
    check_all();
    MPIX_CR_state_t state = MPIX_CR_STATE_IGNORE;
    if (save) {
        OK(MPIX_Checkpoint(&state));
        if (state == MPIX_CR_STATE_IGNORE || state == MPIX_CR_STATE_ERROR) {
            char why[500] = "";
            MPIX_Checkpoint_reason(why, sizeof why);
            fprintf(stderr, "rank %d: not saved: %s\n", rank, why);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    check_all();
    if (rank == 0) printf("objects: ok%s\n", state == MPIX_CR_STATE_RESTART ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
