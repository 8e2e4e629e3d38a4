// SPDX-License-Identifier: Apache-2.0
//
// network.c: one of each thing that the network can hold, all at once, while the job is saved.
//
//   network DIRECTORY
//
// Every row has a part before and a part after the moment, at which all ranks compute until
// DIRECTORY/go exists.  It ends with one line "network RESULT" from rank 0.  Three ranks; rank 0 sends
// to rank 1, and rank 2 too where a row needs another sender.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 5 << 20 };

static int rank;
static MPI_Comm twin, inter;
static uint64_t digest;

static void check(int good, const char *row) {
    if (good) return;
    fprintf(stderr, "rank %d: %s\n", rank, row);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void take(const MPI_Status *s, long value) {
    digest = digest * 1000003 + (uint64_t)(s->MPI_SOURCE * 7919 + s->MPI_TAG * 31 + value);
}

static void send(int value, int to, int tag, MPI_Comm comm) { MPI_Send(&value, 1, MPI_INT, to, tag, comm); }

static int receive(int from, int tag, MPI_Comm comm, MPI_Status *s) {
    int value = -1;
    MPI_Recv(&value, 1, MPI_INT, from, tag, comm, s);
    take(s, value);
    return value;
}

// ---- the order of matching: by source and communicator, whatever the tag ----

static void order_before(void) {
    if (rank == 0)
        for (int i = 0; i < 6; i++) send(100 + i, 1, 10 + i % 2, i % 3 ? MPI_COMM_WORLD : twin);
    if (rank == 2) send(300, 1, 10, MPI_COMM_WORLD), send(301, 1, 11, MPI_COMM_WORLD);
}
static void order_after(void) {
    MPI_Status s;
    if (rank != 1) return;
    check(receive(0, MPI_ANY_TAG, twin, &s) == 100 && s.MPI_TAG == 10, "first on the duplicate");
    check(receive(MPI_ANY_SOURCE, 11, twin, &s) == 103, "second on the duplicate");
    check(receive(0, 11, MPI_COMM_WORLD, &s) == 101, "first with tag 11");
    check(receive(0, MPI_ANY_TAG, MPI_COMM_WORLD, &s) == 102, "any tag");
    MPI_Probe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &s);
    check(s.MPI_TAG == 10, "probe");
    check(receive(s.MPI_SOURCE, s.MPI_TAG, MPI_COMM_WORLD, &s) == 104, "what was probed");
    check(receive(2, MPI_ANY_TAG, MPI_COMM_WORLD, &s) == 300, "first of the other sender");
    check(receive(2, MPI_ANY_TAG, MPI_COMM_WORLD, &s) == 301, "second of the other sender");
    check(receive(0, MPI_ANY_TAG, MPI_COMM_WORLD, &s) == 105, "the last");
}

// ---- matched messages ----

static MPI_Message matched;
static MPI_Request imrecv;
static int imrecv_value;

static void matched_before(void) {
    if (rank == 0)
        send(7, 1, 20, MPI_COMM_WORLD), send(8, 1, 21, MPI_COMM_WORLD), send(9, 1, 20, MPI_COMM_WORLD);
    if (rank == 1) {
        MPI_Message m;
        MPI_Mprobe(0, 20, MPI_COMM_WORLD, &matched, MPI_STATUS_IGNORE);
        MPI_Mprobe(0, 21, MPI_COMM_WORLD, &m, MPI_STATUS_IGNORE);
        MPI_Imrecv(&imrecv_value, 1, MPI_INT, &m, &imrecv);
    }
}
static void matched_after(void) {
    MPI_Status s;
    int value;
    if (rank != 1) return;
    check(receive(0, 20, MPI_COMM_WORLD, &s) == 9, "one that was not matched");
    MPI_Mrecv(&value, 1, MPI_INT, &matched, &s);
    check(value == 7 && matched == MPI_MESSAGE_NULL, "Mrecv");
    take(&s, value);
    MPI_Wait(&imrecv, &s);
    check(imrecv_value == 8 && s.MPI_TAG == 21, "Imrecv");
    take(&s, imrecv_value);
}

// ---- requests ----

static MPI_Request cancelled, pending, persistent, ready, sync_send, sync_recv, large_send;
static int pending_value, persistent_value, ready_value, sync_value, one = 1, freed = 55;
static char *large;

