// SPDX-License-Identifier: Apache-2.0
//
// several.c: calls on several requests: all, any or some of them.
#include <stdlib.h>

#include "back/impl/error.h"
#include "back/request/complete.h"

enum { SMALL = 64 };

// put_error for one request of MPI_Waitall; all remembers that there was an error.  In this call all MPIs put
// MPI_SUCCESS too.  A call that is issued again knows nothing of requests that were complete before.
static void note_error(long rc, long status, long *all) {
    put_error(status, rc);
    if (rc != 0) *all = CANON_ERR(IN_STATUS);
}

// In the other calls on several requests MPICH leaves MPI_ERROR alone when there was no error.
static inline int puts_success(long status) { return status_form(status) != STATUS_MPICH; }

// MPI_Waitall, one request after the other.
static long wait_each(const long *a) {
    ARGS(Waitall) p = (const void *)a;
    ckpt_vid *v = p->requests;
    long statuses = p->statuses, all = 0, n = p->count, *again = (long *)a;
    for (long i = 0; i < n; i++) {
        // Issued again, the call has only the rest to wait for.
        again[0] = n - i;
        again[1] = (long)&v[i];
        again[2] = status_nth(statuses, i);
        long rc = back_wait_one(&v[i], again[2], "MPI_Waitall", all == 0);
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

// Puts the real requests into r.  0 when a request has to be waited for by itself.  One of a file has to:
// MPICH completes it twice when MPI_Testall finds it complete but returns without completing all.
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

// status_for, for n statuses.
static inline MPI_Status *statuses_for(long out, MPI_Status *own, long n) {
    if (__builtin_expect(status_direct(out), 1)) return status_at(out);
    for (long i = 0; i < n; i++) own[i] = (MPI_Status){.MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG};
    return own;
}

// A few plain requests are tested together, all or none of them: the real MPI then drives its
// communication once a turn, not once a request.  After some turns they are waited for one by one, so that
// people can be told which one the call waits for.
long back_Waitall(const long *a) {
    ARGS(Waitall) p = (const void *)a;
    ckpt_vid *v = p->requests;
    ckpt_slot *slot[SMALL];
    MPI_Request r[SMALL];
    MPI_Status own[SMALL], *st = own;
    long n = p->count, all = 0;
    int flag = 0, rc;
    if (n < 2 || n > SMALL || !plain(n, v, slot, r)) return wait_each(a);
    if (p->statuses != 0) st = statuses_for(p->statuses, own, n);
    for (unsigned turn = 0;; turn++) {
        rc = MPI_Testall((int)n, r, &flag, st);
        if (__builtin_expect(flag || rc != MPI_SUCCESS, 1)) break;
        if (turn == BACK_SPIN || (back_turn(turn) && !plain(n, v, slot, r))) return wait_each(a);
    }
    for (long i = 0; i < n; i++) {
        long out = status_nth(p->statuses, i);
        if (__builtin_expect(rc != MPI_SUCCESS, 0)) {
            note_error(r[i] == MPI_REQUEST_NULL ? ended(slot[i], &v[i], &st[i], st[i].MPI_ERROR, out)
                                                : back_wait_one(&v[i], out, "MPI_Waitall", 0),
                       out, &all);
            continue;
        }
        ended(slot[i], &v[i], &st[i], MPI_SUCCESS, out);
        put_error(out, 0);
    }
    return all;
}

// ---- some of them, without waiting for all ----

// Real requests of an array, with null for those that cannot complete.  end frees it.
struct reals {
    MPI_Request *r, small[SMALL];
    MPI_Status *s, small_status[SMALL];
    int *index, small_index[SMALL];
    int n, active;
    int deferred; // of the active ones: they have no real request yet
    int files;    // of the active ones: they belong to files
};

// Reads the real requests.  Requests of files are left out where they are tested by themselves: MPICH
// completes one twice that MPI_Testany, MPI_Testsome or MPI_Testall of several requests finds complete.
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

// The next complete request of a file, from i on, with its status; -1: none is complete.
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

// statuses: whether the caller uses more of the real statuses than their sources.
static int begin(struct reals *x, long n, const ckpt_vid *v, int statuses) {
    if (back_pending()) back_attend();
    back_look();
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

// Completes request i of the array with status st; 0 when a part of a compound request is complete, and
// another part is still to come.
static int complete_at(ckpt_vid *v, int i, const MPI_Status *st, int rc, long out) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, v[i]), *whole = NULL;
    ckpt_vid *id = &v[i];
    if (is_compound(s)) {
        whole = s;
        out = last_inner(s) ? out : 0;
        id = inner_next(s);
        s = back_slot(CKPT_KIND_REQUEST, *id);
    }
    status_of(s, st, out);
    complete(s, id, st, rc);
    return whole == NULL || back_inner_done(whole, &v[i]);
}

long back_Testall(const long *a) {
    ARGS(Testall) p = (const void *)a;
    ckpt_vid *v = p->requests;
    struct reals x;
    long all = 0;
    *p->flag = 0;
    if (begin(&x, p->count, v, 0) != 0) {
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
        long rc = back_wait_one(&v[i], status_nth(p->statuses, i), "MPI_Testall", 0);
        for (int k = 0; k < i && rc != 0 && all == 0; k++) put_error(status_nth(p->statuses, k), 0);
        if (rc != 0) all = CANON_ERR(IN_STATUS);
        if (all != 0 || puts_success(p->statuses)) put_error(status_nth(p->statuses, i), rc);
    }
    end(&x);
    *p->flag = flag;
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
    ARGS(Waitany) p = (const void *)a;
    int flag;
    return any(p->count, p->requests, p->index, &flag, p->status, 1);
}

// A program may ask for one receive after each piece of its work (HPCC's RandomAccess does, some 20 million times a
// second, and leaves little in the caches).
long back_Testany(const long *a) {
    ARGS(Testany) p = (const void *)a;
    ckpt_slot *s;
    MPI_Request r;
    if (p->count == 1 && !back_pending() && plain(1, p->requests, &s, &r)) {
        MPI_Status own, *st = status_for(p->status, &own);
        back_look();
        int rc = MPI_Testany(1, &r, p->index, p->flag, st);
        if (*p->flag) {
            status_of(s, st, p->status);
            complete(s, p->requests, st, rc);
        }
        return back_error(rc);
    }
    return any(p->count, p->requests, p->index, p->flag, p->status, 0);
}

// Appends the complete requests of files to the n complete ones.  rc: as MPI_Testsome returns it.
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
    ARGS(Testsome) p = (const void *)a;
    ckpt_vid *v = p->requests;
    int *outcount = p->outcount, *indices = p->indices;
    struct reals x;
    int rc = begin(&x, p->incount, v, p->statuses != 0) == 0 ? MPI_SUCCESS : MPI_ERR_NO_MEM, n = 0;
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
            long out = status_nth(p->statuses, done);
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
            all = n > 0 ? CANON_ERR(IN_STATUS) : back_error(rc); // an error of one request; of the call
    }
    end(&x);
    return all;
}

long back_Waitsome(const long *a) { return some(a, 1); }

long back_Testsome(const long *a) { return some(a, 0); }
