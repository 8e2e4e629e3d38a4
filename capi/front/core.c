// SPDX-License-Identifier: Apache-2.0
//
// core.c: loading the back, the state of MPI as the application sees it, and the front's own
// memory.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "front/front.h"
#include "front/large/large.h"

int front_state = FRONT_BEFORE;

// Guards everything the front keeps.  Never held over a call through the gate or into the
// application.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void front_lock(void) { pthread_mutex_lock(&mutex); }

void front_unlock(void) { pthread_mutex_unlock(&mutex); }

long front_call_again(unsigned fn, const void *args) {
    long rc;
    do rc = CKPT_GATE->gate(fn, args);
    while (rc == CKPT_GATE_RETRY);
    return rc;
}

__attribute__((constructor)) static void load_back(void) {
    const long args[] = {(long)FRONT_ABI_NAME};
    front_call_always(CKPT_FN_LOAD_BACK, args);
}

const char *front_name(unsigned fn) {
    static const char *const names[CKPT_FN_MPI_END - CKPT_FN_MPI] = {
#define X(number, name) [number - CKPT_FN_MPI] = #name,
        CKPT_MPI_FUNCTIONS(X)
#undef X
    };
    return fn >= CKPT_FN_MPI && fn < CKPT_FN_MPI_END ? names[fn - CKPT_FN_MPI] : "an MPI function";
}

void front_not_running(unsigned fn) {
    fprintf(stderr, "libckpt: %s was called %s.\n", front_name(fn),
            front_state == FRONT_BEFORE ? "before MPI_Init" : "after MPI_Finalize");
    exit(1);
}

static void *or_die(void *p) {
    if (p == NULL) {
        static const char text[] = "libckpt: out of memory in the MPI library.\n";
        if (write(2, text, sizeof text - 1) < 0) _exit(2);
        abort();
    }
    return p;
}

void *front_alloc(size_t bytes) { return or_die(calloc(1, bytes ? bytes : 1)); }

char *front_strdup(const char *s, size_t max) {
    size_t n = strnlen(s, max);
    char *copy = front_alloc(n + 1);
    memcpy(copy, s, n);
    return copy;
}

// ---- tables by virtual id: two levels, so that records never move ----
//
// Writers hold the lock.  Readers do not: pages and records are published with release stores, when
// what they point to is complete.  A record is dropped beside a reader only when the program frees and
// uses an object at the same time, which is the program's error.

enum { PAGE = 4096, PAGES = 65536 };

struct directory {
    void **page[PAGES];
};

// The caller holds the lock.
static void **place(struct directory *d, ckpt_vid vid) {
    uint32_t i = CKPT_VID_INDEX(vid);
    void ***page = &d->page[i / PAGE];
    if (*page == NULL) __atomic_store_n(page, front_alloc(PAGE * sizeof(void *)), __ATOMIC_RELEASE);
    return *page + i % PAGE;
}

static void set(void **at, void *record) { __atomic_store_n(at, record, __ATOMIC_RELEASE); }

// Needs no lock.  NULL: there is no record.
static void *record_of(const struct directory *d, ckpt_vid vid) {
    uint32_t i = CKPT_VID_INDEX(vid);
    void **page = __atomic_load_n(&d->page[i / PAGE], __ATOMIC_ACQUIRE);
    return page != NULL ? __atomic_load_n(page + i % PAGE, __ATOMIC_ACQUIRE) : NULL;
}

static struct directory sides[FRONT_SORTS];

struct front_side *front_side_known(int sort, ckpt_vid vid) {
    return record_of(&sides[sort], vid);
}

struct front_side *front_side(int sort, ckpt_vid vid) {
    struct front_side *s = record_of(&sides[sort], vid);
    if (__builtin_expect(s != NULL, 1)) return s;
    front_lock();
    void **p = place(&sides[sort], vid);
    s = *p;
    if (s == NULL) {
        s = front_alloc(sizeof *s);
        // MPI says that errors of files return by default, and that all others are fatal.
        s->errhandler = CKPT_VID(CKPT_KIND_ERRHANDLER, sort == FRONT_FILE ? ERRH_RETURN : ERRH_DEFAULT);
        set(p, s);
    }
    front_unlock();
    return s;
}

void front_side_drop(int sort, ckpt_vid vid) {
    if (front_side_known(sort, vid) == NULL) return;
    front_lock();
    void **p = place(&sides[sort], vid);
    struct front_side *s = *p;
    set(p, NULL);
    front_unlock();
    if (s == NULL) return;
    front_group_let_go(s->group);
    front_errhandler_release(s->errhandler);
    free(s->name);
    free((void *)s->info);
    free(s->window);
    front_contents_release(s->made);
    free(s);
}

// ---- objects that only the front has ----

static struct {
    struct directory d;
    uint32_t next;   // never given out from here on
    uint32_t *freed; // indices to give out again
    uint32_t nfreed, capacity;
} objects[CKPT_KINDS];

ckpt_vid front_object_new(ckpt_kind kind, void *object) {
    front_lock();
    uint32_t i = objects[kind].nfreed ? objects[kind].freed[--objects[kind].nfreed]
                                      : CKPT_VID_PREDEFINED + objects[kind].next++;
    set(place(&objects[kind].d, i), object);
    front_unlock();
    return CKPT_VID(kind, i);
}

void *front_object(ckpt_kind kind, ckpt_vid vid) {
    if (CKPT_VID_KIND(vid) != (uint32_t)kind || CKPT_VID_INDEX(vid) < CKPT_VID_PREDEFINED) return NULL;
    return record_of(&objects[kind].d, vid);
}

void front_object_drop(ckpt_kind kind, ckpt_vid vid) {
    front_lock();
    set(place(&objects[kind].d, vid), NULL);
    if (objects[kind].nfreed == objects[kind].capacity) {
        uint32_t capacity = objects[kind].capacity ? 2 * objects[kind].capacity : 64;
        objects[kind].freed = or_die(realloc(objects[kind].freed, capacity * sizeof(uint32_t)));
        objects[kind].capacity = capacity;
    }
    objects[kind].freed[objects[kind].nfreed++] = CKPT_VID_INDEX(vid);
    front_unlock();
}
