/* SPDX-License-Identifier: Apache-2.0
 *
 * drain.h: what draining keeps, for save.c.
 */
#ifndef CKPT_BACK_DRAIN_H
#define CKPT_BACK_DRAIN_H

#include "impl.h"

/* A message that was received as bytes before the application asked for it, or was matched by
 * MPI_Mprobe.  source is a rank of comm (of its remote group). */
struct drained {
    struct drained *next;
    ckpt_vid comm;
    int source, tag;
    int64_t bytes;
    char *data;          /* NULL: the real MPI still has it */
    MPI_Request request; /* MPI_REQUEST_NULL: all of it is there */
};

/* What a receive was posted with. */
struct posted {
    void *buf;
    uint64_t serial;        /* order of posting */
    int count, source, tag; /* canonical */
    ckpt_vid type;
    uint32_t type_generation, comm_generation;
};

/* A collective call that waits for its start. */
struct deferred {
    struct deferred *next;
    ckpt_vid comm, request;
    uint64_t k;
    int function; /* index in the table */
    int nargs;    /* the last is where the id of the request goes */
    long a[14];
};

#pragma GCC visibility push(hidden)
extern struct drained *drained_first;
void drained_append(struct drained *m);
struct posted *posted_of(ckpt_vid request); /* NULL when out of memory */
extern uint64_t posted_serial;
/* The i-th slot of a kind that is handed out, from *i on; NULL at the end. */
ckpt_slot *next_slot(ckpt_kind kind, uint32_t *i);
/* Binds an id of an image: the deferred call of request vid. */
int deferred_bind(const struct deferred *d, ckpt_slot *s);
int deferred_start(struct deferred *d);
struct deferred *deferred_of(const ckpt_slot *s);
#pragma GCC visibility pop

#endif
