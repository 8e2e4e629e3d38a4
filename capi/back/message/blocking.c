// SPDX-License-Identifier: Apache-2.0
//
// blocking.c: sends and receives of blocking calls, whose threads may be held.
//
// A restart issues a held call again, so the call must leave nothing behind.  A receive is taken back before
// the thread is held.  A send is completed while the thread is held, and the call's arguments are changed, so
// that the call does not send when it is issued again.
#include <stdlib.h>

#include "back/impl/counts.h"
#include "back/impl/error.h"
#include "back/impl/lock.h"
#include "back/impl/reserve.h"
#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/message/blocking.h"
#include "back/message/drained.h"
#include "back/message/sync.h"

struct back_held_list back_held_sends = LIST_HEAD_INITIALIZER(back_held_sends);

// Holds the thread, and lists its send so that draining finds it.
static void hold(struct back_held *send) {
    if (send != NULL) {
        back_lock(LOCK_HELD);
        LIST_INSERT_HEAD(&back_held_sends, send, others);
        back_unlock(LOCK_HELD);
    }
    ckpt_hold(back.job);
    if (send != NULL) {
        back_lock(LOCK_HELD);
        LIST_REMOVE(send, others);
        back_unlock(LOCK_HELD);
    }
}

int back_wait_send(MPI_Request *request, const long *dest, struct back_sync *sync, const char *call,
                   long comm, long tag) {
    struct back_waiting w;
    int flag = 0, rc;
    for (unsigned turn = 0;; turn = back_next(turn)) {
        rc = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
        if (__builtin_expect(flag || rc != MPI_SUCCESS, 1)) {
            back_over(turn, &w);
            return rc;
        }
        back_breathe(turn);
        back_slow(turn, &w, CKPT_WAIT_RECEIVER, call, comm, *dest, tag);
        if (!back_pending()) continue;
        back_attend();
        if (back_stopping()) {
            struct back_held h = {.request = request,
                                  .dest = (long *)dest,
                                  .sync = sync,
                                  .spare = sync ? back_sync_spare() : NULL};
            hold(&h);
            back_release(h.spare);
            if (*dest == BACK_AWAITED) {
                back_over(turn, &w);
                return MPI_SUCCESS;
            }
        }
    }
}

// Takes a posted receive back.  Returns 0 when a message has come for the receive, which is then complete.
static int take_back(MPI_Request *r, MPI_Status *status, int *rc) {
    int cancelled = 0;
    MPI_Cancel(r);
    *rc = back_wait_real(r, status);
    MPI_Test_cancelled(status, &cancelled);
    return cancelled;
}

static int test_posted(const struct back_take *t, MPI_Request *r, MPI_Status *status, int *rc) {
    struct back_waiting w;
    int flag = 0;
    unsigned turn = 0;
    for (; !back_stopping(); turn = back_next(turn)) {
        *rc = MPI_Test(r, &flag, status);
        if (__builtin_expect(flag || *rc != MPI_SUCCESS, 1)) break;
        back_breathe(turn);
        back_slow(turn, &w, CKPT_WAIT_MESSAGE, t->call, t->comm, t->source, t->tag);
        if (back_pending()) back_attend();
    }
    back_over(turn, &w);
    return flag || *rc != MPI_SUCCESS;
}

// Receives a message that the real MPI has matched.  The thread is not held: the message is sent already.
static long take_matched(const struct back_take *t, MPI_Message *message, long out) {
    MPI_Request r;
    MPI_Status st;
    int rc = MPI_Imrecv(t->buf, t->count, t->type, message, &r);
    if (rc != MPI_SUCCESS) return back_error(rc);
    rc = back_wait_real(&r, &st);
    if (back_took(rc)) back_count_received(back_slot(CKPT_KIND_COMM, t->comm), &st);
    give_status(&st, out);
    return back_error(rc);
}

long back_take(const struct back_take *t, long out) {
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, t->comm);
    for (;;) {
        MPI_Request r;
        MPI_Status own, *st = status_for(out, &own);
        ckpt_mpi_status drained;
        int rc;
        MPI_Message message;
        if (__builtin_expect(back.drained, 0) && back_drained_recv(t, &drained, &rc, &message)) {
            if (message != MPI_MESSAGE_NULL) return take_matched(t, &message, out);
            give_canon(&drained, out);
            return back_error(rc);
        }
        rc = MPI_Irecv(t->buf, t->count, t->type, real_rank(t->source), real_tag(t->tag),
                       (MPI_Comm)(uintptr_t)comm->real, &r);
        if (rc != MPI_SUCCESS) return back_error(rc);
        // A receive that is taken back must leave nothing in the application's memory.
        if (test_posted(t, &r, st, &rc) || !take_back(&r, st = &own, &rc)) {
            if (t->source == CANON_PROC_NULL) {
                proc_null_status(out);
            } else {
                if (back_took(rc)) back_count_received(comm, st);
                if (st == &own) give_status(st, out);
            }
            return back_error(rc);
        }
        hold(t->send);
    }
}
