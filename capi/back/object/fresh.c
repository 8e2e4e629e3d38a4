// SPDX-License-Identifier: Apache-2.0
//
// fresh.c: datatypes that libckpt has not heard of yet (fresh.h draws their life).
#include <stdlib.h>

#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/impl/ids.h"
#include "back/impl/lock.h"
#include "back/object/fresh.h"

enum {
    MANY = 4096,  // telling of more would be felt when an image is made (1 us each)
    DEEPEST = 64, // levels of fresh datatypes that are made of fresh ones
    NEWEST = 16,  // fresh datatypes that are looked at for a handle
    KNOWN = 64,   // handles whose ids a thread remembers; a power of two
    HEAD = 5      // words of a descriptor before its contents: version, combiner, three counts
};

// One fresh datatype.  The list has the order in which they were made: what a datatype needs stands before
// it.
struct fresh {
    struct fresh *next, *prev;
    ckpt_vid vid;
    int live;  // 0: freed, kept because of refs
    int told;  // libckpt has this one; telling failed at a later one
    int refs;  // fresh datatypes that need this one
    int depth; // levels of fresh datatypes below this one
    size_t n;  // words
    int32_t *words;
};

// All below: under LOCK_FRESH, when back.shared.
static struct fresh list = {.next = &list, .prev = &list};
static int count;
static struct fresh *unused;    // records to use again, linked by next
static struct fresh **of;       // place in here: clock of the slot; 0 for a known datatype
static uint32_t places, used;   // room of `of`; places that were ever used, from 1 on
static uint32_t *empty, nempty; // places to use again; as much room

static int reserve(ckpt_vid *vids, int n) { return ckpt_vid_reserve(back.job, CKPT_KIND_DATATYPE, vids, n); }

static struct back_ids ids = {.reserve = reserve};

static void lock(void) {
    if (back.shared) back_lock(LOCK_FRESH);
}

static void unlock(void) {
    if (back.shared) back_unlock(LOCK_FRESH);
}

// The slot of an id, live or not.
static ckpt_slot *slot_of(ckpt_vid vid) {
    uint32_t i = CKPT_VID_INDEX(vid);
    return back.tables->pages[CKPT_KIND_DATATYPE][i / CKPT_PAGE_SLOTS] + i % CKPT_PAGE_SLOTS;
}

static struct fresh *fresh_of(ckpt_vid vid) {
    if (CKPT_VID_KIND(vid) != CKPT_KIND_DATATYPE ||
        back.tables->pages[CKPT_KIND_DATATYPE][CKPT_VID_INDEX(vid) / CKPT_PAGE_SLOTS] == NULL)
        return NULL;
    uint32_t place = slot_of(vid)->clock;
    return place != 0 && place <= used && of[place] != NULL && of[place]->vid == vid ? of[place] : NULL;
}

// What a descriptor refers to.
static const ckpt_vid *needs_of(const int32_t *words, int *n) {
    *n = words[4];
    return (const ckpt_vid *)words + HEAD + words[2] + 2 * words[3];
}

static int is_predefined(ckpt_vid vid) { return CKPT_VID_INDEX(vid) < CKPT_VID_PREDEFINED; }

// ---- places ----

static uint32_t take_place(struct fresh *f) {
    if (nempty > 0) {
        of[empty[--nempty]] = f;
        return empty[nempty];
    }
    if (used + 1 >= places) {
        uint32_t room = places ? 2 * places : 256;
        struct fresh **grown = realloc(of, room * sizeof *grown);
        if (grown == NULL) return 0;
        of = grown;
        uint32_t *more = realloc(empty, room * sizeof *more);
        if (more == NULL) return 0;
        empty = more;
        places = room;
    }
    of[++used] = f;
    return used;
}

static struct fresh *take_record(void) {
    struct fresh *f = unused;
    if (f == NULL) return malloc(sizeof *f);
    unused = f->next;
    return f;
}

