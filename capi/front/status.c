// SPDX-License-Identifier: Apache-2.0
//
// status.c: functions that read or set a status.
#include <limits.h>
#include <stddef.h>

#include "front/front.h"

// The size of a datatype in bytes, -1 when the handle is not a datatype.
static int64_t type_size(MPI_Datatype datatype, unsigned fn) {
    const ckpt_slot *s = front_slot(fn, CKPT_KIND_DATATYPE, in_type(datatype));
    return front_is_null(CKPT_KIND_DATATYPE, s) ? -1 : (int64_t)s->extra;
}

FRONT(int, Get_count, (const MPI_Status *status, MPI_Datatype datatype, int *count)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GET_COUNT, status != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GET_COUNT, count != NULL);
    int64_t size = type_size(datatype, CKPT_FN_MPI_GET_COUNT), bytes = status_bytes(status);
    if (size < 0) return FRONT_ERR(CKPT_FN_MPI_GET_COUNT, TYPE);
    if (size == 0)
        *count = bytes == 0 ? 0 : MPI_UNDEFINED;
    else
        *count = bytes % size || bytes / size > INT_MAX ? MPI_UNDEFINED : (int)(bytes / size);
    return MPI_SUCCESS;
}

FRONT(int, Type_size, (MPI_Datatype type, int *size)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_SIZE, size != NULL);
    int64_t n = type_size(type, CKPT_FN_MPI_TYPE_SIZE);
    if (n < 0) return FRONT_ERR(CKPT_FN_MPI_TYPE_SIZE, TYPE);
    *size = n > INT_MAX ? MPI_UNDEFINED : (int)n;
    return MPI_SUCCESS;
}

FRONT(int, Type_size_x, (MPI_Datatype type, MPI_Count *size)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TYPE_SIZE_X, size != NULL);
    int64_t n = type_size(type, CKPT_FN_MPI_TYPE_SIZE_X);
    if (n < 0) return FRONT_ERR(CKPT_FN_MPI_TYPE_SIZE_X, TYPE);
    *size = n;
    return MPI_SUCCESS;
}

FRONT(int, Get_count_c, (const MPI_Status *status, MPI_Datatype datatype, MPI_Count *count)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GET_COUNT_C, status != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GET_COUNT_C, count != NULL);
    int64_t size = type_size(datatype, CKPT_FN_MPI_GET_COUNT_C), bytes = status_bytes(status);
    if (size < 0) return FRONT_ERR(CKPT_FN_MPI_GET_COUNT_C, TYPE);
    if (size == 0)
        *count = bytes == 0 ? 0 : MPI_UNDEFINED;
    else
        *count = bytes % size ? MPI_UNDEFINED : bytes / size;
    return MPI_SUCCESS;
}

FRONT(int, Type_size_c, (MPI_Datatype type, MPI_Count *size)) { return PMPI_Type_size_x(type, size); }

FRONT(int, Get_elements_c, (const MPI_Status *status, MPI_Datatype datatype, MPI_Count *count)) {
    return PMPI_Get_elements_x(status, datatype, count);
}

FRONT(int, Type_get_extent_c, (MPI_Datatype type, MPI_Count *lb, MPI_Count *extent)) {
    return PMPI_Type_get_extent_x(type, lb, extent);
}

FRONT(int, Type_get_true_extent_c, (MPI_Datatype type, MPI_Count *lb, MPI_Count *extent)) {
    return PMPI_Type_get_true_extent_x(type, lb, extent);
}

FRONT(int, Test_cancelled, (const MPI_Status *status, int *flag)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TEST_CANCELLED, status != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_TEST_CANCELLED, flag != NULL);
    *flag = status_cancelled(status);
    return MPI_SUCCESS;
}

FRONT(int, Status_set_cancelled, (MPI_Status * status, int flag)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_STATUS_SET_CANCELLED, status != NULL);
    set_status_cancelled(status, flag);
    return MPI_SUCCESS;
}

FRONT(int, Status_set_elements_x, (MPI_Status * status, MPI_Datatype datatype, MPI_Count count)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_STATUS_SET_ELEMENTS_X, status != NULL);
    int64_t size = type_size(datatype, CKPT_FN_MPI_STATUS_SET_ELEMENTS_X);
    if (size < 0) return FRONT_ERR(CKPT_FN_MPI_STATUS_SET_ELEMENTS_X, TYPE);
    set_status_bytes(status, size * count);
    return MPI_SUCCESS;
}

FRONT(int, Status_set_elements, (MPI_Status * status, MPI_Datatype datatype, int count)) {
    return PMPI_Status_set_elements_x(status, datatype, count);
}

FRONT(int, Status_c2f, (const MPI_Status *c_status, int *f_status)) {
    __builtin_memcpy(f_status, c_status, sizeof *c_status);
    return MPI_SUCCESS;
}

FRONT(int, Status_f2c, (const int *f_status, MPI_Status *c_status)) {
    __builtin_memcpy(c_status, f_status, sizeof *c_status);
    return MPI_SUCCESS;
}

FRONT(int, File_get_type_extent_c, (MPI_File fh, MPI_Datatype datatype, MPI_Count *extent)) {
    return PMPI_File_get_type_extent(fh, datatype, extent);
}

FRONT(int, Buffer_attach_c, (void *buffer, MPI_Count size)) {
    if (size != (int)size) return FRONT_ERR(CKPT_FN_MPI_BUFFER_ATTACH_C, COUNT);
    return PMPI_Buffer_attach(buffer, (int)size);
}

FRONT(int, Buffer_detach_c, (void *buffer, MPI_Count *size)) {
    int n = 0, rc = PMPI_Buffer_detach(buffer, &n);
    *size = n;
    return rc;
}
