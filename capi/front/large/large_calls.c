// SPDX-License-Identifier: Apache-2.0
//
// large_calls.c: packing, windows and attached buffers with large counts; data representations.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "front/large/large.h"

// ---- packing: packing element by element gives the same bytes as packing all at once ----

// How many elements one call can pack, so that the number of packed bytes fits an int.
static int piece(MPI_Datatype type, MPI_Aint *extent, int *elements) {
    MPI_Count bytes;
    MPI_Aint lb;
    int rc = PMPI_Type_get_extent(type, &lb, extent);
    if (rc == MPI_SUCCESS) rc = PMPI_Type_size_x(type, &bytes);
    if (rc == MPI_SUCCESS)
        *elements = bytes < 1 ? INT_MAX : bytes < INT_MAX / 4 ? (int)(INT_MAX / 4 / bytes) : 1;
    return rc;
}

static int least(MPI_Count a, MPI_Count b) { return (int)(a < b ? a : b); }

FRONT(int, Pack_c,
      (const void *inbuf, MPI_Count incount, MPI_Datatype datatype, void *outbuf, MPI_Count outsize,
       MPI_Count *position, MPI_Comm comm)) {
    MPI_Aint extent;
    int most, rc = piece(datatype, &extent, &most);
    MPI_Count done = 0;
    do {
        int at = 0, n = least(incount - done, most);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Pack((const char *)inbuf + done * extent, n, datatype, (char *)outbuf + *position,
                           least(outsize - *position, INT_MAX), &at, comm);
        if (rc == MPI_SUCCESS) *position += at;
        done += n;
    } while (rc == MPI_SUCCESS && done < incount);
    return rc;
}

FRONT(int, Unpack_c,
      (const void *inbuf, MPI_Count insize, MPI_Count *position, void *outbuf, MPI_Count outcount,
       MPI_Datatype datatype, MPI_Comm comm)) {
    MPI_Aint extent;
    int most, rc = piece(datatype, &extent, &most);
    MPI_Count done = 0;
    do {
        int at = 0, n = least(outcount - done, most);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Unpack((const char *)inbuf + *position, least(insize - *position, INT_MAX), &at,
                             (char *)outbuf + done * extent, n, datatype, comm);
        if (rc == MPI_SUCCESS) *position += at;
        done += n;
    } while (rc == MPI_SUCCESS && done < outcount);
    return rc;
}

FRONT(int, Pack_size_c, (MPI_Count incount, MPI_Datatype datatype, MPI_Comm comm, MPI_Count *size)) {
    MPI_Aint extent;
    int most, rc = piece(datatype, &extent, &most);
    MPI_Count done = 0, total = 0;
    do {
        int bytes = 0, n = least(incount - done, most);
        if (rc == MPI_SUCCESS) rc = PMPI_Pack_size(n, datatype, comm, &bytes);
        total += bytes;
        done += n;
    } while (rc == MPI_SUCCESS && done < incount);
    if (rc == MPI_SUCCESS) *size = total;
    return rc;
}

FRONT(int, Pack_external_c,
      (const char *datarep, const void *inbuf, MPI_Count incount, MPI_Datatype datatype, void *outbuf,
       MPI_Count outsize, MPI_Count *position)) {
    MPI_Aint extent;
    int most, rc = piece(datatype, &extent, &most);
    MPI_Count done = 0;
    do {
        int n = least(incount - done, most);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Pack_external(datarep, (const char *)inbuf + done * extent, n, datatype, outbuf,
                                    outsize, position);
        done += n;
    } while (rc == MPI_SUCCESS && done < incount);
    return rc;
}

FRONT(int, Unpack_external_c,
      (const char *datarep, const void *inbuf, MPI_Count insize, MPI_Count *position, void *outbuf,
       MPI_Count outcount, MPI_Datatype datatype)) {
    MPI_Aint extent;
    int most, rc = piece(datatype, &extent, &most);
    MPI_Count done = 0;
    do {
        int n = least(outcount - done, most);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Unpack_external(datarep, inbuf, insize, position, (char *)outbuf + done * extent, n,
                                      datatype);
        done += n;
    } while (rc == MPI_SUCCESS && done < outcount);
    return rc;
}

