// SPDX-License-Identifier: Apache-2.0
//
// request.c: completing requests.
#include <stdlib.h>

#include "back/object/keep.h"
#include "back/request/request.h"
#include "back/image/sync.h"

enum { SMALL = 64 };

// ---- ids ----

ckpt_vid back_take_slow(ckpt_kind kind) {
    while (ckpt_vid_grow(back.job, kind) == 0) {
        ckpt_vid v = ckpt_vid_take(back.tables, kind, back.shared);
        if (v != CKPT_VID_NONE) return v;
    }
    return CKPT_VID_NONE;
}

// Gives the status of a complete request, which is there already when the real MPI wrote it there.
static inline void status_of(const ckpt_slot *s, const MPI_Status *real, long out) {
    if (__builtin_expect((s->a & REQUEST_KIND) == REQUEST_RECV && s->b == CANON_PROC_NULL, 0))
        proc_null_status(out);
    else if (real != status_at(out))
        give_status(real, out);
}

// Whether the real MPI frees a persistent request that fails, once that has been told.
#if defined(OPEN_MPI)
enum { FAILURE_FREES = 1 };
#else
enum { FAILURE_FREES = 0 };
#endif

// What is left of a request that is none of the two that programs are full of.
static __attribute__((noinline)) void complete_rare(ckpt_slot *s, ckpt_vid *vid, const MPI_Status *status,
                                                    int rc) {
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, s->clock);
    int cancelled = (s->a & REQUEST_CANCELLED) && STATUS_CANCELLED(status);
    if (s->a & REQUEST_DONE) {
        ; // counted when it was drained
    } else if ((s->a & REQUEST_KIND) == REQUEST_RECV) {
        if (!cancelled && s->b != CANON_PROC_NULL && back_took(rc)) back_count_received(comm, status);
    } else if (cancelled && (s->a & REQUEST_KIND) == REQUEST_SEND && s->b >= 0 && comm->extra) {
        __atomic_fetch_sub(&ckpt_comm_of(comm)->peer[s->b].sent, 1, __ATOMIC_RELAXED);
    }
    if (s->a & REQUEST_IDUP) {
        const struct back_idup *d = (const struct back_idup *)(uintptr_t)s->extra;
        back_slot(CKPT_KIND_COMM, d->vid)->real = TO_REAL(d->comm);
    }
    if (s->a & REQUEST_SYNC) back_sync_ended(s);
    if (s->a & REQUEST_PERSISTENT && !(FAILURE_FREES && rc != MPI_SUCCESS && !(s->a & REQUEST_DONE))) {
        if (s->a & REQUEST_DONE) s->real = ((struct persistent *)(uintptr_t)s->extra)->real;
        s->a &= ~(REQUEST_ACTIVE | REQUEST_CANCELLED | REQUEST_DONE);
        return;
    }
    if (s->a & REQUEST_PERSISTENT)
        keep_forget(s);
    else
        free((void *)(uintptr_t)s->extra);
    ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
    *vid = VID_REQUEST_NULL;
}

// Counts what the completed request moved, and frees its id unless it is persistent.
static inline void complete(ckpt_slot *s, ckpt_vid *vid, const MPI_Status *status, int rc) {
    if (__builtin_expect((s->a & ~REQUEST_KIND) != 0 || s->extra != 0 || rc != MPI_SUCCESS, 0)) {
        complete_rare(s, vid, status, rc);
        return;
    }
    if (s->a == REQUEST_RECV && s->b != CANON_PROC_NULL)
        back_count_received(back_slot(CKPT_KIND_COMM, s->clock), status);
    ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
    *vid = VID_REQUEST_NULL;
}

// The same as back_slow, for a request: whom its message is from or for.
static inline void slow_request(unsigned turn, struct back_waiting *w, const char *call, const ckpt_slot *s) {
    int kind = s->a & REQUEST_KIND;
    int matched = s->a & REQUEST_MATCHED;
    back_slow(turn, w,
              kind == REQUEST_SEND               ? CKPT_WAIT_RECEIVER
              : kind == REQUEST_RECV && !matched ? CKPT_WAIT_MESSAGE
                                                 : CKPT_WAIT_REQUEST,
              call, s->clock, s->b, CANON_ANY_TAG);
}

