// SPDX-License-Identifier: Apache-2.0
//
// op.c: operations with functions of the application.
#include <stdlib.h>

#include "back/collective/op.h"
#include "back/impl/error.h"
#include "back/impl/lock.h"
#include "back/object/describe.h"
#include "back/object/fresh.h"
#include "back/request/request.h"

// MPI calls a user function without an argument that tells the operation.  So each operation has a function
// of its own, a trampoline: trampoline i calls users[i].
enum { OPS = 16384, TRAMPOLINE_BYTES = 16 };

static struct user { void *function, *thunk; /* upper half; NULL: free */ } users[OPS];

// The virtual id of the datatype in a reduction.  The last one is remembered: a reduction calls its operation
// many times with the same datatype.
static ckpt_vid type_vid(MPI_Datatype type) {
    static _Thread_local struct {
        MPI_Datatype type;
        ckpt_vid vid;
        uint32_t generation;
    } last;
    const ckpt_slot *s = back_slot(CKPT_KIND_DATATYPE, last.vid);
    if (last.vid != 0 && last.type == type && s->generation == last.generation && s->real == TO_REAL(type))
        return last.vid;
    last.vid = fresh_find(type);
    last.type = type;
    last.generation = back_slot(CKPT_KIND_DATATYPE, last.vid)->generation;
    return last.vid;
}

// Called by trampoline i.
__attribute__((used, visibility("hidden"))) void back_user_op(void *in, void *inout, int *len,
                                                              MPI_Datatype *type, int i);

void back_user_op(void *in, void *inout, int *len, MPI_Datatype *type, int i) {
    const long args[6] = {(long)in, (long)inout, (long)len, (long)type_vid(*type), (long)users[i].function};
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

// Fields of an operation's slot: a is whether it commutes, b its trampoline, extra the front's object.

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

// function, commute, id out, thunk
long back_Op_create(const long *a) {
    ARGS(Op_create) p = (const void *)a;
    MPI_Op op;
    int user, commute = p->commute != 0;
    int rc = make_op(p->function, p->thunk, commute, &op, &user);
    if (rc != MPI_SUCCESS) return back_error(rc);
    struct writer w = {0};
    put(&w, DESCRIBE_VERSION);
    put(&w, commute);
    put64(&w, (uint64_t)p->function);
    put64(&w, (uint64_t)p->thunk);
    ckpt_vid v = w.failed ? CKPT_VID_NONE
                          : ckpt_vid_new(back.job, CKPT_KIND_OP, TO_REAL(op), w.word, 4 * w.n, NULL, 0, 0);
    free(w.word);
    if (v == CKPT_VID_NONE) {
        MPI_Op_free(&op);
        unclaim(user);
        return CANON_ERR(NO_MEM);
    }
    ckpt_slot *s = back_slot(CKPT_KIND_OP, v);
    s->a = commute;
    s->b = user;
    s->extra = (uint64_t)p->function;
    *p->op = v;
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
    s->extra = (uint64_t)(uintptr_t)function;
    *real = TO_REAL(op);
    return 0;
}

// Whether a non-blocking reduction with a function of the application is under way, or is to start.
int back_reducing(void) {
    uint32_t i = 0;
    if (back.tables == NULL) return 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_REQUEST, &i)) != NULL;) {
        int flags = __atomic_load_n(&s->a, __ATOMIC_ACQUIRE);
        if (flags & REQUEST_DEFERRED || (flags & (REQUEST_USER_OP | REQUEST_DONE)) == REQUEST_USER_OP)
            return 1;
    }
    return 0;
}

// Operations that were freed while such a reduction was under way: MPI may still call their functions.
static struct later {
    struct later *next;
    ckpt_vid v;
} * freed_later;

static int free_op(ckpt_vid v) {
    MPI_Op op = real_op(v);
    int user = back_slot(CKPT_KIND_OP, v)->b, rc = MPI_Op_free(&op);
    if (rc == MPI_SUCCESS) {
        unclaim(user);
        ckpt_vid_free(back.job, v);
    }
    return rc;
}

long back_Op_free(const long *a) {
    ARGS(Op_free) p = (const void *)a;
    ckpt_vid v = *p->op;
    int rc = MPI_SUCCESS, busy = back_reducing();
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
    back_unlock(LOCK_OPS);
    if (p->in_use) // the front keeps its object of the operation until this is 0
        *p->in_use = busy;
    if (!busy) rc = free_op(v);
    return busy && l == NULL ? CANON_ERR(NO_MEM) : back_error(rc);
}
