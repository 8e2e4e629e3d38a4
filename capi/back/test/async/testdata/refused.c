// SPDX-License-Identifier: Apache-2.0
//
// refused.c: rank 0 makes collective calls that MPI refuses for their arguments.  The others do not make
// them; all make good ones then.
//
//   refused DIRECTORY
//
// Rank 0 prints "NUMBER-NAME CLASS" for each.  All stay behind them until the file "done" is in DIRECTORY.
// Then rank 1 is in a barrier with rank 2, which owes it until the file "pay" is there, and rank 0 makes
// non-blocking calls when "pending" is there.  at.RANK says that a rank is there.
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int rank, size, bad;
static const char *directory;
static int number;
static MPI_Comm comm, cart;
static MPI_Win win;
static MPI_File file, readable;

// What rank 0 was told; then all make a call on what the refused one was on, and more of them.
static void told(const char *name, int rc, MPI_Comm on) {
    int class = 0, sum = 0;
    if (rank == 0) {
        MPI_Error_class(rc, &class);
        printf("%d-%s %d\n", number, name, class);
        fflush(stdout);
        bad += rc == MPI_SUCCESS;
    }
    number++;
    for (int i = 0; i < 2; i++) {
        MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, on);
        bad += sum != size * number;
        MPI_Bcast(&sum, 1, MPI_INT, size - 1, on);
    }
}
#define ON(comm, name, call) told(#name, rank == 0 ? (call) : MPI_SUCCESS, comm)
#define REFUSED(name, call) ON(comm, name, call)

static void plain(void) {
    int in[8] = {0}, out[64];
    REFUSED(Bcast, MPI_Bcast(in, -1, MPI_INT, 0, comm));
    REFUSED(Bcast, MPI_Bcast(in, 1, MPI_INT, 99, comm));
    REFUSED(Bcast, MPI_Bcast(in, 1, MPI_DATATYPE_NULL, 0, comm));
    REFUSED(Allreduce, MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, comm));
    REFUSED(Reduce, MPI_Reduce(in, out, 1, MPI_INT, MPI_OP_NULL, 0, comm));
    REFUSED(Gather, MPI_Gather(in, 1, MPI_INT, out, 1, MPI_INT, -7, comm));
    REFUSED(Scatter, MPI_Scatter(in, 1, MPI_INT, out, 1, MPI_INT, 99, comm));
    REFUSED(Allgather, MPI_Allgather(in, 1, MPI_INT, out, -1, MPI_INT, comm));
    REFUSED(Alltoall, MPI_Alltoall(in, -1, MPI_INT, out, 1, MPI_INT, comm));
    REFUSED(Scan, MPI_Scan(in, out, 1, MPI_INT, MPI_OP_NULL, comm));
    REFUSED(Exscan, MPI_Exscan(in, out, 1, MPI_INT, MPI_OP_NULL, comm));
    REFUSED(Reduce_scatter_block, MPI_Reduce_scatter_block(in, out, 1, MPI_INT, MPI_OP_NULL, comm));
    ON(cart, Neighbor_allgather, MPI_Neighbor_allgather(in, -1, MPI_INT, out, 1, MPI_INT, cart));
    ON(cart, Neighbor_alltoall, MPI_Neighbor_alltoall(in, 1, MPI_INT, out, -1, MPI_INT, cart));
}

static void nonblocking(void) {
    int in[8] = {0}, out[64];
    MPI_Request q;
    REFUSED(Ibcast, MPI_Ibcast(in, -1, MPI_INT, 0, comm, &q));
    REFUSED(Iallreduce, MPI_Iallreduce(in, out, 1, MPI_INT, MPI_OP_NULL, comm, &q));
    REFUSED(Igather, MPI_Igather(in, 1, MPI_INT, out, 1, MPI_INT, 77, comm, &q));
    REFUSED(Ialltoall, MPI_Ialltoall(in, -1, MPI_INT, out, 1, MPI_INT, comm, &q));
    ON(cart, Ineighbor_alltoall, MPI_Ineighbor_alltoall(in, -1, MPI_INT, out, 1, MPI_INT, cart, &q));
}

static void communicators(void) {
    int one[2] = {1, 1}, none[2] = {0, 0};
    MPI_Comm made;
    MPI_Group all;
    MPI_Comm_group(comm, &all);
    REFUSED(Comm_create, MPI_Comm_create(comm, MPI_GROUP_NULL, &made));
    REFUSED(Cart_sub, MPI_Cart_sub(comm, one, &made));
    REFUSED(Dist_graph_create_adjacent,
            MPI_Dist_graph_create_adjacent(comm, -1, none, one, 0, none, one, MPI_INFO_NULL, 0, &made));
    REFUSED(Comm_create_group, MPI_Comm_create_group(comm, all, -4, &made));
    REFUSED(Intercomm_create, MPI_Intercomm_create(comm, 99, comm, 0, 1, &made));
    MPI_Group_free(&all);
    MPI_Comm_split(comm, rank % 2, rank, &made); // what it would have made is nobody's
    MPI_Comm_free(&made);
}

