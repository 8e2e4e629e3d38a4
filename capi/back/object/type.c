// SPDX-License-Identifier: Apache-2.0
//
// type.c: datatypes.  Each constructor's arguments become the descriptor (describe.h), and the
// datatype itself is made from the descriptor, now and after a restart alike.  The shape of a constructor
// (canon/shape.h) says what its arguments are.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/impl/special.h"
#include "back/object/describe.h"
#include "back/object/fresh.h"
#include "back/object/keep.h"
#include "back/object/type.h"
#include "canon/shape.h"

// ---- making a datatype from its descriptor ----

enum { FEW = 8 }; // that many need no memory of their own

struct contents {
    int combiner, ni, na, nt;
    const int *ints;
    MPI_Aint *addresses; // few, or allocated
    const ckpt_vid *types;
    MPI_Aint few[FEW];
};

static void contents_done(struct contents *c) {
    if (c->addresses != c->few) free(c->addresses);
}

// Why fresh_descriptor returned no descriptor.
static int undescribed(size_t bytes) { return bytes != 0 ? MPI_ERR_NO_MEM : MPI_ERR_TYPE; }

// Room for c's addresses.
static int take_addresses(struct contents *c) {
    c->addresses = c->na <= FEW ? c->few : malloc((size_t)c->na * sizeof(MPI_Aint));
    return c->addresses != NULL;
}

// MPI_SUCCESS, MPI_ERR_ARG for what describes no datatype, MPI_ERR_NO_MEM.
static int parse(const void *descriptor, size_t bytes, struct contents *c) {
    struct reader r = reader_of(descriptor, bytes);
    c->combiner = get(&r);
    c->ni = get(&r);
    c->na = get(&r);
    c->nt = get(&r);
    c->ints = get_ints(&r, c->ni);
    c->addresses = NULL;
    if (r.failed || c->na < 0 || (size_t)c->na > r.n / 2) return MPI_ERR_ARG;
    if (!take_addresses(c)) return MPI_ERR_NO_MEM;
    for (int i = 0; i < c->na; i++) c->addresses[i] = (MPI_Aint)get64(&r);
    c->types = (const ckpt_vid *)get_ints(&r, c->nt);
    if (!r.failed) return MPI_SUCCESS;
    contents_done(c);
    return MPI_ERR_ARG;
}

// Negative counts are the real MPI's to refuse; no array is read for them.
static int count_of(long n) { return n > 0 ? (int)n : 0; }

// The length of the arrays of the constructor; only integers come before this length.
static int array_length(const char *shape, const struct contents *c) {
    int at = shape_find(shape, SHAPE_LENGTH);
    return at >= 0 && c->ni > at ? count_of(c->ints[at]) : 0;
}

// Whether the descriptor has as many integers, addresses and datatypes as its constructor reads.  A
// descriptor from a damaged image may not.
static int is_whole(const struct contents *c) {
    const char *shape = shape_of(c->combiner);
    if (shape == NULL) return 0;
    int64_t n = array_length(shape, c);
    return c->ni == shape_holds(shape, SHAPE_INTS, n) && c->na == shape_holds(shape, SHAPE_ADDRESSES, n) &&
           c->nt == shape_holds(shape, SHAPE_TYPES, n);
}

// How deep datatypes that were freed stand in each other; a damaged image may have them in a circle.
enum { DEEPEST = 4096 };
static _Thread_local int depth;

static int build(const void *descriptor, size_t bytes, MPI_Datatype *type);

// The real datatype of a vid that a descriptor names.  *temporary is set when the application has freed the
// datatype and it was made again for this use.
static int inner(ckpt_vid vid, MPI_Datatype *type, int *temporary) {
    const ckpt_slot *s = back_slot(CKPT_KIND_DATATYPE, vid);
    *temporary = 0;
    if (s != back.tables->pages[CKPT_KIND_DATATYPE][0] && s->real != 0) {
        *type = (MPI_Datatype)(uintptr_t)s->real;
        return MPI_SUCCESS;
    }
    size_t n;
    void *descriptor = fresh_descriptor(vid, &n);
    if (descriptor == NULL) return undescribed(n);
    int rc = MPI_ERR_TYPE;
    if (depth < DEEPEST) {
        depth++;
        rc = build(descriptor, n, type);
        depth--;
    }
    free(descriptor);
    *temporary = rc == MPI_SUCCESS;
    return rc;
}

