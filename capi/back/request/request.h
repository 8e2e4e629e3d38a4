// SPDX-License-Identifier: Apache-2.0
//
// request.h: the states of a request, for those who start and those who complete it.
#ifndef CKPT_BACK_REQUEST_H
#define CKPT_BACK_REQUEST_H

#include "back/impl/above.h"
#include "back/impl/slots.h"

// The fields of a request's slot.  real: the real request.  clock: the communicator, window or file that it
// belongs to.  a: its flags.  b: the peer of its message (canonical rank).  extra: what else it needs:
//
//   REQUEST_PERSISTENT    struct persistent (persistent_of)
//   REQUEST_COLL, _PAIR   struct back_coll (back_coll_of)
//   REQUEST_SYNC          struct back_sync (back_sync_of); a persistent request has it in struct persistent
//   REQUEST_DEFERRED      struct deferred (back_deferred_of)
//   REQUEST_GENERALIZED   struct back_grequest (back_grequest_of)
//   REQUEST_IDUP          struct back_idup (back_idup_of)
//   others                memory that is freed when the request is complete, or 0
//
// Images hold some flags, by these numbers (section.h); 1u << 18 means something there alone.
enum {
    // What the request is, for life.  At most one of REQUEST_SEND and REQUEST_RECV; neither: it counts no
    // messages.
    REQUEST_OTHER = 0,
    REQUEST_SEND = 1u << 0,
    REQUEST_RECV = 1u << 1,
    REQUEST_KIND = REQUEST_SEND | REQUEST_RECV,
    REQUEST_PERSISTENT = 1u << 2,
    REQUEST_IDUP = 1u << 5,         // MPI_Comm_idup
    REQUEST_SYNC = 1u << 8,         // a synchronous send
    REQUEST_USER_OP = 1u << 9,      // a collective that calls a function of the application
    REQUEST_MATCHED = 1u << 10,     // receives a matched message: it cannot be posted again
    REQUEST_GENERALIZED = 1u << 11, // MPI_Grequest_start
    REQUEST_COLL = 1u << 14,        // a persistent collective
    REQUEST_PARTITIONED = 1u << 15, // a persistent request of partitioned communication
    REQUEST_PAIR = 1u << 16, // MPI_Isendrecv: two requests, of which inner is the receive, a[0] the send

    // What has happened to the request.
    REQUEST_ACTIVE = 1u << 3,    // a persistent one was started and is not complete for the application
    REQUEST_CANCELLED = 1u << 4, // MPI_Cancel was called: the status tells whether it was in time
    REQUEST_DONE = 1u << 6, // complete before the application asked: real is a generalized request (done.c)
    REQUEST_DEFERRED = 1u << 7, // a collective that is not started
    REQUEST_ENDED = 1u << 12,   // MPI_Grequest_complete was called
    REQUEST_FREED = 1u << 13,   // a generalized one was freed before that
    REQUEST_ORPHAN = 1u << 17,  // MPI_Request_free was called: the id is ours until the request is complete
    REQUEST_AWAIT = 1u << 19, // its message was drained; its back_sync says whether the receiver has taken it
    REQUEST_ORDERED = 1u << 20 // tested behind those that were started before it (file_order.c)
};

// What a request waits for; it follows from the flags (request_state).  The numbers are part of images.
//
//   event                     from           to           where
//   MPI_Send_init             -              inactive     message/persist.c
//   MPI_Start                 inactive       started      message/persist.c
//                             inactive       done         there: drained already, or a copy (bsend.c)
//   MPI_Isend, MPI_Ibarrier   -              started      a call like these
//   ... a checkpoint pends    -              deferred     collective/deferred.c: a collective
//   the clock permits it      deferred       started      there; done, when the call fails
//   complete, to the program  started, done  gone         complete.c; a persistent one: inactive
//   complete, to draining     started        done         done.c; to file_order.c too
//   drained, not taken        started, done  awaited      message/sync.c: the receiver has the message of a
//                                                           synchronous send, but not its program
//   the receiver took it      awaited        done         message/sync.c; REQUEST_AWAIT stays
//   MPI_Request_free          started        gone         start.c; or, if its message is still to be counted,
//                                                           REQUEST_ORPHAN until complete (orphan.c)
//                             others         gone         start.c; refused: deferred, active collectives
//   MPI_Isendrecv             -              compound     message/isendrecv.c; gone with its later part
//   MPI_Bcast_init            -              compound     collective/persist.c; MPI_Start makes its part
//   MPI_Grequest_start        -              generalized  grequest.c; whether it is complete is between the
//                                                           application and the real MPI
enum request_state {
    REQ_INACTIVE = 0,
    REQ_DONE = 1,
    REQ_STARTED = 2,
    REQ_DEFERRED = 3,
    REQ_GENERALIZED = 4,
    REQ_COMPOUND = 5, // its parts are requests, and have states of their own
    REQ_AWAITED = 6
};

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

// Takes an id for a request that is still to be made, and empties its slot: whoever goes through all requests
// must not find what the slot held before.
static inline ckpt_vid back_take_request(void) {
    ckpt_vid v = back_take_id(CKPT_KIND_REQUEST);
    if (__builtin_expect(v != CKPT_VID_NONE, 1)) back_slot(CKPT_KIND_REQUEST, v)->a = REQUEST_OTHER;
    return v;
}

// Gives a real request a virtual id.  A call that cannot be undone takes the id first (back_take_request).
static inline long back_new_request(MPI_Request real, int flags, int peer, ckpt_vid comm, ckpt_vid *vid) {
    ckpt_vid v = back_take_id(CKPT_KIND_REQUEST);
    if (__builtin_expect(v == CKPT_VID_NONE, 0)) return CANON_ERR(NO_MEM);
    back_set_request(v, real, flags, peer, comm);
    *vid = v;
    return 0;
}

// The state by the flags alone.  For an awaited request its back_sync says whether the receiver has taken the
// message since.
enum request_state request_state(const ckpt_slot *s);
// Whether the request's flags may stand together, and its slot has what they need.
int request_sound(const ckpt_slot *s);

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

// What a request with REQUEST_IDUP makes.
struct back_idup {
    MPI_Comm comm;
    ckpt_vid vid;
};

// A communicator is gone: requests that still belong to it must not count for the next one with its id.
void back_requests_gone(ckpt_vid comm);

static inline struct back_idup *back_idup_of(const ckpt_slot *s) {
    return (struct back_idup *)(uintptr_t)s->extra;
}

#pragma GCC visibility pop

#endif