FRONT(int, Pack_external_size_c,
      (const char *datarep, MPI_Count incount, MPI_Datatype datatype, MPI_Count *size)) {
    MPI_Aint extent, total = 0;
    int most, rc = piece(datatype, &extent, &most);
    MPI_Count done = 0;
    do {
        MPI_Aint bytes = 0;
        int n = least(incount - done, most);
        if (rc == MPI_SUCCESS) rc = PMPI_Pack_external_size(datarep, n, datatype, &bytes);
        total += bytes;
        done += n;
    } while (rc == MPI_SUCCESS && done < incount);
    if (rc == MPI_SUCCESS) *size = total;
    return rc;
}

// ---- windows: the unit of displacements ----

static int unit_error(MPI_Comm comm, unsigned fn) { return front_too_large(FRONT_COMM, in_comm(comm), fn); }

FRONT(int, Win_create_c,
      (void *base, MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)) {
    return disp_unit == (int)disp_unit ? PMPI_Win_create(base, size, (int)disp_unit, info, comm, win)
                                       : unit_error(comm, CKPT_FN_MPI_WIN_CREATE_C);
}

FRONT(int, Win_allocate_c,
      (MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win)) {
    return disp_unit == (int)disp_unit ? PMPI_Win_allocate(size, (int)disp_unit, info, comm, baseptr, win)
                                       : unit_error(comm, CKPT_FN_MPI_WIN_ALLOCATE_C);
}

FRONT(int, Win_allocate_shared_c,
      (MPI_Aint size, MPI_Aint disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win)) {
    return disp_unit == (int)disp_unit
               ? PMPI_Win_allocate_shared(size, (int)disp_unit, info, comm, baseptr, win)
               : unit_error(comm, CKPT_FN_MPI_WIN_ALLOCATE_SHARED_C);
}

FRONT(int, Win_shared_query_c, (MPI_Win win, int rank, MPI_Aint *size, MPI_Aint *disp_unit, void *baseptr)) {
    int unit = 0, rc = PMPI_Win_shared_query(win, rank, size, &unit, baseptr);
    if (rc == MPI_SUCCESS) *disp_unit = unit;
    return rc;
}

// ---- data representations ----
// Neither real MPI can convert, or set a view in a representation that a program has registered.  So
// registering only checks that each name is used once.  The names are upper-half memory.

enum { DATAREP_NAME = 128 }; // MPI_MAX_DATAREP_STRING, in all ABIs

static struct datarep {
    struct datarep *next;
    char name[];
} * datareps;

static int register_datarep(unsigned fn, const char *name, int converts) {
    size_t n = name != NULL ? strlen(name) : 0;
    int known = 0;
    if (n < 1 || n >= DATAREP_NAME) return front_error(FRONT_FILE, VID_FILE_NULL, fn, CANON_ERRCLASS_ERR_ARG);
    front_lock();
    for (const struct datarep *d = datareps; d != NULL; d = d->next) known |= strcmp(d->name, name) == 0;
    front_unlock();
    if (known || converts)
        return front_error(FRONT_FILE, VID_FILE_NULL, fn,
                           known ? CANON_ERRCLASS_ERR_DUP_DATAREP : CANON_ERRCLASS_ERR_CONVERSION);
    struct datarep *d = front_alloc(sizeof *d + n + 1);
    memcpy(d->name, name, n + 1);
    front_lock();
    d->next = datareps;
    datareps = d;
    front_unlock();
    return MPI_SUCCESS;
}

FRONT(int, Register_datarep,
      (const char *datarep, void *read_conversion_fn, void *write_conversion_fn, void *dtype_file_extent_fn,
       void *extra_state)) {
    (void)dtype_file_extent_fn;
    (void)extra_state;
    return register_datarep(CKPT_FN_MPI_REGISTER_DATAREP, datarep,
                            read_conversion_fn != NULL || write_conversion_fn != NULL);
}

FRONT(int, Register_datarep_c,
      (const char *datarep, void *read_conversion_fn, void *write_conversion_fn, void *dtype_file_extent_fn,
       void *extra_state)) {
    (void)dtype_file_extent_fn;
    (void)extra_state;
    return register_datarep(CKPT_FN_MPI_REGISTER_DATAREP_C, datarep,
                            read_conversion_fn != NULL || write_conversion_fn != NULL);
}
