// SPDX-License-Identifier: Apache-2.0
//
// file.h: what is kept of an open MPI file.
#ifndef CKPT_BACK_FILE_H
#define CKPT_BACK_FILE_H

#include "back/impl/handles.h"

// Fields of a file's slot: clock is the file's own communicator, a duplicate that the application never sees;
// extra is this struct.
struct file {
    char *path;   // absolute
    char *info;   // hints of opening (mpi_canon.h); NULL: none
    int amode;    // as the application gave it
    int shared;   // this rank has used the shared pointer
    int64_t disp; // the view
    int untold;   // MPI does not tell where its pointer stands (view_tells)
    int moved;    // since the view was set
    ckpt_vid etype, filetype;
    char *datarep;
    char *view_info; // like info
    int split;       // function that began a split collective, else 0
    ckpt_mpi_status split_status;
    struct started *started; // non-blocking collective operations (file_order.c)
};

#pragma GCC visibility push(hidden)

// NULL: no such file is open.
struct file *back_file_of(long vid);
void file_free(struct file *f);
// A non-blocking collective operation on the file was started.
void file_ordered(struct file *f, ckpt_vid request);
// MPI_Test for a request that must be tested in its turn (file_order.c).
int file_test(ckpt_slot *s, int *flag, MPI_Status *status);
// The file is closed: forgets its operations.
void file_unordered(struct file *f);
// Whether a file keeps this rank from being saved.
int files_hold(char *why, size_t bytes);
// Describes all files as they are now: pointers, views, split collectives.
int files_describe(void);
int back_rebuild_file(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
// Lists the open files (ckpt_runtime_ops.files).
long back_files(void *ctx, char *buffer, size_t bytes);

#pragma GCC visibility pop

#endif
