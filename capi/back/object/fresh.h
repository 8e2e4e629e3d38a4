// SPDX-License-Identifier: Apache-2.0
//
// fresh.h: the ids of datatypes, and their descriptors.
//
// Programs make and free datatypes in their inner loops; telling libckpt of each costs more than
// making it.  So a back gives out the ids itself, from a reserve, and keeps the descriptors.  Such a
// datatype is fresh.  libckpt is told of all fresh ones together (fresh_tell): when an image is made,
// when another object needs one, or when there are many.  It is never told of those that were freed
// before that.
//
//   id reserved --fresh_new--> fresh --fresh_tell--> known to libckpt --fresh_free--> id is libckpt's
//        ^                       |
//        +-------fresh_free------+  its descriptor stays while another fresh one needs it
//
// libckpt counts the references of known datatypes, this file those of fresh ones.  libckpt is told at once
// of a datatype that needs a known one, so that a fresh datatype refers to fresh ones only.
#ifndef CKPT_BACK_FRESH_H
#define CKPT_BACK_FRESH_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Gives a real datatype an id, CKPT_VID_NONE on failure.  words is its descriptor (describe.h), from malloc;
// the callee owns it from then on, also on failure.
ckpt_vid fresh_new(MPI_Datatype type, int32_t *words, size_t n);

// The application freed the datatype, and the real one is gone.
void fresh_free(ckpt_vid vid);

// A copy of the descriptor of a datatype that is live or needed, from malloc.  NULL with *bytes 0: there is
// no such datatype.  NULL with another *bytes: memory is out.
void *fresh_descriptor(ckpt_vid vid, size_t *bytes);

// The id of a real datatype; CKPT_VID_NONE: it has none.
ckpt_vid fresh_find(MPI_Datatype type);

// Tells libckpt of all that are fresh.  0, or a negative CKPT_E code.
int fresh_tell(void);

#pragma GCC visibility pop

#endif
