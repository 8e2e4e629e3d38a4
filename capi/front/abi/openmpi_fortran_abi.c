// SPDX-License-Identifier: Apache-2.0
//
// openmpi_fortran_abi.c: what the Fortran companions of Open MPI (libmpi_mpifh, libmpi_usempif08)
// use of libmpi besides the functions of MPI.
//
// The real companions are used.  Handles have no objects behind them here, so openmpi_mpifh.c replaces
// those functions of the companions that look into such objects.
#include <stdlib.h>
#include <string.h>

#include "front/front.h"
#include "front/abi/openmpi_fortran.h"

// Programs and other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))

// ---- data ----

// Common blocks whose addresses stand for special values; those of the program are found first.
EXPORT char mpi_fortran_argv_null_, mpi_fortran_argvs_null_;
EXPORT int mpi_fortran_bottom_, mpi_fortran_errcodes_ignore_, mpi_fortran_in_place_, mpi_fortran_unweighted_,
    mpi_fortran_weights_empty_, mpi_fortran_buffer_automatic_;
EXPORT int *mpi_fortran_status_ignore_, *mpi_fortran_statuses_ignore_;

EXPORT _Bool ompi_mpi_param_check; // false: the lower half checks arguments
EXPORT int ompi_mpi_state;
EXPORT MPI_Status ompi_status_empty = {.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG};
// The table of internal error codes is empty: functions here return codes of MPI.
EXPORT int ompi_errcode_intern_lastused;
EXPORT char ompi_errcodes_intern[0x78], ompi_registered_datareps[0x40];

// ---- four names for each function: MPI_X, mpi_x, mpi_x_, mpi_x__ ----

#define NAMED(target, name) extern EXPORT __typeof__(target) name __attribute__((weak, alias(#target)));
#define NAMES(target, lower, upper) \
    NAMED(target, upper) NAMED(target, lower) NAMED(target, lower##_) NAMED(target, lower##__)

EXPORT void mpi_wtime_f(double *t) { *t = PMPI_Wtime(); }
NAMES(mpi_wtime_f, mpi_wtime_f90, MPI_WTIME_F90)
EXPORT void mpi_wtick_f(double *t) { *t = PMPI_Wtick(); }
NAMES(mpi_wtick_f, mpi_wtick_f90, MPI_WTICK_F90)
EXPORT void mpi_aint_add_f(MPI_Aint *a, MPI_Aint *b, MPI_Aint *sum) { *sum = *a + *b; }
NAMES(mpi_aint_add_f, mpi_aint_add_f90, MPI_AINT_ADD_F90)
EXPORT void mpi_aint_diff_f(MPI_Aint *a, MPI_Aint *b, MPI_Aint *diff) { *diff = *a - *b; }
NAMES(mpi_aint_diff_f, mpi_aint_diff_f90, MPI_AINT_DIFF_F90)

// This is never called: its address says that there is nothing to convert.
EXPORT void mpi_conversion_fn_null_f(void) {}
NAMES(mpi_conversion_fn_null_f, mpi_conversion_fn_null, MPI_CONVERSION_FN_NULL)

// Predefined functions for attributes; value is the type of attributes in that binding.
#define ATTR_FNS(target, lower, upper, value)                                                               \
    EXPORT void ompi_##target##null_delete_fn_f(MPI_Fint *h, MPI_Fint *keyval, value *attribute,            \
                                                value *extra, MPI_Fint *ierr) {                             \
        (void)h, (void)keyval, (void)attribute, (void)extra;                                                \
        *ierr = MPI_SUCCESS;                                                                                \
    }                                                                                                       \
    NAMES(ompi_##target##null_delete_fn_f, lower##null_delete_fn, upper##NULL_DELETE_FN)                    \
    EXPORT void ompi_##target##null_copy_fn_f(MPI_Fint *h, MPI_Fint *keyval, value *extra, value *in,       \
                                              value *out, MPI_Fint *flag, MPI_Fint *ierr) {                 \
        (void)h, (void)keyval, (void)extra, (void)in, (void)out;                                            \
        *flag = 0;                                                                                          \
        *ierr = MPI_SUCCESS;                                                                                \
    }                                                                                                       \
    NAMES(ompi_##target##null_copy_fn_f, lower##null_copy_fn, upper##NULL_COPY_FN)                          \
    EXPORT void ompi_##target##dup_fn_f(MPI_Fint *h, MPI_Fint *keyval, value *extra, value *in, value *out, \
                                        MPI_Fint *flag, MPI_Fint *ierr) {                                   \
        (void)h, (void)keyval, (void)extra;                                                                 \
        *out = *in;                                                                                         \
        *flag = 1;                                                                                          \
        *ierr = MPI_SUCCESS;                                                                                \
    }                                                                                                       \
    NAMES(ompi_##target##dup_fn_f, lower##dup_fn, upper##DUP_FN)

ATTR_FNS(comm_, mpi_comm_, MPI_COMM_, MPI_Aint)
ATTR_FNS(type_, mpi_type_, MPI_TYPE_, MPI_Aint)
ATTR_FNS(win_, mpi_win_, MPI_WIN_, MPI_Aint)
ATTR_FNS(, mpi_, MPI_, MPI_Fint)

// ---- keyvals ----

#define PROXIES(name, value)                                                                              \
    static int name##_copy(void *fn, int handle, int keyval, void *extra, int form, void *in, void **out, \
                           int *flag) {                                                                   \
        (void)form;                                                                                       \
        value e = (value)(long)extra, v = (value)(long)in, copy = 0;                                      \
        MPI_Fint f = 0, ierr = MPI_SUCCESS;                                                               \
        ((void (*)(MPI_Fint *, MPI_Fint *, value *, value *, value *, MPI_Fint *, MPI_Fint *))fn)(        \
            &handle, &keyval, &e, &v, &copy, &f, &ierr);                                                  \
        *flag = f != 0;                                                                                   \
        *out = (void *)(long)copy;                                                                        \
        return ierr;                                                                                      \
    }                                                                                                     \
    static int name##_delete(void *fn, int handle, int keyval, int form, void *in, void *extra) {         \
        (void)form;                                                                                       \
        value e = (value)(long)extra, v = (value)(long)in;                                                \
        MPI_Fint ierr = MPI_SUCCESS;                                                                      \
        ((void (*)(MPI_Fint *, MPI_Fint *, value *, value *, MPI_Fint *))fn)(&handle, &keyval, &v, &e,    \
                                                                             &ierr);                      \
        return ierr;                                                                                      \
    }
