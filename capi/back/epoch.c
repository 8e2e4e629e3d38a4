/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch.c: epochs of windows: which are open, and what a checkpoint does about them.
 *
 * An epoch that MPI_Win_fence opened is closed and opened again, so that everything in it is
 * complete when the job is saved, and one of MPI_Win_lock_all is flushed; after a restart both are
 * opened in the new window, the latter at once since nobody holds a lock that excludes it.  The
 * others belong to single ranks, which would have to agree with each other about them: while one is
 * open, it holds the checkpoint back.
 */
#include <stdio.h>
#include <stdlib.h>

#include "drain.h"
#include "window.h"

/* ---- the calls ---- */

static inline void count(int *counter, int by) {
    __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

long back_Win_fence(const long *a) {
    struct window *w = window_of(a[1]);
    int rc = MPI_Win_fence(real_assert(a[0]), real_win(a[1]));
    if (rc == MPI_SUCCESS && w != NULL) {
        w->fences++;
        w->fenced = !(a[0] & CANON_MODE_NOSUCCEED);
    }
    return back_error(rc);
}

long back_Win_lock(const long *a) {
    struct window *w = window_of(a[3]);
    int rc = MPI_Win_lock(real_lock(a[0]), real_rank(a[1]), real_assert(a[2]), real_win(a[3]));
    if (rc == MPI_SUCCESS && w != NULL && (int)a[1] >= 0) {
        count(&w->lock_ranks, (int)a[1]);
        count(&w->locks, 1);
    }
    return back_error(rc);
}

long back_Win_unlock(const long *a) {
    struct window *w = window_of(a[1]);
    int rc = MPI_Win_unlock(real_rank(a[0]), real_win(a[1]));
    if (rc == MPI_SUCCESS && w != NULL && (int)a[0] >= 0) {
        count(&w->locks, -1);
        count(&w->lock_ranks, -(int)a[0]);
    }
    return back_error(rc);
}

long back_Win_lock_all(const long *a) {
    struct window *w = window_of(a[1]);
    int rc = MPI_Win_lock_all(real_assert(a[0]), real_win(a[1]));
    if (rc == MPI_SUCCESS && w != NULL)
        w->locked_all = 1;
    return back_error(rc);
}

long back_Win_unlock_all(const long *a) {
    struct window *w = window_of(a[0]);
    int rc = MPI_Win_unlock_all(real_win(a[0]));
    if (rc == MPI_SUCCESS && w != NULL)
        w->locked_all = 0;
    return back_error(rc);
}

long back_Win_start(const long *a) {
    struct window *w = window_of(a[2]);
    MPI_Group group = back_group((const ckpt_mpi_group *)a[0]);
    int rc = MPI_Win_start(group, real_assert(a[1]), real_win(a[2]));
    back_group_done(&group);
    if (rc == MPI_SUCCESS && w != NULL)
        w->started = 1;
    return back_error(rc);
}

long back_Win_complete(const long *a) {
    struct window *w = window_of(a[0]);
    int rc = MPI_Win_complete(real_win(a[0]));
    if (rc == MPI_SUCCESS && w != NULL)
        w->started = 0;
    return back_error(rc);
}

long back_Win_post(const long *a) {
    struct window *w = window_of(a[2]);
    MPI_Group group = back_group((const ckpt_mpi_group *)a[0]);
    int rc = MPI_Win_post(group, real_assert(a[1]), real_win(a[2]));
    back_group_done(&group);
    if (rc == MPI_SUCCESS && w != NULL)
        w->posted = 1;
    return back_error(rc);
}

static int test(long vid, int *flag) {
    struct window *w = window_of(vid);
    int rc = MPI_Win_test(real_win(vid), flag);
    if (rc == MPI_SUCCESS && *flag && w != NULL)
        w->posted = 0;
    return rc;
}

long back_Win_test(const long *a) { return back_error(test(a[0], (int *)a[1])); }

/* Others may take long to come to their MPI_Win_complete, and a checkpoint asked for meanwhile can
 * then say so. */
long back_Win_wait(const long *a) {
    for (unsigned turn = 0;; turn++) {
        int flag = 0, rc = test(a[0], &flag);
        if (flag || rc != MPI_SUCCESS)
            return back_error(rc);
        back_turn(turn);
    }
}

/* ---- what holds a checkpoint back ---- */

static int window_holds(const struct window *w, char *why, size_t bytes) {
    const char *begun = w->started  ? "MPI_Win_start"
                        : w->posted ? "MPI_Win_post"
                                    : NULL;
    const char *end = w->started ? "MPI_Win_complete" : "MPI_Win_wait";
    if (w->flavor == WINDOW_SHARED && w->starts == NULL)
        snprintf(why, bytes,
                 "window \"%s\" is open, and its memory is that of %s, which has no other for it",
                 w->name, BACK_NAME);
    else if (w->locks == 1)
        snprintf(why, bytes,
                 "window \"%s\": MPI_Win_lock of rank %d waits for its MPI_Win_unlock", w->name,
                 w->lock_ranks);
    else if (w->locks > 1)
        snprintf(why, bytes,
                 "window \"%s\": MPI_Win_lock of %d ranks waits for their MPI_Win_unlock", w->name,
                 w->locks);
    else if (begun != NULL)
        snprintf(why, bytes, "window \"%s\": %s waits for its %s", w->name, begun, end);
    else if (w->torn)
        snprintf(why, bytes,
                 "window \"%s\": some of its ranks have called MPI_Win_fence and others have not",
                 w->name);
    else
        return 0;
    return 1;
}

int windows_hold(char *why, size_t bytes) {
    uint32_t i = 0;
    for (const ckpt_slot *s; (s = next_slot(CKPT_KIND_WIN, &i)) != NULL;)
        if (window_holds((const struct window *)(uintptr_t)s->extra, why, bytes))
            return 1;
    return 0;
}

/* ---- the safe state ---- */

struct standing {
    ckpt_vid vid;
    struct window *w;
};

static int by_identity(const void *x, const void *y) {
    const struct window *a = ((const struct standing *)x)->w, *b = ((const struct standing *)y)->w;
    return a->identity < b->identity ? -1 : a->identity > b->identity;
}

/* Completes what was begun in an epoch of MPI_Win_fence, when all members have that epoch, or in those
 * of MPI_Win_lock_all, for which all members drive their communication until the last is done. */
static int settle(struct window *w, MPI_Win win) {
    int64_t mine[3] = {(int64_t)w->fences, -(int64_t)w->fences, -w->locked_all}, least[3];
    int rc = MPI_Allreduce(mine, least, 3, MPI_INT64_T, MPI_MIN, real_comm(w->comm));
    if (rc != MPI_SUCCESS)
        return rc;
    w->torn = least[0] != -least[1];
    if (least[2] < 0) {
        if (w->locked_all)
            rc = MPI_Win_flush_all(win);
        int met = MPI_Barrier(real_comm(w->comm));
        return rc == MPI_SUCCESS ? met : rc;
    }
    return w->fenced && !w->torn ? MPI_Win_fence(0, win) : MPI_SUCCESS;
}

int window_reopen(const struct window *w, MPI_Win win) {
    MPI_Comm comm = real_comm(w->comm);
    int some = 0, rc = w->fenced ? MPI_Win_fence(MPI_MODE_NOPRECEDE, win) : MPI_SUCCESS;
    if (rc == MPI_SUCCESS)
        rc = MPI_Allreduce(&w->locked_all, &some, 1, MPI_INT, MPI_MAX, comm);
    if (rc == MPI_SUCCESS && w->locked_all)
        rc = MPI_Win_lock_all(0, win);
    if (some) {
        int met = MPI_Barrier(comm);
        rc = rc == MPI_SUCCESS ? met : rc;
    }
    return rc;
}

int back_one_sided(void *ctx) {
    uint32_t i = 0;
    (void)ctx;
    return next_slot(CKPT_KIND_WIN, &i) != NULL;
}

/* All windows, in an order that all members have, so that nobody waits for another in a circle.  NULL
 * when there is no memory. */
static struct standing *all_windows(size_t *count) {
    uint32_t i = 0;
    size_t n = 0;
    while (next_slot(CKPT_KIND_WIN, &i) != NULL)
        n++;
    struct standing *all = calloc(n + 1, sizeof *all);
    *count = 0;
    if (all == NULL)
        return NULL;
    i = 0;
    for (const ckpt_slot *s; *count < n && (s = next_slot(CKPT_KIND_WIN, &i)) != NULL; ++*count)
        all[*count] = (struct standing){CKPT_VID(CKPT_KIND_WIN, i - 1),
                                        (struct window *)(uintptr_t)s->extra};
    qsort(all, n, sizeof *all, by_identity);
    return all;
}

int back_settle(void *ctx) {
    (void)ctx;
    size_t n;
    int rc = MPI_SUCCESS;
    struct standing *all = all_windows(&n);
    if (all == NULL)
        return CKPT_E_SYSTEM;
    for (size_t k = 0; k < n && rc == MPI_SUCCESS; k++) {
        rc = settle(all[k].w, real_win(all[k].vid));
        if (rc == MPI_SUCCESS && window_describe(all[k].vid, all[k].w) != 0)
            rc = MPI_ERR_NO_MEM;
    }
    free(all);
    return rc == MPI_SUCCESS ? 0 : CKPT_E_SYSTEM;
}

/* MPICH's UCX aborts in MPI_Finalize while memory of a window is registered with it. */
void windows_end(void) {
    size_t n;
    struct standing *all = all_windows(&n);
    for (size_t k = 0; all != NULL && k < n; k++) {
        MPI_Win win = real_win(all[k].vid);
        if (all[k].w->locked_all)
            MPI_Win_unlock_all(win);
        if (all[k].w->fenced && !all[k].w->torn)
            MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        MPI_Win_free(&win);
    }
    free(all);
}