// ---- requests that consist of others: persistent collectives that are active, and pairs ----

static inline int is_compound(const ckpt_slot *s) {
    return __builtin_expect(s->a & REQUEST_PAIR ||
                                (s->a & (REQUEST_COLL | REQUEST_ACTIVE)) == (REQUEST_COLL | REQUEST_ACTIVE),
                            0);
}

// The request that the compound one waits for next: a pair's send, then its receive.
static ckpt_vid *next_inner(const ckpt_slot *s) {
    struct back_coll *c = back_coll_of(s);
    if (s->a & REQUEST_PAIR && c->a[0] != VID_REQUEST_NULL) return (ckpt_vid *)&c->a[0]; // little-endian
    return &c->inner;
}

// Whether the compound one is complete with it, and has its status.
static inline int last_inner(const ckpt_slot *s) { return next_inner(s) == &back_coll_of(s)->inner; }

// The inner request that was waited for is complete; 1 when the compound one is.
static int inner_done(ckpt_slot *s, ckpt_vid *vid) {
    struct back_coll *c = back_coll_of(s);
    if (s->a & REQUEST_COLL) {
        s->a &= ~REQUEST_ACTIVE;
        return 1;
    }
    if (c->inner != VID_REQUEST_NULL) return 0;
    back_coll_free(c);
    ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, *vid, back.shared);
    *vid = VID_REQUEST_NULL;
    return 1;
}

// The slot that says whether the request is complete.
static inline ckpt_slot *waited(ckpt_vid v) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, v);
    return is_compound(s) ? back_slot(CKPT_KIND_REQUEST, *next_inner(s)) : s;
}

// Waits for one request of any state.  may_hold: the call can be issued again, for this request.
static long wait_one(ckpt_vid *vid, long out, const char *call, int may_hold) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, *vid);
    if (is_null(s)) {
        if (*vid != VID_REQUEST_NULL) return CANON_ERR(REQUEST);
        empty_status(out);
        return 0;
    }
    if (is_inactive(s)) {
        empty_status(out);
        return 0;
    }
    if (is_compound(s)) {
        long canon;
        do canon = wait_one(next_inner(s), last_inner(s) ? out : 0, call, may_hold);
        while (!inner_done(s, vid) && canon == 0);
        return canon;
    }
    MPI_Status own, *status = status_for(out, &own);
    struct back_waiting w;
    int flag = 0, rc;
    unsigned turn = 0;
    for (;; turn = back_next(turn)) {
        if (!is_deferred(s)) {
            MPI_Request r = real_of(s);              // draining may put another one in its place
            rc = request_test(s, &r, &flag, status); // leaves status alone until it is complete
            if (__builtin_expect(flag || rc != MPI_SUCCESS, 1)) break;
        }
        slow_request(turn, &w, call, s);
        back_sync_look();
        if (may_hold)
            back_turn(turn);
        else if (back_pending())
            back_attend();
    }
    back_over(turn, &w);
    status_of(s, status, out);
    complete(s, vid, status, rc);
    return back_error(rc);
}

long back_Wait(const long *a) { return wait_one((ckpt_vid *)a[0], a[1], "MPI_Wait", 1); }

// Puts MPI_SUCCESS or an error into a status of a call on several requests.
static inline void put_error(long status, long rc) {
    if (status != 0) status_set_error(status, (int)rc);
}

// The same for one of MPI_Waitall, and remembers that there was an error.  All MPIs put MPI_SUCCESS there
// too, in this call; when it is issued again it knows nothing of those that were complete before.
static void note_error(long rc, long status, long *all) {
    put_error(status, rc);
    if (rc != 0) *all = CANON_ERR(IN_STATUS);
}

// In its other calls MPICH leaves MPI_ERROR alone when there was no error.
static inline int puts_success(long status) { return status_form(status) != STATUS_MPICH; }

