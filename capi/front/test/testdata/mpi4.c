// SPDX-License-Identifier: Apache-2.0
//
// mpi4.c: persistent collectives (of MPI 4, or of Open MPI's extension), and, where the MPI of the
// program has them, sessions, partitioned communication and MPI_Isendrecv.  With "save" as argument
// it is saved with persistent collectives inactive, and with one started, and continued.  Prints
// "mpi4: ok" on rank 0, and "mpi4: ok, restarted" after a restart.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define PERSISTENT(name) MPIX_##name##_init
#else
#define PERSISTENT(name) MPI_##name##_init
#endif

static int size;

enum { N = 64 };

// Everything here outlives a restart.
static struct {
    int in[N], out[N], sum, mine, all[N], counts[N], displs[N], pair[2 * N];
    MPI_Datatype types[N];
    MPI_Op op;
    MPI_Request r[8];
} s;

static void largest(void *in, void *inout, int *n, MPI_Datatype *type) {
    CHECK(*type == MPI_INT);
    for (int i = 0; i < *n; i++)
        if (((int *)in)[i] > ((int *)inout)[i]) ((int *)inout)[i] = ((int *)in)[i];
}

static void make(void) {
    MPI_Comm w = MPI_COMM_WORLD;
    MPI_Datatype two;
    OK(MPI_Op_create(largest, 1, &s.op));
    OK(MPI_Type_contiguous(2, MPI_INT, &two));
    OK(MPI_Type_commit(&two));
    for (int i = 0; i < size; i++) {
        s.counts[i] = 1;
        s.displs[i] = i;
        s.types[i] = MPI_INT;
    }
    OK(PERSISTENT(Barrier)(w, MPI_INFO_NULL, &s.r[0]));
    OK(PERSISTENT(Bcast)(s.in, 2, two, 1, w, MPI_INFO_NULL, &s.r[1]));
    OK(PERSISTENT(Allreduce)(&s.mine, &s.sum, 1, MPI_INT, MPI_SUM, w, MPI_INFO_NULL, &s.r[2]));
    OK(PERSISTENT(Allgatherv)(&s.mine, 1, MPI_INT, s.all, s.counts, s.displs, MPI_INT, w, MPI_INFO_NULL,
                              &s.r[3]));
    OK(PERSISTENT(Reduce)(&s.mine, s.out, 1, MPI_INT, s.op, 0, w, MPI_INFO_NULL, &s.r[4]));
    for (int i = 0; i < size; i++) // bytes, for the all-to-all with a datatype each
        s.displs[i] = i * (int)sizeof(int);
    OK(PERSISTENT(Alltoallw)(s.in + N / 2, s.counts, s.displs, s.types, s.out + N / 2, s.counts, s.displs,
                             s.types, w, MPI_INFO_NULL, &s.r[5]));
    for (int i = 0; i < size; i++) s.displs[i] = i;
    OK(MPI_Type_free(&two)); // the request keeps it
}

static void begin(int round, int k) {
    s.mine = rank + round;
    if (k == 1)
        for (int i = 0; i < 4; i++) s.in[i] = rank == 1 ? 10 * round + i : -1;
    if (k == 5)
        for (int i = 0; i < size; i++) {
            s.displs[i] = i * (int)sizeof(int);
            s.in[N / 2 + i] = 100 * rank + i + round;
        }
    OK(MPI_Start(&s.r[k]));
}

static void check(int round, int k) {
    int sum = size * (size - 1) / 2 + size * round;
    switch (k) {
    case 1:
        for (int i = 0; i < 4; i++) CHECK(s.in[i] == 10 * round + i);
        break;
    case 2:
        CHECK(s.sum == sum);
        break;
    case 3:
        for (int i = 0; i < size; i++) CHECK(s.all[i] == i + round);
        break;
    case 4:
        if (rank == 0) CHECK(s.out[0] == size - 1 + round);
        break;
    case 5:
        for (int i = 0; i < size; i++) {
            CHECK(s.out[N / 2 + i] == 100 * i + rank + round);
            s.displs[i] = i;
        }
    }
}

static void use(int round) {
    MPI_Status status, all[6];
    int flag = 0, index;
    for (int k = 0; k < 6; k++) {
        CHECK(s.r[k] != MPI_REQUEST_NULL);
        begin(round, k);
        if (k % 3 == 0) OK(MPI_Wait(&s.r[k], &status));
        for (flag = 0; k % 3 == 1 && !flag;) OK(MPI_Test(&s.r[k], &flag, &status));
        if (k % 3 == 2) {
            OK(MPI_Waitany(1, &s.r[k], &index, &status));
            CHECK(index == 0);
        }
        check(round, k);
    }
    s.mine = rank + round;
    OK(MPI_Startall(2, s.r + 2));
    OK(MPI_Waitall(2, s.r + 2, all));
    check(round, 2);
    check(round, 3);
}

