// SPDX-License-Identifier: Apache-2.0
//
// load.c: drained messages, matched messages and requests are read from an image (section.h).
#include <stdlib.h>

#include "back/collective/deferred.h"
#include "back/collective/persist.h"
#include "back/image/section.h"
#include "back/impl/error.h"
#include "back/impl/reserve.h"
#include "back/impl/special.h"
#include "back/impl/tags.h"
#include "back/message/drained.h"
#include "back/message/persist.h"
#include "back/message/sync.h"
#include "back/object/comm.h"
#include "back/object/keep.h"
#include "back/request/done.h"
#include "back/request/grequest.h"
#include "back/request/orphan.h"
#include "back/request/posted.h"

// Why the image cannot be read any further: the code to return.
static int unread(const struct in *x) {
    return x->short_of_memory ? back_no_memory("reading messages that the network held from the image")
                              : CKPT_E_CORRUPT;
}

static struct drained *load_message(struct in *x) {
    struct saved_message v;
    in_message(x, &v);
    if (x->failed) return NULL;
    struct drained *m = back_reserve(sizeof *m);
    char *data = m == NULL ? NULL : malloc((size_t)v.bytes + 1);
    if (data == NULL) {
        if (m != NULL) back_release(m);
        x->failed = x->short_of_memory = 1;
        return NULL;
    }
    m->comm = v.comm;
    m->source = v.source;
    m->tag = v.tag;
    m->bytes = v.bytes;
    m->data = data;
    m->request = MPI_REQUEST_NULL;
    m->message = MPI_MESSAGE_NULL;
    m->counted = 1; // in the job that was saved
    memcpy(data, v.data, (size_t)v.bytes);
    return m;
}

// Makes an id of the image live; in this fresh process nobody else has it.  The list of free slots is wrong
// from here on, until relink.
static ckpt_slot *claim(ckpt_kind kind, ckpt_vid vid) {
    uint32_t index = CKPT_VID_INDEX(vid);
    ckpt_tables *t = back.tables;
    if (CKPT_VID_KIND(vid) != (uint32_t)kind || index < CKPT_VID_PREDEFINED ||
        index / CKPT_PAGE_SLOTS >= CKPT_PAGES)
        return NULL;
    while (t->pages[kind][index / CKPT_PAGE_SLOTS] == NULL)
        if (ckpt_vid_grow(back.job, kind) != 0) return NULL;
    ckpt_slot *slot = t->pages[kind][index / CKPT_PAGE_SLOTS] + index % CKPT_PAGE_SLOTS;
    if (slot->generation & 1) return NULL; // live already: the image names it twice
    back_slot_claimed(kind, index);
    slot->generation++;
    slot->real = slot->extra = 0;
    slot->a = slot->b = 0;
    return slot;
}

// Links the free slots of a kind anew, once after all claims: finding each claimed slot in the list would
// take a time that grows with the square of their number.
static void relink(ckpt_kind kind) {
    ckpt_tables *t = back.tables;
    uint32_t first = 0;
    for (uint32_t page = CKPT_PAGES; page-- > 0;) {
        ckpt_slot *slots = t->pages[kind][page];
        uint32_t lowest = page == 0 ? CKPT_VID_PREDEFINED : 0;
        for (uint32_t i = slots == NULL ? lowest : CKPT_PAGE_SLOTS; i-- > lowest;)
            if (!(slots[i].generation & 1)) {
                slots[i].extra = first;
                first = page * CKPT_PAGE_SLOTS + i;
            }
    }
    t->free[kind] = ((t->free[kind] >> 28) + 1) << 28 | first;
}

// A receive that is posted again once all requests are known, in the order in which they were posted.
struct repost {
    uint64_t order;
    ckpt_vid vid;
    long a[6];
};

struct loading {
    struct in in;
    struct repost *post;
    size_t nposts;
    struct deferred **start;
    size_t nstarts;
    struct drained **message; // by the numbers that claims have
    size_t nmessages;
};

static int load_done(struct in *x, ckpt_slot *s) {
    struct saved_done v;
    in_done(x, &v);
    if (x->failed) return CKPT_E_CORRUPT;
    const ckpt_mpi_status st = {.source = v.source, .tag = v.tag, .cancelled = v.cancelled, .bytes = v.bytes};
    MPI_Request r = MPI_REQUEST_NULL;
    int rc = v.error == 0 ? MPI_SUCCESS : v.error == CANON_ERR(TRUNCATE) ? MPI_ERR_TRUNCATE : MPI_ERR_OTHER;
    rc = back_done_request(&st, rc, &r);
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "making a completed request again");
        return CKPT_E_SYSTEM;
    }
    s->real = TO_REAL(r);
    s->a |= REQUEST_DONE;
    return 0;
}

