// SPDX-License-Identifier: Apache-2.0
//
// type.h: datatypes.
#ifndef CKPT_BACK_TYPE_H
#define CKPT_BACK_TYPE_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

int back_bind_datatype(ckpt_job *job, uint32_t index, MPI_Datatype type);
int back_rebuild_type(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);

// A constructor: its arguments become a descriptor, and that a datatype.
long back_type_make(int combiner, const long *a);
// The real one (generated: gen/zz_type.c).  v, at and t are the integers, addresses and datatypes of
// MPI_Type_get_contents, with real values; its arrays have n elements.
int back_type_construct(int combiner, int n, const int *v, const MPI_Aint *at, const MPI_Datatype *t,
                        MPI_Datatype *type);

// The real datatype of an id that a descriptor names, committed.  *temporary: the application has freed the
// datatype, so it was made again for this use, and the caller frees it.
int back_type_real(ckpt_vid type, MPI_Datatype *real, int *temporary);

// A new handle, for the application, of a datatype that may have been freed.  A predefined datatype is given
// as it is.
long back_type_again(ckpt_vid type, ckpt_vid *vid);

#pragma GCC visibility pop

#endif
