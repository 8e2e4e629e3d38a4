// SPDX-License-Identifier: Apache-2.0
//
// sync.h: synchronous sends.
#ifndef CKPT_BACK_SYNC_H
#define CKPT_BACK_SYNC_H

#include "back/request/request.h"

struct lane;

// A synchronous send that is under way: of a request (back_sync_of), or of a call that waits.
struct back_sync {
    struct lane *lane; // NULL: the receiver need not be asked about this send
    uint64_t at;       // how many messages the lane had counted when this one was sent
    uint64_t id;       // with REQUEST_AWAIT: what the receiver will name; 0: it was named
    uint64_t asks;     // the id in the claim on this send, while the receivers are asked (claim.c)
    ckpt_vid comm;
    int dest;            // a rank of comm; of a request with REQUEST_AWAIT, of the world
    int unsure;          // at is not to be relied on: a send was cancelled on the lane
    int short_of_memory; // the send has no lane because memory was out
};

// A blocking call whose message was drained waits for its receiver.  Its destination is replaced by this
// value, and its tag by the id of a request, so that the call finds the request when it is issued again.
#define BACK_AWAITED (1L << 40)

#pragma GCC visibility push(hidden)

// A message is about to be sent; and: that message was not sent after all.
void back_sync_later(long comm, long dest, long tag) __attribute__((cold));
void back_sync_unsent(long comm, long dest, long tag) __attribute__((cold));
static inline void back_sync_count(long comm, long dest, long tag) {
    if (__builtin_expect(back.sync != 0, 0)) back_sync_later(comm, dest, tag);
}
static inline void back_sync_uncount(long comm, long dest, long tag) {
    if (__builtin_expect(back.sync != 0, 0)) back_sync_unsent(comm, dest, tag);
}

// A synchronous send was posted.
void back_sync_begin(struct back_sync *e, long comm, long dest, long tag);
// A synchronous send was posted with the request s, which keeps the entry.
void back_sync_began(ckpt_slot *s, long tag);
// For a call that is held and may have to wait for a request: an entry for that request, and an id that is
// kept free for it; NULL when memory is out.  The caller frees the entry if it was not used.
struct back_sync *back_sync_spare(void);
// Nobody will ask about this send any more.
void back_sync_end(struct back_sync *e);
// The request s is complete or freed.
void back_sync_ended(ckpt_slot *s);
// MPI_Cancel was called for a send: the counts of its lane may be wrong from here on.
void back_sync_cancelled(ckpt_vid comm, int dest);
// The entry of a request with REQUEST_SYNC; NULL: no memory was left for one.
struct back_sync *back_sync_of(const ckpt_slot *s);

// Makes a request whose message was drained wait for the receiver; 0 or a CKPT_E code.
int back_sync_await(ckpt_slot *s, struct back_sync *e, uint64_t id);
// Whether the request still waits for its receiver.
int back_sync_awaits(const ckpt_slot *s);
// The request with that id waits no more.
void back_sync_acknowledge(uint64_t id);
// For an entry that has a lane: how many messages are behind the send's own one, and the tag of the lane.
uint64_t back_sync_behind(const struct back_sync *e);
int back_sync_tag(const struct back_sync *e);

struct drained;
// The application has taken a drained message that has a claim: tells the sender, and frees the message.
void back_sync_taken(struct drained *m);
// Looks whether receivers have taken the messages of this rank's synchronous sends.
void back_sync_poll(void) __attribute__((cold));
// Before the real MPI ends.
void back_sync_finalize(void);

#pragma GCC visibility pop

#endif
