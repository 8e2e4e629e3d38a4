// SPDX-License-Identifier: Apache-2.0
//
// section.h: drained messages, matched messages and requests in an image (section "messages").
//
// docs/image-sections.md has the format, zz_section.h what reads and writes its records; both are written
// from cmd/mpigen/section.list.  Package drain refuses an image whose section it does not understand.
#ifndef CKPT_BACK_SECTION_H
#define CKPT_BACK_SECTION_H

#include "back/gen/zz_section.h"
#include "back/request/request.h"

// Images have the numbers of enum in request.h.
#define SAME(name, number) _Static_assert(REQUEST_##name == (number), "images hold this number");
SAVED_LASTING(SAME)
#undef SAME

_Static_assert((int)STATE_INACTIVE == REQ_INACTIVE && (int)STATE_DONE == REQ_DONE &&
                   (int)STATE_POSTED == REQ_STARTED && (int)STATE_DEFERRED == REQ_DEFERRED &&
                   (int)STATE_GENERALIZED == REQ_GENERALIZED && (int)STATE_COLL == REQ_COMPOUND &&
                   (int)STATE_AWAITED == REQ_AWAITED,
               "images hold these numbers");

// Flags that say what a request is; the others say what happened to it in this process.
enum {
#define OR(name, number) | REQUEST_##name
    LASTING = 0 SAVED_LASTING(OR)
#undef OR
};

#pragma GCC visibility push(hidden)

// ckpt_runtime_ops.  back_save writes the section; without a buffer it only says how long the section will
// be. back_load reads it.
long back_save(void *ctx, void *buffer, size_t bytes);
int back_load(void *ctx, const void *saved, size_t bytes);

// Reports (back_fail) that there was no memory for what, and returns the code.
int back_no_memory(const char *what);

#pragma GCC visibility pop

#endif