static int load_awaited(struct in *x, ckpt_slot *s, struct back_sync **entry) {
    struct saved_awaited v;
    in_awaited(x, &v);
    struct back_sync *e = back_reserve(sizeof *e);
    if (e == NULL) return back_no_memory("waiting for a synchronous send again");
    e->dest = v.receiver;
    *entry = e;
    return x->failed || v.id == 0 ? CKPT_E_CORRUPT : back_sync_await(s, e, v.id);
}

static int load_claims(struct loading *l) {
    struct in *x = &l->in;
    for (int64_t n = in_count(x, WORDS_CLAIM); n > 0; n--) {
        struct saved_claim v;
        in_claim(x, &v);
        if (x->failed || (size_t)v.message >= l->nmessages) return CKPT_E_CORRUPT;
        l->message[v.message]->sender = v.sender;
        l->message[v.message]->claim = v.id;
    }
    return x->failed ? CKPT_E_CORRUPT : 0;
}

// Remembers a message by its number.
static int note_message(struct loading *l, struct drained *m) {
    if ((l->nmessages & (l->nmessages - 1)) == 0) { // full, at powers of two
        size_t room = l->nmessages ? 2 * l->nmessages : 1;
        struct drained **grown = realloc(l->message, room * sizeof *grown);
        if (grown == NULL) return back_no_memory("numbering messages that the network held");
        l->message = grown;
    }
    l->message[l->nmessages++] = m;
    return 0;
}

static int load_deferred(struct loading *l, ckpt_slot *s, ckpt_vid vid) {
    struct in *x = &l->in;
    struct saved_deferred v;
    in_deferred(x, &v);
    int nargs = (int)v.args.n, request = back_deferred_request_at((int)v.function);
    if (x->failed || request < 0 || request >= nargs) return CKPT_E_CORRUPT;
    long *a = calloc((size_t)nargs, sizeof *a);
    if (a != NULL) memcpy(a, v.args.at, v.args.n * sizeof *a);
    struct deferred *d = a == NULL ? NULL : back_deferred_new(v.function, a, nargs);
    free(a);
    if (d == NULL) return back_no_memory("keeping a collective call that was not started yet");
    if (!back_deferred_sound(d)) {
        back_deferred_free(d);
        return CKPT_E_CORRUPT;
    }
    d->comm = s->clock;
    d->request = vid;
    d->k = (uint64_t)v.call;
    back_deferred_bind(d, s);
    s->a |= REQUEST_DEFERRED;
    l->start[l->nstarts++] = back_deferred_of(s);
    return 0;
}

static int load_persistent(struct in *x, ckpt_slot *s, int state, struct back_sync *sync) {
    struct persistent *p = calloc(1, sizeof *p);
    MPI_Request r;
    if (p == NULL) return back_no_memory("making a persistent request again");
    p->sync = sync;
    s->extra = (uint64_t)(uintptr_t)p;
    struct saved_persistent v;
    in_persistent(x, &v);
    if (x->failed) return CKPT_E_CORRUPT;
    p->mode = v.mode;
    memcpy(p->a, v.args.at, sizeof p->a);
    p->type_generation = back_slot(CKPT_KIND_DATATYPE, p->a[2])->generation;
    p->comm_generation = back_slot(CKPT_KIND_COMM, p->a[5])->generation;
    static const char *const inits[] = {"MPI_Recv_init", "MPI_Send_init", "MPI_Bsend_init", "MPI_Ssend_init",
                                        "MPI_Rsend_init"};
    if (!back_tag_fits(inits[p->mode], (int)p->a[3], (int)p->a[4])) return CKPT_E_NOTSUP;
    int rc = back_make_persistent(p, &r);
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "making a persistent request (%s, rank %d, tag %d) again", inits[p->mode], (int)p->a[3],
                  (int)p->a[4]);
        return CKPT_E_SYSTEM;
    }
    back_receives_with(back_slot(CKPT_KIND_DATATYPE, p->a[2]));
    if (state == STATE_DONE || state == STATE_AWAITED)
        p->real = TO_REAL(r);
    else
        s->real = TO_REAL(r);
    return 0;
}