static void requests_before(void) {
    static int never;
    if (rank == 1) {
        MPI_Irecv(&never, 1, MPI_INT, 0, 30, MPI_COMM_WORLD, &cancelled);
        MPI_Cancel(&cancelled);
        MPI_Irecv(&pending_value, 1, MPI_INT, MPI_ANY_SOURCE, 31, MPI_COMM_WORLD, &pending);
        MPI_Recv_init(&persistent_value, 1, MPI_INT, MPI_ANY_SOURCE, 31, MPI_COMM_WORLD, &persistent);
        MPI_Start(&persistent);
        MPI_Irecv(&ready_value, 1, MPI_INT, 0, 32, MPI_COMM_WORLD, &ready);
        MPI_Irecv(&sync_value, 1, MPI_INT, 0, 33, MPI_COMM_WORLD, &sync_recv);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Request gone;
        MPI_Rsend(&one, 1, MPI_INT, 1, 32, MPI_COMM_WORLD);
        MPI_Issend(&one, 1, MPI_INT, 1, 33, MPI_COMM_WORLD, &sync_send);
        MPI_Isend(&freed, 1, MPI_INT, 1, 34, MPI_COMM_WORLD, &gone);
        MPI_Request_free(&gone);
        large = malloc(LARGE + 13);
        memset(large, 'x', LARGE + 13);
        large[LARGE + 12] = 'y';
        MPI_Isend(large, LARGE + 13, MPI_CHAR, 1, 35, MPI_COMM_WORLD, &large_send);
    }
}
static void requests_after(void) {
    MPI_Status s;
    int flag = 0;
    if (rank == 0) {
        send(71, 1, 31, MPI_COMM_WORLD), send(72, 1, 31, MPI_COMM_WORLD);
        MPI_Wait(&sync_send, MPI_STATUS_IGNORE);
        MPI_Wait(&large_send, MPI_STATUS_IGNORE);
    }
    if (rank != 1) return;
    MPI_Wait(&cancelled, &s);
    MPI_Test_cancelled(&s, &flag);
    check(flag, "a cancelled receive");
    MPI_Wait(&pending, &s);
    check(pending_value == 71, "the receive that was posted first");
    MPI_Wait(&persistent, &s);
    check(persistent_value == 72, "the persistent one that was started after it");
    MPI_Request_free(&persistent);
    MPI_Wait(&ready, &s);
    MPI_Wait(&sync_recv, &s);
    check(ready_value == 1 && sync_value == 1, "a ready and a synchronous send");
    check(receive(0, 34, MPI_COMM_WORLD, &s) == 55, "a send whose request was freed");
    large = malloc(LARGE + 13);
    MPI_Recv(large, LARGE + 13, MPI_CHAR, 0, 35, MPI_COMM_WORLD, &s);
    MPI_Get_count(&s, MPI_CHAR, &flag);
    check(flag == LARGE + 13 && large[0] == 'x' && large[LARGE + 12] == 'y', "a large message");
    free(large);
}

// ---- buffered sends, messages to itself and of no bytes, derived datatypes ----

static char buffer[4096];
static int grid[6][4], self_value;
static MPI_Request self[2];

