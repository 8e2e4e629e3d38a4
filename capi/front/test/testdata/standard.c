// SPDX-License-Identifier: Apache-2.0
//
// standard.c: what is different in the standard ABI: constants that go in and come out, handles as integers, statuses, and
// functions of MPI 4.1 and 5.0.  Prints "standard: ok" on rank 0.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static int size;

static void environment(int provided) {
    int level, result, major = 0, minor = 1, value, *tag_ub, flag;
    char text[MPI_MAX_ERROR_STRING];
    OK(MPI_Query_thread(&level));
    CHECK(provided == level &&
          (level == MPI_THREAD_FUNNELED || level == MPI_THREAD_SERIALIZED || level == MPI_THREAD_MULTIPLE));
    OK(MPI_Abi_get_version(&major, &minor));
    CHECK(major == 1 && minor == 0);
    OK(MPI_Get_version(&major, &minor));
    CHECK(major == MPI_VERSION && minor == MPI_SUBVERSION);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &flag));
    CHECK(flag && *tag_ub >= 32767);
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &result));
    CHECK(result == MPI_IDENT);
    OK(MPI_Comm_compare(MPI_COMM_WORLD, comm, &result));
    CHECK(result == MPI_CONGRUENT);
    OK(MPI_Comm_compare(MPI_COMM_SELF, comm, &result));
    CHECK(result == (size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL));
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(comm)) == comm && MPI_Comm_toint(MPI_COMM_WORLD) == 257);
    CHECK(MPI_Type_fromint(MPI_Type_toint(MPI_DOUBLE)) == MPI_DOUBLE);
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    int rc = MPI_Send(&value, 1, MPI_INT, size, 0, comm);
    OK(MPI_Error_class(rc, &value));
    CHECK(value == MPI_ERR_RANK);
    rc = MPI_T_cvar_get_index("no such variable", &value);
    OK(MPI_Error_class(rc, &value));
    CHECK(value == MPI_T_ERR_NOT_INITIALIZED || value == MPI_T_ERR_INVALID_NAME);
    OK(MPI_Error_string(rc, text, &value));
    CHECK(strstr(text, "MPI_T_ERR_") != NULL);
    OK(MPI_Comm_free(&comm));
}

static void topologies(void) {
    int dims[1] = {size}, periods[1] = {1}, topology, from, to;
    MPI_Comm ring, node;
    OK(MPI_Topo_test(MPI_COMM_WORLD, &topology));
    CHECK(topology == MPI_UNDEFINED);
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring));
    OK(MPI_Topo_test(ring, &topology));
    CHECK(topology == MPI_CART);
    OK(MPI_Cart_shift(ring, 0, 1, &from, &to));
    CHECK(from == (rank + size - 1) % size && to == (rank + 1) % size);
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    OK(MPI_Comm_free(&node));
    OK(MPI_Comm_free(&ring));
}

static void datatypes(void) {
    int sizes[2] = {4, 4}, parts[2] = {2, 2}, starts[2] = {1, 1}, ni, na, nt, combiner, ints[16];
    int gsizes[1] = {16}, distribs[1] = {MPI_DISTRIBUTE_CYCLIC}, dargs[1] = {MPI_DISTRIBUTE_DFLT_DARG},
        psizes[1] = {size};
    MPI_Datatype t, old[1], pair;
    MPI_Aint unused[1];
    OK(MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &t));
    OK(MPI_Type_get_envelope(t, &ni, &na, &nt, &combiner));
    CHECK(combiner == MPI_COMBINER_SUBARRAY && ni == 8 && nt == 1);
    OK(MPI_Type_get_contents(t, ni, 1, nt, ints, unused, old));
    CHECK(ints[0] == 2 && ints[7] == MPI_ORDER_FORTRAN && old[0] == MPI_INT);
    OK(MPI_Type_free(&t));
    OK(MPI_Type_create_darray(size, rank, 1, gsizes, distribs, dargs, psizes, MPI_ORDER_C, MPI_DOUBLE, &t));
    OK(MPI_Type_get_envelope(t, &ni, &na, &nt, &combiner));
    CHECK(combiner == MPI_COMBINER_DARRAY);
    OK(MPI_Type_get_contents(t, ni, 1, nt, ints, unused, old));
    CHECK(ints[4] == MPI_DISTRIBUTE_CYCLIC && ints[5] == MPI_DISTRIBUTE_DFLT_DARG && ints[7] == MPI_ORDER_C);
    OK(MPI_Type_free(&t));
    OK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &t));
    CHECK(t != MPI_DATATYPE_NULL);
    OK(MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &pair));
    CHECK(pair == MPI_DOUBLE_INT);
    OK(MPI_Type_get_envelope(MPI_DOUBLE_INT, &ni, &na, &nt, &combiner));
    CHECK(combiner == MPI_COMBINER_NAMED);
}