PROXIES(aint, MPI_Aint)
PROXIES(fint, MPI_Fint)

// Open MPI's numbers of the sorts: communicator 1, datatype 2, window 3.
static int create(int sort, void *copy, void *delete, int *key, long extra) {
    switch (sort) {
    case 2:
        return PMPI_Type_create_keyval((MPI_Type_copy_attr_function *)copy,
                                       (MPI_Type_delete_attr_function *)delete, key, (void *)extra);
    case 3:
        return PMPI_Win_create_keyval((MPI_Win_copy_attr_function *)copy,
                                      (MPI_Win_delete_attr_function *)delete, key, (void *)extra);
    default:
        return PMPI_Comm_create_keyval((MPI_Comm_copy_attr_function *)copy,
                                       (MPI_Comm_delete_attr_function *)delete, key, (void *)extra);
    }
}

EXPORT int ompi_attr_create_keyval_aint(int sort, void *copy, void *delete, int *key, MPI_Aint extra,
                                        int flags, void *binding) {
    (void)flags, (void)binding;
    int rc = create(sort, copy, delete, key, extra);
    if (rc == MPI_SUCCESS) front_keyval_proxy(*key, aint_copy, aint_delete);
    return rc;
}

EXPORT int ompi_attr_create_keyval_fint(int sort, void *copy, void *delete, int *key, MPI_Fint extra,
                                        int flags, void *binding) {
    (void)flags, (void)binding;
    int rc = create(sort, copy, delete, key, extra);
    if (rc == MPI_SUCCESS) front_keyval_proxy(*key, fint_copy, fint_delete);
    return rc;
}

EXPORT int ckpt_front_attr_set(int sort, MPI_Fint object, int keyval, long value, int form) {
    ckpt_vid v = sort == FRONT_TYPE  ? in_type(PMPI_Type_f2c(object))
                 : sort == FRONT_WIN ? in_win(PMPI_Win_f2c(object))
                                     : in_comm(PMPI_Comm_f2c(object));
    return front_attr_set(sort, v, keyval, value, form);
}

EXPORT int ckpt_front_attr_get(int sort, MPI_Fint object, int keyval, long *value, int *flag) {
    ckpt_vid v = sort == FRONT_TYPE  ? in_type(PMPI_Type_f2c(object))
                 : sort == FRONT_WIN ? in_win(PMPI_Win_f2c(object))
                                     : in_comm(PMPI_Comm_f2c(object));
    return front_attr_get(sort, v, keyval, value, flag);
}