static void kinds_before(void) {
    MPI_Datatype column;
    int value = self_value = 1000 + rank;
    MPI_Buffer_attach(buffer, sizeof buffer);
    MPI_Isend(&self_value, 1, MPI_INT, 0, 40, MPI_COMM_SELF, &self[0]);
    MPI_Isend(&self_value, 1, MPI_INT, rank, 41, MPI_COMM_WORLD, &self[1]);
    if (rank != 0) return;
    MPI_Bsend(&value, 1, MPI_INT, 1, 42, MPI_COMM_WORLD);
    MPI_Send(NULL, 0, MPI_BYTE, 1, 43, MPI_COMM_WORLD);
    for (int i = 0; i < 24; i++) grid[i / 4][i % 4] = i;
    MPI_Type_vector(6, 1, 4, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Send(&grid[0][2], 1, column, 1, 44, MPI_COMM_WORLD);
    MPI_Type_free(&column);
}
static void kinds_after(void) {
    MPI_Status s;
    void *p;
    int n = -1;
    check(receive(0, 40, MPI_COMM_SELF, &s) == 1000 + rank, "to itself alone");
    check(receive(rank, 41, MPI_COMM_WORLD, &s) == 1000 + rank, "to itself");
    MPI_Waitall(2, self, MPI_STATUSES_IGNORE);
    MPI_Buffer_detach(&p, &n);
    check(p == buffer && n == (int)sizeof buffer, "the attached buffer");
    if (rank != 1) return;
    check(receive(0, 42, MPI_COMM_WORLD, &s) == 1000, "a buffered send");
    MPI_Recv(NULL, 0, MPI_BYTE, 0, 43, MPI_COMM_WORLD, &s);
    MPI_Get_count(&s, MPI_BYTE, &n);
    check(n == 0, "a message of no bytes");
    MPI_Datatype pairs;
    MPI_Type_vector(3, 2, 4, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    MPI_Recv(&grid[0][0], 1, pairs, 0, 44, MPI_COMM_WORLD, &s);
    MPI_Get_elements(&s, pairs, &n);
    check(n == 6 && grid[0][0] == 2 && grid[0][1] == 6 && grid[1][0] == 10 && grid[2][1] == 22, "datatypes");
    MPI_Type_free(&pairs);
}

// ---- an intercommunicator: rank 0 on one side ----

static void inter_before(void) {
    MPI_Comm side;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &side);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 50, &inter);
    MPI_Comm_free(&side);
    if (rank == 0)
        send(501, 0, 51, inter), send(502, 1, 51, inter);
    else
        send(510 + rank, 0, 52, inter);
}
static void inter_after(void) {
    MPI_Status s;
    int all = 0;
    if (rank == 0) {
        check(receive(0, 52, inter, &s) == 511 && receive(1, MPI_ANY_TAG, inter, &s) == 512,
              "over an intercommunicator");
    } else {
        check(receive(MPI_ANY_SOURCE, 51, inter, &s) == 500 + rank, "over an intercommunicator");
    }
    MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, inter);
    check(all == (rank == 0 ? 3 : 0), "a reduction between two groups");
    MPI_Comm_free(&inter);
}

// ---- what was freed while requests still use it ----

static int columns[4][6][4], left_value;
static MPI_Request freed_type[4], freed_comm;

// Every fourth integer of six, from inner datatypes that are gone before.
static MPI_Datatype column_of_six(void) {
    MPI_Datatype half, whole;
    MPI_Type_vector(3, 1, 4, MPI_INT, &half);
    MPI_Type_create_hvector(2, 1, 12 * sizeof(int), half, &whole);
    MPI_Type_free(&half);
    MPI_Type_commit(&whole);
    return whole;
}

static void freed_before(void) {
    MPI_Comm left;
    MPI_Datatype column = column_of_six(), other;
    MPI_Comm_dup(MPI_COMM_WORLD, &left);
    if (rank == 1) {
        MPI_Irecv(&columns[0][0][0], 1, column, 0, 60, MPI_COMM_WORLD, &freed_type[0]);
        MPI_Irecv(&columns[1][0][1], 1, column, 0, 60, MPI_COMM_WORLD, &freed_type[1]);
        MPI_Request_free(&freed_type[1]);
        MPI_Recv_init(&columns[2][0][2], 1, column, 0, 60, MPI_COMM_WORLD, &freed_type[2]);
        MPI_Start(&freed_type[2]);
        MPI_Irecv(&left_value, 1, MPI_INT, 0, 62, left, &freed_comm);
    }
    if (rank == 0) MPI_Send_init(&columns[3][0][0], 1, column, 1, 61, MPI_COMM_WORLD, &freed_type[3]);
    MPI_Type_free(&column);
    other = column_of_six(); // in the place of the one that was freed, if it were
    if (rank == 1) MPI_Irecv(&columns[3][0][3], 1, other, 0, 61, MPI_COMM_WORLD, &freed_type[3]);
    MPI_Type_free(&other);
    if (rank == 0) {
        for (int i = 0; i < 24; i++) columns[3][i / 4][i % 4] = i % 4 ? -1 : 600 + i / 4;
        send(620, 1, 62, left);
    }
    MPI_Comm_free(&left);
}
static void freed_after(void) {
    MPI_Status s;
    MPI_Datatype column = column_of_six();
    if (rank == 0) {
        int v[6];
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < 6; i++) v[i] = 10 * k + i;
            MPI_Send(v, 6, MPI_INT, 1, 60, MPI_COMM_WORLD);
        }
        MPI_Start(&freed_type[3]);
        MPI_Wait(&freed_type[3], MPI_STATUS_IGNORE);
        MPI_Request_free(&freed_type[3]);
    }
    if (rank == 1) {
        for (int k = 0; k < 4; k++) {
            int n = -1;
            if (k == 1) // freed: the others come after it
                continue;
            MPI_Wait(&freed_type[k], &s);
            MPI_Get_elements(&s, column, &n);
            check(n == 6 && s.MPI_TAG == 60 + k / 3, "a receive whose datatype was freed");
        }
        MPI_Request_free(&freed_type[2]);
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 24; i++)
                check(columns[k][i / 4][i % 4] == (i % 4 != k ? 0
                                                   : k == 3   ? 600 + i / 4
                                                              : 10 * k + i / 4),
                      "what it received");
        MPI_Wait(&freed_comm, &s);
        check(left_value == 620 && s.MPI_SOURCE == 0 && s.MPI_TAG == 62,
              "a receive whose communicator was freed");
        take(&s, left_value);
    }
    MPI_Type_free(&column);
}

