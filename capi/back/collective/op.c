// SPDX-License-Identifier: Apache-2.0
//
// op.c: operations with functions of the application.
#include <stdlib.h>

#include "back/collective/op.h"
#include "back/impl/error.h"
#include "back/impl/lock.h"
#include "back/object/describe.h"
#include "back/object/fresh.h"
#include "back/request/compound.h"
#include "back/request/request.h"

// MPI calls a user function without an argument that tells the operation.  So each operation has a function
// of its own, a trampoline: trampoline i calls users[i].
enum { OPS = 16384, TRAMPOLINE_BYTES = 16 };

static struct user { void *function, *thunk; /* upper half; NULL: free */ } users[OPS];

// Called by trampoline i.
__attribute__((used, visibility("hidden"))) void back_user_op(void *in, void *inout, int *len,
                                                              MPI_Datatype *type, int i);

void back_user_op(void *in, void *inout, int *len, MPI_Datatype *type, int i) {
    const long args[6] = {(long)in, (long)inout, (long)len, (long)fresh_find(*type), (long)users[i].function};
    ckpt_upcall(back.job, users[i].thunk, args);
}

// The trampolines: each adds its number as the fifth argument to MPI's four.
__asm__(".pushsection .text\n"
        ".p2align 4\n"
        "back_trampolines:\n"
        ".set i, 0\n"
        ".rept 16384\n"
        ".p2align 4\n"
        "endbr64\n"
        "movl $i, %r8d\n"
        "jmp back_user_op\n"
        ".set i, i + 1\n"
        ".endr\n"
        ".popsection\n");
__attribute__((visibility("hidden"))) extern char back_trampolines[OPS][TRAMPOLINE_BYTES];

static MPI_User_function *trampoline(int i) { return (MPI_User_function *)(void *)back_trampolines[i]; }

