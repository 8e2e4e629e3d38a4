// SPDX-License-Identifier: Apache-2.0
//
// mpich_abi.c: the data symbols of the MPICH ABI, and functions that only this ABI has.
#include "front/front.h"

const uint32_t mpich_types[CKPT_VID_PREDEFINED] = {[0] = MPI_DATATYPE_NULL,
#define X(name, number, handle) [number] = handle,
                                                   MPICH_DATATYPE_LIST(X)
#undef X
};

// Programs and other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))

int mpich_unweighted, mpich_weights_empty;
EXPORT int *const MPI_UNWEIGHTED = &mpich_unweighted;
EXPORT int *const MPI_WEIGHTS_EMPTY = &mpich_weights_empty;

// ---- what the Fortran companion, libmpichfort, uses of libmpich ----

// The companion sets these two to its common block when it is first called.
EXPORT MPI_Fint *MPI_F_STATUS_IGNORE, *MPI_F_STATUSES_IGNORE;
// The objects behind these names in the module mpi_f08.
EXPORT MPI_Status MPIR_F08_MPI_STATUS_IGNORE_OBJ, MPIR_F08_MPI_STATUSES_IGNORE_OBJ;
EXPORT int MPIR_F08_MPI_BOTTOM, MPIR_F08_MPI_IN_PLACE;
EXPORT MPI_Status *MPI_F08_STATUS_IGNORE = &MPIR_F08_MPI_STATUS_IGNORE_OBJ;
EXPORT MPI_Status *MPI_F08_STATUSES_IGNORE = &MPIR_F08_MPI_STATUSES_IGNORE_OBJ;

// What mpi_f08 passes for MPI_UNWEIGHTED.  The companion has objects of these names itself, which the loader
// finds first, and leaves it to libmpich to set them.
EXPORT int *MPIR_C_MPI_UNWEIGHTED, *MPIR_C_MPI_WEIGHTS_EMPTY;

__attribute__((constructor)) static void set_weights(void) {
    MPIR_C_MPI_UNWEIGHTED = MPI_UNWEIGHTED;
    MPIR_C_MPI_WEIGHTS_EMPTY = MPI_WEIGHTS_EMPTY;
}

EXPORT void MPII_Keyval_set_proxy(int keyval, front_copy_proxy *copy, front_delete_proxy *delete) {
    front_keyval_proxy(keyval, copy, delete);
}

// Predefined keyvals come in pairs; the even ones are Fortran's.
static int c_keyval(int keyval) {
    int predefined = keyval & 0x02000000 ? in_win_attr(keyval - 1) : in_attr(keyval - 1);
    return predefined != 0 ? keyval - 1 : keyval;
}

#define ATTRS(object, type, sort, in)                                                           \
    EXPORT int MPII_##object##_set_attr(type h, int keyval, void *value, int form) {            \
        return front_attr_set(sort, in(h), keyval, (long)value, form);                          \
    }                                                                                           \
    EXPORT int MPII_##object##_get_attr(type h, int keyval, void *value, int *flag, int form) { \
        (void)form; /* AINT or INT: a word that the caller cuts to its length */                \
        return front_attr_get(sort, in(h), c_keyval(keyval), value, flag);                      \
    }
ATTRS(Comm, MPI_Comm, FRONT_COMM, in_comm)
ATTRS(Type, MPI_Datatype, FRONT_TYPE, in_type)
ATTRS(Win, MPI_Win, FRONT_WIN, in_win)

// The companion calls this right after MPI_Grequest_start.
EXPORT void MPII_Grequest_set_lang_f77(MPI_Request request) {
    (void)request;
    front_grequest_fortran();
}

// This stands for all handles of a session.
EXPORT void *const MPI_T_PVAR_ALL_HANDLES = (void *)-1l;

// ----

// MPI_DUP_FN and its kin.
EXPORT int MPIR_Dup_fn(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)keyval, (void)extra;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}
