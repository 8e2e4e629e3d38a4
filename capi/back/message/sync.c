// SPDX-License-Identifier: Apache-2.0
//
// sync.c: synchronous sends that nobody has matched when the job is saved.
//
// Draining receives their messages like others, so the real MPI completes the sends.  But the application's
// request must not be complete before the receiving application has taken the message.  So the sender keeps
// the request, and the receiver keeps the drained message.  The sender gives the request up when a word from
// the receiver's libckpt says that the application has taken the message (claim.c), also after a restart.
//
// Which drained message belongs to which send?  A lane is a communicator, a destination and a tag; the
// messages of a lane are matched in the order in which they are sent.
//
//   the lane at the sender    1   2   S   4   5     sent = 5, S.at = 3: two messages are behind S
//   not taken at the receiver     2   S   4   5     the third from the end is S, which is not taken
//   ... or                                4   5     there is no third: S is taken
//
// Lanes are counted only while a synchronous send is under way on them.
//
// Threads that send on one lane at the same time race in the real MPI too.  A message is counted before it is
// sent, and a synchronous send enters its lane after it was sent.  So the lane may take a later message for
// that of the send, but never an earlier one, which would complete the send too early.
#include <stdlib.h>

#include "back/impl/lock.h"
#include "back/impl/reserve.h"
#include "back/message/drained.h"
#include "back/message/sync.h"
#include "back/request/persistent.h"

struct lane {
    struct lane *next;
    ckpt_vid comm;
    int dest, tag;
    unsigned pending; // synchronous sends
    uint64_t sent;
};

enum { LANES = 256, TAG_TAKEN = 7 };
static struct lane *lanes[LANES]; // under LOCK_SYNC

static struct lane **lane_at(long comm, long dest, long tag) {
    uint32_t h = (uint32_t)comm * 2654435761u ^ (uint32_t)dest * 40503u ^ (uint32_t)tag * 97u;
    struct lane **p = &lanes[(h ^ h >> 16) % LANES];
    while (*p != NULL && ((*p)->comm != (ckpt_vid)comm || (*p)->dest != (int)dest || (*p)->tag != (int)tag))
        p = &(*p)->next;
    return p;
}

static void count(long comm, long dest, long tag, uint64_t n) {
    back_lock(LOCK_SYNC);
    struct lane *l = *lane_at(comm, dest, tag);
    if (l != NULL) l->sent += n;
    back_unlock(LOCK_SYNC);
}

void back_sync_later(long comm, long dest, long tag) { count(comm, dest, tag, 1); }

void back_sync_unsent(long comm, long dest, long tag) { count(comm, dest, tag, (uint64_t)-1); }

void back_sync_begin(struct back_sync *e, long comm, long dest, long tag) {
    *e = (struct back_sync){.comm = (ckpt_vid)comm, .dest = (int)dest};
    if ((int)dest < 0 || back_slot(CKPT_KIND_COMM, comm)->counters == 0)
        return; // complete at once, or on a communicator that is not drained
    back_lock(LOCK_SYNC);
    struct lane **p = lane_at(comm, dest, tag);
    if (*p == NULL && (*p = back_reserve(sizeof **p)) == NULL)
        e->short_of_memory = 1; // the send holds a checkpoint back
    else if ((*p)->pending == 0)
        **p = (struct lane){NULL, (ckpt_vid)comm, (int)dest, (int)tag, 0, 0};
    e->lane = *p;
    if (*p != NULL) {
        (*p)->pending++;
        e->at = (*p)->sent;
        __atomic_fetch_add(&back.sync, 1, __ATOMIC_RELAXED);
    }
    back_unlock(LOCK_SYNC);
}

static void end_locked(struct back_sync *e) {
    struct lane *l = e->lane;
    if (l == NULL) return;
    e->lane = NULL;
    __atomic_fetch_sub(&back.sync, 1, __ATOMIC_RELAXED);
    if (--l->pending > 0) return;
    *lane_at(l->comm, l->dest, l->tag) = l->next;
    back_release(l);
}

void back_sync_end(struct back_sync *e) {
    if (e->lane == NULL) return;
    back_lock(LOCK_SYNC);
    end_locked(e);
    back_unlock(LOCK_SYNC);
}

// ---- of requests ----

struct back_sync *back_sync_of(const ckpt_slot *s) {
    if (s->extra == 0) return NULL;
    return s->a & REQUEST_PERSISTENT ? persistent_of(s)->sync : (struct back_sync *)(uintptr_t)s->extra;
}

static void keep(ckpt_slot *s, struct back_sync *e) {
    if (s->a & REQUEST_PERSISTENT)
        persistent_of(s)->sync = e;
    else
        s->extra = (uint64_t)(uintptr_t)e;
}

struct back_sync *back_sync_spare(void) {
    ckpt_vid v = back_take_id(CKPT_KIND_REQUEST);
    if (v == CKPT_VID_NONE) return NULL;
    back_give_id(CKPT_KIND_REQUEST, v); // stays free: no other call begins while the job is saved
    return back_reserve(sizeof(struct back_sync));
}

void back_sync_began(ckpt_slot *s, long tag) {
    struct back_sync *e = back_reserve(sizeof *e);
    if (e == NULL) return; // the send holds a checkpoint back
    back_sync_begin(e, (long)s->clock, s->b, tag);
    keep(s, e);
}

