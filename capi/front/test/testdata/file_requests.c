// SPDX-License-Identifier: Apache-2.0
//
// file_requests.c: several requests of files, and of messages among them, completed by each of the
// functions that take several; and hints.  Arguments: a file, and "save" to be saved while requests of
// the file are pending.  Prints "file_requests: ok" on rank 0, and "file_requests: ok, restarted" after a
// restart.  Under ckptrun only.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mpix_checkpoint.h"

static int size;

enum { FILES = 6, ALL = FILES + 2, EACH = 16 };

static MPI_File file;
static int out[FILES][EACH], in[FILES][EACH], sent[EACH], got[EACH];
static MPI_Request r[ALL];
static MPI_Status st[ALL];

// Reads what was written, and exchanges a message: ALL requests.
static void start(int round) {
    for (int i = 0; i < FILES; i++) {
        for (int k = 0; k < EACH; k++) out[i][k] = 10000 * round + 100 * rank + 10 * i + k;
        memset(in[i], -1, sizeof in[i]);
        OK(MPI_File_write_at(file, (MPI_Offset)(rank * FILES + i) * (MPI_Offset)sizeof out[i], out[i], EACH,
                             MPI_INT, MPI_STATUS_IGNORE));
    }
    for (int k = 0; k < EACH; k++) sent[k] = round + rank + k;
    memset(got, -1, sizeof got);
    for (int i = 0; i < FILES; i++)
        OK(MPI_File_iread_at(file, (MPI_Offset)(rank * FILES + i) * (MPI_Offset)sizeof in[i], in[i], EACH,
                             MPI_INT, &r[i]));
    OK(MPI_Irecv(got, EACH, MPI_INT, (rank + size - 1) % size, round, MPI_COMM_WORLD, &r[FILES]));
    OK(MPI_Isend(sent, EACH, MPI_INT, (rank + 1) % size, round, MPI_COMM_WORLD, &r[FILES + 1]));
}

// Each request is complete once, with its own status.
static void seen(int i, const MPI_Status *status, int *times) {
    int n = 0;
    CHECK(i >= 0 && i < ALL && times[i]++ == 0 && r[i] == MPI_REQUEST_NULL);
    if (i == FILES + 1) return;
    OK(MPI_Get_count(status, MPI_INT, &n));
    CHECK(n == EACH);
    if (i == FILES)
        CHECK(status->MPI_SOURCE == (rank + size - 1) % size && got[EACH - 1] >= EACH - 1);
    else
        CHECK(memcmp(in[i], out[i], sizeof in[i]) == 0);
}

enum { WAITANY, TESTANY, WAITSOME, TESTSOME, WAITALL, TESTALL, WAYS };

static void complete(int way) {
    int times[ALL] = {0}, index, n = 0, flag = 0, some[ALL];
    while (n < ALL) {
        int m = 0;
        if (way == WAITANY || way == TESTANY) {
            flag = 1;
            if (way == WAITANY)
                OK(MPI_Waitany(ALL, r, &index, &st[0]));
            else
                OK(MPI_Testany(ALL, r, &index, &flag, &st[0]));
            if (flag) {
                seen(index, &st[0], times);
                m = 1;
            }
        } else if (way == WAITSOME || way == TESTSOME) {
            OK(way == WAITSOME ? MPI_Waitsome(ALL, r, &m, some, st) : MPI_Testsome(ALL, r, &m, some, st));
            CHECK(m >= (way == WAITSOME) && m <= ALL - n);
            for (int k = 0; k < m; k++) seen(some[k], &st[k], times);
        } else {
            if (way == WAITALL)
                OK(MPI_Waitall(ALL, r, st));
            else
                for (flag = 0; !flag;) OK(MPI_Testall(ALL, r, &flag, st));
            for (int k = 0; k < ALL; k++) seen(k, &st[k], times);
            m = ALL;
        }
        n += m;
    }
    OK(MPI_Waitany(ALL, r, &index, &st[0])); // none is left
    CHECK(index == MPI_UNDEFINED);
    OK(MPI_Testsome(ALL, r, &n, some, st));
    CHECK(n == MPI_UNDEFINED);
}

static void every_way(void) {
    for (int way = 0; way < WAYS; way++)
        for (int round = 0; round < 3; round++) {
            start(1 + 10 * way + round);
            complete(way);
        }
}

static int value_of(const char *key, char value[64]) {
    MPI_Info info;
    int flag = 0;
    OK(MPI_File_get_info(file, &info));
    OK(MPI_Info_get(info, key, 63, value, &flag));
    OK(MPI_Info_free(&info));
    return flag;
}

// A hint that both MPIs know, and two that neither does.
static void check_hints(void) {
    char value[64];
    CHECK(value_of("cb_buffer_size", value) && strcmp(value, "1048576") == 0);
    CHECK(value_of("libckpt_first", value) && strcmp(value, "one") == 0);
    CHECK(value_of("libckpt_second", value) && strcmp(value, "two") == 0);
}

int main(int argc, char **argv) {
    int restarted = 0, save = argc > 2 && strcmp(argv[2], "save") == 0;
    MPIX_CR_state_t state;
    MPI_Info info;
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    CHECK(argc > 1);
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "cb_buffer_size", "1048576"));
    OK(MPI_Info_set(info, "libckpt_first", "one"));
    OK(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    OK(MPI_Info_delete(info, "cb_buffer_size"));
    OK(MPI_Info_delete(info, "libckpt_first"));
    OK(MPI_Info_set(info, "libckpt_second", "two"));
    OK(MPI_File_set_info(file, info));
    OK(MPI_Info_free(&info));
    check_hints();
    every_way();
    if (save) {
        start(1000);
        OK(MPIX_Checkpoint(&state));
        CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
        restarted = state == MPIX_CR_STATE_RESTART;
        check_hints();
        complete(WAITSOME);
        every_way();
        start(2000);
        OK(MPIX_Checkpoint(&state));
        CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
        restarted |= state == MPIX_CR_STATE_RESTART;
        check_hints();
        complete(TESTANY);
    }
    OK(MPI_File_close(&file));
    if (rank == 0) printf("file_requests: ok%s\n", restarted ? ", restarted" : "");
    OK(MPI_Finalize());
    return 0;
}
