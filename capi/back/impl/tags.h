// SPDX-License-Identifier: Apache-2.0
//
// tags.h: which tags messages may have.
#ifndef CKPT_BACK_TAGS_H
#define CKPT_BACK_TAGS_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// What a program is told that begins here (MPI_TAG_UB), and what the real MPI allows.
int back_tag_ub(void);
int back_real_tag_ub(void);
// Whether messages can have that tag here; else says why a request with it cannot be made again.
int back_tag_fits(const char *request, int rank, int tag);

#pragma GCC visibility pop

#endif
