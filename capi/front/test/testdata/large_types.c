// SPDX-License-Identifier: Apache-2.0
//
// large_types.c: datatypes, packing and data representations of MPI 4.0 with large counts, for MPICH, on
// two ranks or more.  With "save" and a file as arguments it is saved while the datatypes and a file
// exist, and continued.  Prints "large_types: ok" on rank 0, and "large_types: ok, restarted" after a
// restart.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

static int size;

#define W MPI_COMM_WORLD

enum { N = 64 };

static int mine[N], got[N];
static MPI_File file;

// ---- datatypes ----

enum { KINDS = 11 };

static MPI_Datatype make(int kind, MPI_Count wide) {
    MPI_Datatype t = MPI_DATATYPE_NULL, two[] = {MPI_INT, MPI_CHAR};
    const MPI_Count n[] = {1, 2}, from[] = {0, 3 + wide}, from_bytes[] = {0, 12 + wide};
    const MPI_Count whole[] = {4, 5 + wide}, part[] = {2, 2}, start[] = {1, 1};
    const int spread[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_NONE};
    const int args[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, procs[] = {2, 1};
    switch (kind) {
    case 0:
        OK(MPI_Type_contiguous_c(3 + wide, MPI_INT, &t));
        break;
    case 1:
        OK(MPI_Type_vector_c(3, 1, 2 + wide, MPI_INT, &t));
        break;
    case 2:
        OK(MPI_Type_create_hvector_c(3, 1 + wide, 8 + 4 * wide, MPI_INT, &t));
        break;
    case 3:
        OK(MPI_Type_indexed_c(2, n, from, MPI_INT, &t));
        break;
    case 4:
        OK(MPI_Type_create_hindexed_c(2, n, from_bytes, MPI_INT, &t));
        break;
    case 5:
        OK(MPI_Type_create_indexed_block_c(2, 2, from, MPI_INT, &t));
        break;
    case 6:
        OK(MPI_Type_create_hindexed_block_c(2, 2 + wide, from_bytes, MPI_INT, &t));
        break;
    case 7:
        OK(MPI_Type_create_struct_c(2, n, from_bytes, two, &t));
        break;
    case 8:
        OK(MPI_Type_create_subarray_c(2, whole, part, start, MPI_ORDER_C, MPI_INT, &t));
        break;
    case 9:
        OK(MPI_Type_create_resized_c(MPI_INT, 0, 8 + wide, &t));
        break;
    default:
        OK(MPI_Type_create_darray_c(2, 1, 2, whole, spread, args, procs, MPI_ORDER_FORTRAN, MPI_INT, &t));
    }
    OK(MPI_Type_commit(&t));
    return t;
}

static MPI_Datatype types[KINDS], nested, large;

// The integers that a datatype holds of 0, 1, 2 ..., packed.
static void pack(MPI_Datatype t, int *packed, MPI_Count *length) {
    int memory[N];
    MPI_Count n = 0;
    for (int i = 0; i < N; i++) memory[i] = i;
    *length = 0;
    OK(MPI_Pack_size_c(1, t, W, &n));
    CHECK(n >= 4);
    OK(MPI_Pack_c(memory, 1, t, packed, N * (int)sizeof(int), length, W));
    CHECK(*length <= n);
}

static void type_checks(void) {
    static const int first[KINDS] = {0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 2},
                     length[KINDS] = {12, 12, 12, 12, 12, 16, 16, 6, 16, 4, 40};
    for (int k = 0; k < KINDS; k++) {
        int packed[N], back[N], integers[N], combiner;
        MPI_Count n, ni, na, nl, nt, counts[N], size_c, lb, extent, position = 0;
        MPI_Aint addresses[N];
        MPI_Datatype inner[N];
        pack(types[k], packed, &n);
        CHECK(n == length[k] && packed[0] == first[k]);
        memset(back, -1, sizeof back);
        OK(MPI_Unpack_c(packed, n, &position, back, 1, types[k], W));
        CHECK(position == n && back[first[k]] == first[k]);
        OK(MPI_Type_size_c(types[k], &size_c));
        CHECK(size_c == n);
        OK(MPI_Type_get_extent_c(types[k], &lb, &extent));
        OK(MPI_Type_get_true_extent_c(types[k], &lb, &extent));
        OK(MPI_Type_get_envelope_c(types[k], &ni, &na, &nl, &nt, &combiner));
        CHECK(na == 0 && nl > 0 && nt == (k == 7 ? 2 : 1));
        OK(MPI_Type_get_contents_c(types[k], ni, na, nl, nt, integers, addresses, counts, inner));
        CHECK(inner[0] == MPI_INT);
        if (k == 1)
            CHECK(combiner == MPI_COMBINER_VECTOR && nl == 3 && counts[0] == 3 && counts[1] == 1 &&
                  counts[2] == 2);
        if (k == 8)
            CHECK(combiner == MPI_COMBINER_SUBARRAY && ni == 2 && nl == 6 && integers[0] == 2 &&
                  integers[1] == MPI_ORDER_C && counts[1] == 5 && counts[5] == 1);
        if (k == 10)
            CHECK(combiner == MPI_COMBINER_DARRAY && ni == 10 && integers[3] == MPI_DISTRIBUTE_BLOCK &&
                  integers[9] == MPI_ORDER_FORTRAN && counts[0] == 4 && counts[1] == 5);
        OK(MPI_Type_get_envelope_c(MPI_INT, &ni, &na, &nl, &nt, &combiner));
        CHECK(combiner == MPI_COMBINER_NAMED && nl == 0);
    }
    int combiner, integers[1];
    MPI_Count ni, na, nl, nt, counts[3];
    MPI_Aint addresses[1];
    MPI_Datatype inner;
    OK(MPI_Type_get_contents_c(nested, 0, 0, 1, 1, integers, addresses, counts, &inner));
    CHECK(counts[0] == 2);
    OK(MPI_Type_get_envelope_c(inner, &ni, &na, &nl, &nt, &combiner));
    CHECK(combiner == MPI_COMBINER_VECTOR && nl == 3);
    OK(MPI_Type_free(&inner));
}

static void external(void) {
    int out[4] = {1, 2, 3, 4}, in[4] = {0};
    char packed[64];
    MPI_Count n = 0, position = 0;
    OK(MPI_Pack_external_size_c("external32", 4, MPI_INT, &n));
    CHECK(n == 16);
    OK(MPI_Pack_external_c("external32", out, 4, MPI_INT, packed, sizeof packed, &position));
    CHECK(position == 16 && packed[3] == 1 && packed[0] == 0);
    position = 0;
    OK(MPI_Unpack_external_c("external32", packed, 16, &position, in, 4, MPI_INT));
    CHECK(position == 16 && memcmp(in, out, sizeof in) == 0);
}

// Datatypes that no int describes: what they span, and a message of one that moves no byte.
static void beyond(int native) {
    const MPI_Count big = (MPI_Count)3 << 30;
    MPI_Count lb, extent, bytes_c, n;
    MPI_Datatype t, none;
    MPI_Status st;
    MPI_Request r;
    t = make(0, big);
    OK(MPI_Type_size_c(t, &bytes_c));
    OK(MPI_Type_get_extent_c(t, &lb, &extent));
    CHECK(bytes_c == 4 * (big + 3) && lb == 0 && extent == bytes_c);
    OK(MPI_Type_free(&t));
    t = make(1, big);
    OK(MPI_Type_get_extent_c(t, &lb, &extent));
    CHECK(extent == 4 * (2 * (2 + big) + 1));
    OK(MPI_Type_free(&t));
    t = make(2, big);
    OK(MPI_Type_size_c(t, &bytes_c));
    CHECK(bytes_c == 12 * (1 + big));
    OK(MPI_Type_free(&t));
    for (int k = 3; k < 8; k++) {
        t = make(k, big);
        OK(MPI_Type_get_extent_c(t, &lb, &extent));
        CHECK(lb == 0 && extent >= big);
        OK(MPI_Type_free(&t));
    }
    t = make(8, big);
    OK(MPI_Type_size_c(t, &bytes_c));
    OK(MPI_Type_get_extent_c(t, &lb, &extent));
    CHECK(bytes_c == 16 && lb == 0 && extent == 16 * (5 + big));
    OK(MPI_Type_free(&t));
    if (native) return; // MPICH has its own ideas of messages of nothing
    OK(MPI_Type_contiguous_c(0, MPI_INT, &none));
    OK(MPI_Type_commit(&none));
    OK(MPI_Irecv_c(got, big, none, (rank + size - 1) % size, 20, W, &r));
    OK(MPI_Send_c(mine, big + 5, none, (rank + 1) % size, 20, W));
    OK(MPI_Wait(&r, &st));
    OK(MPI_Get_count_c(&st, MPI_INT, &n));
    CHECK(n == 0);
    OK(MPI_Bcast_c(mine, big, none, 0, W));
    OK(MPI_Type_free(&none));
    char text[MPI_MAX_ERROR_STRING];
    int class, length;
    OK(MPI_Comm_set_errhandler(W, MPI_ERRORS_RETURN));
    int rc = MPI_Allreduce_c(mine, got, big, MPI_INT, MPI_SUM, W);
    OK(MPI_Comm_set_errhandler(W, MPI_ERRORS_ARE_FATAL));
    OK(MPI_Error_class(rc, &class));
    OK(MPI_Error_string(rc, text, &length));
    CHECK(class == MPI_ERR_COUNT && strstr(text, "MPI_Allreduce_c") && strstr(text, "2147483647"));
}

static int no_extent(MPI_Datatype type, MPI_Aint *extent, void *extra) {
    MPI_Aint lb;
    (void)extra;
    return MPI_Type_get_extent(type, &lb, extent);
}

// A name is good once, also after a restart; views in it are not, as MPICH's own are not.
static void representations(int first) {
    int class,
        rc = MPI_Register_datarep("mine", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, no_extent, NULL);
    OK(MPI_Error_class(rc, &class));
    CHECK(class == (first ? MPI_SUCCESS : MPI_ERR_DUP_DATAREP));
    rc = MPI_Register_datarep_c("large", MPI_CONVERSION_FN_NULL_C, MPI_CONVERSION_FN_NULL_C, no_extent, NULL);
    OK(MPI_Error_class(rc, &class));
    CHECK(class == (first ? MPI_SUCCESS : MPI_ERR_DUP_DATAREP));
    rc = MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "mine", MPI_INFO_NULL);
    OK(MPI_Error_class(rc, &class));
    CHECK(class == MPI_ERR_UNSUPPORTED_DATAREP);
}