static void windows(void) {
    static int memory[16];
    MPI_Win made;
    MPI_Comm world = MPI_COMM_WORLD;
    REFUSED(Win_create, MPI_Win_create(memory, -1, 1, MPI_INFO_NULL, comm, &made));
    REFUSED(Win_create, MPI_Win_create(memory, sizeof memory, 0, MPI_INFO_NULL, comm, &made));
    REFUSED(Comm_free, MPI_Comm_free(&world));
    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, comm, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    REFUSED(Win_fence, MPI_Win_fence(0x7fffffff, win));
    MPI_Win_fence(0, win);
    MPI_Put(&rank, 1, MPI_INT, 0, rank, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (int i = 0; rank == 0 && i < size; i++) bad += memory[i] != i;
    MPI_Win_free(&win);
}

static void files(void) {
    char path[4096], byte = (char)rank, back = -1;
    MPI_Request q;
    snprintf(path, sizeof path, "%s/file", directory);
#ifdef OPEN_MPI // the others communicate before they look; Open MPI does so when a file cannot be written
    MPI_File made;
    REFUSED(File_open, MPI_File_open(comm, path, 0, MPI_INFO_NULL, &made));
    REFUSED(File_open, MPI_File_open(comm, path, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &made));
#endif
    MPI_File_open(comm, path, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file);
    REFUSED(File_write_at_all, MPI_File_write_at_all(file, 0, &byte, -1, MPI_BYTE, MPI_STATUS_IGNORE));
    REFUSED(File_write_all, MPI_File_write_all(file, &byte, -1, MPI_BYTE, MPI_STATUS_IGNORE));
    REFUSED(File_iwrite_at_all, MPI_File_iwrite_at_all(file, 0, &byte, -1, MPI_BYTE, &q));
    MPI_File_write_at_all(file, rank, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_File_open(comm, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &readable);
#ifndef OPEN_MPI
    REFUSED(File_write_all, MPI_File_write_all(readable, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
#endif
    MPI_File_read_at_all(readable, rank, &back, 1, MPI_BYTE, MPI_STATUS_IGNORE);
    bad += back != byte;
    MPI_File_close(&readable);
}

static void stage(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    while (access(path, F_OK) != 0) usleep(2000);
}

static void arrived(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/at.%d", directory, rank);
    fclose(fopen(path, "w"));
}

// Calls that have to be put off: the application hears of a refusal when it waits.
static void deferred(void) {
    int in[3] = {0}, class = 0, good;
    MPI_Request q[3];
    MPI_Comm pair;
    MPI_Comm_split(comm, rank > 0, rank, &pair);
    if (rank == 1) {
        arrived();
        MPI_Barrier(pair);
    } else if (rank == 2) {
        stage("pay");
        MPI_Barrier(pair);
    } else {
        stage("pending");
        int rc = MPI_Ibcast(in, -1, MPI_INT, 0, comm, &q[0]);
        in[1] = 41;
        in[2] = 42;
        MPI_Ibcast(&in[1], 1, MPI_INT, 0, comm, &q[1]);
        MPI_Ibcast(&in[2], 1, MPI_INT, 0, comm, &q[2]);
        arrived();
        stage("pay");
        if (rc == MPI_SUCCESS) rc = MPI_Wait(&q[0], MPI_STATUS_IGNORE);
        MPI_Error_class(rc, &class);
        printf("deferred %d\n", class);
        fflush(stdout);
    }
    for (int i = 1; rank > 0 && i < 3; i++) MPI_Ibcast(&in[i], 1, MPI_INT, 0, comm, &q[i]);
    MPI_Waitall(2, &q[1], MPI_STATUSES_IGNORE);
    good = in[1] == 41 && in[2] == 42;
    bad += !good;
    MPI_Comm_free(&pair);
}

int main(int argc, char **argv) {
    int all = 0;
    directory = argc > 1 ? argv[1] : ".";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    comm = MPI_COMM_WORLD;
    int round = 1;
    MPI_Cart_create(comm, 1, &size, &round, 0, &cart);
    MPI_Comm_set_errhandler(cart, MPI_ERRORS_RETURN);
    plain();
    nonblocking();
    communicators();
    windows();
    files();
    stage("done");
    deferred();
    plain();
    MPI_Comm_free(&cart);
    MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("refused %d\n", all);
    MPI_Finalize();
    return 0;
}
