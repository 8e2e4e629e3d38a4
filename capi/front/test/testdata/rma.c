// SPDX-License-Identifier: Apache-2.0
//
// rma.c: makes a window of each sort, checks that all work, and saves the job when it is told to
// ("save" as argument): one window with an epoch of MPI_Win_fence in which operations are under way,
// one with an epoch of MPI_Win_lock_all of one rank, the others between epochs.  Then it checks them again, on restart those that were made again.
// Before, it sees that epochs of other sorts hold a checkpoint back, with the reason.  Prints
// "rma: ok" on rank 0.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

static int size, save;
static int turn; // every check moves other values

enum { WORDS = 1024 }; // of each rank in each window

static MPI_Win created, allocated, dynamic, half_window, fenced;
static int *created_at, *allocated_at, *dynamic_at, *half_at, *fenced_at;
static MPI_Comm half;

// ---- names, hints, attributes, error handlers ----

static int keyval, plain, deletes, errors;
static MPI_Win shared, pages, lone, lone_shared;
static MPI_Errhandler handler;

static int expected = 42; // the value that is deleted

static int delete_attr(MPI_Win win, int k, void *value, void *extra) {
    CHECK(win == created && k == keyval && *(int *)value == expected && extra == &keyval);
    deletes++;
    return MPI_SUCCESS;
}

static void on_error(MPI_Win *win, int *code, ...) {
    int class;
    CHECK(*win == created);
    MPI_Error_class(*code, &class);
    CHECK(class == MPI_ERR_RANK);
    errors++;
}

static void make_extras(void) {
    static int value = 42;
    OK(MPI_Win_create_keyval(MPI_WIN_DUP_FN, MPI_WIN_NULL_DELETE_FN, &plain, NULL));
    OK(MPI_Win_set_name(created, "board"));
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_attr, &keyval, &keyval));
    OK(MPI_Win_set_attr(created, keyval, &value));
    OK(MPI_Win_create_errhandler(on_error, &handler));
    OK(MPI_Win_set_errhandler(created, handler));
    OK(MPI_Errhandler_free(&handler)); // the window has it still
    OK(MPI_Win_set_errhandler(allocated, MPI_ERRORS_RETURN));
    OK(MPI_Win_set_name(shared, "blackboard"));
    OK(MPI_Win_set_attr(shared, plain, &value));
}

static void check_extras(void) {
    char name[MPI_MAX_OBJECT_NAME];
    int n, flag, *value, result;
    MPI_Group group, all;
    OK(MPI_Win_get_name(created, name, &n));
    CHECK(strcmp(name, "board") == 0 && n == 5);
    OK(MPI_Win_get_attr(created, keyval, &value, &flag));
    CHECK(flag && *value == 42);
    errors = 0;
    CHECK(REFUSED(MPI_Win_lock(MPI_LOCK_SHARED, size + 3, 0, created)) && errors == 1);
    OK(MPI_Win_get_errhandler(created, &handler));
    OK(MPI_Win_call_errhandler(created, MPI_ERR_RANK));
    CHECK(errors == 2);
    OK(MPI_Errhandler_free(&handler));
    CHECK(REFUSED(MPI_Win_lock(MPI_LOCK_SHARED, size + 3, 0, allocated)) && errors == 2);
    OK(MPI_Win_get_errhandler(allocated, &handler));
    CHECK(handler == MPI_ERRORS_RETURN);
    OK(MPI_Win_get_name(shared, name, &n));
    CHECK(strcmp(name, "blackboard") == 0);
    OK(MPI_Win_get_attr(shared, plain, &value, &flag));
    CHECK(flag && *value == 42);
    OK(MPI_Win_get_attr(pages, plain, &value, &flag));
    CHECK(!flag);
    // A value that takes the place of another deletes that.
    static int other = 43;
    deletes = 0;
    OK(MPI_Win_set_attr(created, keyval, &other));
    CHECK(deletes == 1);
    OK(MPI_Win_get_attr(created, keyval, &value, &flag));
    CHECK(flag && value == &other);
    expected = 43;
    OK(MPI_Win_delete_attr(created, keyval));
    CHECK(deletes == 2);
    OK(MPI_Win_get_attr(created, keyval, &value, &flag));
    CHECK(!flag);
    expected = 42;
    OK(MPI_Win_set_attr(created, keyval, &expected));
    OK(MPI_Win_get_group(created, &group));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    OK(MPI_Group_compare(group, all, &result));
    CHECK(result == MPI_IDENT);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&all));
}