// One after the other.
static long wait_each(const long *a) {
    ckpt_vid *v = (ckpt_vid *)a[1];
    long statuses = a[2], all = 0, n = a[0], *again = (long *)a;
    for (long i = 0; i < n; i++) {
        // Issued again, the call has only the rest to wait for.
        again[0] = n - i;
        again[1] = (long)&v[i];
        again[2] = status_nth(statuses, i);
        long rc = wait_one(&v[i], again[2], "MPI_Waitall", all == 0);
        note_error(rc, again[2], &all);
    }
    return all;
}

// A request that the real MPI has completed, with its error code.
static inline long ended(ckpt_slot *s, ckpt_vid *vid, const MPI_Status *status, int rc, long out) {
    status_of(s, status, out);
    complete(s, vid, status, rc);
    return back_error(rc);
}

// Puts the real requests into r; 0 when one of them needs care: it is then waited for by itself.  Those
// of files do: MPICH completes one twice when MPI_Testall sees it complete and returns without it.
static inline int plain(long n, const ckpt_vid *v, ckpt_slot **slot, MPI_Request *r) {
    for (long i = 0; i < n; i++) {
        slot[i] = back_slot(CKPT_KIND_REQUEST, v[i]);
        if (__builtin_expect(is_null(slot[i]) || CKPT_VID_KIND(slot[i]->clock) != CKPT_KIND_COMM ||
                                 __atomic_load_n(&slot[i]->a, __ATOMIC_ACQUIRE) & ~REQUEST_KIND,
                             0))
            return 0;
        r[i] = real_of(slot[i]);
    }
    return 1;
}

// As status_for, of n statuses that are wanted.
static inline MPI_Status *statuses_for(long out, MPI_Status *own, long n) {
    if (__builtin_expect(status_direct(out), 1)) return status_at(out);
    for (long i = 0; i < n; i++) own[i] = (MPI_Status){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG};
    return own;
}

// Few plain requests are tested together, all or none of them: the real MPI then drives its
// communication once a turn, not once a request.  What takes long is waited for one by one, so that
// people can be told which it is.
long back_Waitall(const long *a) {
    ckpt_vid *v = (ckpt_vid *)a[1];
    ckpt_slot *slot[SMALL];
    MPI_Request r[SMALL];
    MPI_Status own[SMALL], *st = own;
    long n = a[0], all = 0;
    int flag = 0, rc;
    if (n < 2 || n > SMALL || !plain(n, v, slot, r)) return wait_each(a);
    if (a[2] != 0) st = statuses_for(a[2], own, n);
    for (unsigned turn = 0;; turn++) {
        rc = MPI_Testall((int)n, r, &flag, st);
        if (__builtin_expect(flag || rc != MPI_SUCCESS, 1)) break;
        if (turn == BACK_SPIN || (back_turn(turn) && !plain(n, v, slot, r))) return wait_each(a);
    }
    for (long i = 0; i < n; i++) {
        long out = status_nth(a[2], i);
        if (__builtin_expect(rc != MPI_SUCCESS, 0)) {
            note_error(r[i] == MPI_REQUEST_NULL ? ended(slot[i], &v[i], &st[i], st[i].MPI_ERROR, out)
                                                : wait_one(&v[i], out, "MPI_Waitall", 0),
                       out, &all);
            continue;
        }
        ended(slot[i], &v[i], &st[i], MPI_SUCCESS, out);
        put_error(out, 0);
    }
    return all;
}

// ---- testing ----

void back_give_other(const MPI_Status *s, long out) {
    ckpt_mpi_status c;
    canon_status(s, &c);
    status_put(out, &c);
}

long back_Test(const long *a) {
    ckpt_vid *vid = (ckpt_vid *)a[0];
    int *flag = (int *)a[1];
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, *vid);
    if (is_null(s) || is_inactive(s)) {
        if (is_null(s) && *vid != VID_REQUEST_NULL) return CANON_ERR(REQUEST);
        *flag = 1;
        empty_status(a[2]);
        return 0;
    }
    if (is_compound(s)) {
        for (;;) {
            const long inner[] = {(long)next_inner(s), a[1], last_inner(s) ? a[2] : 0};
            long canon = back_Test(inner);
            if (!*flag || inner_done(s, vid) || canon != 0) return canon;
        }
    }
    MPI_Status own, *status = status_for(a[2], &own);
    if (back_pending()) back_attend();
    back_sync_look();
    *flag = 0;
    if (is_deferred(s)) return 0;
    MPI_Request r = real_of(s);
    int rc = request_test(s, &r, flag, status);
    if (*flag || rc != MPI_SUCCESS) {
        *flag = 1;
        status_of(s, status, a[2]);
        complete(s, vid, status, rc);
    }
    return back_error(rc);
}

