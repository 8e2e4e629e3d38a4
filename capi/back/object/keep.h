// SPDX-License-Identifier: Apache-2.0
//
// keep.h: datatypes that were freed while requests still use them.
#ifndef CKPT_BACK_KEEP_H
#define CKPT_BACK_KEEP_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// The application frees v.  *keeps is 1 when nothing more is to be done, since it is freed here when no
// request needs it.  Returns a canonical error.
long back_keep_type(ckpt_vid v, int *keeps);

// Frees those that no request needs any more.
void back_keep_look(void);

// After back_keep_look: whether this request is what one of them is kept for.
int back_keep_has(const ckpt_slot *s, ckpt_vid request);

// After a restart: v was kept when the image was made.  0 when it cannot be, -1 when memory is out.
int back_keep_again(ckpt_vid v);

#pragma GCC visibility pop

#endif
