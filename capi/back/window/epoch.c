// SPDX-License-Identifier: Apache-2.0
//
// epoch.c: epochs of windows: which are open, and what a checkpoint does about them.
//
// When the job is saved, an epoch of MPI_Win_fence is closed and opened again, so that everything in it is
// complete, and an epoch of MPI_Win_lock_all is flushed.  After a restart both are opened in the new window;
// MPI_Win_lock_all succeeds at once there, since nobody holds a lock that excludes it.  One with
// MPI_MODE_NOCHECK holds none itself, and must not after a restart: images of gfortran's coarrays wait for
// events in such an epoch, and are sent them under MPI_LOCK_EXCLUSIVE (OpenCoarrays).  Epochs of other kinds
// belong to single ranks, which would have to agree with each other about them.  Such an epoch holds the
// checkpoint back while it is open.
#include <stdio.h>

#include "back/collective/clock.h"
#include "back/impl/error.h"
#include "back/impl/slots.h"
#include "back/impl/special.h"
#include "back/object/comm.h"
#include "back/window/window.h"

// ---- the calls ----

static inline void count(int *counter, int by) { __atomic_fetch_add(counter, by, __ATOMIC_RELAXED); }

long back_Win_fence(const long *a) {
    ARGS(Win_fence) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    int rc = MPI_Win_fence(real_assert(p->assert), real_win(p->win));
    if (rc == MPI_SUCCESS && w != NULL) {
        w->fences++;
        w->fenced = !(p->assert &CANON_MODE_NOSUCCEED);
    }
    return back_error(rc);
}

long back_Win_lock(const long *a) {
    ARGS(Win_lock) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    int rc =
        MPI_Win_lock(real_lock(p->lock_type), real_rank(p->rank), real_assert(p->assert), real_win(p->win));
    if (rc == MPI_SUCCESS && w != NULL && p->rank >= 0) {
        count(&w->lock_ranks, p->rank);
        count(&w->locks, 1);
    }
    return back_error(rc);
}

long back_Win_unlock(const long *a) {
    ARGS(Win_unlock) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    int rc = MPI_Win_unlock(real_rank(p->rank), real_win(p->win));
    if (rc == MPI_SUCCESS && w != NULL && p->rank >= 0) {
        count(&w->locks, -1);
        count(&w->lock_ranks, -p->rank);
    }
    return back_error(rc);
}

long back_Win_lock_all(const long *a) {
    ARGS(Win_lock_all) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    int rc = MPI_Win_lock_all(real_assert(p->assert), real_win(p->win));
    if (rc == MPI_SUCCESS && w != NULL)
        w->locked_all = p->assert &CANON_MODE_NOCHECK ? WINDOW_UNCHECKED : WINDOW_CHECKED;
    return back_error(rc);
}

long back_Win_unlock_all(const long *a) {
    ARGS(Win_unlock_all) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    int rc = MPI_Win_unlock_all(real_win(p->win));
    if (rc == MPI_SUCCESS && w != NULL) w->locked_all = 0;
    return back_error(rc);
}

long back_Win_start(const long *a) {
    ARGS(Win_start) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    MPI_Group group = back_group(p->group);
    int rc = MPI_Win_start(group, real_assert(p->assert), real_win(p->win));
    back_group_done(&group);
    if (rc == MPI_SUCCESS && w != NULL) w->started = 1;
    return back_error(rc);
}

long back_Win_complete(const long *a) {
    ARGS(Win_complete) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    int rc = MPI_Win_complete(real_win(p->win));
    if (rc == MPI_SUCCESS && w != NULL) w->started = 0;
    return back_error(rc);
}

long back_Win_post(const long *a) {
    ARGS(Win_post) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    MPI_Group group = back_group(p->group);
    int rc = MPI_Win_post(group, real_assert(p->assert), real_win(p->win));
    back_group_done(&group);
    if (rc == MPI_SUCCESS && w != NULL) w->posted = 1;
    return back_error(rc);
}

static int test(long vid, int *flag) {
    struct window *w = back_window_of(vid);
    int rc = MPI_Win_test(real_win(vid), flag);
    if (rc == MPI_SUCCESS && *flag && w != NULL) w->posted = 0;
    return rc;
}

long back_Win_test(const long *a) {
    ARGS(Win_test) p = (const void *)a;
    return back_error(test(p->win, p->flag));
}

// Other ranks may take long to call MPI_Win_complete.  This tests in a loop, so that a checkpoint that is
// asked for meanwhile can say so.
long back_Win_wait(const long *a) {
    ARGS(Win_wait) p = (const void *)a;
    for (unsigned turn = 0;; turn++) {
        int flag = 0, rc = test(p->win, &flag);
        if (flag || rc != MPI_SUCCESS) return back_error(rc);
        back_turn(turn);
    }
}

// ---- what holds a checkpoint back ----