EXPORT int ckpt_front_blocks(MPI_Comm comm, int neighbors, int *out, int *in) {
    return front_blocks(comm, neighbors, out, in);
}

EXPORT void *ckpt_front_alloc(size_t bytes) { return front_alloc(bytes); }

// ---- operations ----

static void call_fortran(const struct front_op *o, void *in, void *inout, int *len, MPI_Datatype type) {
    MPI_Fint t = PMPI_Type_c2f(type);
    ((void (*)(void *, void *, MPI_Fint *, MPI_Fint *))o->function)(in, inout, len, &t);
}

EXPORT int ckpt_front_op_create(void *function, int commute, MPI_Fint *op) {
    MPI_Op o;
    int rc = front_op_new(call_fortran, function, commute, CKPT_FN_MPI_OP_CREATE, &o);
    if (rc == MPI_SUCCESS) *op = PMPI_Op_c2f(o);
    return rc;
}

// ---- generalized requests ----

EXPORT int ckpt_front_grequest_start(void *query, void *free_fn, void *cancel, void *extra,
                                     MPI_Fint *request) {
    MPI_Request r;
    int rc = PMPI_Grequest_start(query, free_fn, cancel, extra, &r);
    if (rc != MPI_SUCCESS) return rc;
    front_grequest_fortran();
    *request = PMPI_Request_c2f(r);
    return MPI_SUCCESS;
}

// ---- error handlers ----

// Open MPI's numbers of the sorts: communicator 1, window 2, file 3; of languages: Fortran 2.
EXPORT MPI_Errhandler ompi_errhandler_create(int sort, void *function, int language) {
    static const int sorts[] = {FRONT_COMM, FRONT_COMM, FRONT_WIN, FRONT_FILE};
    return front_errhandler_new(function, sorts[sort & 3], language == 2);
}

// Companions call this for errors that they find themselves, on MPI_COMM_WORLD.
EXPORT int ompi_errhandler_invoke(void *handler, void *object, int sort, int code, const char *text) {
    (void)handler, (void)object, (void)sort, (void)text;
    PMPI_Comm_call_errhandler((MPI_Comm)&ompi_mpi_comm_world, code);
    return code;
}

EXPORT void ompi_mpi_errors_are_fatal_comm_handler(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    PMPI_Abort((MPI_Comm)&ompi_mpi_comm_world, code ? *code : 1);
}

// ---- strings: blanks around are no part of a Fortran string ----

EXPORT int ompi_fortran_string_f2c(const char *fortran, int len, char **c) {
    while (len > 0 && *fortran == ' ') fortran++, len--;
    while (len > 0 && fortran[len - 1] == ' ') len--;
    *c = front_alloc((size_t)len + 1);
    memcpy(*c, fortran, (size_t)len);
    return 0;
}

EXPORT int ompi_fortran_string_c2f(const char *c, char *fortran, int len) {
    size_t n = strnlen(c, (size_t)len);
    memcpy(fortran, c, n);
    memset(fortran + n, ' ', (size_t)len - n);
    return 0;
}

// ---- argument vectors of MPI_Comm_spawn, which the companion frees ----

static char *c_string(const char *fortran, int len) {
    while (len > 0 && fortran[len - 1] == ' ') len--;
    return front_strdup(fortran, (size_t)len);
}

static int is_blank(const char *s, int len) {
    while (len > 0 && s[len - 1] == ' ') len--;
    return len == 0;
}

// Takes n strings, one every advance bytes.
EXPORT int ompi_fortran_argv_count_f2c(char *array, int n, int len, int advance, char ***argv) {
    *argv = front_alloc(((size_t)n + 1) * sizeof **argv);
    for (int i = 0; i < n; i++) (*argv)[i] = c_string(array + (size_t)i * (size_t)advance, len);
    return 0;
}

// The same, up to a blank string.
EXPORT int ompi_fortran_argv_blank_f2c(char *array, int len, int advance, char ***argv) {
    int n = 0;
    while (!is_blank(array + (size_t)n * (size_t)advance, len)) n++;
    return ompi_fortran_argv_count_f2c(array, n, len, advance, argv);
}

// Takes the strings of n programs; those of a program are a row of a matrix that is stored by columns.
EXPORT int ompi_fortran_multiple_argvs_f2c(int n, char *array, int len, char ****argv) {
    *argv = front_alloc(((size_t)n + 1) * sizeof **argv);
    for (int i = 0; i < n; i++)
        ompi_fortran_argv_blank_f2c(array + (size_t)i * (size_t)len, len, n * len, &(*argv)[i]);
    return 0;
}
