// SPDX-License-Identifier: Apache-2.0
//
// zoo.c: objects that objects.c has not, through many generations.
//
//   zoo [GENERATIONS]
//
// Each generation is saved, ends, and is continued, perhaps under another MPI; then every object is
// checked and used again, some are freed and made anew, and the next generation is saved.
#include <mpi.h>
#include <mpix_checkpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(what)                                                           \
    do                                                                        \
        if (!(what)) {                                                        \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #what); \
            MPI_Abort(MPI_COMM_WORLD, 3);                                     \
        }                                                                     \
    while (0)

static struct {
    MPI_Comm some, node, hinted, graph, inter, merged;
    MPI_Group group, empty;
    MPI_Datatype real, integer, complex_number, nested, keyed;
    MPI_Op first;
    MPI_Info info;
    int type_key, comm_key, copies, deletes, extra;
    int together; // members of node
    MPI_Errhandler errh;
    MPI_Request receive, send, early;
    int in, out, early_in, generation;
    char buffer[4096 + MPI_BSEND_OVERHEAD];
} zoo;

// The left operand, so the order of the ranks shows.
static void take_first(void *in, void *inout, int *n, MPI_Datatype *type) {
    CHECK(*type == MPI_INT);
    memcpy(inout, in, (size_t)*n * sizeof(int));
}

static int copy_key(MPI_Datatype t, int key, void *extra, void *in, void *out, int *flag) {
    (void)t;
    CHECK(key == zoo.type_key && extra == &zoo.extra);
    *(void **)out = (char *)in + 1;
    *flag = 1;
    zoo.copies++;
    return MPI_SUCCESS;
}

static int delete_key(MPI_Datatype t, int key, void *value, void *extra) {
    (void)t, (void)key, (void)value, (void)extra;
    zoo.deletes++;
    return MPI_SUCCESS;
}

static int errors;
static void note_error(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    errors++;
}

// A datatype of every constructor that nests another: 8 ints in 64 bytes.
static MPI_Datatype make_nested(void) {
    MPI_Datatype pair, sub, wide, block, part[2], whole;
    MPI_Aint at[2] = {0, 16}, where[2] = {0, 16};
    int lengths[2] = {1, 1}, sizes[1] = {4}, subs[1] = {2}, starts[1] = {1};
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
    MPI_Type_create_subarray(1, sizes, subs, starts, MPI_ORDER_C, MPI_INT, &sub);
    part[0] = pair, part[1] = sub;
    MPI_Type_create_struct(2, lengths, at, part, &wide);
    MPI_Type_create_resized(wide, 0, 32, &block);
    MPI_Type_create_hindexed_block(2, 1, where, block, &whole);
    MPI_Type_commit(&whole);
    MPI_Type_free(&pair); // what is inside lives on
    MPI_Type_free(&sub);
    MPI_Type_free(&wide);
    MPI_Type_free(&block);
    return whole;
}

// Debian's MPICH 5.0 takes each rank for a node. What was made above it stays so above another MPI.
static void split_node(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    MPI_Get_library_version(version, &n);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &zoo.node);
    MPI_Comm_size(zoo.node, &zoo.together);
    CHECK(zoo.together == size || (zoo.together == 1 && strncmp(version, "MPICH Version:      5.", 22) == 0));
}

static void make(void) {
    int all[64], degrees[1] = {1}, me[1] = {rank}, next[1] = {(rank + 1) % size};
    for (int i = 0; i < size && i < 64; i++) all[i] = size - 1 - i;
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, size - 1, all, &zoo.group); // in reverse, without rank 0
    MPI_Group_difference(zoo.group, world, &zoo.empty);
    MPI_Comm_create(MPI_COMM_WORLD, zoo.group, &zoo.some);
    MPI_Group_free(&world);
    split_node();
    MPI_Info_create(&zoo.info);
    MPI_Info_set(zoo.info, "zoo", "animals");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, zoo.info, &zoo.hinted);
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, me, degrees, next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &zoo.graph);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 4, &zoo.inter);
    MPI_Comm_free(&half); // its intercommunicator lives on
    MPI_Intercomm_merge(zoo.inter, rank % 2, &zoo.merged);
    MPI_Comm_create_errhandler(note_error, &zoo.errh);
    MPI_Comm_set_errhandler(zoo.merged, zoo.errh);
    MPI_Errhandler_free(&zoo.errh); // the communicator keeps it

    MPI_Type_create_f90_real(12, 100, &zoo.real);
    MPI_Type_create_f90_integer(9, &zoo.integer);
    MPI_Type_create_f90_complex(6, 30, &zoo.complex_number);
    zoo.nested = make_nested();
    MPI_Type_create_keyval(copy_key, delete_key, &zoo.type_key, &zoo.extra);
    MPI_Type_set_attr(zoo.nested, zoo.type_key, (void *)40);
    MPI_Type_dup(zoo.nested, &zoo.keyed);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &zoo.comm_key, NULL);
    MPI_Comm_set_attr(zoo.hinted, zoo.comm_key, &zoo.extra);
    MPI_Op_create(take_first, 0, &zoo.first);

    MPI_Recv_init(&zoo.in, 1, MPI_INT, (rank + size - 1) % size, 8, zoo.hinted, &zoo.receive);
    MPI_Bsend_init(&zoo.out, 1, MPI_INT, (rank + 1) % size, 8, zoo.hinted, &zoo.send);
    MPI_Buffer_attach(zoo.buffer, sizeof zoo.buffer);
    MPI_Irecv(&zoo.early_in, 1, MPI_INT, MPI_ANY_SOURCE, 9, zoo.merged, &zoo.early);
}

