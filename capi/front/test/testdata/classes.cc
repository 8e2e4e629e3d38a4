/* SPDX-License-Identifier: Apache-2.0
 *
 * classes.cc: the old C++ classes of MPI, where they call back: operations, attributes, error
 * handlers, exceptions, generalized requests.  With "save" as argument it is saved in the middle.
 * Prints "classes: ok" on rank 0, and "classes: ok, restarted" after a restart.
 */
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mpix_checkpoint.h"

static int rank;

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #what);              \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

static void largest(const void *in, void *inout, int n, const MPI::Datatype &type) {
    CHECK(type == MPI::INT);
    for (int i = 0; i < n; i++)
        if (((const int *)in)[i] > ((int *)inout)[i])
            ((int *)inout)[i] = ((const int *)in)[i];
}

static int copies, deletes, errors;

static int copy(const MPI::Comm &, int, void *extra, void *in, void *out, bool &flag) {
    copies += extra == &copies;
    *(void **)out = (char *)in + 1;
    flag = true;
    return MPI::SUCCESS;
}

static int drop(MPI::Comm &, int, void *, void *) {
    deletes++;
    return MPI::SUCCESS;
}

static void failed(MPI::Comm &comm, int *code, ...) {
    CHECK(comm.Get_size() > 0 && MPI::Get_error_class(*code) == MPI::ERR_RANK);
    errors++;
}

static void reductions(const MPI::Op &op) {
    int in = 10 + rank, out = -1, n = MPI::COMM_WORLD.Get_size();
    MPI::COMM_WORLD.Allreduce(&in, &out, 1, MPI::INT, op);
    CHECK(out == 10 + n - 1);
}

static void attributes(int keyval) {
    static char value[2];
    void *got = NULL;
    int c = copies, d = deletes;
    MPI::Intracomm mine = MPI::COMM_WORLD.Dup();
    mine.Set_attr(keyval, value);
    CHECK(mine.Get_attr(keyval, &got) && got == value);
    MPI::Intracomm again = mine.Dup();
    CHECK(again.Get_attr(keyval, &got) && got == value + 1 && copies == c + 1);
    again.Free();
    mine.Free();
    CHECK(deletes == d + 2);
}

static void handlers(const MPI::Errhandler &handler) {
    int v = 0, e = errors;
    MPI::Intracomm mine = MPI::COMM_WORLD.Dup();
    mine.Set_errhandler(handler);
    mine.Send(&v, 1, MPI::INT, 1000, 1);
    CHECK(errors == e + 1);
    mine.Send(&v, 1, MPI::INT, 1000, 1);
    CHECK(errors == e + 2);
    for (int i = 3; i <= 5; i++) {
        mine.Call_errhandler(MPI::ERR_RANK);
        CHECK(errors == e + i);
    }
    mine.Send(&v, 1, MPI::INT, 1000, 1);
    CHECK(errors == e + 6);
    mine.Set_errhandler(MPI::ERRORS_THROW_EXCEPTIONS);
    bool caught = false;
#ifdef OPEN_MPI /* built without exceptions: a message, and a variable with the error */
    mine.Send(&v, 1, MPI::INT, 1000, 1);
    caught = MPI::Get_error_class(MPI::mpi_errno) == MPI::ERR_RANK;
#else
    try {
        mine.Send(&v, 1, MPI::INT, 1000, 1);
    } catch (MPI::Exception &x) {
        caught = x.Get_error_class() == MPI::ERR_RANK;
    }
#endif
    CHECK(caught);
    mine.Set_errhandler(MPI::ERRORS_ARE_FATAL);
    mine.Free();
}

static int query(void *, MPI::Status &status) {
    status.Set_elements(MPI::INT, 3);
    status.Set_cancelled(false);
    status.Set_source(2);
    status.Set_tag(9);
    return MPI::SUCCESS;
}
static int release(void *) { return MPI::SUCCESS; }
static int cancel(void *, bool) { return MPI::SUCCESS; }

static void generalized() {
    MPI::Status status;
    MPI::Grequest none, r = none.Start(query, release, cancel, NULL);
    CHECK(!r.Test());
    r.Complete();
    r.Wait(status);
    CHECK(status.Get_count(MPI::INT) == 3 && status.Get_source() == 2 && status.Get_tag() == 9);
}

static void topology() {
    int dims[1] = {MPI::COMM_WORLD.Get_size()};
    const bool periods[1] = {true};
    MPI::Cartcomm ring = MPI::COMM_WORLD.Create_cart(1, dims, periods, false);
    int from, to, got = -1;
    ring.Shift(0, 1, from, to);
    ring.Sendrecv(&rank, 1, MPI::INT, to, 4, &got, 1, MPI::INT, from, 4);
    CHECK(got == from);
    ring.Free();
}

int main(int argc, char **argv) {
    MPI::Init(argc, argv);
    rank = MPI::COMM_WORLD.Get_rank();
    bool restarted = false;
    MPI::Op op;
    op.Init(largest, true);
    int keyval = MPI::Comm::Create_keyval(copy, drop, &copies);
    MPI::Errhandler handler = MPI::Comm::Create_errhandler(failed);
    for (int round = 0; round < 2; round++) {
        reductions(op);
        attributes(keyval);
        handlers(handler);
        generalized();
        topology();
        if (round == 0 && argc > 1 && strcmp(argv[1], "save") == 0) {
            MPIX_CR_state_t state;
            MPIX_Checkpoint(&state);
            CHECK(state == MPIX_CR_STATE_CHECKPOINT || state == MPIX_CR_STATE_RESTART);
            restarted = state == MPIX_CR_STATE_RESTART;
        }
    }
    op.Free();
    handler.Free();
    MPI::Comm::Free_keyval(keyval);
    MPI::COMM_WORLD.Barrier();
    if (rank == 0)
        printf("classes: ok%s\n", restarted ? ", restarted" : "");
    MPI::Finalize();
    return 0;
}