// Claims a trampoline; -1 when all are in use.
static int claim(void *function, void *thunk) {
    static unsigned last; // where to look first
    unsigned from = __atomic_load_n(&last, __ATOMIC_RELAXED);
    for (unsigned k = 1; k <= OPS; k++) {
        unsigned i = (from + k) % OPS;
        void *none = NULL;
        if (__atomic_compare_exchange_n(&users[i].thunk, &none, thunk, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            users[i].function = function;
            __atomic_store_n(&last, i, __ATOMIC_RELAXED);
            return (int)i;
        }
    }
    return -1;
}

static void unclaim(int i) { __atomic_store_n(&users[i].thunk, NULL, __ATOMIC_RELEASE); }

// A real operation for a user function; *user is its trampoline.
static int make_op(void *function, void *thunk, int commute, MPI_Op *op, int *user) {
    *user = claim(function, thunk);
    if (*user < 0) return MPI_ERR_NO_MEM;
    int rc = MPI_Op_create(trampoline(*user), commute, op);
    if (rc != MPI_SUCCESS) unclaim(*user);
    return rc;
}

// Fields of an operation's slot: a is whether it commutes, b its trampoline, extra the front's object, clock whether
// libckpt has not heard of it (FRESH).

int back_bind_op(ckpt_job *job, uint32_t index, MPI_Op op) {
    ckpt_vid v = CKPT_VID(CKPT_KIND_OP, index);
    int commute = 1, rc = ckpt_vid_bind(job, v, TO_REAL(op));
    if (rc != 0) return rc;
    MPI_Op_commutative(op, &commute);
    ckpt_slot *s = back_slot(CKPT_KIND_OP, v);
    s->a = commute != 0;
    s->b = -1;
    return 0;
}

// ---- ids, and operations that are used again ----
//
// Programs make an operation, reduce with it and free it, again and again: BLACS does for each of its sums.  To
// tell libckpt of each would cost a hundred times what making it does.  So ids come from a reserve, libckpt hears
// of the operations that live when an image is made, and a freed operation of the real MPI, with its trampoline and
// its id, is given out again: after SPARE others, so that a use of the freed id is recognized until then.

enum { FRESH = 1, SPARE = 16, SPARES = 2 * SPARE, RESERVE = 8 };

struct spare {
    ckpt_vid vid;
    int user;
    MPI_Op op;
};

// All under LOCK_OPS.
static struct spares {
    struct spare of[SPARES];
    unsigned first, n;
} spares[2]; // by whether they commute
static ckpt_vid ids[RESERVE];
static int nids;

// The slot of an id, live or not.
static ckpt_slot *slot_of(ckpt_vid vid) {
    uint32_t i = CKPT_VID_INDEX(vid);
    return back.tables->pages[CKPT_KIND_OP][i / CKPT_PAGE_SLOTS] + i % CKPT_PAGE_SLOTS;
}

static int take_spare(int commute, struct spare *s) {
    struct spares *all = &spares[commute];
    back_lock(LOCK_OPS);
    int found = all->n > SPARE;
    if (found) {
        *s = all->of[all->first];
        all->first = (all->first + 1) % SPARES;
        all->n--;
    }
    back_unlock(LOCK_OPS);
    return found;
}

static ckpt_vid take_id(void) {
    back_lock(LOCK_OPS);
    if (nids <= 0) nids = ckpt_vid_reserve(back.job, CKPT_KIND_OP, ids, RESERVE);
    ckpt_vid v = nids > 0 ? ids[--nids] : CKPT_VID_NONE;
    back_unlock(LOCK_OPS);
    return v;
}

// Tells libckpt of an operation.
static int tell(ckpt_slot *s, ckpt_vid v) {
    struct writer w = {0};
    put(&w, DESCRIBE_VERSION);
    put(&w, s->a);
    put64(&w, s->extra);
    put64(&w, (uint64_t)(uintptr_t)users[s->b].thunk);
    int rc = w.failed ? CKPT_E_SYSTEM : ckpt_vid_adopt(back.job, v, w.word, 4 * w.n, NULL, 0);
    free(w.word);
    if (rc == 0) s->clock = 0;
    return rc;
}

int ops_tell(void) {
    uint32_t i = 0;
    int rc = 0;
    back_lock(LOCK_OPS);
    for (ckpt_slot *s; rc == 0 && (s = back_next_slot(CKPT_KIND_OP, &i)) != NULL;)
        if (s->clock == FRESH) rc = tell(s, CKPT_VID(CKPT_KIND_OP, i - 1));
    back_unlock(LOCK_OPS);
    return rc;
}

void ops_end(void) {
    for (int commute = 0; commute < 2; commute++)
        for (struct spares *all = &spares[commute]; all->n > 0; all->n--)
            MPI_Op_free(&all->of[(all->first + all->n - 1) % SPARES].op);
}

// ---- making and freeing ----

// function, commute, id out, thunk
long back_Op_create(const long *a) {
    ARGS(Op_create) p = (const void *)a;
    struct spare made;
    int commute = p->commute != 0;
    if (take_spare(commute, &made)) {
        users[made.user].function = p->function;
        __atomic_store_n(&users[made.user].thunk, p->thunk, __ATOMIC_RELEASE);
    } else {
        int rc = make_op(p->function, p->thunk, commute, &made.op, &made.user);
        if (rc != MPI_SUCCESS) return back_error(rc);
        made.vid = take_id();
        if (made.vid == CKPT_VID_NONE) {
            MPI_Op_free(&made.op);
            unclaim(made.user);
            return CANON_ERR(NO_MEM);
        }
    }
    ckpt_slot *s = slot_of(made.vid);
    s->real = TO_REAL(made.op);
    s->a = commute;
    s->b = made.user;
    s->clock = FRESH;
    s->extra = (uint64_t)p->function;
    __atomic_store_n(&s->generation, s->generation + 1, __ATOMIC_RELEASE);
    *p->op = made.vid;
    return 0;
}

int back_rebuild_op(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real) {
    struct reader r = reader_of(descriptor, bytes);
    int commute = get(&r), user;
    void *function = (void *)get64(&r), *thunk = (void *)get64(&r);
    MPI_Op op;
    if (r.failed) return CKPT_E_CORRUPT;
    int rc = make_op(function, thunk, commute, &op, &user);
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "MPI_Op_create");
        return CKPT_E_SYSTEM;
    }
    ckpt_slot *s = back_slot(CKPT_KIND_OP, vid);
    s->a = commute;
    s->b = user;
    s->clock = 0;
    s->extra = (uint64_t)(uintptr_t)function;
    *real = TO_REAL(op);
    return 0;
}

