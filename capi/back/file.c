/* SPDX-License-Identifier: Apache-2.0
 *
 * file.c: files: their handles and views.
 */
#include "impl.h"

/* Slots of files: a, b: ids of the view's element type and file type.  They are kept as needs of
 * the file, so that the view can be told when the application has freed them. */

static long set_view(ckpt_vid vid, ckpt_vid etype, ckpt_vid filetype) {
    const ckpt_vid needs[2] = {etype, filetype};
    if (ckpt_vid_describe(back.job, vid, NULL, 0, needs, 2) != 0)
        return CANON_ERR(INTERN);
    ckpt_slot *s = back_slot(CKPT_KIND_FILE, vid);
    s->a = (int32_t)etype;
    s->b = (int32_t)filetype;
    return 0;
}

long back_File_open(const long *a) {
    MPI_File file;
    MPI_Info info = back_info((const char *)a[3]);
    int rc = MPI_File_open(real_comm(a[0]), (const char *)a[1], (int)a[2], info, &file);
    back_info_done(&info);
    if (rc == MPI_SUCCESS)
        rc = MPI_File_set_errhandler(file, MPI_ERRORS_RETURN);
    if (rc != MPI_SUCCESS)
        return back_error(rc);
    const ckpt_vid byte = CKPT_VID(CKPT_KIND_DATATYPE, CANON_DATATYPE_BYTE);
    ckpt_vid v = ckpt_vid_new(back.job, CKPT_KIND_FILE, TO_REAL(file), NULL, 0, NULL, 0, 0);
    if (v == CKPT_VID_NONE)
        return CANON_ERR(NO_MEM);
    back_slot(CKPT_KIND_FILE, v)->clock = (ckpt_vid)a[0];
    *(ckpt_vid *)a[4] = v;
    return set_view(v, byte, byte);
}

long back_File_close(const long *a) {
    ckpt_vid v = *(ckpt_vid *)a[0];
    MPI_File file = real_file(v);
    int rc = MPI_File_close(&file);
    if (rc == MPI_SUCCESS)
        ckpt_vid_free(back.job, v);
    return back_error(rc);
}

long back_File_get_group(const long *a) {
    MPI_Group group;
    int rc = MPI_File_get_group(real_file(a[0]), &group);
    if (rc != MPI_SUCCESS)
        return back_error(rc);
    long canon = back_group_out(group, 1, (int *)a[1], (ckpt_mpi_group *)a[2]);
    MPI_Group_free(&group);
    return canon;
}

long back_File_set_view(const long *a) {
    MPI_Info info = back_info((const char *)a[5]);
    int rc = MPI_File_set_view(real_file(a[0]), a[1], real_type(a[2]), real_type(a[3]),
                               (const char *)a[4], info);
    back_info_done(&info);
    return rc == MPI_SUCCESS ? set_view((ckpt_vid)a[0], (ckpt_vid)a[2], (ckpt_vid)a[3])
                             : back_error(rc);
}

long back_File_get_view(const long *a) {
    MPI_Datatype etype, filetype;
    int rc =
        MPI_File_get_view(real_file(a[0]), (MPI_Offset *)a[1], &etype, &filetype, (char *)a[4]);
    if (rc != MPI_SUCCESS)
        return back_error(rc);
    if (ckpt_vid_find(back.job, CKPT_KIND_DATATYPE, TO_REAL(etype)) == CKPT_VID_NONE)
        MPI_Type_free(&etype); /* a duplicate for us, like the next one */
    if (ckpt_vid_find(back.job, CKPT_KIND_DATATYPE, TO_REAL(filetype)) == CKPT_VID_NONE)
        MPI_Type_free(&filetype);
    const ckpt_slot *s = back_slot(CKPT_KIND_FILE, a[0]);
    long canon = back_type_again((ckpt_vid)s->a, (ckpt_vid *)a[2]);
    return canon ? canon : back_type_again((ckpt_vid)s->b, (ckpt_vid *)a[3]);
}
