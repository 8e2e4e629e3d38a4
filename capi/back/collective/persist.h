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

// Makes the communicator that a persistent collective has for itself (persist_comm.c).  Collective over
// comm.  If the real MPI has no more communicators, or processes of other jobs are among the members, all
// members get comm itself.  name: the call's.
long back_own_comm_new(ckpt_vid comm, const char *name, ckpt_vid *own);
void back_own_comm_free(ckpt_vid own);
// In a restart: back_own_comm_saved notes one such communicator of the image; then back_own_comms_open, with
// all ranks, makes those that all their members have.  0 or a CKPT_E code.
int back_own_comm_saved(ckpt_vid vid, const void *descriptor, size_t bytes);
int back_own_comms_open(void);

#pragma GCC visibility pop

#endif