static void give_record(struct fresh *f) {
    f->next = unused;
    unused = f;
}

// Takes f out of the list and out of its slot.  The caller then owns the record, the descriptor and the id.
static void drop(struct fresh *f) {
    ckpt_slot *s = slot_of(f->vid);
    of[s->clock] = NULL;
    empty[nempty++] = s->clock;
    s->clock = 0;
    f->next->prev = f->prev;
    f->prev->next = f->next;
    count--;
}

// Frees f when it is neither live nor needed, and then what only f needed; at most DEEPEST levels.
static void retire(struct fresh *f) {
    if (f->live || f->refs > 0) return;
    int n;
    const ckpt_vid *needs = needs_of(f->words, &n);
    for (int i = 0; i < n; i++) {
        struct fresh *inner = is_predefined(needs[i]) ? NULL : fresh_of(needs[i]);
        if (inner != NULL && --inner->refs == 0) retire(inner);
    }
    drop(f);
    back_ids_give(&ids, f->vid);
    free(f->words);
    give_record(f);
}

// ---- telling ----

static int adopt(ckpt_vid vid, const int32_t *words, size_t words_n) {
    int n;
    const ckpt_vid *needs = needs_of(words, &n);
    return ckpt_vid_adopt(back.job, vid, words, 4 * words_n, needs, (size_t)n);
}

// libckpt is told of a freed datatype that others need as if it lived; it is freed there once the others are
// known.
static int tell(void) {
    for (struct fresh *f = list.next; f != &list; f = f->next) {
        if (f->told) continue;
        uint32_t *generation = &slot_of(f->vid)->generation;
        *generation += !f->live;
        int rc = adopt(f->vid, f->words, f->n);
        if (rc != 0) {
            *generation -= !f->live;
            back_fail(MPI_ERR_INTERN, "libckpt does not take the description of a datatype");
            return rc;
        }
        f->told = 1;
    }
    for (struct fresh *f = list.next, *next; f != &list; f = next) {
        next = f->next;
        int live = f->live;
        drop(f);
        if (!live) ckpt_vid_free(back.job, f->vid);
        free(f->words);
        give_record(f);
    }
    return 0;
}

int fresh_tell(void) {
    lock();
    int rc = count > 0 ? tell() : 0;
    unlock();
    return rc;
}

// ---- their life ----

// Counts f among the users of what it needs.  0 when libckpt must know f at once: f needs a known datatype,
// or has too many levels below it.
static int hold(struct fresh *f) {
    int n;
    const ckpt_vid *needs = needs_of(f->words, &n);
    for (int i = 0; i < n; i++) {
        struct fresh *inner = is_predefined(needs[i]) ? NULL : fresh_of(needs[i]);
        if (inner != NULL && inner->depth >= f->depth) f->depth = inner->depth + 1;
        if (!is_predefined(needs[i]) && (inner == NULL || f->depth > DEEPEST)) return 0;
    }
    for (int i = 0; i < n; i++) {
        struct fresh *inner = is_predefined(needs[i]) ? NULL : fresh_of(needs[i]);
        if (inner != NULL) inner->refs++;
    }
    return 1;
}

static ckpt_vid new (MPI_Datatype type, int32_t *words, size_t n) {
    if (count >= MANY && tell() != 0) return CKPT_VID_NONE;
    ckpt_vid vid = back_ids_take(&ids);
    if (vid == CKPT_VID_NONE) return CKPT_VID_NONE;
    ckpt_slot *s = slot_of(vid);
    struct fresh *f = take_record();
    if (f != NULL) {
        *f = (struct fresh){.vid = vid, .live = 1, .n = n, .words = words};
        s->clock = take_place(f);
    }
    if (f == NULL || s->clock == 0) {
        if (f != NULL) give_record(f);
        back_ids_give(&ids, vid);
        return CKPT_VID_NONE;
    }
    s->real = TO_REAL(type);
    s->a = s->b = 0;
    s->extra = 0;
    s->generation++;
    f->next = &list;
    f->prev = list.prev;
    list.prev->next = f;
    list.prev = f;
    count++;
    if (hold(f) || tell() == 0) return vid;
    s->real = 0;
    s->generation++;
    drop(f);
    back_ids_give(&ids, vid);
    give_record(f);
    return CKPT_VID_NONE;
}

