/* SPDX-License-Identifier: Apache-2.0
 *
 * openmpi_companion_abi.c: what the C++ companion of Open MPI (libmpi_cxx) uses of libmpi besides the
 * functions of MPI, and its own functions that look into the objects behind handles, in whose place
 * these come.
 */
#include <stdlib.h>

#include "openmpi_fortran.h"

#define EXPORT __attribute__((visibility("default")))

int PMPI_Comm_test_inter(MPI_Comm, int *);
int PMPI_Topo_test(MPI_Comm, int *);
int PMPI_File_call_errhandler(MPI_File, int);

/* ---- operations ---- */

/* MPI_Op_create was given the binding's function, which gets the user's as its last argument. */
static void call_cxx(const struct front_op *o, void *in, void *inout, int *len, MPI_Datatype type) {
    ((void (*)(void *, void *, int *, MPI_Datatype *, void *))o->function)(in, inout, len, &type,
                                                                           o->extra);
}

EXPORT void ompi_op_set_cxx_callback(MPI_Op op, void *function) {
    struct front_op *o = front_op(op);
    if (o != NULL) {
        o->extra = function;
        o->call = call_cxx;
    }
}

/* ---- attributes ---- */

EXPORT int ompi_cxx_attr_create_keyval_comm(MPI_Comm_copy_attr_function *copy,
                                            MPI_Comm_delete_attr_function *delete, int *keyval,
                                            void *extra, int flags, void *bindings) {
    (void)flags, (void)bindings;
    return PMPI_Comm_create_keyval(copy, delete, keyval, extra);
}

EXPORT int ompi_cxx_attr_create_keyval_win(MPI_Win_copy_attr_function *copy,
                                           MPI_Win_delete_attr_function *delete, int *keyval,
                                           void *extra, int flags, void *bindings) {
    (void)flags, (void)bindings;
    return PMPI_Win_create_keyval(copy, delete, keyval, extra);
}

EXPORT int ompi_cxx_attr_create_keyval_type(MPI_Type_copy_attr_function *copy,
                                            MPI_Type_delete_attr_function *delete, int *keyval,
                                            void *extra, int flags, void *bindings) {
    (void)flags, (void)bindings;
    return PMPI_Type_create_keyval(copy, delete, keyval, extra);
}

/* Sorts are communicator 1, window 2, datatype 3 there. */
EXPORT int ompi_attr_create_keyval(int sort, void *copy, void *delete, int *keyval, void *extra,
                                   int flags, void *bindings) {
    return sort == 1   ? ompi_cxx_attr_create_keyval_comm(copy, delete, keyval, extra, flags, bindings)
           : sort == 2 ? ompi_cxx_attr_create_keyval_win(copy, delete, keyval, extra, flags, bindings)
                       : ompi_cxx_attr_create_keyval_type(copy, delete, keyval, extra, flags,
                                                          bindings);
}

/* 1 intra, 2 inter, 3 cartesian, 4 graph; 0 what is none of them. */
EXPORT int ompi_cxx_comm_get_type(MPI_Comm comm) {
    int inter = 0, topology = MPI_UNDEFINED;
    if (comm == MPI_COMM_NULL || PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS)
        return 0;
    if (inter)
        return 2;
    PMPI_Topo_test(comm, &topology);
    return topology == out_topo(CANON_CART) ? 3 : topology == out_topo(CANON_GRAPH) ? 4 : 1;
}

/* ---- error handlers ---- */

typedef void cxx_invoke(void *handle, int *code, const char *text, void *function);
extern __attribute__((weak)) cxx_invoke ompi_mpi_cxx_comm_errhandler_invoke,
    ompi_mpi_cxx_win_errhandler_invoke, ompi_mpi_cxx_file_errhandler_invoke;

static void call_error(int sort, void *handle, int *code, void *function) {
    cxx_invoke *invoke = sort == FRONT_WIN    ? ompi_mpi_cxx_win_errhandler_invoke
                         : sort == FRONT_FILE ? ompi_mpi_cxx_file_errhandler_invoke
                                              : ompi_mpi_cxx_comm_errhandler_invoke;
    if (invoke != NULL)
        invoke(handle, code, NULL, function);
}

static MPI_Errhandler cxx_errhandler(int sort, void *function) {
    MPI_Errhandler e = front_errhandler_new(function, sort, 0);
    front_errhandler_call(e, call_error);
    return e;
}

EXPORT MPI_Errhandler ompi_cxx_errhandler_create_comm(void *function) {
    return cxx_errhandler(FRONT_COMM, function);
}
EXPORT MPI_Errhandler ompi_cxx_errhandler_create_win(void *function) {
    return cxx_errhandler(FRONT_WIN, function);
}
EXPORT MPI_Errhandler ompi_cxx_errhandler_create_file(void *function) {
    return cxx_errhandler(FRONT_FILE, function);
}

typedef void throw(void *handle, int *code, ...);
static throw *throws[FRONT_SORTS];

static void raise_exception(int sort, int *code) {
    throw *f = throws[sort] ? throws[sort] : throws[FRONT_COMM];
    if (f != NULL)
        f(NULL, code);
}

/* Called when MPI begins, for MPI::ERRORS_THROW_EXCEPTIONS. */
EXPORT void ompi_cxx_errhandler_set_callbacks(void *errhandler, throw *comm, throw *file,
                                              throw *win) {
    (void)errhandler;
    throws[FRONT_COMM] = comm;
    throws[FRONT_FILE] = file;
    throws[FRONT_WIN] = win;
    front_throw = raise_exception;
}

EXPORT int ompi_cxx_errhandler_invoke_comm(MPI_Comm comm, int code, const char *text) {
    (void)text;
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

EXPORT int ompi_cxx_errhandler_invoke_file(MPI_File file, int code, const char *text) {
    (void)text;
    PMPI_File_call_errhandler(file, code);
    return code;
}

/* What a data representation of C++ is called with; it is kept for ever. */
EXPORT void *ompi_cxx_new_intercept_state(void *read, void *write, void *extent, void *extra) {
    void **state = front_alloc(4 * sizeof *state);
    state[0] = read;
    state[1] = write;
    state[2] = extent;
    state[3] = extra;
    return state;
}

/* ---- Fortran, when everything is bound at once ---- */

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
