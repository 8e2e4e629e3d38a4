// SPDX-License-Identifier: Apache-2.0
//
// rnr.c: a peer that has posted no receive for too long.
//
// A queue pair that leads into the job waits for receives without end below (RNR retry 7), whatever the program has
// asked for: an adapter that gives up cannot know that the peer's program was stopped for a checkpoint.  Here the peer is
// asked whether it is ready, again and again while a send does not end.  A stop begins the count anew, and a drain
// takes such sends in anyway (drain.c), so none fails for having been stopped.
#include "verbs/back/lower.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

// Looks are counted, not seconds, so that a process that gets no processor does not run out of them.
enum { LOOK_MS = 100, ASK_AFTER = 5, LOOKS = 40 };

struct waiting {
    uint32_t number;
    int32_t peer;
    uint64_t tail, done; // the oldest send; messages that the peer has received
    unsigned looks, asked;
};
static struct waiting *before, *now;
static size_t waiting_n, waiting_room;

static bool gives_up(const struct v_qp *q) {
    return q->q.qp_type == IBV_QPT_RC && q->peer >= 0 && q->state == IBV_QPS_RTS && !q->failed &&
           q->attr.rnr_retry < 7;
}

static bool room(size_t n) {
    if (n <= waiting_room) return true;
    size_t more = 2 * n + 16;
    struct waiting *a = realloc(before, more * sizeof *a);
    if (a) before = a;
    struct waiting *b = realloc(now, more * sizeof *b);
    if (b) now = b;
    if (a && b) waiting_room = more;
    return a && b;
}

// Sends that have not ended, with how long that has been so.
static size_t collect(void) {
    size_t n = 0;
    take(&lists_lock);
    EACH(v_qp, q, root->qps) {
        uint64_t tail = __atomic_load_n(&q->send_tail, __ATOMIC_ACQUIRE);
        if (!gives_up(q) || tail == __atomic_load_n(&q->send_head, __ATOMIC_ACQUIRE)) continue;
        if (!room(n + 1)) break;
        now[n] = (struct waiting){.number = q->q.qp_num, .peer = q->peer, .tail = tail};
        for (size_t i = 0; i < waiting_n; i++)
            if (before[i].number == now[n].number && before[i].tail == tail) now[n] = before[i];
        n++;
    }
    give(&lists_lock);
    return n;
}

// Whether the send would have been given up by now.
static bool over(struct waiting *w, uint32_t to, uint64_t posted) {
    struct verbs_ready r;
    if (ids_ask(w->peer, VERBS_READY, to, &r, sizeof r) || !r.known) return false;
    if (r.receives || r.draining || posted <= r.done || (w->asked && r.done != w->done)) {
        w->asked = 0;
        return false;
    }
    w->done = r.done;
    return ++w->asked + ASK_AFTER >= LOOKS;
}

static void look(void) {
    size_t n = collect();
    for (size_t i = 0; i < n; i++) {
        if (++now[i].looks < ASK_AFTER) continue;
        take(&lists_lock);
        struct v_qp *q = ids_qp_of(now[i].number);
        uint32_t to = q ? q->attr.dest_qp_num : 0;
        uint64_t posted = q ? q->takes_posted : 0;
        give(&lists_lock);
        if (!over(&now[i], to, posted)) continue;
        take(&lists_lock);
        q = ids_qp_of(now[i].number);
        if (q && gives_up(q) && !draining) {
            struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
            q->failed = V_FAILED_RNR; // poll.c says so of the first send
            real.ibv_modify_qp(REAL_QP(q), &attr, IBV_QP_STATE);
        }
        give(&lists_lock);
    }
    struct waiting *former = before;
    before = now, now = former, waiting_n = n;
}

static void *watch(void *nothing) {
    for (;;) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000l}, NULL);
        if (draining)
            waiting_n = 0;
        else
            look();
    }
    return nothing;
}

void rnr_watch(void) {
    static uint32_t lock;
    static bool watched;
    pthread_t thread;
    sigset_t all, former;
    take(&lock);
    if (!watched) {
        // No signal of the application is taken by this thread.
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &former);
        watched = pthread_create(&thread, NULL, watch, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &former, NULL);
        if (watched) pthread_detach(thread);
    }
    give(&lock);
}
