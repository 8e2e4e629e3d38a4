// SPDX-License-Identifier: Apache-2.0
//
// mpi5.c: functions of MPI 4.1 and 5.0 that the front answers.
#include "front/front.h"

// ---- the ABI ----

FRONT(int, Abi_get_version, (int *abi_major, int *abi_minor)) {
    *abi_major = FRONT_ABI == 3 ? 1 : -1; // -1: not the standard's
    *abi_minor = FRONT_ABI == 3 ? 0 : -1;
    return MPI_SUCCESS;
}

FRONT(int, Abi_get_info, (MPI_Info * info)) {
    PMPI_Info_create(info);
    PMPI_Info_set(*info, "mpi_aint_size", "8");
    PMPI_Info_set(*info, "mpi_count_size", "8");
    return PMPI_Info_set(*info, "mpi_offset_size", "8");
}

FRONT(int, Get_hw_resource_info, (MPI_Info * hw_info)) { return PMPI_Info_create(hw_info); }

// ---- statuses ----

FRONT(int, Status_get_source, (const MPI_Status *status, int *source)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_STATUS_GET_SOURCE, status != NULL);
    *source = status->MPI_SOURCE;
    return MPI_SUCCESS;
}

FRONT(int, Status_set_source, (MPI_Status * status, int source)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_STATUS_SET_SOURCE, status != NULL);
    status->MPI_SOURCE = source;
    return MPI_SUCCESS;
}

FRONT(int, Status_get_tag, (const MPI_Status *status, int *tag)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_STATUS_GET_TAG, status != NULL);
    *tag = status->MPI_TAG;
    return MPI_SUCCESS;
}

FRONT(int, Status_set_tag, (MPI_Status * status, int tag)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_STATUS_SET_TAG, status != NULL);
    status->MPI_TAG = tag;
    return MPI_SUCCESS;
}

FRONT(int, Status_get_error, (const MPI_Status *status, int *error)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_STATUS_GET_ERROR, status != NULL);
    *error = status->MPI_ERROR;
    return MPI_SUCCESS;
}

FRONT(int, Status_set_error, (MPI_Status * status, int error)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_STATUS_SET_ERROR, status != NULL);
    status->MPI_ERROR = error;
    return MPI_SUCCESS;
}

FRONT(int, Status_set_elements_c, (MPI_Status * status, MPI_Datatype datatype, MPI_Count count)) {
    return PMPI_Status_set_elements_x(status, datatype, count);
}

// ---- looking at several requests, which stay as they are ----

static MPI_Status *nth(MPI_Status *statuses, int i) { return is_status(statuses) ? statuses + i : statuses; }

FRONT(int, Request_get_status_all,
      (int count, const MPI_Request *requests, int *flag, MPI_Status *statuses)) {
    *flag = 1;
    for (int i = 0; i < count && *flag; i++) {
        int rc = PMPI_Request_get_status(requests[i], flag, nth(statuses, i));
        if (rc != MPI_SUCCESS) return rc;
    }
    return MPI_SUCCESS;
}

FRONT(int, Request_get_status_some,
      (int incount, const MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses)) {
    int live = 0;
    *outcount = 0;
    for (int i = 0; i < incount; i++) {
        int flag = 0;
        if (requests[i] == MPI_REQUEST_NULL) continue;
        live = 1;
        int rc = PMPI_Request_get_status(requests[i], &flag, nth(statuses, *outcount));
        if (rc != MPI_SUCCESS) return rc;
        if (flag) indices[(*outcount)++] = i;
    }
    if (!live) *outcount = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

FRONT(int, Request_get_status_any,
      (int count, const MPI_Request *requests, int *index, int *flag, MPI_Status *status)) {
    int live = 0;
    *index = MPI_UNDEFINED;
    for (int i = 0; i < count; i++) {
        if (requests[i] == MPI_REQUEST_NULL) continue;
        live = 1;
        int rc = PMPI_Request_get_status(requests[i], flag, status);
        if (rc != MPI_SUCCESS) return rc;
        if (*flag) {
            *index = i;
            return MPI_SUCCESS;
        }
    }
    *flag = !live;
    return live ? MPI_SUCCESS : PMPI_Request_get_status(MPI_REQUEST_NULL, flag, status);
}

// ---- pairs of a value and its place ----

FRONT(int, Type_get_value_index,
      (MPI_Datatype value_type, MPI_Datatype index_type, MPI_Datatype *pair_type)) {
    static const struct {
        unsigned char value, index, pair;
    } pairs[] = {
        {CANON_DATATYPE_FLOAT, CANON_DATATYPE_INT, CANON_DATATYPE_FLOAT_INT},
        {CANON_DATATYPE_DOUBLE, CANON_DATATYPE_INT, CANON_DATATYPE_DOUBLE_INT},
        {CANON_DATATYPE_LONG, CANON_DATATYPE_INT, CANON_DATATYPE_LONG_INT},
        {CANON_DATATYPE_SHORT, CANON_DATATYPE_INT, CANON_DATATYPE_SHORT_INT},
        {CANON_DATATYPE_INT, CANON_DATATYPE_INT, CANON_DATATYPE_2INT},
        {CANON_DATATYPE_LONG_DOUBLE, CANON_DATATYPE_INT, CANON_DATATYPE_LONG_DOUBLE_INT},
        {CANON_DATATYPE_REAL, CANON_DATATYPE_REAL, CANON_DATATYPE_2REAL},
        {CANON_DATATYPE_DOUBLE_PRECISION, CANON_DATATYPE_DOUBLE_PRECISION, CANON_DATATYPE_2DOUBLE_PRECISION},
        {CANON_DATATYPE_INTEGER, CANON_DATATYPE_INTEGER, CANON_DATATYPE_2INTEGER},
    };
    *pair_type = MPI_DATATYPE_NULL;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (in_type(value_type) == CKPT_VID(CKPT_KIND_DATATYPE, pairs[i].value) &&
            in_type(index_type) == CKPT_VID(CKPT_KIND_DATATYPE, pairs[i].index))
            *pair_type = out_type(CKPT_VID(CKPT_KIND_DATATYPE, pairs[i].pair));
    return MPI_SUCCESS;
}