ckpt_vid fresh_new(MPI_Datatype type, int32_t *words, size_t n) {
    lock();
    ckpt_vid vid = new (type, words, n);
    unlock();
    if (vid == CKPT_VID_NONE) free(words);
    return vid;
}

void fresh_free(ckpt_vid vid) {
    lock();
    struct fresh *f = fresh_of(vid);
    if (f != NULL && f->live) {
        ckpt_slot *s = slot_of(vid);
        f->live = 0;
        s->real = 0;
        s->extra = 0;
        s->generation++;
        retire(f);
    }
    unlock();
    if (f == NULL) ckpt_vid_free(back.job, vid);
}

void *fresh_descriptor(ckpt_vid vid, size_t *bytes) {
    void *copy = NULL;
    lock();
    const struct fresh *f = fresh_of(vid);
    if (f != NULL) {
        *bytes = 4 * f->n;
        copy = malloc(*bytes);
        if (copy != NULL) memcpy(copy, f->words, *bytes);
    }
    unlock();
    if (f != NULL) return copy;
    long n = ckpt_vid_descriptor(back.job, vid, NULL, 0);
    *bytes = n > 0 ? (size_t)n : 0;
    copy = n > 0 ? malloc((size_t)n) : NULL;
    if (copy != NULL && ckpt_vid_descriptor(back.job, vid, copy, (size_t)n) != n) {
        free(copy);
        *bytes = 0;
        return NULL;
    }
    return copy;
}

static int is_id_of(ckpt_vid vid, uint32_t generation, uint64_t real) {
    return back_same(CKPT_KIND_DATATYPE, vid, generation) && back_slot(CKPT_KIND_DATATYPE, vid)->real == real;
}

// The newest of the fresh ones: a program makes a datatype, uses it, and frees it.
static ckpt_vid find_fresh(uint64_t real) {
    ckpt_vid found = CKPT_VID_NONE;
    lock();
    int looked = 0;
    for (const struct fresh *f = list.prev; f != &list && looked < NEWEST; f = f->prev, looked++) {
        if (!f->live || slot_of(f->vid)->real != real) continue;
        found = f->vid;
        break;
    }
    unlock();
    return found;
}

// Operations of the program's own and MPI_Type_match_size ask so in inner loops, for few datatypes.  A call of
// libckpt takes 2 us and wakes a thread of Go's, which takes the processor from the ranks.
ckpt_vid fresh_find(MPI_Datatype type) {
    static _Thread_local struct {
        uint64_t real;
        ckpt_vid vid;
        uint32_t generation;
    } known[KNOWN];
    uint64_t real = TO_REAL(type);
    size_t i = (real * 0x9e3779b97f4a7c15) >> 32 & (KNOWN - 1);
    if (known[i].vid != CKPT_VID_NONE && known[i].real == real &&
        is_id_of(known[i].vid, known[i].generation, real))
        return known[i].vid;
    ckpt_vid vid = find_fresh(real);
    if (vid == CKPT_VID_NONE) vid = ckpt_vid_find(back.job, CKPT_KIND_DATATYPE, real);
    if (vid == CKPT_VID_NONE && fresh_tell() == 0) vid = ckpt_vid_find(back.job, CKPT_KIND_DATATYPE, real);
    known[i].real = real;
    known[i].vid = vid;
    known[i].generation = back_slot(CKPT_KIND_DATATYPE, vid)->generation;
    return vid;
}