_Static_assert(SAVE_MAX_ARGS == sizeof((struct back_coll *)0)->a / sizeof(long), "room for the arguments");

static int load_coll(struct in *x, ckpt_slot *s) {
    struct saved_coll v;
    in_coll(x, &v);
    if (x->failed || v.function >= CKPT_FN_MPI_END - CKPT_FN_MPI) return CKPT_E_CORRUPT;
    struct back_coll *c = back_coll_new((int)v.types.n);
    if (c == NULL) return back_no_memory("making a persistent collective again");
    c->function = v.function;
    c->nargs = (int)v.args.n;
    memcpy(c->a, v.args.at, v.args.n * sizeof *c->a);
    c->request = v.request;
    c->arrays = v.arrays;
    c->ntypes = (int)v.types.n;
    for (size_t i = 0; i < v.types.n; i++) c->types[i] = (ckpt_vid)word_of(&v.types, i);
    c->inner = v.started;
    s->real = TO_REAL(MPI_REQUEST_NULL);
    s->extra = (uint64_t)(uintptr_t)c;
    if (s->a & REQUEST_COLL) {
        s->a |= REQUEST_PERSISTENT;
        c->own = c->request > 0 && back_is_own_comm((ckpt_vid)c->a[c->request - 1]);
    }
    return 0;
}

// The datatype of a request that was just loaded.
static ckpt_vid type_again(const struct loading *l, const ckpt_slot *s, int state) {
    long v = VID_TYPE_NULL;
    if (s->a & REQUEST_PERSISTENT && state != STATE_COLL)
        v = persistent_of(s)->a[2];
    else if (state == STATE_POSTED)
        v = l->post[l->nposts - 1].a[2];
    return (ckpt_vid)v;
}

static int load_request(struct loading *l) {
    struct in *x = &l->in;
    struct saved_head head;
    in_head(x, &head);
    ckpt_vid vid = head.id;
    ckpt_slot *s = x->failed ? NULL : claim(CKPT_KIND_REQUEST, vid);
    if (s == NULL) return CKPT_E_CORRUPT;
    s->a = (int)(head.flags & LASTING);
    s->b = head.peer;
    s->clock = head.owner;
    int state = head.state, rc = 0;
    struct back_sync *sync = NULL;
    if (state != STATE_DONE && CKPT_VID_KIND(s->clock) != CKPT_KIND_COMM) return CKPT_E_CORRUPT;
    if (state == STATE_DONE) {
        rc = load_done(x, s);
    } else if (state == STATE_AWAITED) {
        rc = load_awaited(x, s, &sync);
        s->extra = (uint64_t)(uintptr_t)sync;
    } else if (state == STATE_POSTED) {
        struct saved_posted v;
        in_posted(x, &v);
        l->post[l->nposts++] = (struct repost){
            (uint64_t)v.order, vid, {(long)v.buffer, v.count, v.type, v.source, v.tag, s->clock}};
    } else if (state == STATE_DEFERRED) {
        rc = load_deferred(l, s, vid);
    } else if (state == STATE_COLL) {
        rc = load_coll(x, s);
    } else if (state == STATE_GENERALIZED) {
        struct saved_upper v;
        in_upper(x, &v);
        rc = x->failed ? CKPT_E_CORRUPT
                       : back_grequest_again(s, vid, (void *)(uintptr_t)v.object, (void *)(uintptr_t)v.thunk);
    }
    if (rc == 0 && s->a & REQUEST_PERSISTENT && state != STATE_COLL) rc = load_persistent(x, s, state, sync);
    if (rc == 0 && head.flags & SAVED_KEEPS_TYPE) {
        int known = back_keep_again(type_again(l, s, state));
        rc = known > 0    ? 0
             : known == 0 ? CKPT_E_CORRUPT
                          : back_no_memory("keeping a datatype that was freed");
    }
    if (rc == 0 && s->a & REQUEST_ORPHAN) back_adopt(vid);
    back_assert(rc != 0 || x->failed || request_sound(s));
    return x->failed ? CKPT_E_CORRUPT : rc;
}

static int by_order(const void *x, const void *y) {
    const struct repost *a = x, *b = y;
    return a->order < b->order ? -1 : a->order > b->order;
}

