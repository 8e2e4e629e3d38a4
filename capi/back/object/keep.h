// SPDX-License-Identifier: Apache-2.0
//
// keep.h: datatypes that were freed while requests still use them.
#ifndef CKPT_BACK_KEEP_H
#define CKPT_BACK_KEEP_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// The application frees v.  *keeps is 1 when v is kept: the caller does nothing more, and v is freed here
// once no request needs it.  Returns a canonical error.
long back_keep_type(ckpt_vid v, int *keeps);

// Frees the kept datatypes that no request needs any more.
void back_keep_look(void);

// After back_keep_look: whether a datatype is kept for this request.
int back_keep_has(const ckpt_slot *s, ckpt_vid request);

// After a restart: v was kept when the image was made.  0: the image cannot be right; -1: memory is out.
int back_keep_again(ckpt_vid v);

#pragma GCC visibility pop

#endif