static void check_comms(void) {
    int n, m, inter, flag, in, out, weighted, key = 0;
    void *value;
    if (rank == 0) {
        CHECK(zoo.some == MPI_COMM_NULL);
    } else {
        MPI_Comm_rank(zoo.some, &n);
        CHECK(n == size - 1 - rank);
    }
    MPI_Group_size(zoo.group, &n);
    CHECK(n == size - 1 && zoo.empty == MPI_GROUP_EMPTY);
    MPI_Comm_rank(zoo.node, &n);
    MPI_Comm_size(zoo.node, &m);
    CHECK(m == zoo.together && n == (m == 1 ? 0 : size - 1 - rank));
    char text[MPI_MAX_INFO_VAL];
    MPI_Info_get(zoo.info, "zoo", sizeof text - 1, text, &flag);
    CHECK(flag && strcmp(text, "animals") == 0);
    MPI_Comm_get_attr(zoo.hinted, zoo.comm_key, &value, &flag);
    CHECK(flag && value == &zoo.extra);
    MPI_Dist_graph_neighbors_count(zoo.graph, &in, &out, &weighted);
    CHECK(in == 1 && out == 1 && !weighted);
    MPI_Neighbor_allgather(&rank, 1, MPI_INT, &key, 1, MPI_INT, zoo.graph);
    CHECK(key == (rank + size - 1) % size);
    MPI_Comm_test_inter(zoo.inter, &inter);
    MPI_Comm_remote_size(zoo.inter, &m);
    CHECK(inter && m == (size + rank % 2) / 2);
    MPI_Allreduce(&rank, &n, 1, MPI_INT, MPI_MIN, zoo.inter);
    CHECK(n == 1 - rank % 2);
    errors = 0;
    MPI_Send(&n, 1, MPI_INT, size, 1, zoo.merged);
    CHECK(errors == 1);
}

static void check_types(void) {
    int n, flag, ints, addresses, types, combiner, p[2];
    MPI_Aint low, extent;
    void *value;
    MPI_Type_size(zoo.real, &n);
    CHECK(n == 8);
    MPI_Type_get_envelope(zoo.real, &ints, &addresses, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_F90_REAL && ints == 2 && types == 0);
    MPI_Type_get_contents(zoo.real, 2, 0, 0, p, NULL, NULL);
    CHECK(p[0] == 12 && p[1] == 100);
    MPI_Type_size(zoo.integer, &n);
    CHECK(n == 4);
    MPI_Type_size(zoo.complex_number, &n);
    CHECK(n == 8);
    MPI_Datatype again;
    MPI_Type_create_f90_real(12, 100, &again);
    CHECK(again == zoo.real); // MPI: the same handle for the same arguments
    MPI_Type_size(zoo.nested, &n);
    MPI_Type_get_extent(zoo.nested, &low, &extent);
    CHECK(n == 8 * (int)sizeof(int) && low == 0 && extent == 48);
    MPI_Type_get_attr(zoo.nested, zoo.type_key, &value, &flag);
    CHECK(flag && value == (void *)40);
    MPI_Type_get_attr(zoo.keyed, zoo.type_key, &value, &flag);
    CHECK(flag && value == (void *)41);
    int copies = zoo.copies, deletes = zoo.deletes;
    MPI_Type_dup(zoo.keyed, &again);
    MPI_Type_get_attr(again, zoo.type_key, &value, &flag);
    CHECK(flag && value == (void *)42 && zoo.copies == copies + 1);
    MPI_Type_free(&again);
    CHECK(zoo.deletes == deletes + 1);
    double x = 0.5 + rank, sum = 0;
    MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, zoo.hinted);
    CHECK(sum == 0.5 * size + size * (size - 1) / 2);
}