int back_type_real(ckpt_vid vid, MPI_Datatype *type, int *temporary) {
    int rc = inner(vid, type, temporary);
    if (rc == MPI_SUCCESS && *temporary) rc = MPI_Type_commit(type);
    return rc;
}

static const int orders[] = {MPI_ORDER_C, MPI_ORDER_FORTRAN};
static const int distributions[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};

static int real_order(int o) {
    return o == CANON_ORDER_C || o == CANON_ORDER_FORTRAN ? orders[o] : BACK_NO_VALUE;
}

static int real_distribution(int d) { return d >= 0 && d <= 2 ? distributions[d] : BACK_NO_VALUE; }

static int real_darg(int g) { return g == CANON_DISTRIBUTE_DFLT_DARG ? MPI_DISTRIBUTE_DFLT_DARG : g; }

// Calls the constructor.  t holds the real inner datatypes.
static int construct(const struct contents *c, const MPI_Datatype *t, MPI_Datatype *type) {
    const char *shape = shape_of(c->combiner);
    int n = array_length(shape, c), *real = NULL;
    if (shape_find(shape, SHAPE_SPECIAL) >= 0) {
        real = malloc((size_t)c->ni * sizeof(int));
        if (real == NULL) return MPI_ERR_NO_MEM;
        memcpy(real, c->ints, (size_t)c->ni * sizeof(int));
        shape_convert(shape, real, real_order, real_distribution, real_darg);
    }
    int rc = back_type_construct(c->combiner, n, real != NULL ? real : c->ints, c->addresses, t, type);
    free(real);
    return rc;
}

// The datatype that a constructor makes of these arguments.
static int assemble(const struct contents *c, MPI_Datatype *type) {
    MPI_Datatype few[FEW], *t = c->nt <= FEW ? few : malloc((size_t)c->nt * sizeof *t);
    int few_temporary[FEW] = {0};
    int *temporary = c->nt <= FEW ? few_temporary : calloc((size_t)c->nt, sizeof *temporary);
    int rc = t && temporary ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    for (int i = 0; rc == MPI_SUCCESS && i < c->nt; i++) rc = inner(c->types[i], &t[i], &temporary[i]);
    if (rc == MPI_SUCCESS) rc = construct(c, t, type);
    for (int i = 0; temporary && i < c->nt; i++)
        if (temporary[i]) MPI_Type_free(&t[i]);
    if (t != few) free(t);
    if (temporary != few_temporary) free(temporary);
    return rc;
}

static int build(const void *descriptor, size_t bytes, MPI_Datatype *type) {
    struct contents c;
    int rc = parse(descriptor, bytes, &c);
    if (rc != MPI_SUCCESS) return rc;
    rc = is_whole(&c) ? assemble(&c, type) : MPI_ERR_ARG;
    contents_done(&c);
    return rc;
}

// ---- registering ----

static void set_size(ckpt_vid vid, MPI_Datatype type) {
    MPI_Count size = 0;
    ckpt_slot *s = back_slot(CKPT_KIND_DATATYPE, vid);
    if (MPI_Type_size_x(type, &size) != MPI_SUCCESS || size == MPI_UNDEFINED) size = 0;
    s->bytes = size > INT_MAX ? -1 : (int)size;
    s->extra = (uint64_t)size;
}

int back_bind_datatype(ckpt_job *job, uint32_t index, MPI_Datatype type) {
    if (type == MPI_DATATYPE_NULL) // this MPI was built without it
        return 0;
    ckpt_vid v = CKPT_VID(CKPT_KIND_DATATYPE, index);
    int rc = ckpt_vid_bind(job, v, TO_REAL(type));
    if (rc == 0) set_size(v, type);
    return rc;
}

int back_rebuild_type(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real) {
    MPI_Datatype type;
    int rc = build(descriptor, bytes, &type);
    if (rc == MPI_SUCCESS) rc = MPI_Type_commit(&type);
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "its description does not make a datatype");
        return CKPT_E_SYSTEM;
    }
    *real = TO_REAL(type);
    set_size(vid, type);
    return 0;
}

// ---- constructors ----

