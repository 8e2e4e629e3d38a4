// SPDX-License-Identifier: Apache-2.0
//
// wait.h: waiting, in a call that a checkpoint may find.
#ifndef CKPT_BACK_WAIT_H
#define CKPT_BACK_WAIT_H

#include <sys/queue.h>

#include "back/request/request.h"

#pragma GCC visibility push(hidden)

// What every call does while a checkpoint is pending.
static inline void back_attend(void) { back_above.start_deferred(); }
static inline int back_stopping(void) { return back_pending() == CKPT_PENDING_STOP; }

// Looks whether receivers have taken the messages of synchronous sends that wait for this.
static inline void back_look(void) {
    if (__builtin_expect(back.awaiting != 0, 0)) back_above.sync_poll();
}

// One turn of a loop that waits, in a call that can be issued again with its arguments as they are now.  The
// thread may be held here.  turn counts from 0.  Returns 1 when real handles of requests may have changed.
int back_turn(unsigned turn);

// A call that waits for long is written down, for people who ask what a rank is doing.
enum { BACK_SPIN = 200 }; // turns of a loop before the call is written down
struct back_waiting {
    LIST_ENTRY(back_waiting) others;
    const char *call;
    long comm, peer, tag; // virtual id; canonical
    int what;             // CKPT_WAIT_*
};
void back_enlist(struct back_waiting *w);
void back_delist(struct back_waiting *w);
// The number of the next turn: it stands still once the call is written down.
static inline unsigned back_next(unsigned turn) { return turn + (turn <= BACK_SPIN); }
// Called in a loop after each turn in vain; after BACK_SPIN turns it writes the call down.
static inline void back_slow(unsigned turn, struct back_waiting *w, int what, const char *call, long comm,
                             long peer, long tag) {
    if (__builtin_expect(turn == BACK_SPIN, 0)) {
        *w = (struct back_waiting){.call = call, .comm = comm, .peer = peer, .tag = tag, .what = what};
        back_enlist(w);
    }
}
// Called after the loop: the call waits no more.
static inline void back_over(unsigned turn, struct back_waiting *w) {
    if (__builtin_expect(turn > BACK_SPIN, 0)) back_delist(w);
}
int back_list_waiting(void *ctx, ckpt_waiting *list, int max);

// Lets others have the processor, as often as others take it: at every turn, or at one of 1024 (50 to 300 us).
void back_yield(void);

// Spin for a while, then let others have the processor: MPI's own loops would not, and with more
// ranks than processors that costs a time slice each.
static inline void back_breathe(unsigned turn) {
    back_look();
    if (turn > BACK_SPIN) back_yield();
}

// Completes *request, giving the rest of the process a turn.  The thread is never held here.
// Returns the real MPI's error code.
int back_wait_real(MPI_Request *request, MPI_Status *status);

#pragma GCC visibility pop

#endif
