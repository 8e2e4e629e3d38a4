// SPDX-License-Identifier: Apache-2.0
//
// request.h: the states of a request, for those who start and those who complete it.
#ifndef CKPT_BACK_REQUEST_H
#define CKPT_BACK_REQUEST_H

#include "back/impl/above.h"
#include "back/impl/slots.h"

enum {
    REQUEST_OTHER = 0, // counts nothing: collectives, files
    REQUEST_SEND = 1,
    REQUEST_RECV = 2,
    REQUEST_KIND = 3,
    REQUEST_PERSISTENT = 4,
    REQUEST_ACTIVE = 8,
    REQUEST_CANCELLED = 16,      // MPI_Cancel was called: ask the status
    REQUEST_IDUP = 32,           // extra is a back_idup
    REQUEST_DONE = 64,           // completed by draining: real is a generalized request with the status
    REQUEST_DEFERRED = 128,      // a collective that is not started: extra is its struct deferred
    REQUEST_SYNC = 256,          // a synchronous send
    REQUEST_USER_OP = 512,       // a collective that calls a function of the application
    REQUEST_MATCHED = 1024,      // receives a matched message: it cannot be posted again
    REQUEST_GENERALIZED = 2048,  // extra is a struct back_grequest
    REQUEST_ENDED = 4096,        // ... and MPI_Grequest_complete was called
    REQUEST_FREED = 8192,        // ... or MPI_Request_free, before that
    REQUEST_COLL = 16384,        // a persistent collective: extra is a struct back_coll
    REQUEST_PARTITIONED = 32768, // a persistent request of partitioned communication
    REQUEST_ORPHAN = 131072,     // MPI_Request_free was called: the id is ours until it is complete
    REQUEST_AWAIT = 524288,      // REQUEST_DONE, but the receiver has not taken it: its back_sync says more
    REQUEST_ORDERED = 262144,    // tested behind those that were started before it (file_order.c)
    REQUEST_PAIR = 65536 // MPI_Isendrecv: extra is a struct back_coll, inner the receive, a[0] the send
};
// A request's slot: real, clock: virtual id of its communicator, a: flags above, b: peer of a
// message (canonical rank), extra: memory to free when it is complete; persistent: its struct
// persistent.

#pragma GCC visibility push(hidden)

// Fills the slot of an id that was taken for a request.
static inline ckpt_slot *back_set_request(ckpt_vid v, MPI_Request real, int flags, int peer, ckpt_vid comm) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, v);
    s->real = TO_REAL(real);
    s->clock = comm;
    s->a = flags;
    s->b = peer;
    s->extra = 0;
    return s;
}

// Takes an id for a request that is still to be made: nobody who looks at all of them finds what the slot was
// before.
static inline ckpt_vid back_take_request(void) {
    ckpt_vid v = back_take_id(CKPT_KIND_REQUEST);
    if (__builtin_expect(v != CKPT_VID_NONE, 1)) back_slot(CKPT_KIND_REQUEST, v)->a = REQUEST_OTHER;
    return v;
}

// Gives a real request a virtual id.  What cannot be undone takes its id before (back_take_request).
static inline long back_new_request(MPI_Request real, int flags, int peer, ckpt_vid comm, ckpt_vid *vid) {
    ckpt_vid v = back_take_id(CKPT_KIND_REQUEST);
    if (__builtin_expect(v == CKPT_VID_NONE, 0)) return CANON_ERR(NO_MEM);
    back_set_request(v, real, flags, peer, comm);
    *vid = v;
    return 0;
}

static inline int is_null(const ckpt_slot *s) { return s == back.slots[CKPT_KIND_REQUEST]; }

static inline MPI_Request real_of(const ckpt_slot *s) { return (MPI_Request)(uintptr_t)s->real; }

// An inactive persistent request completes at once, with an empty status.
static inline int is_inactive(const ckpt_slot *s) {
    return (s->a & (REQUEST_PERSISTENT | REQUEST_ACTIVE)) == REQUEST_PERSISTENT;
}

// A collective call that was not started yet: it has no real request, and is not complete.  Another
// thread may be starting it; when the flag is gone its real request is there.
static inline int is_deferred(const ckpt_slot *s) {
    return __builtin_expect(__atomic_load_n(&s->a, __ATOMIC_ACQUIRE) & REQUEST_DEFERRED, 0);
}

// A request of MPI-IO: it belongs to a file.
static inline int of_file(const ckpt_slot *s) { return CKPT_VID_KIND(s->clock) == CKPT_KIND_FILE; }

// MPI_Test of *r, the real request of s.
static inline int request_test(ckpt_slot *s, MPI_Request *r, int *flag, MPI_Status *status) {
    if (__builtin_expect(s->a & REQUEST_ORDERED, 0)) return back_above.file_test(s, flag, status);
    return MPI_Test(r, flag, status);
}

// Of a request with REQUEST_IDUP: what it leads to.
struct back_idup {
    MPI_Comm comm;
    ckpt_vid vid;
};

// A communicator is gone: requests that still belong to it count for no other that gets its id.
void back_requests_gone(ckpt_vid comm);

#pragma GCC visibility pop

#endif