static void check_attributes(MPI_Win win, void *base, MPI_Aint bytes, int unit, int flavor) {
    void *v;
    int flag;
    OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &v, &flag));
    CHECK(flag && (v == base || flavor == MPI_WIN_FLAVOR_DYNAMIC));
    OK(MPI_Win_get_attr(win, MPI_WIN_SIZE, &v, &flag));
    CHECK(flag && *(MPI_Aint *)v == bytes);
    OK(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &v, &flag));
    CHECK(flag && *(int *)v == unit);
    OK(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &v, &flag));
    CHECK(flag && *(int *)v == flavor);
}

// Open MPI 5 and 6 tell neither of the two hints, nor does libckpt above them.
static int tells(void) {
    static const char openmpi[] = "Open MPI v";
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    OK(MPI_Get_library_version(version, &n));
    return strncmp(version, openmpi, sizeof openmpi - 1) != 0 || atoi(version + sizeof openmpi - 1) < 5;
}

static int says(MPI_Win win, const char *key, const char *value) {
    MPI_Info info;
    char text[64] = "";
    int flag = 0;
    OK(MPI_Win_get_info(win, &info));
    OK(MPI_Info_get(info, key, 63, text, &flag));
    OK(MPI_Info_free(&info));
    return flag && strcmp(text, value) == 0;
}

// ---- the windows ----

static void make_windows(void) {
    MPI_Info info;
    MPI_Comm gone;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "accumulate_ordering", "none"));
    // Natively MPICH 4.0 puts what is put there 4 bytes before it.
    created_at = (int *)calloc(WORDS + 1, sizeof(int)) + save;
    OK(MPI_Win_create(created_at, WORDS * sizeof(int), sizeof(int), info, MPI_COMM_WORLD, &created));
    OK(MPI_Info_free(&info));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &gone)); // a window outlives its communicator
    OK(MPI_Win_allocate(WORDS * sizeof(int), sizeof(int), MPI_INFO_NULL, gone, &allocated_at, &allocated));
    OK(MPI_Comm_free(&gone));
    memset(allocated_at, 0, WORDS * sizeof(int));
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));
    int *unused = malloc(sizeof(int));
    dynamic_at = calloc(WORDS, sizeof(int));
    OK(MPI_Win_attach(dynamic, unused, sizeof(int)));
    OK(MPI_Win_attach(dynamic, dynamic_at, WORDS * sizeof(int)));
    OK(MPI_Win_detach(dynamic, unused));
    free(unused);
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half));
    // Natively one after the other: Open MPI 4.1 gives the two of one node the same file.
    if (!save && rank % 2) OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_allocate(WORDS * sizeof(int), 1, MPI_INFO_NULL, half, &half_at, &half_window));
    if (!save && rank % 2 == 0) OK(MPI_Barrier(MPI_COMM_WORLD));
    memset(half_at, 0, WORDS * sizeof(int));
    fenced_at = calloc(WORDS, sizeof(int));
    OK(MPI_Win_create(fenced_at, WORDS * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &fenced));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

// ---- shared memory ----

static MPI_Comm node;
static int *shared_at, *pages_at, *lone_at;
static int lone_word[2];

static MPI_Aint part_of(int r) { return r == 2 ? 0 : (100 * (r + 1) + 3) * (MPI_Aint)sizeof(int); }

