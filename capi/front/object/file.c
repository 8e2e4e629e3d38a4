// SPDX-License-Identifier: Apache-2.0
//
// file.c: opening and closing files.
#include <stdlib.h>

#include "front/front.h"

FRONT(int, File_open, (MPI_Comm comm, const char *filename, int amode, MPI_Info info, MPI_File *fh)) {
    FRONT_NEEDS(FRONT_FILE, VID_FILE_NULL, CKPT_FN_MPI_FILE_OPEN, fh != NULL);
    ckpt_vid v = VID_FILE_NULL;
    const struct File_open_words a = {.comm = in_comm(comm),
                                      .filename = filename,
                                      .amode = in_amode(amode),
                                      .info = in_info(info),
                                      .fh = &v};
    long rc = front_call(CKPT_FN_MPI_FILE_OPEN, &a);
    if (rc != 0) // MPI says that errors of opening are those of MPI_FILE_NULL
        return front_error(FRONT_FILE, VID_FILE_NULL, CKPT_FN_MPI_FILE_OPEN, rc);
    ckpt_vid handler = front_side(FRONT_FILE, VID_FILE_NULL)->errhandler;
    front_errhandler_hold(handler);
    front_side(FRONT_FILE, v)->errhandler = handler;
    *fh = out_file(v);
    return MPI_SUCCESS;
}

FRONT(int, File_close, (MPI_File * fh)) {
    FRONT_NEEDS(FRONT_FILE, VID_FILE_NULL, CKPT_FN_MPI_FILE_CLOSE, fh != NULL);
    ckpt_vid v = in_file(*fh), id = v;
    const struct File_close_words a = {.fh = &id};
    long rc = front_call(CKPT_FN_MPI_FILE_CLOSE, &a);
    if (rc != 0) return front_error(FRONT_FILE, v, CKPT_FN_MPI_FILE_CLOSE, rc);
    front_side_drop(FRONT_FILE, v);
    *fh = MPI_FILE_NULL;
    return MPI_SUCCESS;
}

FRONT(int, File_get_group, (MPI_File fh, MPI_Group *group)) {
    FRONT_NEEDS(FRONT_FILE, in_file(fh), CKPT_FN_MPI_FILE_GET_GROUP, group != NULL);
    return front_group_of(FRONT_FILE, CKPT_FN_MPI_FILE_GET_GROUP, in_file(fh), group);
}

FRONT(int, File_get_info, (MPI_File fh, MPI_Info *info_used)) {
    FRONT_NEEDS(FRONT_FILE, in_file(fh), CKPT_FN_MPI_FILE_GET_INFO, info_used != NULL);
    long room = 1024, bytes;
    for (;;) {
        char *content = front_alloc((size_t)room);
        const struct File_get_info_words a = {
            .fh = in_file(fh), .content = content, .room = room, .bytes = &bytes};
        long rc = front_call(CKPT_FN_MPI_FILE_GET_INFO, &a);
        if (rc == 0 && bytes <= room) *info_used = front_info_new(content);
        free(content);
        if (rc != 0) return front_error(FRONT_FILE, in_file(fh), CKPT_FN_MPI_FILE_GET_INFO, rc);
        if (bytes <= room) return MPI_SUCCESS;
        room = bytes;
    }
}
