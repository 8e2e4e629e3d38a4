// SPDX-License-Identifier: Apache-2.0
//
// mpich_companion_abi.c: what the companions of MPICH (libmpichcxx, libmpichfort) use of libmpich
// besides the functions of MPI.  The companions can thus also be bound at once (LD_BIND_NOW).
#include <stdlib.h>

#include "front/front.h"

// Programs and other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))

// ---- C++: functions that are called right after the object was made in C ----

typedef void op_call(const void *in, void *inout, int len, MPI_Datatype type, void *function);

static void call_cxx(const struct front_op *o, void *in, void *inout, int *len, MPI_Datatype type) {
    ((op_call *)o->extra)(in, inout, *len, type, o->function);
}

EXPORT void MPII_Op_set_cxx(MPI_Op op, void (*call)(void)) {
    struct front_op *o = front_op(op);
    if (o != NULL) {
        o->extra = (void *)call;
        o->call = call_cxx;
    }
}

// The same function serves all handlers.  Its sorts are 0 communicator, 1 file, 2 window.
typedef void error_call(int sort, void *handle, int *code, void *function);
static error_call *cxx_error;

static void call_error(int sort, void *handle, int *code, void *function) {
    cxx_error(sort == FRONT_FILE ? 1 : sort == FRONT_WIN ? 2 : 0, handle, code, function);
}

EXPORT void MPII_Errhandler_set_cxx(MPI_Errhandler errhandler, void (*call)(void)) {
    cxx_error = (error_call *)call;
    front_errhandler_call(errhandler, call_error);
}

// ---- extensions that the Fortran library has names for ----

#define EXTENSION(name, params)                                                                      \
    EXPORT int PMPIX_##name params;                                                                  \
    extern EXPORT __typeof__(PMPIX_##name) MPIX_##name __attribute__((weak, alias("PMPIX_" #name))); \
    int PMPIX_##name params

enum { MPICH_INT = 0x4c000405, MPICH_BAND = 0x58000006 };

// Here processes never fail one by one, so no process has failed.
EXTENSION(Comm_agree, (MPI_Comm comm, int *flag)) {
    return PMPI_Allreduce((void *)-1l, flag, 1, MPICH_INT, MPICH_BAND, comm);
}
EXTENSION(Comm_shrink, (MPI_Comm comm, MPI_Comm *newcomm)) {
    int rank, rc = PMPI_Comm_rank(comm, &rank);
    return rc == MPI_SUCCESS ? PMPI_Comm_split(comm, 0, rank, newcomm) : rc;
}
EXTENSION(Comm_failure_ack, (MPI_Comm comm)) {
    (void)comm;
    return MPI_SUCCESS;
}
EXTENSION(Comm_failure_get_acked, (MPI_Comm comm, MPI_Group *failed)) {
    (void)comm;
    *failed = MPI_GROUP_EMPTY;
    return MPI_SUCCESS;
}
EXTENSION(Comm_revoke, (MPI_Comm comm)) {
    return front_error(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_DISCONNECT,
                       CANON_ERRCLASS_ERR_UNSUPPORTED_OPERATION);
}

// Classes, codes and texts that were added stay until the process ends.
EXTENSION(Delete_error_class, (int class)) {
    (void)class;
    return MPI_SUCCESS;
}
EXTENSION(Delete_error_code, (int code)) {
    (void)code;
    return MPI_SUCCESS;
}
EXTENSION(Delete_error_string, (int code)) {
    (void)code;
    return MPI_SUCCESS;
}

// Memory of a GPU cannot be saved, so none is supported.
EXTENSION(GPU_query_support, (int kind, int *supported)) {
    (void)kind;
    *supported = 0;
    return MPI_SUCCESS;
}
EXTENSION(Query_cuda_support, (void)) { return 0; }
EXTENSION(Query_hip_support, (void)) { return 0; }
EXTENSION(Query_ze_support, (void)) { return 0; }