static int window_holds(const struct window *w, char *why, size_t bytes) {
    const char *begun = w->started ? "MPI_Win_start" : w->posted ? "MPI_Win_post" : NULL;
    const char *end = w->started ? "MPI_Win_complete" : "MPI_Win_wait";
    if (w->flavor == WINDOW_SHARED && w->starts == NULL)
        snprintf(why, bytes, "window \"%s\" is open, and its memory is that of %s, which has no other for it",
                 w->name, BACK_NAME);
    else if (w->locks == 1)
        snprintf(why, bytes, "window \"%s\": MPI_Win_lock of rank %d waits for its MPI_Win_unlock", w->name,
                 w->lock_ranks);
    else if (w->locks > 1)
        snprintf(why, bytes, "window \"%s\": MPI_Win_lock of %d ranks waits for their MPI_Win_unlock",
                 w->name, w->locks);
    else if (begun != NULL)
        snprintf(why, bytes, "window \"%s\": %s waits for its %s", w->name, begun, end);
    else if (w->torn)
        snprintf(why, bytes, "window \"%s\": some of its ranks have called MPI_Win_fence and others have not",
                 w->name);
    else
        return 0;
    return 1;
}

int windows_hold(char *why, size_t bytes) {
    uint32_t i = 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_WIN, &i)) != NULL;)
        if (window_holds((const struct window *)(uintptr_t)s->extra, why, bytes)) return 1;
    return 0;
}

// ---- the safe state ----

// Goes through the windows in the order of their identities, which is the same on all members, so that no
// ranks wait for each other in a circle.  Takes no memory: a rank without memory would make the others wait.
// Identities are above 0.
struct standing {
    ckpt_vid vid;
    struct window *w;
};

static int next_window(struct standing *at) {
    uint64_t after = at->w != NULL ? at->w->identity : 0;
    uint32_t i = 0;
    at->w = NULL;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_WIN, &i)) != NULL;) {
        struct window *w = (struct window *)(uintptr_t)s->extra;
        if (w->identity > after && (at->w == NULL || w->identity < at->w->identity))
            *at = (struct standing){CKPT_VID(CKPT_KIND_WIN, i - 1), w};
    }
    return at->w != NULL;
}

// Completes what was begun in an epoch of MPI_Win_fence, if all members are in that epoch, or in epochs of
// MPI_Win_lock_all.  For the latter all members drive their communication until the last one is done.
static int settle(struct window *w, MPI_Win win) {
    int64_t mine[3] = {(int64_t)w->fences, -(int64_t)w->fences, -w->locked_all}, least[3];
    int rc = MPI_Allreduce(mine, least, 3, MPI_INT64_T, MPI_MIN, real_comm(w->comm));
    if (rc != MPI_SUCCESS) return rc;
    w->torn = least[0] != -least[1];
    if (least[2] < 0) {
        if (w->locked_all) rc = MPI_Win_flush_all(win);
        int met = MPI_Barrier(real_comm(w->comm));
        return rc == MPI_SUCCESS ? met : rc;
    }
    return w->fenced && !w->torn ? MPI_Win_fence(0, win) : MPI_SUCCESS;
}

int window_reopen(const struct window *w, MPI_Win win) {
    MPI_Comm comm = real_comm(w->comm);
    int some = 0, rc = w->fenced ? MPI_Win_fence(MPI_MODE_NOPRECEDE, win) : MPI_SUCCESS;
    if (rc == MPI_SUCCESS) rc = MPI_Allreduce(&w->locked_all, &some, 1, MPI_INT, MPI_MAX, comm);
    if (rc == MPI_SUCCESS && w->locked_all)
        rc = MPI_Win_lock_all(w->locked_all == WINDOW_UNCHECKED ? MPI_MODE_NOCHECK : 0, win);
    if (some) {
        int met = MPI_Barrier(comm);
        rc = rc == MPI_SUCCESS ? met : rc;
    }
    return rc;
}

int back_one_sided(void *ctx) {
    uint32_t i = 0;
    (void)ctx;
    return back_next_slot(CKPT_KIND_WIN, &i) != NULL;
}

// After a failure the other windows still follow: their members wait for this rank there.
int back_settle(void *ctx) {
    struct standing at = {0};
    int failed = 0;
    (void)ctx;
    while (next_window(&at)) {
        int rc = settle(at.w, real_win(at.vid));
        if (rc == MPI_SUCCESS && window_describe(at.vid, at.w) != 0) rc = MPI_ERR_NO_MEM;
        if (rc != MPI_SUCCESS) back_fail(rc, "window \"%s\"", at.w->name);
        failed |= rc != MPI_SUCCESS;
    }
    return failed ? CKPT_E_SYSTEM : 0;
}

// MPICH's UCX aborts in MPI_Finalize while memory of a window is registered with it.
void windows_end(void) {
    struct standing at = {0};
    while (next_window(&at)) {
        MPI_Win win = real_win(at.vid);
        if (at.w->locked_all) MPI_Win_unlock_all(win);
        if (at.w->fenced && !at.w->torn) MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        MPI_Win_free(&win);
    }
}