// A descriptor under construction: its words, and c as parse would give it.  Programs make datatypes in inner
// loops, so the words that were just written are not read again.
struct made {
    int32_t *words;
    size_t n;
    struct contents c;
};

// MPI_SUCCESS or MPI_ERR_NO_MEM.  A capital letter of shape stands for an array of n elements.  The integers, the
// addresses and the datatypes keep their order: that of MPI_Type_get_contents.
static int describe(struct made *m, int combiner, const char *shape, const long *a, int n) {
    enum { HEAD = 5 };
    struct contents *c = &m->c;
    int64_t ni = shape_holds(shape, SHAPE_INTS, n), na = shape_holds(shape, SHAPE_ADDRESSES, n),
            nt = shape_holds(shape, SHAPE_TYPES, n);
    if (ni > INT_MAX || na > INT_MAX || nt > INT_MAX) return MPI_ERR_NO_MEM; // 8 GiB of arrays
    c->combiner = combiner;
    c->ni = (int)ni;
    c->na = (int)na;
    c->nt = (int)nt;
    m->n = HEAD + (size_t)ni + 2 * (size_t)na + (size_t)nt;
    m->words = malloc(m->n * sizeof *m->words);
    if (m->words == NULL) return MPI_ERR_NO_MEM;
    if (!take_addresses(c)) {
        free(m->words);
        return MPI_ERR_NO_MEM;
    }
    const int32_t head[HEAD] = {DESCRIBE_VERSION, combiner, c->ni, c->na, c->nt};
    memcpy(m->words, head, sizeof head);
    int32_t *ints = m->words + HEAD, *addresses = ints + ni, *types = addresses + 2 * na;
    MPI_Aint *address = c->addresses;
    c->ints = ints;
    c->types = (const ckpt_vid *)types;
    for (; *shape != 0; shape++, a++) {
        int array = shape_is_array(*shape), k = array ? n : 1;
        if (shape_is(*shape, SHAPE_ADDRESSES)) {
            for (int i = 0; i < k; i++) *address++ = array ? ((const MPI_Aint *)*a)[i] : (MPI_Aint)*a;
            continue;
        }
        int32_t **to = shape_is(*shape, SHAPE_TYPES) ? &types : &ints;
        if (!array)
            **to = (int32_t)*a;
        else if (k > 0)
            memcpy(*to, (const void *)*a, (size_t)k * sizeof **to);
        *to += k;
    }
    if (na > 0) memcpy(addresses, c->addresses, 2 * (size_t)na * sizeof *addresses);
    return MPI_SUCCESS;
}

// Registers a real datatype at *vid, with its descriptor, which it takes.
static long enter(MPI_Datatype type, int32_t *words, size_t n, ckpt_vid *vid) {
    ckpt_vid v = fresh_new(type, words, n);
    if (v == CKPT_VID_NONE) {
        MPI_Type_free(&type);
        return CANON_ERR(NO_MEM);
    }
    set_size(v, type);
    *vid = v;
    return 0;
}

long back_type_make(int combiner, const long *a) {
    const char *shape = shape_of(combiner);
    int at = shape_find(shape, SHAPE_LENGTH), n = at >= 0 ? count_of((int)a[at]) : 0;
    ckpt_vid *newtype = (ckpt_vid *)a[strlen(shape)];
    MPI_Datatype type;
    struct made m;
    int rc = describe(&m, combiner, shape, a, n);
    if (rc != MPI_SUCCESS) return back_error(rc);
    rc = assemble(&m.c, &type);
    contents_done(&m.c);
    // A datatype that is made from no other is predefined.  It is never freed, so it is registered only once.
    ckpt_vid known =
        rc == MPI_SUCCESS && shape_find(shape, SHAPE_TYPES) < 0 ? fresh_find(type) : CKPT_VID_NONE;
    if (rc == MPI_SUCCESS && known == CKPT_VID_NONE) return enter(type, m.words, m.n, newtype);
    free(m.words);
    if (rc != MPI_SUCCESS) return back_error(rc);
    *newtype = known;
    return 0;
}

