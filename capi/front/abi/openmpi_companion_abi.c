// SPDX-License-Identifier: Apache-2.0
//
// openmpi_companion_abi.c: what the C++ companion of Open MPI (libmpi_cxx), and our part of that
// companion (openmpi_cxx.c), use of libmpi besides the functions of MPI; and what the Fortran companion
// uses when everything is bound at once.
#include <stdlib.h>
#include <string.h>

#include "front/abi/openmpi_cxx.h"
#include "front/abi/openmpi_fortran.h"

// Programs and other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))

// ---- C++: operations ----

// MPI_Op_create got the binding's function, which takes the user's function as its last argument.
static void call_cxx(const struct front_op *o, void *in, void *inout, int *len, MPI_Datatype type) {
    ((void (*)(void *, void *, int *, MPI_Datatype *, void *))o->function)(in, inout, len, &type, o->extra);
}

EXPORT void ompi_op_set_cxx_callback(MPI_Op op, void *function) {
    struct front_op *o = front_op(op);
    if (o != NULL) {
        o->extra = function;
        o->call = call_cxx;
    }
}

// ---- C++: attributes ----

// Open MPI's numbers of the sorts: communicator 1, window 2, datatype 3.
EXPORT int ompi_attr_create_keyval(int sort, void *copy, void *delete, int *keyval, void *extra, int flags,
                                   void *bindings) {
    (void)flags, (void)bindings;
    return sort == 1   ? PMPI_Comm_create_keyval(copy, delete, keyval, extra)
           : sort == 2 ? PMPI_Win_create_keyval(copy, delete, keyval, extra)
                       : PMPI_Type_create_keyval(copy, delete, keyval, extra);
}

// ---- C++: error handlers ----

static openmpi_cxx_invoke *invokes[FRONT_SORTS];
static openmpi_cxx_throw *throws[FRONT_SORTS];

static void call_error(int sort, void *handle, int *code, void *function) {
    invokes[sort](handle, code, NULL, function);
}

EXPORT MPI_Errhandler ckpt_front_cxx_errhandler(int sort, void *function, openmpi_cxx_invoke *invoke) {
    MPI_Errhandler e = front_errhandler_new(function, sort, 0);
    invokes[sort] = invoke;
    front_errhandler_call(e, call_error, 1);
    return e;
}

static void raise_exception(int sort, int *code) {
    openmpi_cxx_throw *f = throws[sort] ? throws[sort] : throws[FRONT_COMM];
    if (f != NULL) f(NULL, code);
}

EXPORT void ckpt_front_cxx_throws(int sort, openmpi_cxx_throw *function) {
    throws[sort] = function;
    front_throw = raise_exception;
}

// ---- Fortran, when everything is bound at once ----

EXPORT int ompi_attr_set_fint(int sort, MPI_Fint object, int keyval, MPI_Fint value) {
    return ckpt_front_attr_set(sort, object, keyval, value, FRONT_ATTR_FINT);
}
EXPORT int ompi_attr_set_aint(int sort, MPI_Fint object, int keyval, MPI_Aint value) {
    return ckpt_front_attr_set(sort, object, keyval, value, FRONT_ATTR_AINT);
}
EXPORT int ompi_attr_get_fint(int sort, MPI_Fint object, int keyval, MPI_Fint *value, int *flag) {
    long word = 0;
    int rc = ckpt_front_attr_get(sort, object, keyval, &word, flag);
    *value = (MPI_Fint)word;
    return rc;
}
EXPORT int ompi_attr_get_aint(int sort, MPI_Fint object, int keyval, MPI_Aint *value, int *flag) {
    return ckpt_front_attr_get(sort, object, keyval, value, flag);
}
EXPORT MPI_Datatype ompi_datatype_match_size(int size, int class, int language) {
    MPI_Datatype t = MPI_DATATYPE_NULL;
    (void)language;
    PMPI_Type_match_size(class, size, &t);
    return t;
}

// ---- Fortran of Open MPI 5 and 6, when everything is bound at once ----

EXPORT int ompi_instance_count = 1;

EXPORT int ompi_fortran_neighbor_count(MPI_Comm comm, int *in, int *out) {
    return front_blocks(comm, 1, out, in);
}
EXPORT int ompi_datatype_destroy(MPI_Datatype *type) { return PMPI_Type_free(type); }
// Arrays that a request needs until it is complete: the MPI below has taken copies.
EXPORT int ompi_coll_base_add_release_arrays_cb(MPI_Request request) {
    (void)request;
    return MPI_SUCCESS;
}

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
EXPORT MPI_Fint PMPI_Session_c2f(MPI_Session session) {
    ckpt_vid v = in_session(session);
    return CKPT_VID_INDEX(v) ? (MPI_Fint)v : 0; // what mpif.h has for MPI_SESSION_NULL
}
EXPORT MPI_Session PMPI_Session_f2c(MPI_Fint session) { return out_session((ckpt_vid)session); }

extern EXPORT __typeof__(PMPI_Session_c2f) MPI_Session_c2f __attribute__((weak, alias("PMPI_Session_c2f")));
extern EXPORT __typeof__(PMPI_Session_f2c) MPI_Session_f2c __attribute__((weak, alias("PMPI_Session_f2c")));

#define NOT_HERE(name) \
    EXPORT int name(void) { return front_not_here(#name); }
// Our part of libmpi_mpifh has the functions that call these.
NOT_HERE(ompi_info_get)
NOT_HERE(ompi_info_get_nthkey)
NOT_HERE(ompi_info_get_valuelen)
NOT_HERE(PMPIX_Comm_ack_failed)
NOT_HERE(PMPIX_Comm_agree)
NOT_HERE(PMPIX_Comm_failure_ack)
NOT_HERE(PMPIX_Comm_failure_get_acked)
NOT_HERE(PMPIX_Comm_get_failed)
NOT_HERE(PMPIX_Comm_iagree)
NOT_HERE(PMPIX_Comm_is_revoked)
NOT_HERE(PMPIX_Comm_ishrink)
NOT_HERE(PMPIX_Comm_revoke)
NOT_HERE(PMPIX_Comm_shrink)
#define NOT_HERE_MPI(name) \
    NOT_HERE(PMPI_##name)  \
    extern EXPORT int MPI_##name(void) __attribute__((weak, alias("PMPI_" #name)));
NOT_HERE_MPI(Abi_get_fortran_booleans)
NOT_HERE_MPI(Abi_get_fortran_info)
NOT_HERE_MPI(Abi_set_fortran_booleans)
NOT_HERE_MPI(Abi_set_fortran_info)
NOT_HERE_MPI(Session_set_info)
NOT_HERE_MPI(Buffer_flush)
NOT_HERE_MPI(Buffer_iflush)
#define NOT_HERE_BUFFERS(object)           \
    NOT_HERE_MPI(object##_attach_buffer)   \
    NOT_HERE_MPI(object##_attach_buffer_c) \
    NOT_HERE_MPI(object##_detach_buffer)   \
    NOT_HERE_MPI(object##_detach_buffer_c) \
    NOT_HERE_MPI(object##_flush_buffer)    \
    NOT_HERE_MPI(object##_iflush_buffer)
NOT_HERE_BUFFERS(Comm)
NOT_HERE_BUFFERS(Session)