// Whether a request of a file is complete; it stays, with its status.  MPICH does not go on with one in
// MPI_Request_get_status.
static int file_complete(ckpt_slot *s) {
    MPI_Request r = real_of(s);
    MPI_Status status;
    struct back_done ready = {0};
    if (s->a & REQUEST_DONE) return 1;
    if (back_done_begin(&ready) != MPI_SUCCESS) return 0; // nobody knows until there is memory for its status
    int flag = 0, rc = request_test(s, &r, &flag, &status);
    if (flag || rc != MPI_SUCCESS) back_request_done(s, &status, rc, &ready);
    back_done_drop(&ready);
    return flag || rc != MPI_SUCCESS;
}

long back_Request_get_status(const long *a) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, a[0]);
    int *flag = (int *)a[1];
    if (is_compound(s)) {
        const struct back_coll *c = back_coll_of(s);
        const long send[] = {c->a[0], a[1], 0}, inner[] = {c->inner, a[1], a[2]};
        long canon = s->a & REQUEST_PAIR ? back_Request_get_status(send) : 0;
        if (canon != 0 || (s->a & REQUEST_PAIR && !*flag)) return canon;
        return back_Request_get_status(inner);
    }
    if (is_null(s) || is_inactive(s)) {
        *flag = 1;
        empty_status(a[2]);
        if (a[0] == VID_REQUEST_NULL && status_form(a[2]) == STATUS_MPICH)
            put_error(a[2], 0); // as MPICH does here, and nowhere else with an empty status
        return 0;
    }
    MPI_Status own, *status = status_for(a[2], &own);
    *flag = 0;
    if (back_pending()) back_attend();
    back_sync_look();
    if (is_deferred(s) || (of_file(s) && !file_complete(s))) return 0;
    int rc = MPI_Request_get_status(real_of(s), flag, status);
    if (rc == MPI_SUCCESS && *flag) status_of(s, status, a[2]);
    return back_error(rc);
}

// Real requests of an array, with null for those that cannot complete.  Freed by end.
struct reals {
    MPI_Request *r, small[SMALL];
    MPI_Status *s, small_status[SMALL];
    int *index, small_index[SMALL];
    int n, active;
    int deferred; // of the active ones: they have no real request yet
    int files;    // of the active ones: they belong to files
};

// Reads the real requests.  Those of files are left out where they are asked about by themselves:
// MPICH completes one twice that MPI_Testany, MPI_Testsome or MPI_Testall of several finds complete.
static void again(struct reals *x, const ckpt_vid *v) {
    x->active = x->deferred = x->files = 0;
    for (int i = 0; i < x->n; i++) {
        const ckpt_slot *s = waited(v[i]);
        int active = !is_null(s) && !is_inactive(s), waits = active && is_deferred(s);
        int file = active && !waits && of_file(s);
        x->r[i] = active && !waits && !file ? real_of(s) : MPI_REQUEST_NULL;
        x->active += active;
        x->deferred += waits;
        x->files += file;
    }
}

// The next request of a file from i on that is complete, with its status; -1: none is.
static int next_file(const struct reals *x, const ckpt_vid *v, int i, MPI_Status *st, int *rc) {
    for (; x->files > 0 && i < x->n; i++) {
        ckpt_slot *s = waited(v[i]);
        if (is_null(s) || !of_file(s) || is_deferred(s)) continue;
        MPI_Request r = real_of(s);
        int flag = 0;
        *rc = request_test(s, &r, &flag, st);
        if (flag || *rc != MPI_SUCCESS) return i;
    }
    return -1;
}

