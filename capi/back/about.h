// SPDX-License-Identifier: Apache-2.0
//
// about.h: which MPI this back was compiled for.
#ifndef CKPT_BACK_ABOUT_H
#define CKPT_BACK_ABOUT_H

#include <stddef.h>

// Whether the MPI that was loaded is another one than this back was compiled for, or another version; why says which and
// what to do.  Before MPI_Init.
int back_other_mpi(char *why, size_t bytes) __attribute__((visibility("hidden")));

#endif