static void attributes(void) {
    int key, flag, value = 7, *got = NULL;
    MPI_Comm comm;
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, &value));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_get_attr(comm, key, &got, &flag));
    CHECK(flag && got == &value);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    OK(MPI_Comm_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
}

static void statuses(void) {
    int flag, count, index, value = rank, other = -1;
    MPI_Status status, several[2];
    MPI_Request r[2];
    OK(MPI_Irecv(&other, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, &r[0]));
    OK(MPI_Isend(&value, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD, &r[1]));
    do OK(MPI_Request_get_status_all(2, r, &flag, several));
    while (!flag);
    CHECK(several[0].MPI_SOURCE == (rank + size - 1) % size && several[0].MPI_TAG == 3);
    OK(MPI_Request_get_status_any(2, r, &index, &flag, &status));
    CHECK(flag && index == 0);
    OK(MPI_Request_get_status_some(2, r, &count, (int[2]){0}, several));
    CHECK(count == 2);
    OK(MPI_Waitall(2, r, several));
    CHECK(other == (rank + size - 1) % size && r[0] == MPI_REQUEST_NULL);
    OK(MPI_Get_count(&several[0], MPI_INT, &count));
    CHECK(count == 1);
    OK(MPI_Recv(&other, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Status_set_source(&status, 5));
    OK(MPI_Status_set_tag(&status, 6));
    OK(MPI_Status_set_error(&status, MPI_ERR_TAG));
    OK(MPI_Status_set_elements_c(&status, MPI_CHAR, (MPI_Count)5000000000));
    OK(MPI_Status_get_source(&status, &value));
    OK(MPI_Status_get_tag(&status, &other));
    OK(MPI_Status_get_error(&status, &flag));
    CHECK(value == 5 && other == 6 && flag == MPI_ERR_TAG);
    MPI_Count large;
    OK(MPI_Get_count_c(&status, MPI_BYTE, &large));
    CHECK(large == 5000000000);
    OK(MPI_Status_set_cancelled(&status, 1));
    OK(MPI_Test_cancelled(&status, &flag));
    OK(MPI_Get_count_c(&status, MPI_BYTE, &large));
    CHECK(flag && large == 5000000000);
}

static void windows(void) {
    int *base, *flavor, *model, flag, value = 1, *unit;
    MPI_Win win;
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag));
    CHECK(flag && *flavor == MPI_WIN_FLAVOR_ALLOCATE);
    OK(MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag));
    CHECK(flag && *model == MPI_WIN_UNIFIED);
    OK(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &flag));
    CHECK(flag && *unit == sizeof(int));
    *base = 0;
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    OK(MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    CHECK(rank != 0 || *base == size);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    OK(MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    OK(MPI_Win_unlock(0, win));
    CHECK(value == size);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_free(&win));
}

static void files(void) {
    char name[] = "/tmp/libckpt-standard-XXXXXX";
    int amode, value = 0;
    MPI_Offset at;
    MPI_File f;
    if (rank == 0) close(mkstemp(name));
    OK(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD));
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                     MPI_INFO_NULL, &f));
    OK(MPI_File_get_amode(f, &amode));
    CHECK(amode == (MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE));
    OK(MPI_File_write_at_all(f, rank * (MPI_Offset)sizeof(int), &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(f));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_seek(f, -(MPI_Offset)sizeof(int), MPI_SEEK_END));
    OK(MPI_File_get_position(f, &at));
    CHECK(at == (size - 1) * (MPI_Offset)sizeof(int));
    OK(MPI_File_read(f, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(value == size - 1);
    OK(MPI_File_seek(f, 0, MPI_SEEK_SET));
    OK(MPI_File_seek(f, (MPI_Offset)sizeof(int), MPI_SEEK_CUR));
    OK(MPI_File_get_position(f, &at));
    CHECK(at == sizeof(int));
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_WRONLY, MPI_INFO_NULL,
                        &(MPI_File){0}) != MPI_SUCCESS);
    OK(MPI_File_close(&f));
}

int main(int argc, char **argv) {
    int provided;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    environment(provided);
    topologies();
    datatypes();
    attributes();
    statuses();
    windows();
    files();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) printf("standard: ok\n");
    OK(MPI_Finalize());
    return 0;
}