// statuses: whether more than sources are wanted of the real statuses.
static int begin(struct reals *x, long n, const ckpt_vid *v, int statuses) {
    if (back_pending()) back_attend();
    back_sync_look();
    x->n = n > 0 ? (int)n : 0;
    x->r = x->small, x->s = x->small_status, x->index = x->small_index;
    if (n > SMALL) {
        x->r = malloc((size_t)n * sizeof *x->r);
        x->s = malloc((size_t)n * sizeof *x->s);
        x->index = malloc((size_t)n * sizeof *x->index);
        if (x->r == NULL || x->s == NULL || x->index == NULL) return -1;
    }
    if (statuses) statuses_for(0, x->s, x->n);
    again(x, v);
    return 0;
}

static const ckpt_slot *first_active(const struct reals *x, const ckpt_vid *v) {
    int i = 0;
    while (i < x->n - 1 && x->r[i] == MPI_REQUEST_NULL) i++;
    return back_slot(CKPT_KIND_REQUEST, v[i]);
}

static void end(struct reals *x) {
    if (x->r != x->small) free(x->r);
    if (x->s != x->small_status) free(x->s);
    if (x->index != x->small_index) free(x->index);
}

// Completes request i of the array with status st; 0 when it was a part, and more is to come.
static int complete_at(ckpt_vid *v, int i, const MPI_Status *st, int rc, long out) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, v[i]), *whole = NULL;
    ckpt_vid *id = &v[i];
    if (is_compound(s)) {
        whole = s;
        out = last_inner(s) ? out : 0;
        id = next_inner(s);
        s = back_slot(CKPT_KIND_REQUEST, *id);
    }
    status_of(s, st, out);
    complete(s, id, st, rc);
    return whole == NULL || inner_done(whole, &v[i]);
}

long back_Testall(const long *a) {
    ckpt_vid *v = (ckpt_vid *)a[1];
    struct reals x;
    long all = 0;
    *(int *)a[2] = 0;
    if (begin(&x, a[0], v, 0) != 0) {
        end(&x);
        return CANON_ERR(NO_MEM);
    }
    int flag = x.deferred == 0;
    for (int i = 0; i < x.n && flag; i++) { // nothing is freed unless all are complete
        if (of_file(waited(v[i])) || is_compound(back_slot(CKPT_KIND_REQUEST, v[i]))) {
            const long one[] = {v[i], (long)&flag, 0};
            back_Request_get_status(one);
        } else if (x.r[i] != MPI_REQUEST_NULL) {
            MPI_Request_get_status(x.r[i], &flag, MPI_STATUS_IGNORE);
        }
    }
    for (int i = 0; i < x.n && flag; i++) {
        long rc = wait_one(&v[i], status_nth(a[3], i), "MPI_Testall", 0);
        for (int k = 0; k < i && rc != 0 && all == 0; k++) put_error(status_nth(a[3], k), 0);
        if (rc != 0) all = CANON_ERR(IN_STATUS);
        if (all != 0 || puts_success(a[3])) put_error(status_nth(a[3], i), rc);
    }
    end(&x);
    *(int *)a[2] = flag;
    return all;
}

static long any(long n, ckpt_vid *v, int *index, int *flag, long out, int wait) {
    struct reals x;
    MPI_Status st = {.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG};
    int rc = begin(&x, n, v, 0) == 0 ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    *index = MPI_UNDEFINED;
    if (rc == MPI_SUCCESS && x.active == 0) {
        *flag = 1;
        empty_status(out);
        end(&x);
        return 0;
    }
    *flag = 0;
    struct back_waiting w;
    unsigned turn = 0;
    for (; rc == MPI_SUCCESS; turn = back_next(turn)) {
        rc = MPI_Testany(x.n, x.r, index, flag, &st);
        if (x.deferred + x.files > 0 && *index == MPI_UNDEFINED) *flag = 0;
        if (__builtin_expect(x.files > 0, 0) && !*flag && rc == MPI_SUCCESS) {
            int i = next_file(&x, v, 0, &st, &rc);
            *index = i < 0 ? MPI_UNDEFINED : i;
            *flag = i >= 0;
        }
        if (*flag && *index != MPI_UNDEFINED && !complete_at(v, *index, &st, rc, out)) {
            *flag = 0;
            again(&x, v);
            continue;
        }
        if (*flag || !wait) break;
        slow_request(turn, &w, "MPI_Waitany", first_active(&x, v));
        if (back_turn(turn)) again(&x, v);
    }
    back_over(turn, &w);
    if (!*flag) *index = MPI_UNDEFINED;
    end(&x);
    return back_error(rc);
}

