// SPDX-License-Identifier: Apache-2.0
//
// windows.c: one-sided communication and files do what MPI says, and leave nothing behind that holds a
// checkpoint back ("save" as argument).  Prints "windows: ok" on rank 0.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "mpix_checkpoint.h"

static int size, save;

static void check_window(MPI_Win win, int *mine) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size, v = 100 + rank, got = -1, one = 1;
    MPI_Request r;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&v, 1, MPI_INT, to, 0, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    CHECK(mine[0] == 100 + from);
    OK(MPI_Get(&got, 1, MPI_INT, to, 0, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    CHECK(got == 100 + rank);
    OK(MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    if (rank == 0) CHECK(mine[1] == size);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
    OK(MPI_Fetch_and_op(&one, &got, MPI_INT, 0, 1, MPI_SUM, win));
    OK(MPI_Win_unlock(0, win));
    CHECK(got >= size && got < 2 * size);
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Rget(&got, 1, MPI_INT, to, 0, 1, MPI_INT, win, &r));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    OK(MPI_Win_flush_all(win));
    OK(MPI_Win_unlock_all(win));
    CHECK(got == 100 + rank);
    MPI_Group group, neighbor;
    OK(MPI_Win_get_group(win, &group));
    OK(MPI_Group_incl(group, 1, &to, &neighbor));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Group origin;
    OK(MPI_Group_incl(group, 1, &from, &origin));
    OK(MPI_Win_post(origin, 0, win));
    OK(MPI_Win_start(neighbor, 0, win));
    v = 200 + rank;
    OK(MPI_Put(&v, 1, MPI_INT, to, 0, 1, MPI_INT, win));
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    CHECK(mine[0] == 200 + from);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&neighbor));
    OK(MPI_Group_free(&origin));
}

static void check_attributes(MPI_Win win, void *base, MPI_Aint bytes, int flavor) {
    void *v;
    int flag;
    OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &v, &flag));
    CHECK(flag && v == base);
    OK(MPI_Win_get_attr(win, MPI_WIN_SIZE, &v, &flag));
    CHECK(flag && *(MPI_Aint *)v == bytes);
    OK(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &v, &flag));
    CHECK(flag && *(int *)v == flavor);
}

// Whether the memory at an address is shared with other processes.
static int is_shared(void *at) {
    unsigned long start, end;
    char line[512], flags[8];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%lx-%lx %7s", &start, &end, flags) == 3 && (unsigned long)at >= start &&
            (unsigned long)at < end)
            found = flags[3] == 's';
    if (f != NULL) fclose(f);
    return found;
}

// Between ranks of one node Open MPI makes windows of shared memory, in which a put is a store.
static int open_mpi_below(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    OK(MPI_Get_library_version(version, &n));
    return strncmp(version, "Open MPI", 8) == 0;
}

// Every other rank has no memory; no locks are announced, and Open MPI gives them all the same.
static void empty_parts(const char *apart) {
    MPI_Win win;
    MPI_Info info;
    MPI_Aint bytes;
    int unit, *mine, *there, nowhere = strcmp(apart, "true") == 0;
#if !defined(OPEN_MPI)
    nowhere = 1;
#endif
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "no_locks", "true"));
    OK(MPI_Info_set(info, "alloc_shared_noncontig", apart));
    OK(MPI_Win_allocate_shared(rank % 2 ? 0 : 16, 4, info, MPI_COMM_WORLD, &mine, &win));
    OK(MPI_Info_free(&info));
    CHECK(rank % 2 == 0 || (mine == NULL) == nowhere);
    for (int r = 0; r < size; r++) {
        OK(MPI_Win_shared_query(win, r, &bytes, &unit, &there));
        CHECK((bytes == 0) == r % 2);
        CHECK((there == NULL) == (r % 2 && nowhere));
    }
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));
}

