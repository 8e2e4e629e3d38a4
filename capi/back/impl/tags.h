// SPDX-License-Identifier: Apache-2.0
//
// tags.h: which tags messages may have.
#ifndef CKPT_BACK_TAGS_H
#define CKPT_BACK_TAGS_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// MPI_TAG_UB for a program that begins under this MPI, and the highest tag that the real MPI allows.
int back_tag_ub(void);
int back_real_tag_ub(void);
// Whether the real MPI has that tag.  If not, reports (back_fail) why a request with the tag cannot be made
// again.
int back_tag_fits(const char *request, int rank, int tag);

#pragma GCC visibility pop

#endif