int main(int argc, char **argv) {
    int restarted = 0, save = argc > 1 && strcmp(argv[1], "save") == 0;
    const char *path = argc > 2 ? argv[2] : "large_types.dat";
    MPIX_CR_state_t state;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(W, &rank));
    OK(MPI_Comm_size(W, &size));
    OK(MPI_File_open(W, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    for (int k = 0; k < KINDS; k++) types[k] = make(k, 0);
    OK(MPI_Type_contiguous_c(2, types[1], &nested));
    OK(MPI_Type_commit(&nested));
    large = make(0, (MPI_Count)3 << 30);
    type_checks();
    external();
    beyond(!save);
    representations(1);
    if (save) {
        OK(MPIX_Checkpoint(&state));
        CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
        restarted = state == MPIX_CR_STATE_RESTART;
        type_checks();
        external();
        beyond(0);
        representations(0);
    }
    MPI_Count bytes;
    OK(MPI_Type_size_c(large, &bytes));
    CHECK(bytes == 4 * (((MPI_Count)3 << 30) + 3));
    for (int k = 0; k < KINDS; k++) OK(MPI_Type_free(&types[k]));
    OK(MPI_Type_free(&nested));
    OK(MPI_Type_free(&large));
    OK(MPI_File_close(&file));
    if (rank == 0) printf("large_types: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
