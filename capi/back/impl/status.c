// SPDX-License-Identifier: Apache-2.0
//
// status.c: what is rarely done with a status.
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
    MPI_Status own = {.MPI_TAG = 0}, *s = &own;
    int rc = MPI_SUCCESS;
    if (status_form(a[0]) == STATUS_REAL)
        s = status_at(a[0]);
    else
        rc = MPI_Status_set_elements_x(s, MPI_BYTE, status_get_bytes(a[0]));
    if (rc == MPI_SUCCESS) rc = MPI_Get_elements_x(s, real_type(a[1]), (MPI_Count *)a[2]);
    if (rc == MPI_SUCCESS && *(MPI_Count *)a[2] == MPI_UNDEFINED) *(MPI_Count *)a[2] = CANON_UNDEFINED;
    return back_error(rc);
}

long back_Get_elements(const long *a) {
    MPI_Count n;
    long b[] = {a[0], a[1], (long)&n};
    long rc = back_Get_elements_x(b);
    if (rc == 0) *(int *)a[2] = n > INT_MAX || n == CANON_UNDEFINED ? CANON_UNDEFINED : (int)n;
    return rc;
}
