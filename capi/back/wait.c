/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c: calls that wait, and how a checkpoint finds them.
 *
 * A thread that waits is held where it is: after a restart its call is issued again with the same
 * arguments.  So what a held call leaves behind must be as if it had not been made: a receive is
 * taken back before; a send is completed while the thread is held, and the arguments are changed so
 * that the call issued again does not send.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "impl.h"
#include "wait.h"

struct back_held *held_sends;
pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;

static int stopping(void) { return back_pending() == CKPT_PENDING_STOP; }

void back_attend(void) { back_start_deferred(); }

/* Spin for a while, then let others have the processor: MPI's own loops would not, and with more
 * ranks than processors that costs a time slice each. */
static void breathe(unsigned turn) {
    if (turn > 200)
        sched_yield();
}

int back_turn(unsigned turn) {
    breathe(turn);
    if (!back_pending())
        return 0;
    back_attend();
    if (stopping())
        back.host->hold();
    return 1;
}

int back_wait(MPI_Request *request, MPI_Status *status) {
    int flag = 0, rc;
    for (unsigned turn = 0;; turn++) {
        rc = MPI_Test(request, &flag, status);
        if (__builtin_expect(flag || rc != MPI_SUCCESS, 1))
            return rc;
        breathe(turn);
        if (back_pending())
            back_attend();
    }
}

/* Holds the thread, with its send where draining finds it. */
static void hold(struct back_held *send) {
    if (send != NULL) {
        pthread_mutex_lock(&held_mutex);
        send->next = held_sends;
        held_sends = send;
        pthread_mutex_unlock(&held_mutex);
    }
    back.host->hold();
    if (send != NULL) {
        pthread_mutex_lock(&held_mutex);
        for (struct back_held **p = &held_sends; *p != NULL; p = &(*p)->next)
            if (*p == send) {
                *p = send->next;
                break;
            }
        pthread_mutex_unlock(&held_mutex);
    }
}

int back_wait_send(MPI_Request *request, const long *dest, const char *sync) {
    int flag = 0, rc;
    for (unsigned turn = 0;; turn++) {
        rc = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
        if (__builtin_expect(flag || rc != MPI_SUCCESS, 1))
            return rc;
        breathe(turn);
        if (!back_pending())
            continue;
        back_attend();
        if (stopping()) {
            struct back_held h = {NULL, request, (long *)dest, sync};
            hold(&h);
        }
    }
}

/* Takes a posted receive back.  Returns 0 when a message has come for it: it is complete then. */
static int take_back(MPI_Request *r, MPI_Status *status, int *rc) {
    int cancelled = 0;
    MPI_Cancel(r);
    *rc = back_wait(r, status);
    MPI_Test_cancelled(status, &cancelled);
    return cancelled;
}

static int test_posted(MPI_Request *r, MPI_Status *status, int *rc) {
    int flag = 0;
    for (unsigned turn = 0; !stopping(); turn++) {
        *rc = MPI_Test(r, &flag, status);
        if (__builtin_expect(flag || *rc != MPI_SUCCESS, 1))
            return 1;
        breathe(turn);
        if (back_pending())
            back_attend();
    }
    return 0;
}

long back_take(const struct back_take *t, ckpt_mpi_status *out) {
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, t->comm);
    for (;;) {
        MPI_Request r;
        MPI_Status st;
        int rc;
        if (__builtin_expect(back.drained, 0) && back_drained_recv(t, out, &rc))
            return back_error(rc);
        rc = MPI_Irecv(t->buf, t->count, t->type, real_rank(t->source), real_tag(t->tag),
                       (MPI_Comm)(uintptr_t)comm->real, &r);
        if (rc != MPI_SUCCESS)
            return back_error(rc);
        if (test_posted(&r, &st, &rc) || !take_back(&r, &st, &rc)) {
            if (t->source == CANON_PROC_NULL) {
                proc_null_status(out);
            } else {
                if (back_took(rc))
                    back_count_received(comm, &st);
                canon_status(&st, out);
            }
            return back_error(rc);
        }
        hold(t->send);
    }
}
