// SPDX-License-Identifier: Apache-2.0
//
// mpich_companion_abi.c: what the companions of MPICH (libmpichcxx, libmpichfort) use of libmpich
// besides the functions of MPI.  The companions can thus also be bound at once (LD_BIND_NOW).
#define _GNU_SOURCE // dladdr
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

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
    front_errhandler_call(errhandler, call_error, 1);
}

// ---- MPICH 5: functions of C++ and of Fortran are called by the bindings, with a state of theirs ----

typedef void op_x(void *in, void *inout, int64_t len, MPI_Datatype type, void *extra);
typedef void destroy_x(void *extra);

static void call_op_x(const struct front_op *o, void *in, void *inout, int *len, MPI_Datatype type) {
    ((op_x *)o->function)(in, inout, *len, type, o->extra);
}

// The state of an operation or handler is never given back: it is a few bytes, and a reduction may still be under way.
EXPORT int MPIX_Op_create_x(op_x *function, destroy_x *destroy, int commute, void *extra, MPI_Op *op) {
    (void)destroy;
    int rc = front_op_new(call_op_x, (void *)function, commute, CKPT_FN_MPI_OP_CREATE, op);
    if (rc == MPI_SUCCESS) front_op(*op)->extra = extra;
    return rc;
}

struct handler_x {
    void (*function)(void);
    void *extra;
};

static void call_handler_x(int sort, void *handle, int *code, void *handler) {
    const struct handler_x *x = handler;
    if (sort == FRONT_FILE)
        ((void (*)(MPI_File, int, void *))x->function)(*(MPI_File *)handle, *code, x->extra);
    else
        ((void (*)(int, int, void *))x->function)(*(int *)handle, *code, x->extra);
}

static int in_cxx(void (*function)(void)) {
    Dl_info in;
    return dladdr((void *)function, &in) != 0 && in.dli_fname != NULL &&
           strstr(in.dli_fname, "mpichcxx") != NULL;
}

#define HANDLER_X(object, sort)                                                                             \
    EXPORT int MPIX_##object##_create_errhandler_x(void (*function)(void), destroy_x *destroy, void *extra, \
                                                   MPI_Errhandler *errhandler) {                            \
        (void)destroy;                                                                                      \
        struct handler_x *x = front_alloc(sizeof *x);                                                       \
        *x = (struct handler_x){function, extra};                                                           \
        *errhandler = front_errhandler_new(x, sort, 0);                                                     \
        front_errhandler_call(*errhandler, call_handler_x, in_cxx(function));                               \
        return MPI_SUCCESS;                                                                                 \
    }
HANDLER_X(Comm, FRONT_COMM)
HANDLER_X(Win, FRONT_WIN)
HANDLER_X(File, FRONT_FILE)
HANDLER_X(Session, FRONT_COMM)

// What gfortran means by .true. and .false.
EXPORT int MPIR_fortran_true = 1, MPIR_fortran_false = 0;

EXPORT MPI_Fint PMPI_Session_c2f(MPI_Session session) { return (MPI_Fint)session; }
EXPORT MPI_Session PMPI_Session_f2c(MPI_Fint session) { return (MPI_Session)session; }
extern EXPORT __typeof__(PMPI_Session_c2f) MPI_Session_c2f __attribute__((weak, alias("PMPI_Session_c2f")));
extern EXPORT __typeof__(PMPI_Session_f2c) MPI_Session_f2c __attribute__((weak, alias("PMPI_Session_f2c")));

// The module mpi_f08 has statuses of the same words.
#define STATUS_F08(name)                                           \
    EXPORT int PMPI_Status_##name(const void *from, void *to) {    \
        memcpy(to, from, sizeof(MPI_Status));                      \
        return MPI_SUCCESS;                                        \
    }                                                              \
    extern EXPORT __typeof__(PMPI_Status_##name) MPI_Status_##name \
        __attribute__((weak, alias("PMPI_Status_" #name)));
STATUS_F08(c2f08)
STATUS_F08(f082c)
STATUS_F08(f082f)
STATUS_F08(f2f08)

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

// ---- what MPICH 4.2 and 5 have, and is not there: their Fortran libraries name it ----

#define NOT_HERE(prefix, name)                                                 \
    EXPORT int P##prefix##name(void) { return front_not_here(#prefix #name); } \
    extern EXPORT int prefix##name(void) __attribute__((weak, alias("P" #prefix #name)));
#define NOT_HERE_X(name) NOT_HERE(MPIX_, name)
#define NOT_HERE_MPI(name) NOT_HERE(MPI_, name)
NOT_HERE_X(Allreduce_enqueue)
NOT_HERE_X(Allreduce_enqueue_c)
NOT_HERE_X(Comm_get_failed)
NOT_HERE_X(Comm_get_stream)
NOT_HERE_X(Comm_test_threadcomm)
NOT_HERE_X(Info_set_hex)
NOT_HERE_X(Irecv_enqueue)
NOT_HERE_X(Irecv_enqueue_c)
NOT_HERE_X(Isend_enqueue)
NOT_HERE_X(Isend_enqueue_c)
NOT_HERE_X(Recv_enqueue)
NOT_HERE_X(Recv_enqueue_c)
NOT_HERE_X(Request_is_complete)
NOT_HERE_X(Send_enqueue)
NOT_HERE_X(Send_enqueue_c)
NOT_HERE_X(Start_progress_thread)
NOT_HERE_X(Stop_progress_thread)
NOT_HERE_X(Stream_comm_create)
NOT_HERE_X(Stream_comm_create_multiplex)
NOT_HERE_X(Stream_create)
NOT_HERE_X(Stream_free)
NOT_HERE_X(Stream_irecv)
NOT_HERE_X(Stream_irecv_c)
NOT_HERE_X(Stream_isend)
NOT_HERE_X(Stream_isend_c)
NOT_HERE_X(Stream_progress)
NOT_HERE_X(Stream_recv)
NOT_HERE_X(Stream_recv_c)
NOT_HERE_X(Stream_send)
NOT_HERE_X(Stream_send_c)
NOT_HERE_X(Threadcomm_finish)
NOT_HERE_X(Threadcomm_free)
NOT_HERE_X(Threadcomm_init)
NOT_HERE_X(Threadcomm_start)
NOT_HERE_X(Wait_enqueue)
NOT_HERE_X(Waitall_enqueue)
#define NOT_HERE_BUFFERS(object)           \
    NOT_HERE_MPI(object##_attach_buffer)   \
    NOT_HERE_MPI(object##_attach_buffer_c) \
    NOT_HERE_MPI(object##_detach_buffer)   \
    NOT_HERE_MPI(object##_detach_buffer_c) \
    NOT_HERE_MPI(object##_flush_buffer)    \
    NOT_HERE_MPI(object##_iflush_buffer)
NOT_HERE_BUFFERS(Comm)
NOT_HERE_BUFFERS(Session)
NOT_HERE_MPI(Buffer_flush)
NOT_HERE_MPI(Buffer_iflush)
NOT_HERE_MPI(Abi_get_fortran_booleans)
NOT_HERE_MPI(Abi_get_fortran_info)
NOT_HERE_MPI(Abi_set_fortran_booleans)
NOT_HERE_MPI(Abi_set_fortran_info)