// The calls on one communicator start in the order in which they were made.
static int by_call(const void *x, const void *y) {
    const struct deferred *a = *(struct deferred *const *)x, *b = *(struct deferred *const *)y;
    return a->k < b->k ? -1 : a->k > b->k;
}

static int post_again(const struct repost *p) {
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, p->vid);
    const long *a = p->a;
    MPI_Request r = real_of(s);
    if (!back_tag_fits("MPI_Irecv", (int)a[3], (int)a[4])) return CKPT_E_NOTSUP;
    int rc = s->a & REQUEST_PERSISTENT ? MPI_Start(&r)
                                       : MPI_Irecv((void *)a[0], (int)a[1], real_type(a[2]), real_rank(a[3]),
                                                   real_tag(a[4]), real_comm(a[5]), &r);
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "posting a pending receive (rank %d, tag %d) again", (int)a[3], (int)a[4]);
        return CKPT_E_SYSTEM;
    }
    s->real = TO_REAL(r);
    back_posted(p->vid, a, back_slot(CKPT_KIND_DATATYPE, a[2]), back_slot(CKPT_KIND_COMM, a[5]));
    return 0;
}

// In a restarted job all counts begin at 0, and no checkpoint is pending.
static int start_again(struct deferred *d) {
    ckpt_clock *c = ckpt_clock_of(back.tables, d->comm);
    if (c == NULL) return CKPT_E_CORRUPT;
    long rc = back_deferred_start(d);
    if (rc != 0 && back_refused(rc)) return 0; // a refused call does not count, and its request tells why
    c->call++;
    c->ret++;
    if (rc == 0) return 0;
    back_fail(MPI_SUCCESS, "a collective call that was not started yet could not be started");
    return CKPT_E_SYSTEM;
}

static int load_all(struct loading *l) {
    struct in *x = &l->in;
    int64_t version = in(x);
    if (version != SAVE_VERSION_PLAIN && version != SAVE_VERSION_CLAIMS) return CKPT_E_VERSION;
    for (int64_t n = in_count(x, WORDS_MESSAGE); n > 0 && !x->failed; n--) {
        struct drained *m = load_message(x);
        if (m != NULL) back_drained_append(m);
        if (m != NULL && note_message(l, m) != 0) return CKPT_E_SYSTEM;
    }
    if (x->failed) return unread(x);
    for (int64_t n = in_count(x, 1 + WORDS_MESSAGE); n > 0 && !x->failed; n--) {
        ckpt_vid vid = in_vid(x, 1u << CKPT_KIND_MESSAGE);
        struct drained *m = load_message(x);
        ckpt_slot *s = m == NULL ? NULL : claim(CKPT_KIND_MESSAGE, vid);
        if (s == NULL) return unread(x);
        if (note_message(l, m) != 0) return CKPT_E_SYSTEM;
        s->clock = m->comm;
        s->extra = (uint64_t)(uintptr_t)m;
    }
    int64_t n = in_count(x, WORDS_HEAD);
    l->post = calloc((size_t)n + 1, sizeof *l->post);
    l->start = calloc((size_t)n + 1, sizeof *l->start);
    if (l->post == NULL || l->start == NULL) return back_no_memory("listing the requests of the image");
    int rc = x->failed ? CKPT_E_CORRUPT : 0;
    for (; n > 0 && rc == 0; n--) rc = load_request(l);
    relink(CKPT_KIND_MESSAGE);
    relink(CKPT_KIND_REQUEST);
    if (rc == 0 && version == SAVE_VERSION_CLAIMS) rc = load_claims(l);
    if (rc == 0 && x->left != 0) rc = CKPT_E_CORRUPT;
    qsort(l->post, l->nposts, sizeof *l->post, by_order);
    for (size_t i = 0; i < l->nposts && rc == 0; i++) rc = post_again(&l->post[i]);
    qsort(l->start, l->nstarts, sizeof *l->start, by_call);
    for (size_t i = 0; i < l->nstarts && rc == 0; i++) rc = start_again(l->start[i]);
    return rc;
}

int back_load(void *ctx, const void *saved, size_t bytes) {
    (void)ctx;
    struct loading l = {.in = {saved, bytes, 0}};
    int rc = back_own_comms_open(); // calls that were deferred on them are started below
    if (rc == 0) rc = load_all(&l);
    free(l.post);
    free(l.start);
    free(l.message);
    return rc;
}