long back_Waitany(const long *a) {
    int flag;
    return any(a[0], (ckpt_vid *)a[1], (int *)a[2], &flag, a[3], 1);
}

long back_Testany(const long *a) { return any(a[0], (ckpt_vid *)a[1], (int *)a[2], (int *)a[3], a[4], 0); }

// Puts the complete requests of files behind the first n that are complete.  rc: as of MPI_Testsome.
static int add_files(struct reals *x, const ckpt_vid *v, int n, int *rc) {
    int one;
    for (int i = 0; (i = next_file(x, v, i, &x->s[n], &one)) >= 0; i++) {
        x->index[n] = i;
        x->s[n].MPI_ERROR = one;
        if (one != MPI_SUCCESS && *rc == MPI_SUCCESS) {
            for (int k = 0; k < n; k++) x->s[k].MPI_ERROR = MPI_SUCCESS;
            *rc = MPI_ERR_IN_STATUS;
        }
        n++;
    }
    return n;
}

static long some(const long *a, int wait) {
    ckpt_vid *v = (ckpt_vid *)a[1];
    int *outcount = (int *)a[2], *indices = (int *)a[3];
    struct reals x;
    int rc = begin(&x, a[0], v, a[4] != 0) == 0 ? MPI_SUCCESS : MPI_ERR_NO_MEM, n = 0;
    *outcount = 0;
    if (rc == MPI_SUCCESS && x.active == 0) {
        *outcount = MPI_UNDEFINED;
        end(&x);
        return 0;
    }
    struct back_waiting w;
    unsigned turn = 0;
    long all = 0;
    int done = 0;
    for (; rc == MPI_SUCCESS; turn = back_next(turn)) {
        rc = MPI_Testsome(x.n, x.r, &n, x.index, x.s);
        if (n == MPI_UNDEFINED) n = 0; // none but deferred ones
        if (rc != MPI_SUCCESS && back_canon_class(rc) != CANON_ERR(IN_STATUS))
            all = back_error(rc);
        else if (__builtin_expect(x.files > 0, 0))
            n = add_files(&x, v, n, &rc);
        for (int i = 0; i < n && all == 0; i++) {
            int one = rc == MPI_SUCCESS ? MPI_SUCCESS : x.s[i].MPI_ERROR;
            long out = status_nth(a[4], done);
            if (!complete_at(v, x.index[i], &x.s[i], one, out)) continue;
            if (rc != MPI_SUCCESS || puts_success(out)) put_error(out, back_error(one));
            indices[done++] = x.index[i];
        }
        if (done > 0 || (n <= 0 && !wait)) break;
        slow_request(turn, &w, "MPI_Waitsome", first_active(&x, v));
        if (n > 0 || back_turn(turn)) again(&x, v);
    }
    back_over(turn, &w);
    if (all == 0) {
        *outcount = done;
        if (rc != MPI_SUCCESS)
            all = n > 0 ? CANON_ERR(IN_STATUS) : back_error(rc); // of one of them; of the call
    }
    end(&x);
    return all;
}

long back_Waitsome(const long *a) { return some(a, 1); }

long back_Testsome(const long *a) { return some(a, 0); }

// ---- receives that were freed before they were complete (orphan.c) ----

int back_end_orphan(ckpt_vid vid) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, vid);
    int persistent = s->a & REQUEST_PERSISTENT, flag = 0;
    MPI_Request r = real_of(s);
    MPI_Status st;
    int rc = MPI_Test(&r, &flag, &st);
    if (!flag && rc == MPI_SUCCESS) return 0;
    complete_rare(s, &vid, &st, rc);
    if (persistent && vid != VID_REQUEST_NULL) { // it is inactive now
        r = real_of(s);
        MPI_Request_free(&r);
        keep_forget(s);
        ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, vid, back.shared);
    }
    return 1;
}
