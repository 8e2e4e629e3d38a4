/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c: windows: their handles.  They are not made again yet: one that is open holds a
 * checkpoint back.
 */
#include "impl.h"

/* An object without a descriptor; comm is what it was made on. */
static long register_handle(ckpt_kind kind, uint64_t real, long comm, ckpt_vid *vid) {
    ckpt_vid v = ckpt_vid_new(back.job, kind, real, NULL, 0, NULL, 0, 0);
    if (v == CKPT_VID_NONE)
        return CANON_ERR(NO_MEM);
    back_slot(kind, v)->clock = (ckpt_vid)comm;
    *vid = v;
    return 0;
}

static long new_win(int rc, MPI_Win win, long comm, long vid) {
    if (rc == MPI_SUCCESS)
        rc = MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    if (rc != MPI_SUCCESS)
        return back_error(rc);
    return register_handle(CKPT_KIND_WIN, TO_REAL(win), comm, (ckpt_vid *)vid);
}

long back_Win_create(const long *a) {
    MPI_Win win;
    MPI_Info info = back_info((const char *)a[3]);
    int rc = MPI_Win_create((void *)a[0], a[1], (int)a[2], info, real_comm(a[4]), &win);
    back_info_done(&info);
    return new_win(rc, win, a[4], a[5]);
}

/* The front allocates the memory, which belongs to the application, and creates a window on it. */
long back_Win_allocate(const long *a) { return back_missing(a); }

long back_Win_allocate_shared(const long *a) {
    MPI_Win win;
    MPI_Info info = back_info((const char *)a[2]);
    int rc = MPI_Win_allocate_shared(a[0], (int)a[1], info, real_comm(a[3]), (void *)a[4], &win);
    back_info_done(&info);
    return new_win(rc, win, a[3], a[5]);
}

long back_Win_create_dynamic(const long *a) {
    MPI_Win win;
    MPI_Info info = back_info((const char *)a[0]);
    int rc = MPI_Win_create_dynamic(info, real_comm(a[1]), &win);
    back_info_done(&info);
    return new_win(rc, win, a[1], a[2]);
}

long back_Win_free(const long *a) {
    ckpt_vid v = *(ckpt_vid *)a[0];
    MPI_Win win = real_win(v);
    int rc = MPI_Win_free(&win);
    if (rc == MPI_SUCCESS)
        ckpt_vid_free(back.job, v);
    return back_error(rc);
}

long back_Win_get_group(const long *a) {
    MPI_Group group;
    int rc = MPI_Win_get_group(real_win(a[0]), &group);
    if (rc != MPI_SUCCESS)
        return back_error(rc);
    long canon = back_group_out(group, 1, (int *)a[1], (ckpt_mpi_group *)a[2]);
    MPI_Group_free(&group);
    return canon;
}
