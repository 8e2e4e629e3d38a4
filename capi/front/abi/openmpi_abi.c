// SPDX-License-Identifier: Apache-2.0
//
// openmpi_abi.c: the data symbols of the Open MPI ABI, and functions that only this ABI has.
#include "front/front.h"

// Programs and other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))
#define OBJECT(name, id) EXPORT struct name##_s name = {.vid = (id)}

OBJECT(ompi_mpi_comm_world, VID_COMM_WORLD);
OBJECT(ompi_mpi_comm_self, VID_COMM_SELF);
OBJECT(ompi_mpi_comm_null, VID_COMM_NULL);
OBJECT(ompi_mpi_group_empty, CKPT_VID(CKPT_KIND_GROUP, 1));
OBJECT(ompi_mpi_group_null, CKPT_VID(CKPT_KIND_GROUP, 0));
OBJECT(ompi_request_null, VID_REQUEST_NULL);
OBJECT(ompi_message_null, VID_MESSAGE_NULL);
OBJECT(ompi_message_no_proc, VID_MESSAGE_NO_PROC);
OBJECT(ompi_mpi_op_null, VID_OP_NULL);
OBJECT(ompi_mpi_datatype_null, VID_TYPE_NULL);
OBJECT(ompi_mpi_errhandler_null, CKPT_VID(CKPT_KIND_ERRHANDLER, 0));
OBJECT(ompi_mpi_errors_are_fatal, CKPT_VID(CKPT_KIND_ERRHANDLER, ERRH_FATAL));
OBJECT(ompi_mpi_errors_return, CKPT_VID(CKPT_KIND_ERRHANDLER, ERRH_RETURN));
OBJECT(ompi_mpi_errors_throw_exceptions, CKPT_VID(CKPT_KIND_ERRHANDLER, ERRH_THROW));
OBJECT(ompi_mpi_win_null, VID_WIN_NULL);
OBJECT(ompi_mpi_file_null, VID_FILE_NULL);
OBJECT(ompi_mpi_info_null, CKPT_VID(CKPT_KIND_INFO, 0));
OBJECT(ompi_mpi_instance_null, CKPT_VID(CKPT_KIND_SESSION, 0));
OBJECT(ompi_mpi_info_env, CKPT_VID(CKPT_KIND_INFO, 1));
#define X(name, number, symbol) OBJECT(symbol, CKPT_VID(CKPT_KIND_DATATYPE, number));
OPENMPI_DATATYPE_LIST(X)
#undef X
#define X(name, number, symbol) OBJECT(symbol, CKPT_VID(CKPT_KIND_OP, number));
OPENMPI_OP_LIST(X)
#undef X

void *const openmpi_comms[3] = {&ompi_mpi_comm_null, &ompi_mpi_comm_world, &ompi_mpi_comm_self};
void *const openmpi_groups[2] = {&ompi_mpi_group_null, &ompi_mpi_group_empty};
void *const openmpi_errhs[4] = {&ompi_mpi_errhandler_null, &ompi_mpi_errors_are_fatal,
                                &ompi_mpi_errors_return, &ompi_mpi_errors_throw_exceptions};
void *const openmpi_types[CKPT_VID_PREDEFINED] = {[0] = &ompi_mpi_datatype_null,
#define X(name, number, symbol) [number] = &symbol,
                                                  OPENMPI_DATATYPE_LIST(X)
#undef X
};
void *const openmpi_ops[16] = {[0] = &ompi_mpi_op_null,
#define X(name, number, symbol) [number] = &symbol,
                               OPENMPI_OP_LIST(X)
#undef X
};

static MPI_Fint f_status_ignore[6];
EXPORT MPI_Fint *MPI_F_STATUS_IGNORE = f_status_ignore;
EXPORT MPI_Fint *MPI_F_STATUSES_IGNORE = f_status_ignore;
EXPORT void *MPI_F08_STATUS_IGNORE = f_status_ignore, *MPI_F08_STATUSES_IGNORE = f_status_ignore;

// MPI_COMM_NULL_COPY_FN and its like are functions in this ABI, not null pointers.
#define ATTR_FNS(object, type)                                                                           \
    EXPORT int OMPI_C_MPI_##object##NULL_DELETE_FN(type h, int k, void *value, void *extra) {            \
        (void)h, (void)k, (void)value, (void)extra;                                                      \
        return MPI_SUCCESS;                                                                              \
    }                                                                                                    \
    EXPORT int OMPI_C_MPI_##object##NULL_COPY_FN(type h, int k, void *extra, void *in, void *out,        \
                                                 int *flag) {                                            \
        (void)h, (void)k, (void)extra, (void)in, (void)out;                                              \
        *flag = 0;                                                                                       \
        return MPI_SUCCESS;                                                                              \
    }                                                                                                    \
    EXPORT int OMPI_C_MPI_##object##DUP_FN(type h, int k, void *extra, void *in, void *out, int *flag) { \
        (void)h, (void)k, (void)extra;                                                                   \
        *(void **)out = in;                                                                              \
        *flag = 1;                                                                                       \
        return MPI_SUCCESS;                                                                              \
    }

ATTR_FNS(COMM_, MPI_Comm)
ATTR_FNS(TYPE_, MPI_Datatype)
ATTR_FNS(WIN_, MPI_Win)
ATTR_FNS(, MPI_Comm) // MPI_NULL_COPY_FN and its like, for MPI_Keyval_create