// ---- synchronous sends: complete when their messages are received, and not before ----

enum { SYNCS = 8 };
static MPI_Request sync_sends[SYNCS]; // at rank 0, but the last
static MPI_Message sync_matched;
static int sync_data[SYNCS] = {600, 601, 602, 603, 604, 605, 606, 607};
static char *sync_large;

static void sync_send_to(int i, int to, int tag, MPI_Comm comm) {
    MPI_Issend(&sync_data[i], 1, MPI_INT, to, tag, comm, &sync_sends[i]);
}

static void sync_before(void) {
    MPI_Request gone;
    sync_sends[7] = MPI_REQUEST_NULL;
    sync_send_to(7, rank, 87, MPI_COMM_WORLD);
    if (rank == 1) MPI_Mprobe(0, 84, MPI_COMM_WORLD, &sync_matched, MPI_STATUS_IGNORE);
    if (rank != 0) return;
    sync_large = malloc(LARGE);
    memset(sync_large, 's', LARGE);
    sync_send_to(0, 1, 80, MPI_COMM_WORLD);
    send(700, 1, 80, MPI_COMM_WORLD);
    sync_send_to(1, 1, 80, MPI_COMM_WORLD);
    send(701, 1, 80, twin);
    MPI_Ssend_init(&sync_data[2], 1, MPI_INT, 1, 81, MPI_COMM_WORLD, &sync_sends[2]);
    MPI_Start(&sync_sends[2]);
    sync_send_to(3, 1, 83, inter);
    sync_send_to(4, 1, 84, MPI_COMM_WORLD);
    MPI_Issend(sync_large, LARGE, MPI_CHAR, 1, 85, MPI_COMM_WORLD, &sync_sends[5]);
    MPI_Issend(&sync_data[6], 1, MPI_INT, 1, 86, MPI_COMM_WORLD, &sync_sends[6]);
    MPI_Issend(&sync_data[6], 1, MPI_INT, 1, 86, MPI_COMM_WORLD, &gone);
    MPI_Request_free(&gone);
}

// Rank 0: the requests that are named are not complete, however one asks.
static void sync_none(const int *which, int n, const char *row) {
    MPI_Request r[SYNCS];
    int flag = 0, index, indices[SYNCS], done = 0;
    for (int k = 0; k < 50; k++) {
        for (int i = 0; i < n; i++) {
            r[i] = sync_sends[which[i]];
            MPI_Test(&r[i], &flag, MPI_STATUS_IGNORE);
            check(!flag, row);
            MPI_Request_get_status(r[i], &flag, MPI_STATUS_IGNORE);
            check(!flag, row);
        }
        MPI_Testany(n, r, &index, &flag, MPI_STATUS_IGNORE);
        check(!flag, row);
        MPI_Testsome(n, r, &done, indices, MPI_STATUSES_IGNORE);
        check(done == 0, row);
        MPI_Testall(n, r, &flag, MPI_STATUSES_IGNORE);
        check(!flag, row);
        usleep(500);
    }
}

