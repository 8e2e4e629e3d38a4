// SPDX-License-Identifier: Apache-2.0
//
// clock.c: collective calls, counted so that a checkpoint finds none of them half done.
//
// The hot path is that of ckpt/clock.h.  While a checkpoint is pending, a blocking call waits before the real
// call until all members may go on.  A non-blocking call must never wait, so it is deferred: the application
// gets a request for a call that is started later (deferred.c).
#include <time.h>

#include "back/collective/clock.h"
#include "back/collective/clocked.h"
#include "back/message/bsend.h"

void back_progress(void) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, back.control, &flag, MPI_STATUS_IGNORE);
}

// In MPI_Finalize a rank may wait for the others as long as they compute, and they need the processor: MPI itself
// mostly sleeps there.  So after some turns the rank sleeps between turns, ever longer: each turn asks libckpt, which
// wakes threads of Go's, and six ranks that wait so for 100 us a turn take two processors from those that compute.
static void rest(unsigned turn) {
    enum { TURNS = 20, FIRST = 20000, GROWTH = 16, LONGEST = 5000000 }; // of ns; a part that each turn adds
    static _Thread_local long pause;
    if (turn < BACK_SPIN + TURNS) {
        pause = FIRST;
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    pause += pause / GROWTH;
    if (pause > LONGEST) pause = LONGEST;
}

void clocked_await(ckpt_vid comm, uint64_t k, int mode, int answer) {
    for (unsigned turn = BACK_SPIN + 1; answer == CKPT_COLL_WAIT; turn++) {
        back_progress();
        if (mode == CKPT_COLL_GATED) rest(turn);
        back_turn(turn);
        answer = ckpt_coll_permitted(back.job, comm, k);
    }
}

void clocked_ask(ckpt_vid comm, uint64_t k, int mode) {
    clocked_await(comm, k, mode, ckpt_coll_call(back.job, comm, k, mode));
}

void back_gate(long comm, const char *name, int mode, ckpt_coll *call) {
    clocked_begin(back_slot(CKPT_KIND_COMM, comm), comm, name, mode, call);
}

void back_gate_return(const ckpt_coll *call, long rc) {
    if (rc != 0 && back_refused(rc))
        ckpt_coll_withdraw_at(back.job, back.tables, call);
    else
        ckpt_coll_end_at(back.job, back.tables, call);
}

void clocked_failed(ckpt_clock *clock, long comm, long rc) {
    if (clock == NULL) return;
    const ckpt_coll call = {clock, __atomic_load_n(&clock->call, __ATOMIC_RELAXED), (ckpt_vid)comm};
    back_gate_return(&call, rc);
}

// ---- freeing communicators ----

// Freeing is counted like the other collective calls: an image in which only some members have freed a
// communicator could not be continued, since all members must make a communicator again.  The counters are
// freed with the communicator, so libckpt takes the freeing for the end of the call.
static long freeing(ckpt_back_fn *fn, const char *name, const long *a) {
    ckpt_coll call;
    back_gate(*(ckpt_vid *)a[0], name, CKPT_COLL_BLOCKING, &call);
    long rc = fn(a);
    if (rc != 0) back_gate_return(&call, rc);
    return rc;
}
long clocked_Comm_free(const long *a) { return freeing(back_Comm_free, "MPI_Comm_free", a); }
long clocked_Comm_disconnect(const long *a) {
    back_buffered_wait(*(ckpt_vid *)a[0], "MPI_Comm_disconnect");
    return freeing(back_Comm_disconnect, "MPI_Comm_disconnect", a);
}
