// SPDX-License-Identifier: Apache-2.0
//
// status.c: operations on statuses that are rarely needed.
#include <limits.h>

#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/impl/status.h"

void back_status_give_other(const MPI_Status *s, long out) {
    ckpt_mpi_status c;
    canon_status(s, &c);
    status_put(out, &c);
}

long back_Get_elements_x(const long *a) {
    ARGS(Get_elements_x) p = (const void *)a;
    MPI_Status own = {.MPI_TAG = 0}, *s = &own;
    int rc = MPI_SUCCESS;
    if (status_form(p->status) == STATUS_REAL)
        s = status_at(p->status);
    else
        rc = MPI_Status_set_elements_x(s, MPI_BYTE, status_get_bytes(p->status));
    if (rc == MPI_SUCCESS) rc = MPI_Get_elements_x(s, real_type(p->datatype), p->count);
    if (rc == MPI_SUCCESS && *p->count == MPI_UNDEFINED) *p->count = CANON_UNDEFINED;
    return back_error(rc);
}

long back_Get_elements(const long *a) {
    ARGS(Get_elements) p = (const void *)a;
    MPI_Count n;
    long b[] = {p->status, p->datatype, (long)&n};
    long rc = back_Get_elements_x(b);
    if (rc == 0) *p->count = n > INT_MAX || n == CANON_UNDEFINED ? CANON_UNDEFINED : (int)n;
    return rc;
}