// Rank 0 says that another may go on, which waits until it does.
static void sync_step(int to) {
    MPI_Status s;
    if (rank == 0)
        send(1, to, 89, MPI_COMM_WORLD);
    else
        receive(0, 89, MPI_COMM_WORLD, &s);
}

static void sync_after(void) {
    static const int all[] = {0, 1, 2, 3, 4, 5, 6}, others[] = {1, 3, 4, 5, 6};
    MPI_Status s;
    int value, flag;
    if (rank == 0) {
        sync_none(all, 7, "a synchronous send that nobody has received");
        sync_step(1);
        MPI_Wait(&sync_sends[0], MPI_STATUS_IGNORE);
        MPI_Wait(&sync_sends[2], MPI_STATUS_IGNORE);
        sync_none(others, 5, "a synchronous send behind one that was received");
        MPI_Request_free(&sync_sends[6]);
        MPI_Start(&sync_sends[2]);
        sync_step(1);
        sync_step(2);
        MPI_Waitall(SYNCS - 1, sync_sends, MPI_STATUSES_IGNORE);
        MPI_Request_free(&sync_sends[2]);
        free(sync_large);
    }
    if (rank == 1) {
        sync_step(1);
        check(receive(0, 80, MPI_COMM_WORLD, &s) == 600, "the first synchronous send");
        check(receive(MPI_ANY_SOURCE, 81, MPI_COMM_WORLD, &s) == 602, "a persistent synchronous send");
        sync_step(1);
        check(receive(0, 80, MPI_COMM_WORLD, &s) == 700, "a send behind a synchronous one");
        check(receive(0, 80, twin, &s) == 701, "a send on the duplicate");
        check(receive(0, 80, MPI_COMM_WORLD, &s) == 601, "the second synchronous send");
        check(receive(0, 81, MPI_COMM_WORLD, &s) == 602, "a persistent synchronous send, again");
        MPI_Mrecv(&value, 1, MPI_INT, &sync_matched, &s);
        check(value == 604, "a synchronous send that was matched");
        sync_large = malloc(LARGE);
        MPI_Recv(sync_large, LARGE, MPI_CHAR, 0, 85, MPI_COMM_WORLD, &s);
        check(sync_large[LARGE - 1] == 's', "a large synchronous send");
        free(sync_large);
        check(receive(0, 86, MPI_COMM_WORLD, &s) == 606, "before one whose request was freed");
        check(receive(0, 86, MPI_COMM_WORLD, &s) == 606, "one whose request was freed");
    }
    if (rank == 2) sync_step(2);
    if (rank == 2) check(receive(0, 83, inter, &s) == 603, "one over an intercommunicator");
    MPI_Test(&sync_sends[7], &flag, MPI_STATUS_IGNORE);
    check(!flag, "a synchronous send to itself");
    check(receive(rank, 87, MPI_COMM_WORLD, &s) == 607, "from itself");
    MPI_Wait(&sync_sends[7], MPI_STATUS_IGNORE);
}

// A call that does not return until its receiver, at the moment, goes on.
static void sync_call(const char *go) {
    int value = 650;
    if (rank != 2) return;
    MPI_Ssend(&value, 1, MPI_INT, 1, 88, MPI_COMM_WORLD);
    check(access(go, F_OK) == 0, "a call that waits for its receiver");
}
static void sync_called(void) {
    MPI_Status s;
    if (rank == 1) check(receive(2, 88, MPI_COMM_WORLD, &s) == 650, "a call that waits for its receiver");
}

int main(int argc, char **argv) {
    char path[4096];
    uint64_t sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    order_before();
    matched_before();
    requests_before();
    kinds_before();
    inter_before();
    freed_before();
    sync_before();
    snprintf(path, sizeof path, "%s/at.%d", argc > 1 ? argv[1] : ".", rank);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof path, "%s/go", argc > 1 ? argv[1] : ".");
    sync_call(path);
    while (access(path, F_OK) != 0) usleep(2000);
    sync_called();
    sync_after();
    order_after();
    matched_after();
    requests_after();
    kinds_after();
    inter_after();
    freed_after();
    MPI_Comm_free(&twin);
    MPI_Reduce(&digest, &sum, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("network %016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
