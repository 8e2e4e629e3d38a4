// SPDX-License-Identifier: Apache-2.0
//
// tools.c: the tools interface, before MPI_Init and after.  With "save" as argument a checkpoint
// asked for while a session or a handle is in use is refused, and one asked for when none is is
// made.  Prints "tools: ok" on rank 0, and "tools: ok, restarted" after a restart.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpix_checkpoint.h"

static int rank, save;

#define CHECK(what)                                                                   \
    do {                                                                              \
        if (!(what)) {                                                                \
            fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #what); \
            abort();                                                                  \
        }                                                                             \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

static int checkpoint(const char *refused) {
    MPIX_CR_state_t state;
    char why[1000] = "";
    if (!save) return 0;
    OK(MPIX_Checkpoint(&state));
    MPIX_Checkpoint_reason(why, sizeof why);
    if (refused != NULL) {
        if (state != MPIX_CR_STATE_IGNORE || strstr(why, refused) == NULL)
            fprintf(stderr, "rank %d: state %d, reason \"%s\", want \"%s\"\n", rank, state, why, refused);
        CHECK(state == MPIX_CR_STATE_IGNORE && strstr(why, refused) && strstr(why, "rank 1: "));
        return 0;
    }
    CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
    return state == MPIX_CR_STATE_RESTART;
}

// Every control variable says who it is, and an int that can be read has a value.
static void control(int *readable) {
    int n = 0, read = 0;
    OK(MPI_T_cvar_get_num(&n));
    CHECK(n > 10);
    for (int i = 0; i < n; i++) {
        char name[512], desc[2048];
        int length = sizeof name, more = sizeof desc, verbosity, bind, scope, index, count;
        MPI_Datatype type;
        MPI_T_enum values;
        int rc =
            MPI_T_cvar_get_info(i, name, &length, &verbosity, &type, &values, desc, &more, &bind, &scope);
        if (rc == MPI_T_ERR_INVALID_INDEX) continue;
        OK(rc);
        CHECK(verbosity >= MPI_T_VERBOSITY_USER_BASIC && verbosity <= MPI_T_VERBOSITY_MPIDEV_ALL);
        CHECK(bind >= MPI_T_BIND_NO_OBJECT && bind <= MPI_T_BIND_MPI_INFO);
        CHECK(scope >= MPI_T_SCOPE_CONSTANT && scope <= MPI_T_SCOPE_ALL_EQ);
        if (type == MPI_DATATYPE_NULL || strlen(name) + 1 != (size_t)length)
            fprintf(stderr, "variable %s: length %d\n", name, length);
        CHECK(type != MPI_DATATYPE_NULL && strlen(name) + 1 == (size_t)length);
        OK(MPI_T_cvar_get_info(i, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
        if (read < 20 && type == MPI_INT && bind == MPI_T_BIND_NO_OBJECT) {
            MPI_T_cvar_handle handle;
            int value;
            OK(MPI_T_cvar_get_index(name, &index));
            CHECK(index == i);
            OK(MPI_T_cvar_handle_alloc(i, NULL, &handle, &count));
            if (count == 1) {
                OK(MPI_T_cvar_read(handle, &value));
                read++;
                *readable = i;
            }
            OK(MPI_T_cvar_handle_free(&handle));
        }
    }
    CHECK(read > 3);
    CHECK(MPI_T_cvar_get_index("no such variable", &n) == MPI_T_ERR_INVALID_NAME);
}

static void performance(void) {
    int n = 0, count;
    MPI_T_pvar_session session;
    OK(MPI_T_pvar_get_num(&n));
    OK(MPI_T_pvar_session_create(&session));
    for (int i = 0; i < n; i++) {
        char name[512];
        int length = sizeof name, verbosity, class, bind, readonly, continuous, atomic, index;
        MPI_Datatype type;
        int rc = MPI_T_pvar_get_info(i, name, &length, &verbosity, &class, &type, NULL, NULL, NULL, &bind,
                                     &readonly, &continuous, &atomic);
        if (rc != MPI_SUCCESS) // of a component that is not in use
            continue;
        CHECK(class >= MPI_T_PVAR_CLASS_STATE && class <= MPI_T_PVAR_CLASS_GENERIC);
        CHECK(MPI_T_pvar_get_index(name, class, &index) == MPI_SUCCESS);
        MPI_Comm world = MPI_COMM_WORLD;
        MPI_T_pvar_handle handle;
        if (bind != MPI_T_BIND_NO_OBJECT && bind != MPI_T_BIND_MPI_COMM) continue;
        rc =
            MPI_T_pvar_handle_alloc(session, i, bind == MPI_T_BIND_MPI_COMM ? &world : NULL, &handle, &count);
        if (rc != MPI_SUCCESS) // one that this MPI cannot give now
            continue;
        char value[4096];
        if (!continuous) OK(MPI_T_pvar_start(session, handle));
        if (count * 8 <= (int)sizeof value) OK(MPI_T_pvar_read(session, handle, value));
        OK(MPI_T_pvar_handle_free(session, &handle));
    }
    checkpoint("MPI_T_pvar_session_create");
    OK(MPI_T_pvar_session_free(&session));
}

static void categories(void) {
    int n = 0, stamp, cvars = 0;
    OK(MPI_T_category_get_num(&n));
    OK(MPI_T_category_changed(&stamp));
    for (int i = 0; i < n; i++) {
        char name[512], desc[2048];
        int length = sizeof name, more = sizeof desc, c, p, k;
        if (MPI_T_category_get_info(i, name, &length, desc, &more, &c, &p, &k) != MPI_SUCCESS) continue;
        CHECK(c >= 0 && p >= 0 && k >= 0);
        cvars += c;
    }
    CHECK(n > 0 && cvars > 10);
}

int main(int argc, char **argv) {
    int provided, n = 0, readable = -1, before = -1;
    // A variable of which nobody may ask yet.
    CHECK(MPI_T_cvar_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    OK(MPI_T_cvar_get_num(&before));
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    save = argc > 1 && strcmp(argv[1], "save") == 0;
    control(&readable);
    performance();
    categories();
    MPI_T_cvar_handle handle;
    OK(MPI_T_cvar_handle_alloc(readable, NULL, &handle, &n));
    checkpoint("MPI_T_cvar_handle_alloc");
    OK(MPI_T_cvar_handle_free(&handle));
    int restarted = checkpoint(NULL);
    control(&readable); // initialized as before
    OK(MPI_T_finalize());
    CHECK(MPI_T_cvar_get_num(&n) == MPI_T_ERR_NOT_INITIALIZED);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) printf("tools: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