static void acknowledge_locked(const ckpt_slot *s, struct back_sync *e) {
    e->id = 0;
    __atomic_fetch_sub(&back.awaiting, 1, __ATOMIC_RELAXED);
    MPI_Grequest_complete(real_of(s));
}

void back_sync_ended(ckpt_slot *s) {
    struct back_sync *e = back_sync_of(s);
    if (e == NULL) return;
    back_lock(LOCK_SYNC);
    if (s->a & REQUEST_AWAIT && e->id != 0) // it is freed
        acknowledge_locked(s, e);
    s->a &= ~REQUEST_AWAIT;
    end_locked(e);
    keep(s, NULL);
    back_unlock(LOCK_SYNC);
    back_release(e);
}

void back_sync_cancelled(ckpt_vid comm, int dest) {
    uint32_t i = 0;
    if (back.sync == 0) return;
    back_lock(LOCK_SYNC);
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;) {
        struct back_sync *e = s->a & REQUEST_SYNC ? back_sync_of(s) : NULL;
        if (e != NULL && e->comm == comm && e->dest == dest) e->unsure = 1;
    }
    back_unlock(LOCK_SYNC);
}

// ---- waiting for the receiver ----

static int await_query(void *state, MPI_Status *status) {
    (void)state;
    MPI_Status_set_elements_x(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_ANY_SOURCE;
    status->MPI_TAG = MPI_ANY_TAG;
    return MPI_SUCCESS;
}

static int await_free(void *state) {
    (void)state;
    return MPI_SUCCESS;
}

static int await_cancel(void *state, int complete) {
    (void)state;
    (void)complete;
    return MPI_SUCCESS; // too late to cancel: the receiver has the message
}

int back_sync_await(ckpt_slot *s, struct back_sync *e, uint64_t id) {
    MPI_Request r;
    if (MPI_Grequest_start(await_query, await_free, await_cancel, NULL, &r) != MPI_SUCCESS)
        return CKPT_E_SYSTEM;
    back_lock(LOCK_SYNC);
    e->id = id;
    s->real = TO_REAL(r);
    s->a |= REQUEST_DONE | REQUEST_AWAIT;
    __atomic_fetch_add(&back.awaiting, 1, __ATOMIC_RELAXED);
    end_locked(e);
    back_unlock(LOCK_SYNC);
    return 0;
}

int back_sync_awaits(const ckpt_slot *s) {
    const struct back_sync *e = s->a & REQUEST_AWAIT ? back_sync_of(s) : NULL;
    return e != NULL && e->id != 0;
}

// If no request waits for the id, the word is old: a checkpoint has said the same before, or the request was
// freed.
static void acknowledge(uint64_t id) {
    uint32_t i = 0;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;)
        if (back_sync_awaits(s) && back_sync_of(s)->id == id) {
            acknowledge_locked(s, back_sync_of(s));
            return;
        }
}

void back_sync_acknowledge(uint64_t id) {
    back_lock(LOCK_SYNC);
    acknowledge(id);
    back_unlock(LOCK_SYNC);
}

uint64_t back_sync_behind(const struct back_sync *e) { return e->lane->sent - e->at; }

int back_sync_tag(const struct back_sync *e) { return e->lane->tag; }

// ---- words between receivers and senders ----

// Words that are under way, under LOCK_WORDS.  A word reuses the record of its message, so sending it takes
// no memory of ours.  `matched` says that the word was sent; 0: the real MPI refused.
static TAILQ_HEAD(, drained) words = TAILQ_HEAD_INITIALIZER(words);

static void say_locked(struct drained *w) {
    w->request = MPI_REQUEST_NULL;
    w->matched =
        MPI_Isend(&w->claim, 1, MPI_UINT64_T, w->sender, TAG_TAKEN, back.control, &w->request) == MPI_SUCCESS;
}

static void reap_locked(void) {
    for (struct drained *w = TAILQ_FIRST(&words), *next; w != NULL; w = next) {
        int flag = 0;
        next = TAILQ_NEXT(w, others);
        if (!w->matched) say_locked(w);
        if (!w->matched || (MPI_Test(&w->request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag))
            continue;
        TAILQ_REMOVE(&words, w, others);
        back_release(w);
    }
}

void back_sync_taken(struct drained *m) {
    if (m->sender == back.rank) {
        back_sync_acknowledge(m->claim);
        back_release(m);
        return;
    }
    back_lock(LOCK_WORDS);
    reap_locked();
    say_locked(m);
    TAILQ_INSERT_HEAD(&words, m, others);
    back_unlock(LOCK_WORDS);
}

void back_sync_poll(void) {
    if (!back_trylock(LOCK_SYNC)) return; // another thread looks
    for (;;) {
        MPI_Message message;
        int flag = 0;
        uint64_t id;
        if (MPI_Improbe(MPI_ANY_SOURCE, TAG_TAKEN, back.control, &flag, &message, MPI_STATUS_IGNORE) !=
                MPI_SUCCESS ||
            !flag || MPI_Mrecv(&id, 1, MPI_UINT64_T, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
        acknowledge(id);
    }
    back_unlock(LOCK_SYNC);
}

// Words are short, so the real MPI sends them without the receivers' help.  From here on the real MPI alone
// has the words that have not left.
void back_sync_finalize(void) {
    back_sync_poll();
    back_lock(LOCK_WORDS);
    reap_locked();
    struct drained *w;
    TAILQ_FOREACH(w, &words, others) {
        if (w->matched) MPI_Request_free(&w->request);
    }
    TAILQ_INIT(&words);
    back_unlock(LOCK_WORDS);
}
