// SPDX-License-Identifier: Apache-2.0
//
// section.h: drained messages, matched messages and requests in an image (section "messages").
//
// 64-bit little-endian words; messages' bytes are padded to 8.  drain/section.go reads the same bytes,
// and refuses an image whose section it does not understand: a change here is a change there.
//
//   version: 2, and 3 when there are claims or awaited requests
//   drained messages: count, then each: communicator, source, tag, length, bytes; in order of arrival
//   matched messages: count, then each: id, communicator, source, tag, length, bytes
//   requests: count, then each: id, flags, peer, communicator, state, and
//     STATE_DONE: source, tag, cancelled, length, canonical error
//     STATE_POSTED: order, buffer, count, datatype, source, tag
//     STATE_DEFERRED: number of the call on its communicator, function, number of arguments,
//       arguments (of MPI_Ialltoallw and its like, then the datatypes)
//     STATE_GENERALIZED: the front's object and thunk
//     STATE_COLL: function, number of arguments, arguments, position of the request, arrays of types,
//       number of types, types, inner request
//     STATE_INACTIVE: nothing
//     STATE_AWAITED: id, world rank of the receiver
//     persistent ones then: mode, six arguments
//   version 3: claims on messages: count, then each: number of the message, drained ones first, world rank
//     of the sender, id
#ifndef CKPT_BACK_SECTION_H
#define CKPT_BACK_SECTION_H

#include "back/request/request.h"

enum { SAVE_VERSION = 2, SAVE_VERSION_CLAIMS = 3 };
enum {
    STATE_INACTIVE = 0,
    STATE_DONE = 1,
    STATE_POSTED = 2,
    STATE_DEFERRED = 3,
    STATE_GENERALIZED = 4,
    STATE_COLL = 5,
    STATE_AWAITED = 6
};
// Flags that say what a request is; the others say what happened to it in this process.
enum {
    LASTING = REQUEST_KIND | REQUEST_PERSISTENT | REQUEST_ACTIVE | REQUEST_CANCELLED | REQUEST_SYNC |
              REQUEST_GENERALIZED | REQUEST_ENDED | REQUEST_COLL | REQUEST_PAIR | REQUEST_ORPHAN
};
// A flag in images only: the datatype was freed, and is kept for the request.
enum { REQUEST_KEEPS_TYPE = 262144 };

#pragma GCC visibility push(hidden)

// ckpt_runtime_ops: writes the section, with no buffer only says how long it will be; reads it.
long back_save(void *ctx, void *buffer, size_t bytes);
int back_load(void *ctx, const void *saved, size_t bytes);

// Says that memory was out for that, and gives the code.
int back_no_memory(const char *what);

#pragma GCC visibility pop

#endif
