// SPDX-License-Identifier: Apache-2.0
//
// wait.c: calls that wait, and how a checkpoint finds them.
//
// A thread that waits is held where it is: after a restart its call is issued again with the same
// arguments.  So what a held call leaves behind must be as if it had not been made: a receive is
// taken back before; a send is completed while the thread is held, and the arguments are changed so
// that the call issued again does not send.
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "back/image/drain.h"
#include "back/impl/impl.h"
#include "back/image/sync.h"
#include "back/request/wait.h"

struct back_held *held_sends;
pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;

static int stopping(void) { return back_pending() == CKPT_PENDING_STOP; }

void back_attend(void) { back_start_deferred(); }

// Spin for a while, then let others have the processor: MPI's own loops would not, and with more
// ranks than processors that costs a time slice each.
static void breathe(unsigned turn) {
    back_sync_look();
    if (turn > BACK_SPIN) sched_yield();
}

int back_turn(unsigned turn) {
    breathe(turn);
    if (!back_pending()) return 0;
    back_attend();
    if (stopping()) back.host->hold();
    return 1;
}

int back_wait(MPI_Request *request, MPI_Status *status) {
    int flag = 0, rc;
    for (unsigned turn = 0;; turn++) {
        rc = MPI_Test(request, &flag, status);
        if (__builtin_expect(flag || rc != MPI_SUCCESS, 1)) return rc;
        breathe(turn);
        if (back_pending()) back_attend();
    }
}

// ---- who waits ----

static struct back_waiting *waiting;
static pthread_mutex_t waiting_mutex = PTHREAD_MUTEX_INITIALIZER;

void back_enlist(struct back_waiting *w) {
    pthread_mutex_lock(&waiting_mutex);
    w->next = waiting;
    waiting = w;
    pthread_mutex_unlock(&waiting_mutex);
}

void back_delist(struct back_waiting *w) {
    pthread_mutex_lock(&waiting_mutex);
    for (struct back_waiting **p = &waiting; *p != NULL; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            break;
        }
    pthread_mutex_unlock(&waiting_mutex);
}

static int list_messages(ckpt_waiting *list, int max) {
    int n = 0;
    pthread_mutex_lock(&waiting_mutex);
    for (const struct back_waiting *w = waiting; w != NULL && n < max; w = w->next)
        list[n++] = (ckpt_waiting){w->call, (ckpt_vid)w->comm,
                                   w->peer >= 0                  ? (int)w->peer
                                   : w->peer == CANON_ANY_SOURCE ? CKPT_PEER_ANY
                                                                 : CKPT_PEER_NONE,
                                   w->tag >= 0 ? (int)w->tag : -1, w->what};
    pthread_mutex_unlock(&waiting_mutex);
    return n;
}

int back_list_waiting(void *ctx, ckpt_waiting *list, int max) {
    (void)ctx;
    if (back.tables == NULL) return 0;
    int n = list_messages(list, max);
    uint32_t i = 0;
    for (const ckpt_slot *s; n < max && (s = next_slot(CKPT_KIND_COMM, &i)) != NULL;) {
        if (s->extra == 0) continue;
        const ckpt_clock *c = &ckpt_comm_of(s)->clock;
        uint64_t returned = __atomic_load_n(&c->ret, __ATOMIC_ACQUIRE);
        if (c->name != NULL && __atomic_load_n(&c->call, __ATOMIC_RELAXED) != returned)
            list[n++] = (ckpt_waiting){c->name, CKPT_VID(CKPT_KIND_COMM, i - 1), CKPT_PEER_NONE, -1,
                                       CKPT_WAIT_COLLECTIVE};
    }
    return n;
}

// Holds the thread, with its send where draining finds it.
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
        breathe(turn);
        back_slow(turn, &w, CKPT_WAIT_RECEIVER, call, comm, *dest, tag);
        if (!back_pending()) continue;
        back_attend();
        if (stopping()) {
            struct back_held h = {NULL, request, (long *)dest, sync, sync ? back_sync_spare() : NULL};
            hold(&h);
            back_release(h.spare);
            if (*dest == BACK_AWAITED) {
                back_over(turn, &w);
                return MPI_SUCCESS;
            }
        }
    }
}

// Takes a posted receive back.  Returns 0 when a message has come for it: it is complete then.
static int take_back(MPI_Request *r, MPI_Status *status, int *rc) {
    int cancelled = 0;
    MPI_Cancel(r);
    *rc = back_wait(r, status);
    MPI_Test_cancelled(status, &cancelled);
    return cancelled;
}

static int test_posted(const struct back_take *t, MPI_Request *r, MPI_Status *status, int *rc) {
    struct back_waiting w;
    int flag = 0;
    unsigned turn = 0;
    for (; !stopping(); turn = back_next(turn)) {
        *rc = MPI_Test(r, &flag, status);
        if (__builtin_expect(flag || *rc != MPI_SUCCESS, 1)) break;
        breathe(turn);
        back_slow(turn, &w, CKPT_WAIT_MESSAGE, t->call, t->comm, t->source, t->tag);
        if (back_pending()) back_attend();
    }
    back_over(turn, &w);
    return flag || *rc != MPI_SUCCESS;
}

// Receives a message that the real MPI has matched.  The thread is not held: it is sent already.
static long take_matched(const struct back_take *t, MPI_Message *message, long out) {
    MPI_Request r;
    MPI_Status st;
    int rc = MPI_Imrecv(t->buf, t->count, t->type, message, &r);
    if (rc != MPI_SUCCESS) return back_error(rc);
    rc = back_wait(&r, &st);
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
        // What is taken back leaves nothing in the application's memory.
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