static int checkpoint(const char *refused) {
    MPIX_CR_state_t state;
    char why[500] = "";
    OK(MPIX_Checkpoint(&state));
    MPIX_Checkpoint_reason(why, sizeof why);
    if (refused != NULL) {
        if (state != MPIX_CR_STATE_IGNORE || strstr(why, refused) == NULL)
            fprintf(stderr, "rank %d: state %d, reason \"%s\"\n", rank, state, why);
        CHECK(state == MPIX_CR_STATE_IGNORE && strstr(why, refused) && strstr(why, "rank 1: "));
        return 0;
    }
    if (state != MPIX_CR_STATE_CHECKPOINT && state != MPIX_CR_STATE_RESTART)
        fprintf(stderr, "rank %d: state %d, reason \"%s\"\n", rank, state, why);
    CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
    return state == MPIX_CR_STATE_RESTART;
}

#if MPI_VERSION >= 4
static void sessions(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Info info;
    char name[64], value[16];
    int n = 0, length = 0, flag, room = sizeof value, got = 0, r = rank;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &n));
    CHECK(n >= 2);
    OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &length, NULL));
    CHECK(length == (int)strlen("mpi://WORLD") + 1);
    OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &length, name));
    CHECK(strcmp(name, "mpi://WORLD") == 0);
    OK(MPI_Session_get_pset_info(session, name, &info));
    OK(MPI_Info_get_string(info, "mpi_size", &room, value, &flag));
    CHECK(flag && atoi(value) == size && room == (int)strlen(value) + 1);
    OK(MPI_Info_free(&info));
    OK(MPI_Group_from_session_pset(session, name, &group));
    OK(MPI_Comm_create_from_group(group, "test", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Allreduce(&r, &got, 1, MPI_INT, MPI_SUM, comm));
    CHECK(got == size * (size - 1) / 2);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Group_free(&group));
    OK(MPI_Session_finalize(&session));
    CHECK(session == MPI_SESSION_NULL);
}

static void isendrecv(void) {
    int to = (rank + 1) % size, from = (rank + size - 1) % size, mine = rank, got = -1;
    MPI_Request r[2];
    MPI_Status status[2];
    OK(MPI_Isendrecv(&mine, 1, MPI_INT, to, 7, &got, 1, MPI_INT, from, 7, MPI_COMM_WORLD, &r[0]));
    OK(MPI_Wait(&r[0], &status[0]));
    CHECK(got == from); // MPICH does not tell more in the status
    OK(MPI_Isendrecv_replace(&mine, 1, MPI_INT, to, 8, from, 8, MPI_COMM_WORLD, &r[0]));
    OK(MPI_Waitall(1, r, status));
    CHECK(mine == from);
}

static void partitioned(int save) {
    enum { PARTS = 4, EACH = 8 };
    int out[PARTS * EACH] = {0}, in[PARTS * EACH] = {0}, list[2] = {0, 3};
    int flag, to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Request r[2];
    MPI_Status status[2];
    OK(MPI_Psend_init(out, PARTS, EACH, MPI_INT, to, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]));
    OK(MPI_Precv_init(in, PARTS, EACH, MPI_INT, from, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &r[1]));
    for (int round = 0; round < 3; round++) {
        OK(MPI_Startall(2, r));
        for (int i = 0; i < PARTS * EACH; i++) out[i] = 1000 * rank + i + round;
        OK(MPI_Pready_range(1, 1, r[0]));
        OK(MPI_Pready(2, r[0]));
        OK(MPI_Pready_list(2, list, r[0]));
        for (flag = 0; !flag;) OK(MPI_Parrived(r[1], PARTS - 1, &flag));
        OK(MPI_Waitall(2, r, status));
        for (int i = 0; i < PARTS * EACH; i++) CHECK(in[i] == 1000 * from + i + round);
    }
    if (save) checkpoint("MPI_Psend_init");
    OK(MPI_Request_free(&r[0]));
    OK(MPI_Request_free(&r[1]));
}

static void four(int save) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    OK(MPI_Get_library_version(version, &n));
    sessions();
    isendrecv();
    if (strstr(version, "Open MPI") == NULL) // it runs below, and has none of these
        partitioned(save);
}
#else
static void four(int save) { (void)save; }
#endif

int main(int argc, char **argv) {
    int restarted = 0, save = argc > 1 && strcmp(argv[1], "save") == 0;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    make();
    use(1);
    four(save);
    if (save) {
        restarted = checkpoint(NULL);
        use(2);
        // Started by all, and looked at by nobody.
        begin(3, 2);
        restarted |= checkpoint(NULL);
        OK(MPI_Wait(&s.r[2], MPI_STATUS_IGNORE));
        check(3, 2);
        use(5);
    }
    for (int k = 0; k < 6; k++) OK(MPI_Request_free(&s.r[k]));
    OK(MPI_Op_free(&s.op));
    if (restarted) four(0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) printf("mpi4: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
