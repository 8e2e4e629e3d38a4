// SPDX-License-Identifier: Apache-2.0
//
// persist.h: persistent sends and receives.
#ifndef CKPT_BACK_MESSAGE_PERSIST_H
#define CKPT_BACK_MESSAGE_PERSIST_H

#include "back/request/persistent.h"

#pragma GCC visibility push(hidden)

// The real request; the real MPI's code.
int back_make_persistent(const struct persistent *p, MPI_Request *r);
// MPI_Start of a request that is not active; the real MPI's code.
int back_message_start(ckpt_vid v, ckpt_slot *s);

#pragma GCC visibility pop

#endif