static void make_shared(void) {
    MPI_Info info;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    OK(MPI_Win_allocate_shared(part_of(rank), sizeof(int), MPI_INFO_NULL, node, &shared_at, &shared));
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
    OK(MPI_Win_allocate_shared(WORDS * sizeof(int), 1, info, node, &pages_at, &pages));
    OK(MPI_Info_free(&info));
    for (MPI_Aint i = 0; i < part_of(rank) / (MPI_Aint)sizeof(int); i++) shared_at[i] = 10000 * rank + (int)i;
    pages_at[7] = 70 + rank;
    // Open MPI of Debian has the former only under ckptrun.
    if (save)
        OK(MPI_Win_create(lone_word, sizeof lone_word, sizeof(int), MPI_INFO_NULL, MPI_COMM_SELF, &lone));
    OK(MPI_Win_allocate_shared(2 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_SELF, &lone_at,
                               &lone_shared));
    lone_at[1] = 500 + rank;
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void check_lone(MPI_Win win, int *at) {
    int v = turn, one = 1, got = -1;
    at[0] = 0;
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
    OK(MPI_Put(&v, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    OK(MPI_Win_flush(0, win));
    OK(MPI_Fetch_and_op(&one, &got, MPI_INT, 0, 0, MPI_SUM, win));
    OK(MPI_Win_unlock(0, win));
    CHECK(got == turn && at[0] == turn + 1);
}

static void check_shared(void) {
    MPI_Aint bytes;
    int unit, *there, *first, v = 5, got = -1;
    OK(MPI_Win_shared_query(shared, MPI_PROC_NULL, &bytes, &unit, &first));
    CHECK(bytes == part_of(0) && unit == sizeof(int));
    for (int r = 0; r < size; r++) {
        OK(MPI_Win_shared_query(shared, r, &bytes, &unit, &there));
        CHECK(bytes == part_of(r));
        CHECK(r != rank || bytes == 0 || there == shared_at);
        for (MPI_Aint i = 0; i < bytes / (MPI_Aint)sizeof(int); i++) CHECK(there[i] == 10000 * r + (int)i);
        MPI_Aint before = 0; // the parts lie behind each other
        for (int k = 0; k < r; k++) before += part_of(k) / (MPI_Aint)sizeof(int);
        CHECK(bytes == 0 || there - first == before);
        OK(MPI_Win_shared_query(pages, r, &bytes, &unit, &there));
        CHECK(bytes == WORDS * sizeof(int) && unit == 1 && there[7] == 70 + r);
    }
    // What one stores the others load.
    OK(MPI_Win_shared_query(pages, (rank + 1) % size, &bytes, &unit, &there));
    OK(MPI_Win_fence(0, pages));
    there[8] = 1000 * turn + rank;
    OK(MPI_Win_fence(0, pages));
    CHECK(pages_at[8] == 1000 * turn + (rank + size - 1) % size);
    OK(MPI_Put(&v, 1, MPI_INT, (rank + 1) % size, 9 * sizeof(int), 1, MPI_INT, pages));
    OK(MPI_Get(&got, 1, MPI_INT, (rank + 1) % size, 7 * sizeof(int), 1, MPI_INT, pages));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, pages));
    CHECK(pages_at[9] == 5 && got == 70 + (rank + 1) % size);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    pages_at[9] = 0;
    if (save) check_lone(lone, lone_word);
    check_lone(lone_shared, lone_at);
    OK(MPI_Win_shared_query(lone_shared, 0, &bytes, &unit, &there));
    CHECK(there == lone_at && bytes == 2 * sizeof(int) && unit == sizeof(int));
    CHECK(lone_at[1] == 500 + rank);
}

// ---- what works ----

static void check_fence(MPI_Comm comm, MPI_Win win, int *mine, MPI_Aint at, MPI_Aint step) {
    int me, n, got = -1, one = 1;
    OK(MPI_Comm_rank(comm, &me));
    OK(MPI_Comm_size(comm, &n));
    int to = (me + 1) % n, from = (me + n - 1) % n, v = 1000 * turn + me;
    MPI_Aint base = at;
    if (at != 0) { // a dynamic window: where the others' memory is
        MPI_Aint *all = malloc(n * sizeof *all);
        OK(MPI_Allgather(&at, 1, MPI_AINT, all, 1, MPI_AINT, comm));
        base = all[to];
        free(all);
    }
    mine[0] = mine[1] = -1;
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    OK(MPI_Put(&v, 1, MPI_INT, to, base, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    CHECK(mine[0] == 1000 * turn + from);
    OK(MPI_Get(&got, 1, MPI_INT, to, base, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    CHECK(got == v);
    OK(MPI_Accumulate(&one, 1, MPI_INT, to, base + step, 1, MPI_INT, MPI_SUM, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    CHECK(mine[1] == 0);
}

static void check_passive(MPI_Win win, int *mine) {
    int to = (rank + 1) % size, got = -1, one = 1, v = 100 * turn + rank;
    MPI_Request r;
    mine[2] = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
    OK(MPI_Fetch_and_op(&one, &got, MPI_INT, 0, 2, MPI_SUM, win));
    OK(MPI_Win_unlock(0, win));
    CHECK(got >= 0 && got < size);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Get(&got, 1, MPI_INT, 0, 2, 1, MPI_INT, win));
    OK(MPI_Win_flush(0, win));
    CHECK(got == size);
    OK(MPI_Rput(&v, 1, MPI_INT, to, 3, 1, MPI_INT, win, &r));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    OK(MPI_Win_flush_all(win));
    OK(MPI_Rget(&got, 1, MPI_INT, to, 3, 1, MPI_INT, win, &r));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    OK(MPI_Win_unlock_all(win));
    CHECK(got == v);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void groups(MPI_Win win, MPI_Group *origin, MPI_Group *target) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Group group;
    OK(MPI_Win_get_group(win, &group));
    OK(MPI_Group_incl(group, 1, &to, target));
    OK(MPI_Group_incl(group, 1, &from, origin));
    OK(MPI_Group_free(&group));
}

static void check_active(MPI_Win win, int *mine) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size, v = 10 * turn + rank;
    MPI_Group origin, target;
    groups(win, &origin, &target);
    OK(MPI_Win_post(origin, 0, win));
    OK(MPI_Win_start(target, 0, win));
    OK(MPI_Put(&v, 1, MPI_INT, to, 4, 1, MPI_INT, win));
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    CHECK(mine[4] == 10 * turn + from);
    OK(MPI_Group_free(&origin));
    OK(MPI_Group_free(&target));
}

static void check_all(void) {
    MPI_Aint here;
    turn++;
    check_attributes(created, created_at, WORDS * sizeof(int), sizeof(int), MPI_WIN_FLAVOR_CREATE);
    check_attributes(allocated, allocated_at, WORDS * sizeof(int), sizeof(int), MPI_WIN_FLAVOR_ALLOCATE);
    check_attributes(dynamic, MPI_BOTTOM, 0, 1, MPI_WIN_FLAVOR_DYNAMIC);
    check_attributes(shared, shared_at, part_of(rank), sizeof(int), MPI_WIN_FLAVOR_SHARED);
    check_attributes(pages, pages_at, WORDS * sizeof(int), 1, MPI_WIN_FLAVOR_SHARED);
    if (tells()) CHECK(says(created, "accumulate_ordering", "none"));
    if (save && tells()) // natively each MPI tells the hints that it knows
        CHECK(says(pages, "alloc_shared_noncontig", "true"));
    check_extras();
    created_at[1] = allocated_at[1] = half_at[1] = dynamic_at[1] = 0;
    check_fence(MPI_COMM_WORLD, created, created_at, 0, 1);
    check_fence(MPI_COMM_WORLD, allocated, allocated_at, 0, 1);
    check_fence(half, half_window, half_at, 0, sizeof(int));
    OK(MPI_Get_address(dynamic_at, &here));
    check_fence(MPI_COMM_WORLD, dynamic, dynamic_at, here, sizeof(int));
    check_passive(created, created_at);
    check_passive(allocated, allocated_at);
    check_active(created, created_at);
    check_active(allocated, allocated_at);
    check_shared();
}

// ---- what holds a checkpoint back ----

static void refused(const char *what) {
    MPIX_CR_state_t state;
    char why[1000] = "";
    OK(MPIX_Checkpoint(&state));
    MPIX_Checkpoint_reason(why, sizeof why);
    if (state != MPIX_CR_STATE_IGNORE || strstr(why, what) == NULL)
        fprintf(stderr, "state %d, reason \"%s\", want \"%s\" in it\n", state, why, what);
    CHECK(state == MPIX_CR_STATE_IGNORE && strstr(why, what) != NULL);
}

static void check_refusals(void) {
    MPI_Group origin, target;
    if (rank == 1) {
        OK(MPI_Win_lock(MPI_LOCK_SHARED, 2, 0, created));
    }
    refused("rank 1: window \"board\": MPI_Win_lock of rank 2");
    if (rank == 1) OK(MPI_Win_unlock(2, created));
    groups(created, &origin, &target);
    OK(MPI_Win_post(origin, 0, created));
    refused("window \"board\": MPI_Win_post");
    OK(MPI_Win_start(target, 0, created));
    refused("window \"board\": MPI_Win_start");
    OK(MPI_Win_complete(created));
    OK(MPI_Win_wait(created));
    OK(MPI_Group_free(&origin));
    OK(MPI_Group_free(&target));
}

// ----

static void free_windows(void) {
    deletes = 0;
    OK(MPI_Win_free(&created));
    CHECK(deletes == 1 && created == MPI_WIN_NULL);
    OK(MPI_Win_detach(dynamic, dynamic_at));
    OK(MPI_Win_free(&dynamic));
    OK(MPI_Win_free(&allocated));
    OK(MPI_Win_free(&half_window));
    OK(MPI_Win_free(&fenced));
    OK(MPI_Win_free(&shared));
    OK(MPI_Win_free(&pages));
    if (save) OK(MPI_Win_free(&lone));
    OK(MPI_Win_free(&lone_shared));
    OK(MPI_Comm_free(&node));
}

int main(int argc, char **argv) {
    MPIX_CR_state_t state = MPIX_CR_STATE_IGNORE;
    save = argc > 1 && strcmp(argv[1], "save") == 0;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    make_windows();
    make_shared();
    make_extras();
    check_all();
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int v = 77 + rank, got = -1, one = 1, two[2] = {801, 802}, three = 803, read = -1;
    MPI_Request pending[2];
    if (save) check_refusals();
    fenced_at[3] = 500 + rank;
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, fenced));
    OK(MPI_Put(&v, 1, MPI_INT, to, 0, 1, MPI_INT, fenced));
    OK(MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, fenced));
    OK(MPI_Get(&got, 1, MPI_INT, to, 3, 1, MPI_INT, fenced));
    if (rank == 0) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, allocated));
        allocated_at[12] = 812;
        OK(MPI_Win_unlock(0, allocated));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 2) { // the others have no epoch there
        OK(MPI_Win_lock_all(0, allocated));
        OK(MPI_Put(&two[0], 1, MPI_INT, 0, 10, 1, MPI_INT, allocated));
        OK(MPI_Accumulate(&one, 1, MPI_INT, 1, 10, 1, MPI_INT, MPI_REPLACE, allocated));
        OK(MPI_Rput(&three, 1, MPI_INT, 1, 11, 1, MPI_INT, allocated, &pending[0]));
        OK(MPI_Rget(&read, 1, MPI_INT, 0, 12, 1, MPI_INT, allocated, &pending[1]));
    }
    if (save) {
        OK(MPIX_Checkpoint(&state));
        if (state == MPIX_CR_STATE_IGNORE || state == MPIX_CR_STATE_ERROR) {
            char why[500] = "";
            MPIX_Checkpoint_reason(why, sizeof why);
            fprintf(stderr, "rank %d: not saved: %s\n", rank, why);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    OK(MPI_Accumulate(&one, 1, MPI_INT, 0, 2, 1, MPI_INT, MPI_SUM, fenced));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, fenced));
    CHECK(fenced_at[0] == 77 + from && got == 500 + to);
    CHECK(rank != 0 || (fenced_at[1] == size && fenced_at[2] == size));
    if (rank == 2) {
        OK(MPI_Waitall(2, pending, MPI_STATUSES_IGNORE));
        CHECK(read == 812);
        OK(MPI_Put(&two[1], 1, MPI_INT, 0, 11, 1, MPI_INT, allocated));
        OK(MPI_Win_unlock_all(allocated));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, allocated)); // nobody has one that excludes it
    CHECK(rank != 0 || (allocated_at[10] == 801 && allocated_at[11] == 802));
    CHECK(rank != 1 || (allocated_at[10] == 1 && allocated_at[11] == 803));
    OK(MPI_Win_unlock(rank, allocated));
    check_all();
    free_windows();
    if (rank == 0) printf("rma: ok%s\n", state == MPIX_CR_STATE_RESTART ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
