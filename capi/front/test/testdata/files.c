// SPDX-License-Identifier: Apache-2.0
//
// files.c: MPI files of every sort are opened, used, saved ("save" as second argument) and used on;
// the first argument is a directory.  After the checkpoint the first run goes on, so that a restart
// finds files that were written, closed and deleted since.  Prints "files: ok" on rank 0, with
// ", restarted" after a restart.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "mpix_checkpoint.h"

static int size, saves, restarted;
static char dir[3000];

static const char *at(const char *name) {
    static char path[4000];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static MPI_Offset bytes_of(MPI_File f) {
    MPI_Offset n;
    OK(MPI_File_get_size(f, &n));
    return n;
}

static void fill(int *v, int n, int from) {
    for (int i = 0; i < n; i++) v[i] = from + i;
}

static int is_filled(const int *v, int n, int from) {
    for (int i = 0; i < n; i++)
        if (v[i] != from + i) return 0;
    return 1;
}

// ---- a view with datatypes that are freed, in a file that must not be there before ----

static MPI_File viewed;
enum { PER = 6 };

static void viewed_open(void) {
    MPI_Datatype pair, strided, every;
    int v[PER];
    OK(MPI_File_open(MPI_COMM_WORLD, at("viewed"), MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR,
                     MPI_INFO_NULL, &viewed));
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    OK(MPI_Type_commit(&pair));
    OK(MPI_Type_vector(PER / 2, 1, size, pair, &strided));
    OK(MPI_Type_create_resized(strided, 0, PER * size * (int)sizeof(int), &every));
    OK(MPI_Type_commit(&every));
    OK(MPI_Type_free(&strided));
    OK(MPI_File_set_view(viewed, 16 + rank * 2 * (int)sizeof(int), pair, every, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&every));
    OK(MPI_Type_free(&pair));
    fill(v, PER, 100 * rank);
    OK(MPI_File_write_all(viewed, v, PER, MPI_INT, MPI_STATUS_IGNORE));
}

static void viewed_check(void) {
    MPI_Offset disp, position;
    MPI_Datatype etype, filetype;
    char datarep[MPI_MAX_DATAREP_STRING];
    int n, amode, v[PER];
    OK(MPI_File_get_view(viewed, &disp, &etype, &filetype, datarep));
    CHECK(disp == 16 + rank * 2 * (int)sizeof(int) && strcmp(datarep, "native") == 0);
    OK(MPI_Type_size(filetype, &n));
    CHECK(n == PER * (int)sizeof(int));
    OK(MPI_Type_size(etype, &n));
    CHECK(n == 2 * (int)sizeof(int));
    OK(MPI_Type_free(&etype));
    OK(MPI_Type_free(&filetype));
    OK(MPI_File_get_position(viewed, &position));
    CHECK(position == PER / 2);
    OK(MPI_File_get_amode(viewed, &amode));
    CHECK(amode == (MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR));
    OK(MPI_File_read_at(viewed, 0, v, PER, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(is_filled(v, PER, 100 * rank));
    CHECK(bytes_of(viewed) == 16 + (MPI_Offset)sizeof(int) * PER * size);
}

static void viewed_go_on(void) {
    int v[PER];
    fill(v, PER, 100 * rank + PER);
    OK(MPI_File_write_all(viewed, v, PER, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_seek(viewed, 0, MPI_SEEK_SET));
    OK(MPI_File_read_all(viewed, v, PER, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(is_filled(v, PER, 100 * rank));
    OK(MPI_File_read_all(viewed, v, PER, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(is_filled(v, PER, 100 * rank + PER));
    OK(MPI_File_close(&viewed));
    CHECK(viewed == MPI_FILE_NULL);
}

// ---- a view whose type begins behind its data ----

static MPI_File behind;

static void behind_view(MPI_File f) {
    MPI_Datatype type;
    const int byte = (int)sizeof(int);
    OK(MPI_Type_create_resized(MPI_INT, byte, 3 * byte, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_File_set_view(f, 4 * byte, MPI_INT, type, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&type));
}

static MPI_File behind_new(const char *sort) {
    char name[40];
    MPI_File f;
    snprintf(name, sizeof name, "behind-%s%d", sort, rank);
    unlink(at(name)); // another run's: each MPI has an order of its own
    OK(MPI_File_open(MPI_COMM_SELF, at(name), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f));
    behind_view(f);
    return f;
}

static void behind_open(void) { behind = behind_new(""); }

static void behind_check(void) { CHECK(bytes_of(behind) == 0); }

// Once the pointer has moved, MPICH does not tell where it stands: a checkpoint says so.
static void behind_refused(void) {
    MPI_Offset position;
    MPIX_CR_state_t state;
    char why[1000] = "";
    OK(MPI_File_get_position(behind, &position));
    if (!saves || position >= 0) return;
    OK(MPIX_Checkpoint(&state));
    MPIX_Checkpoint_reason(why, sizeof why);
    CHECK(state == MPIX_CR_STATE_IGNORE && strstr(why, "begins behind its data") != NULL);
}

// What is written is written where it would have been without a checkpoint.
static void behind_go_on(void) {
    MPI_File fresh = behind_new("fresh");
    int v[2] = {5, 6}, got[20], want[20];
    MPI_Status status;
    OK(MPI_File_write(behind, v, 2, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_write(fresh, v, 2, MPI_INT, MPI_STATUS_IGNORE));
    behind_refused();
    CHECK(bytes_of(behind) > 0 && bytes_of(behind) == bytes_of(fresh));
    for (int k = 0; k < 2; k++) {
        MPI_File f = k ? fresh : behind;
        int *to = k ? want : got;
        memset(to, 0, sizeof want);
        OK(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
        OK(MPI_File_read_at(f, 0, to, 20, MPI_INT, &status));
    }
    CHECK(memcmp(got, want, sizeof want) == 0);
    OK(MPI_File_close(&fresh));
    OK(MPI_File_close(&behind));
}

// ---- a shared pointer, on a communicator that is freed ----

static MPI_File shared;

static void shared_open(void) {
    MPI_Comm odd;
    MPI_Offset position;
    int v = rank, n;
    char name[20];
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &odd));
    snprintf(name, sizeof name, "shared%d", rank % 2);
    OK(MPI_File_open(odd, at(name), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &shared));
    OK(MPI_Comm_size(odd, &n));
    OK(MPI_File_set_view(shared, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_ordered(shared, &v, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(odd));
    OK(MPI_Comm_free(&odd));
    OK(MPI_File_get_position_shared(shared, &position));
    CHECK(position == n);
}

static void shared_check(void) {
    MPI_Offset position;
    MPI_Group group;
    int n, me;
    OK(MPI_File_get_group(shared, &group));
    OK(MPI_Group_size(group, &n));
    OK(MPI_Group_rank(group, &me));
    OK(MPI_Group_free(&group));
    CHECK(me == n - 1 - rank / 2);
    OK(MPI_File_get_position_shared(shared, &position));
    CHECK(position == n);
}

static void shared_go_on(void) {
    MPI_Group group;
    int v = 1000 + rank, n, all[64];
    OK(MPI_File_get_group(shared, &group));
    OK(MPI_Group_size(group, &n));
    OK(MPI_Group_free(&group));
    OK(MPI_File_write_ordered(shared, &v, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(shared));
    OK(MPI_File_read_at_all(shared, 0, all, 2 * n, MPI_INT, MPI_STATUS_IGNORE));
    for (int i = 0; i < n; i++) { // the group has its ranks in falling order
        int r = 2 * (n - 1 - i) + rank % 2;
        CHECK(all[i] == r && all[n + i] == 1000 + r);
    }
    OK(MPI_File_close(&shared));
}

// ---- an input, with an error handler ----

static MPI_File input;
static int input_errors, null_errors;

static void count_input(MPI_File *f, int *code, ...) {
    (void)code;
    CHECK(*f == input);
    input_errors++;
}

static void count_null(MPI_File *f, int *code, ...) {
    (void)code;
    (void)f;
    null_errors++;
}

static void input_open(void) {
    MPI_Errhandler h;
    int v[8];
    if (rank == 0) {
        FILE *f = fopen(at("input"), "w");
        fill(v, 8, 50);
        CHECK(f != NULL && fwrite(v, sizeof v, 1, f) == 1 && fclose(f) == 0);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_open(MPI_COMM_SELF, at("input"), MPI_MODE_RDONLY, MPI_INFO_NULL, &input));
    OK(MPI_File_create_errhandler(count_input, &h));
    OK(MPI_File_set_errhandler(input, h));
    OK(MPI_Errhandler_free(&h));
    OK(MPI_File_read(input, v, 3, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(is_filled(v, 3, 50));
}

static void input_check(void) {
    int v = 0, errors = input_errors;
    CHECK(MPI_File_write_at(input, 0, &v, 1, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    CHECK(input_errors == errors + 1);
}

static void input_go_on(void) {
    int v[5];
    OK(MPI_File_read(input, v, 5, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(is_filled(v, 5, 53));
    OK(MPI_File_close(&input));
}

// ---- the error handler of files that are not open ----

static void null_open(void) {
    MPI_Errhandler h;
    OK(MPI_File_create_errhandler(count_null, &h));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, h));
}

static void null_check(void) {
    MPI_File f;
    int nulls = null_errors;
    CHECK(MPI_File_open(MPI_COMM_SELF, "/nowhere/at/all", MPI_MODE_RDONLY, MPI_INFO_NULL, &f) != MPI_SUCCESS);
    CHECK(MPI_File_delete("/nowhere/at/all", MPI_INFO_NULL) != MPI_SUCCESS);
    CHECK(null_errors == nulls + 2);
}

static void null_go_on(void) { OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN)); }

// ---- a file that is deleted when it is closed ----

static MPI_File scratch;

static void scratch_open(void) {
    MPI_Info info;
    int v[4];
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "cb_nodes", "1"));
    OK(MPI_File_open(MPI_COMM_WORLD, at("scratch"),
                     MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, info, &scratch));
    OK(MPI_Info_free(&info));
    fill(v, 4, 7 * rank);
    OK(MPI_File_write_at(scratch, rank * (int)sizeof v, v, 4, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(scratch));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_sync(scratch));
}

static void scratch_check(void) {
    int v[4], next = (rank + 1) % size;
    CHECK(bytes_of(scratch) == size * (int)sizeof v);
    OK(MPI_File_read_at(scratch, next * (int)sizeof v, v, 4, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(is_filled(v, 4, 7 * next));
}

static void scratch_go_on(void) {
    CHECK(access(at("scratch"), F_OK) == 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_close(&scratch));
    CHECK(access(at("scratch"), F_OK) != 0);
}

// ---- a sequential file ----

static MPI_File sequential;

static void sequential_open(void) {
    int v = rank;
    OK(MPI_File_open(MPI_COMM_WORLD, at("sequential"),
                     MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &sequential));
    OK(MPI_File_write_shared(sequential, &v, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void sequential_check(void) {
    int amode;
    OK(MPI_File_get_amode(sequential, &amode));
    CHECK(amode == (MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL));
    CHECK(bytes_of(sequential) == size * (int)sizeof(int));
}

static void sequential_go_on(void) {
    int v = rank + size, all[64], seen[64] = {0};
    OK(MPI_File_write_shared(sequential, &v, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&sequential));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    FILE *f = fopen(at("sequential"), "r");
    CHECK(f != NULL && fread(all, sizeof(int), 64, f) == (size_t)(2 * size));
    fclose(f);
    for (int i = 0; i < 2 * size; i++) {
        CHECK(all[i] >= 0 && all[i] < 2 * size && !seen[all[i]]);
        CHECK((all[i] >= size) == (i >= size));
        seen[all[i]] = 1;
    }
}

// ---- appending, atomically ----

static MPI_File appended;

static void appended_open(void) {
    double v = 1.5;
    if (rank == 0) {
        FILE *f = fopen(at("appended"), "w");
        CHECK(f != NULL && fputs("0123456789", f) >= 0 && fclose(f) == 0);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_open(MPI_COMM_WORLD, at("appended"), MPI_MODE_WRONLY | MPI_MODE_APPEND, MPI_INFO_NULL,
                     &appended));
    OK(MPI_File_set_atomicity(appended, 1));
    if (rank == 0) OK(MPI_File_write(appended, &v, 1, MPI_DOUBLE, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void appended_check(void) {
    MPI_Offset position;
    int atomic;
    OK(MPI_File_get_atomicity(appended, &atomic));
    CHECK(atomic);
    OK(MPI_File_get_position(appended, &position));
    CHECK(position == (rank == 0 ? 18 : 10));
    CHECK(bytes_of(appended) == 18);
}

static void appended_go_on(void) {
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) OK(MPI_File_write(appended, "the end", 7, MPI_CHAR, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    CHECK(bytes_of(appended) == 25);
    OK(MPI_File_close(&appended));
}

// ---- under way: a split collective, and requests ----

static MPI_File moving;
static MPI_Request requests[3];
static int split_in[4], moving_out[4], moving_in[4], all_in[4];

static void moving_open(void) {
    int v[4];
    fill(v, 4, 9 * rank);
    OK(MPI_File_open(MPI_COMM_WORLD, at("moving"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &moving));
    OK(MPI_File_set_view(moving, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_at_all(moving, 4 * rank, v, 4, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(moving));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_sync(moving));
    fill(moving_out, 4, 500 + 9 * rank);
    OK(MPI_File_read_at_all_begin(moving, 4 * rank, split_in, 4, MPI_INT));
    OK(MPI_File_iwrite_at(moving, 4 * (size + rank), moving_out, 4, MPI_INT, &requests[0]));
    OK(MPI_File_iread_at(moving, 4 * rank, moving_in, 3, MPI_INT, &requests[1]));
    OK(MPI_File_iread_at_all(moving, 4 * ((rank + 1) % size), all_in, 4, MPI_INT, &requests[2]));
}

static void moving_check(void) { CHECK(requests[0] != MPI_REQUEST_NULL && requests[2] != MPI_REQUEST_NULL); }

static void moving_go_on(void) {
    MPI_Status status, statuses[3];
    int n;
    OK(MPI_File_read_at_all_end(moving, split_in, &status));
    OK(MPI_Get_count(&status, MPI_INT, &n));
    CHECK(n == 4 && is_filled(split_in, 4, 9 * rank));
    OK(MPI_Waitall(3, requests, statuses));
    OK(MPI_Get_count(&statuses[0], MPI_INT, &n));
    CHECK(n == 4);
    OK(MPI_Get_count(&statuses[1], MPI_INT, &n));
    CHECK(n == 3 && is_filled(moving_in, 3, 9 * rank));
    OK(MPI_Get_count(&statuses[2], MPI_INT, &n));
    CHECK(n == 4 && is_filled(all_in, 4, 9 * ((rank + 1) % size)));
    memset(split_in, 0, sizeof split_in);
    OK(MPI_File_read_at(moving, 4 * (size + rank), split_in, 4, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(is_filled(split_in, 4, 500 + 9 * rank));
    OK(MPI_File_close(&moving));
}

// ---- another representation, where the MPI has it ----

static MPI_File external;
static int external_works;

static void external_open(void) {
    int v = 0x01020304 + rank;
    OK(MPI_File_open(MPI_COMM_WORLD, at("external"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
                     &external));
    external_works =
        MPI_File_set_view(external, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL) == MPI_SUCCESS;
    if (!external_works) // it must not be what the other MPI does not know
        OK(MPI_File_set_view(external, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_at_all(external, rank, &v, 1, MPI_INT, MPI_STATUS_IGNORE));
}

static void external_check(void) {
    MPI_Datatype etype, filetype;
    MPI_Offset disp;
    char datarep[MPI_MAX_DATAREP_STRING];
    OK(MPI_File_get_view(external, &disp, &etype, &filetype, datarep));
    CHECK(strcmp(datarep, external_works ? "external32" : "native") == 0);
    CHECK(etype == MPI_INT && filetype == MPI_INT);
}

static void external_go_on(void) {
    int v = 0;
    OK(MPI_File_read_at(external, rank, &v, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(v == 0x01020304 + rank);
    OK(MPI_File_close(&external));
}

// ------------------------------------------------------------------------------------------------

static const struct {
    void (*open)(void), (*check)(void), (*go_on)(void);
} zoo[] = {{viewed_open, viewed_check, viewed_go_on},
           {behind_open, behind_check, behind_go_on},
           {shared_open, shared_check, shared_go_on},
           {input_open, input_check, input_go_on},
           {scratch_open, scratch_check, scratch_go_on},
           {sequential_open, sequential_check, sequential_go_on},
           {appended_open, appended_check, appended_go_on},
           {external_open, external_check, external_go_on},
           {moving_open, moving_check, moving_go_on},
           {null_open, null_check, null_go_on}}; // last: MPICH's files do not count its users
enum { ZOO = sizeof zoo / sizeof *zoo };

int main(int argc, char **argv) {
    saves = argc > 2 && strcmp(argv[2], "save") == 0;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    snprintf(dir, sizeof dir, "%s", argv[1]);
    for (int i = 0; i < ZOO; i++) zoo[i].open();
    for (int i = 0; i < ZOO; i++) zoo[i].check();
    if (saves) {
        MPIX_CR_state_t state;
        char why[1000] = "";
        OK(MPIX_Checkpoint(&state));
        MPIX_Checkpoint_reason(why, sizeof why);
        if (state != MPIX_CR_STATE_CHECKPOINT && state != MPIX_CR_STATE_RESTART)
            fprintf(stderr, "rank %d: state %d: %s\n", rank, state, why);
        CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
        restarted = state == MPIX_CR_STATE_RESTART;
    }
    for (int i = 0; i < ZOO; i++) zoo[i].check();
    for (int i = ZOO - 1; i >= 0; i--) // Open MPI syncs no file while requests are pending
        zoo[i].go_on();
    if (rank == 0) printf("files: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
