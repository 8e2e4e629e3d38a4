// SPDX-License-Identifier: Apache-2.0
//
// fresh.h: the ids of datatypes, and their descriptors.
//
// Programs make and free datatypes in their inner loops; telling libckpt of each costs more than
// making it.  So a back gives out the ids itself, from those it has reserved, and keeps the
// descriptors.  Such a datatype is fresh.  libckpt hears of all fresh ones together, when an image is made,
// when another object needs one, or when there are many (fresh_tell); those that were freed before
// then it never hears of.
//
//   id reserved --fresh_new--> fresh --fresh_tell--> known to libckpt --fresh_free--> id is libckpt's
//        ^                       |
//        +-------fresh_free------+  its descriptor stays while another fresh one needs it
//
// A known datatype holds what its descriptor needs in libckpt; a fresh one holds fresh ones here.  A
// datatype that needs a known one is known at once, so that these two never mix.
#ifndef CKPT_BACK_FRESH_H
#define CKPT_BACK_FRESH_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Gives a real datatype an id.  words is its descriptor (describe.h, from malloc), which is taken also
// on failure: CKPT_VID_NONE.
ckpt_vid fresh_new(MPI_Datatype type, int32_t *words, size_t n);

// The application freed the datatype, and the real one is gone.
void fresh_free(ckpt_vid vid);

// A copy of the descriptor of a datatype that is live or needed, from malloc.  NULL when there is none, and
// *bytes is 0 then; or when memory is out, and *bytes is not.
void *fresh_descriptor(ckpt_vid vid, size_t *bytes);

// The id of a real datatype; CKPT_VID_NONE when it has none.
ckpt_vid fresh_find(MPI_Datatype type);

// Tells libckpt of all that are fresh.  0, or a negative CKPT_E code.
int fresh_tell(void);

#pragma GCC visibility pop

#endif