static void check_messages(void) {
    int got = -1, commute, from = zoo.generation, ints[16] = {0}, back[16] = {0};
    MPI_Status st;
    MPI_Op_commutative(zoo.first, &commute);
    CHECK(!commute);
    MPI_Allreduce(&rank, &got, 1, MPI_INT, zoo.first, MPI_COMM_WORLD);
    CHECK(got == 0);
    for (int i = 0; i < 16; i++) ints[i] = 100 * rank + i;
    MPI_Sendrecv(ints, 1, zoo.nested, (rank + 1) % size, 2, back, 1, zoo.nested, (rank + size - 1) % size, 2,
                 zoo.graph, &st);
    static const int at[8] = {0, 2, 5, 6, 4, 6, 9, 10}; // some are written twice
    for (int i = 0; i < 8; i++) CHECK(back[at[i]] == 100 * ((rank + size - 1) % size) + at[i]);
    zoo.out = 1000 * zoo.generation + rank;
    MPI_Start(&zoo.receive);
    MPI_Start(&zoo.send);
    MPI_Wait(&zoo.send, MPI_STATUS_IGNORE);
    MPI_Wait(&zoo.receive, &st);
    CHECK(zoo.in == 1000 * zoo.generation + (rank + size - 1) % size && st.MPI_TAG == 8);
    int me;
    MPI_Comm_rank(zoo.merged, &me); // the receive that has been pending since the last one
    MPI_Send(&from, 1, MPI_INT, (me + 1) % size, 9, zoo.merged);
    MPI_Wait(&zoo.early, &st);
    CHECK(zoo.early_in == from && st.MPI_SOURCE == (me + size - 1) % size);
    MPI_Irecv(&zoo.early_in, 1, MPI_INT, MPI_ANY_SOURCE, 9, zoo.merged, &zoo.early);
}

// Ids of freed objects are given out again.
static void renew(void) {
    MPI_Type_free(&zoo.nested);
    zoo.nested = make_nested();
    MPI_Type_set_attr(zoo.nested, zoo.type_key, (void *)40);
    MPI_Comm_free(&zoo.node);
    split_node();
    MPI_Op_free(&zoo.first);
    MPI_Op_create(take_first, 0, &zoo.first);
}

static void check(void) {
    check_comms();
    check_types();
    check_messages();
    renew();
}

static void clean(void) {
    void *p;
    int n;
    MPI_Cancel(&zoo.early);
    MPI_Wait(&zoo.early, MPI_STATUS_IGNORE);
    MPI_Request_free(&zoo.receive);
    MPI_Request_free(&zoo.send);
    MPI_Buffer_detach(&p, &n);
    CHECK(p == zoo.buffer && n == (int)sizeof zoo.buffer);
    MPI_Comm *comms[] = {&zoo.some, &zoo.node, &zoo.hinted, &zoo.graph, &zoo.inter, &zoo.merged};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
        if (*comms[i] != MPI_COMM_NULL) MPI_Comm_free(comms[i]);
    MPI_Group_free(&zoo.group);
    MPI_Type_free(&zoo.nested);
    MPI_Type_free(&zoo.keyed);
    MPI_Op_free(&zoo.first);
    MPI_Info_free(&zoo.info);
    MPI_Type_free_keyval(&zoo.type_key);
    MPI_Comm_free_keyval(&zoo.comm_key);
    MPI_Finalize();
}

int main(int argc, char **argv) {
    int generations = argc > 1 ? atoi(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    make();
    check();
    while (zoo.generation < generations) {
        MPIX_CR_state_t state;
        zoo.generation++;
        MPIX_Checkpoint(&state);
        if (state == MPIX_CR_STATE_CHECKPOINT) {
            if (rank == 0) printf("zoo: generation %d is saved\n", zoo.generation);
            clean();
            return 0;
        }
        if (state != MPIX_CR_STATE_RESTART) {
            char why[1000] = "";
            MPIX_Checkpoint_reason(why, sizeof why);
            fprintf(stderr, "rank %d: %s\n", rank, why);
            MPI_Abort(MPI_COMM_WORLD, 4);
        }
        check();
    }
    if (rank == 0) printf("zoo: ok, %d generations\n", zoo.generation);
    clean();
    return 0;
}