static void windows(void) {
    MPI_Win win;
    int *mine;
    OK(MPI_Alloc_mem(4 * sizeof(int), MPI_INFO_NULL, &mine));
    memset(mine, 0, 4 * sizeof(int));
    OK(MPI_Win_create(mine, 4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    check_attributes(win, mine, 4 * sizeof(int), MPI_WIN_FLAVOR_CREATE);
    check_window(win, mine);
    OK(MPI_Win_free(&win));
    CHECK(win == MPI_WIN_NULL);
    OK(MPI_Free_mem(mine));
    OK(MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win));
    memset(mine, 0, 4 * sizeof(int));
    CHECK(is_shared(mine) || size == 1 || !open_mpi_below());
    check_attributes(win, mine, 4 * sizeof(int), MPI_WIN_FLAVOR_ALLOCATE);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    check_window(win, mine);
    OK(MPI_Win_free(&win));
    MPI_Aint bytes;
    int unit, *zero;
    OK(MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win));
    OK(MPI_Win_lock_all(0, win));
    *mine = rank + 5;
    OK(MPI_Win_sync(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_shared_query(win, 0, &bytes, &unit, &zero));
    CHECK(zero[0] == 5 && bytes == sizeof(int) && unit == sizeof(int));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));
    empty_parts("false");
    empty_parts("true");
}

static void files(const char *name) {
    MPI_File f;
    MPI_Status st;
    MPI_Offset where, total;
    MPI_Datatype every, etype, filetype;
    int v[4], n, class;
    char datarep[MPI_MAX_DATAREP_STRING];
    int rc = MPI_File_open(MPI_COMM_WORLD, "/nowhere/at/all", MPI_MODE_RDONLY, MPI_INFO_NULL, &f);
    CHECK(rc != MPI_SUCCESS);
    OK(MPI_Error_class(rc, &class));
    CHECK(class == MPI_ERR_NO_SUCH_FILE);
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f));
    for (int i = 0; i < 4; i++) v[i] = 10 * rank + i;
    OK(MPI_Type_vector(4, 1, size, MPI_INT, &every));
    OK(MPI_Type_commit(&every));
    OK(MPI_File_set_view(f, rank * sizeof(int), MPI_INT, every, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&every));
    OK(MPI_File_write_all(f, v, 4, MPI_INT, &st));
    OK(MPI_Get_count(&st, MPI_INT, &n));
    CHECK(n == 4);
    OK(MPI_File_get_view(f, &where, &etype, &filetype, datarep));
    CHECK(where == rank * (int)sizeof(int) && etype == MPI_INT && strcmp(datarep, "native") == 0);
    OK(MPI_Type_size(filetype, &n));
    CHECK(n == 4 * sizeof(int));
    OK(MPI_Type_free(&filetype));
    OK(MPI_File_sync(f));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_get_size(f, &total));
    CHECK(total == 4 * size * (int)sizeof(int));
    int *all = malloc(4 * size * sizeof(int));
    OK(MPI_File_read_at_all(f, 0, all, 4 * size, MPI_INT, &st));
    for (int i = 0; i < 4 * size; i++) CHECK(all[i] == i % size * 10 + i / size);
    MPI_Request r;
    OK(MPI_File_iread_at(f, size, v, 1, MPI_INT, &r));
    OK(MPI_Wait(&r, &st));
    CHECK(v[0] == 1);
    OK(MPI_File_seek(f, 2, MPI_SEEK_SET));
    OK(MPI_File_get_position(f, &where));
    CHECK(where == 2);
    free(all);
    OK(MPI_File_close(&f));
    CHECK(f == MPI_FILE_NULL);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) OK(MPI_File_delete(name, MPI_INFO_NULL));
}

int main(int argc, char **argv) {
    save = argc > 2 && strcmp(argv[2], "save") == 0;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    windows();
    files(argv[1]);
    if (save) {
        MPIX_CR_state_t state;
        OK(MPIX_Checkpoint(&state));
        CHECK(state == MPIX_CR_STATE_CHECKPOINT);
    }
    if (rank == 0) printf("windows: ok\n");
    OK(MPI_Finalize());
    return 0;
}
