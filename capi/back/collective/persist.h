// SPDX-License-Identifier: Apache-2.0
//
// persist.h: persistent collectives, and the communicators that they have for themselves.
#ifndef CKPT_BACK_COLLECTIVE_PERSIST_H
#define CKPT_BACK_COLLECTIVE_PERSIST_H

#include "back/request/compound.h"

#pragma GCC visibility push(hidden)

long back_coll_init(int function, const char *name, const long *a, int n, unsigned types);
long back_coll_start(ckpt_slot *s);
// The request is freed by the application, or was not made after all.
void back_coll_end(struct back_coll *c);

// The communicator that a persistent collective has for itself (persist_comm.c).  Collective over comm:
// makes one, or gives comm itself, to all members alike, when the real MPI has no more or processes of other
// jobs are among them; name: of the call.
long back_own_comm_new(ckpt_vid comm, const char *name, ckpt_vid *own);
void back_own_comm_free(ckpt_vid own);
// While objects are made again: one of the image; then, with all ranks, those that all their members have.
// 0 or a CKPT_E code.
int back_own_comm_saved(ckpt_vid vid, const void *descriptor, size_t bytes);
int back_own_comms_open(void);

#pragma GCC visibility pop

#endif