long back_Type_match_size(const long *a) {
    ARGS(Type_match_size) p = (const void *)a;
    static const int classes[] = {0, MPI_TYPECLASS_REAL, MPI_TYPECLASS_INTEGER, MPI_TYPECLASS_COMPLEX};
    MPI_Datatype type;
    int rc = MPI_Type_match_size(
        p->typeclass >= 1 && p->typeclass <= 3 ? classes[p->typeclass] : BACK_NO_VALUE, p->size, &type);
    if (rc != MPI_SUCCESS) return back_error(rc);
    ckpt_vid v = fresh_find(type);
    if (v == CKPT_VID_NONE) return CANON_ERR(ARG);
    *p->type = v;
    return 0;
}

// ---- the rest of a datatype's life ----

long back_Type_commit(const long *a) {
    ARGS(Type_commit) p = (const void *)a;
    MPI_Datatype type = real_type(*p->type);
    return back_error(MPI_Type_commit(&type));
}

long back_Type_free(const long *a) {
    ARGS(Type_free) p = (const void *)a;
    ckpt_vid v = *p->type;
    MPI_Datatype type = real_type(v);
    int keeps;
    long canon = back_keep_type(v, &keeps);
    if (canon != 0 || keeps) return canon;
    int rc = MPI_Type_free(&type);
    if (rc == MPI_SUCCESS) fresh_free(v);
    return back_error(rc);
}

// A copy of the descriptor, parsed; the caller frees *descriptor and calls contents_done.
static long contents_of(long vid, void **descriptor, size_t *bytes, struct contents *c) {
    *descriptor = fresh_descriptor((ckpt_vid)vid, bytes);
    if (*descriptor == NULL) return back_error(undescribed(*bytes));
    int rc = parse(*descriptor, *bytes, c);
    if (rc == MPI_SUCCESS) return 0;
    free(*descriptor);
    return rc == MPI_ERR_NO_MEM ? CANON_ERR(NO_MEM) : CANON_ERR(INTERN);
}

long back_Type_get_envelope(const long *a) {
    ARGS(Type_get_envelope) p = (const void *)a;
    if (real_type(p->type) == MPI_DATATYPE_NULL) return CANON_ERR(TYPE);
    struct contents c = {.combiner = CANON_COMBINER_NAMED};
    if (CKPT_VID_INDEX(p->type) >= CKPT_VID_PREDEFINED) {
        void *descriptor;
        size_t bytes;
        long rc = contents_of(p->type, &descriptor, &bytes, &c);
        if (rc != 0) return rc;
        free(descriptor);
        contents_done(&c);
    }
    *p->num_integers = c.ni;
    *p->num_addresses = c.na;
    *p->num_datatypes = c.nt;
    *p->combiner = c.combiner;
    return 0;
}

long back_type_again(ckpt_vid inner_vid, ckpt_vid *out) {
    if (CKPT_VID_INDEX(inner_vid) < CKPT_VID_PREDEFINED) {
        *out = inner_vid;
        return 0;
    }
    size_t bytes;
    int32_t *words = fresh_descriptor(inner_vid, &bytes);
    if (words == NULL) return back_error(undescribed(bytes));
    MPI_Datatype type;
    int rc = build(words, bytes, &type);
    if (rc == MPI_SUCCESS) return enter(type, words, bytes / sizeof *words, out);
    free(words);
    return back_error(rc);
}

// type, room for each sort, arrays; count of datatypes, combiner
long back_Type_get_contents(const long *a) {
    ARGS(Type_get_contents) p = (const void *)a;
    void *descriptor;
    size_t bytes;
    struct contents c;
    if (CKPT_VID_INDEX(p->mtype) < CKPT_VID_PREDEFINED) return CANON_ERR(TYPE);
    long rc = contents_of(p->mtype, &descriptor, &bytes, &c);
    if (rc != 0) return rc;
    if (c.ni > p->max_integers || c.na > p->max_addresses || c.nt > p->max_datatypes) {
        rc = CANON_ERR(ARG);
    } else {
        memcpy((void *)p->integers, c.ints, (size_t)c.ni * sizeof(int));
        memcpy((void *)p->addresses, c.addresses, (size_t)c.na * sizeof(MPI_Aint));
        for (int i = 0; rc == 0 && i < c.nt; i++) rc = back_type_again(c.types[i], p->datatypes + i);
        *p->types = c.nt;
        *p->combiner = c.combiner;
    }
    contents_done(&c);
    free(descriptor);
    return rc;
}