// How many requests were made that may call a function of the application, and how many there were when none of
// them was left: to look through all requests takes microseconds.  An image may have some, so the first look counts.
static unsigned calling = 1, quiet;

void back_calls_later(void) { __atomic_add_fetch(&calling, 1, __ATOMIC_ACQ_REL); }

static int has_user_op(const struct back_coll *c) {
    for (int i = 0; c != NULL && i < c->nargs; i++) {
        ckpt_vid v = (ckpt_vid)c->a[i]; // another argument that looks like one does no harm
        if (c->a[i] == (long)v && CKPT_VID_KIND(v) == CKPT_KIND_OP &&
            CKPT_VID_INDEX(v) >= CKPT_VID_PREDEFINED)
            return 1;
    }
    return 0;
}

// Whether there is such a request: under way or to start, or also one that may be started again.
static int look(int persistent) {
    enum { BOTH = REQUEST_PERSISTENT | REQUEST_COLL };
    uint32_t i = 0;
    if (back.tables == NULL) return 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;) {
        int flags = __atomic_load_n(&s->a, __ATOMIC_ACQUIRE);
        if (flags & REQUEST_DEFERRED || (flags & (REQUEST_USER_OP | REQUEST_DONE)) == REQUEST_USER_OP)
            return 1;
        if (persistent && (flags & BOTH) == BOTH && has_user_op(back_coll_of(s))) return 1;
    }
    return 0;
}

int back_reducing(void) {
    unsigned n = __atomic_load_n(&calling, __ATOMIC_ACQUIRE);
    return n != __atomic_load_n(&quiet, __ATOMIC_ACQUIRE) && look(0);
}

static int in_use(void) {
    unsigned n = __atomic_load_n(&calling, __ATOMIC_ACQUIRE);
    if (n == __atomic_load_n(&quiet, __ATOMIC_ACQUIRE)) return 0;
    if (look(1)) return 1;
    __atomic_store_n(&quiet, n, __ATOMIC_RELEASE);
    return 0;
}

// Operations that were freed while such a request was there: MPI may still call their functions.
static struct later {
    struct later *next;
    ckpt_vid v;
} * freed_later;

// Under LOCK_OPS.
static int free_op(ckpt_vid v) {
    ckpt_slot *s = back_slot(CKPT_KIND_OP, v);
    struct spare old = {v, s->b, real_op(v)};
    struct spares *all = &spares[s->a != 0];
    int fresh = s->clock == FRESH;
    if (fresh && all->n == SPARES) fresh = tell(s, v) != 0; // libckpt takes the id back
    if (!fresh || all->n == SPARES) {
        int rc = MPI_Op_free(&old.op);
        if (rc != MPI_SUCCESS) return rc;
        unclaim(old.user);
        if (!fresh) {
            ckpt_vid_free(back.job, v);
            return rc;
        } // else the id is lost until a restart
    } else {
        all->of[(all->first + all->n++) % SPARES] = old;
    }
    s->real = 0;
    s->extra = 0;
    __atomic_store_n(&s->generation, s->generation + 1, __ATOMIC_RELEASE);
    return MPI_SUCCESS;
}

long back_Op_free(const long *a) {
    ARGS(Op_free) p = (const void *)a;
    ckpt_vid v = *p->op;
    int rc = MPI_SUCCESS, busy = in_use();
    back_lock(LOCK_OPS);
    struct later *l = busy ? malloc(sizeof *l) : NULL;
    if (l != NULL) {
        *l = (struct later){freed_later, v};
        freed_later = l;
    }
    while (!busy && freed_later != NULL) {
        l = freed_later;
        freed_later = l->next;
        free_op(l->v);
        free(l);
    }
    if (!busy) rc = free_op(v);
    back_unlock(LOCK_OPS);
    if (p->in_use) // the front keeps its object of the operation until this is 0
        *p->in_use = busy;
    return busy && l == NULL ? CANON_ERR(NO_MEM) : back_error(rc);
}
