// SPDX-License-Identifier: Apache-2.0
//
// drain.h: what draining keeps, for save.c.
#ifndef CKPT_BACK_DRAIN_H
#define CKPT_BACK_DRAIN_H

#include "back/impl/impl.h"

// A message that was received as bytes before the application asked for it, or was matched by
// MPI_Mprobe.  source is a rank of comm (of its remote group).
struct drained {
    struct drained *next;
    ckpt_vid comm;
    int source, tag;
    int64_t bytes;
    char *data; // NULL: the real MPI still has it, as message
    MPI_Message message;
    int starved;            // there was no memory for it when it was to be drained
    int counted;            // among those that are received from its sender
    MPI_Request request;    // MPI_REQUEST_NULL: all of it is there
    uint64_t matched;       // by the application: the order of it
    uint64_t claim;         // id that its sender waits for, 0: it does not (claim.c)
    int sender;             // in the world, for that
    int asked;              // ... which it has said at this checkpoint too
    struct drained *sooner; // the one that was sent or matched before it, while claims are judged
};

// What a receive was posted with.
struct posted {
    void *buf;
    uint64_t serial;        // order of posting
    int count, source, tag; // canonical
    ckpt_vid type;
    uint32_t type_generation, comm_generation;
};

// A collective call that waits for its start.
struct deferred {
    struct deferred *next;
    ckpt_vid comm, request;
    uint64_t k;
    int function; // index in the table
    int nargs;
    ckpt_vid *types; // memory for the start of MPI_Ialltoallw and its like
    MPI_Datatype *real_types;
    // Of MPI_Ialltoallw and its like the datatypes follow, since what the front gave is gone when the
    // call returns.
    long a[];
};
// Where the id of the request goes.
int deferred_request_at(int function, int nargs);
int deferred_sound(const struct deferred *d);                          // as an image has it
struct deferred *deferred_new(int function, const long *a, int nargs); // NULL when out of memory
void deferred_free(struct deferred *d);
// MPI_Ialltoallw and MPI_Ineighbor_alltoallw with memory for the real datatypes, which they take (coll.c).
long back_start_w(const long *a, MPI_Datatype *t);
long back_start_neighbor_w(const long *a, MPI_Datatype *t);
// 1 when v is freed later by that function, since a call that is not started uses it.
int deferred_keeps(ckpt_vid v, ckpt_back_fn *free_it);

#pragma GCC visibility push(hidden)
extern struct drained *drained_first;
void drained_append(struct drained *m);
// Completes the sends that can be completed; what back_drain does of them.
void back_drain_sends(void);
extern struct posted *posted_pages[CKPT_PAGES];
struct posted *posted_page(uint32_t page) __attribute__((cold)); // NULL when out of memory
static inline struct posted *posted_of(ckpt_vid request) {
    uint32_t index = CKPT_VID_INDEX(request);
    struct posted *page = posted_pages[index / CKPT_PAGE_SLOTS];
    if (__builtin_expect(page == NULL, 0) && (page = posted_page(index / CKPT_PAGE_SLOTS)) == NULL)
        return NULL;
    return page + index % CKPT_PAGE_SLOTS;
}
extern uint64_t posted_serial;

// A datatype that no request was made with needs no look when it is freed (keep.c).
enum { BACK_RECEIVED_WITH = 1 };
static inline void back_receives_with(ckpt_slot *type) {
    if (__builtin_expect(type->b == 0, 0)) type->b = BACK_RECEIVED_WITH;
}

// Remembers what MPI_Irecv was called with (buf, count, type, source, tag, comm), for a restart.
static inline void back_posted(ckpt_vid request, const long *a, ckpt_slot *type, const ckpt_slot *comm) {
    struct posted *p = posted_of(request);
    if (p == NULL) return; // its generations will not fit: it holds a checkpoint back
    back_receives_with(type);
    p->buf = (void *)a[0];
    p->serial = __builtin_expect(back.shared, 0) ? __atomic_add_fetch(&posted_serial, 1, __ATOMIC_RELAXED)
                                                 : ++posted_serial;
    p->count = (int)a[1];
    p->source = (int)a[3];
    p->tag = (int)a[4];
    p->type = (ckpt_vid)a[2];
    p->type_generation = type->generation;
    p->comm_generation = comm->generation;
}
// The i-th slot of a kind that is handed out, from *i on; NULL at the end.
ckpt_slot *next_slot(ckpt_kind kind, uint32_t *i);
// Binds an id of an image: the deferred call of request vid, which becomes the slot's.
void deferred_bind(struct deferred *d, ckpt_slot *s);
// Starts the real call; its request takes the place of the one that the application has, and says what is
// returned too: the canonical error of the call, 0 for none.
long deferred_start(struct deferred *d);
struct deferred *deferred_of(const ckpt_slot *s);
#pragma GCC visibility pop

#endif
