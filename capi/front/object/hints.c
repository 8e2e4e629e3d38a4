// SPDX-License-Identifier: Apache-2.0
//
// hints.c: the hints of communicators and windows (for those of files see file.c).  Hints that are given when
// an object is made go to the real MPI, too.  All hints are kept here, and asking for them gives what the
// application's MPI would give: MPICH returns all hints that it knows and no others, Open MPI also returns
// given hints that it does not know.  Changing a hint later changes only what is returned.
#include <stdlib.h>
#include <string.h>

#include "front/object/window.h"

// The objects that have a hint: communicators, those that are always there and those that are made, and windows by
// flavor.
#define OF(flavor) (1 << (flavor))
enum { MADE = OF(0), COMMS = MADE | OF(7), WINDOWS = OF(CREATE) | OF(ALLOCATE) | OF(DYNAMIC) | OF(SHARED) };

enum form { YES_NO, NUMBER, ORDERING, OPS, ANYTHING, FIXED };

struct hint {
    int of;
    const char *key, *value; // the value when none was given; NULL: only returned when it was given at first
    enum form form;
    int since, until; // releases: the first that has it, the first that has it no more; 0: always
};

#define ACCUMULATES "cswap,max,min,sum,prod,land,band,lor,bor,lxor,bxor,minloc,maxloc,replace,no_op"
static const struct hint mpich_hints[] = {
    {COMMS, "mpi_assert_no_any_tag", "false", YES_NO, 0, 0},
    {COMMS, "mpi_assert_no_any_source", "false", YES_NO, 0, 0},
    {COMMS, "mpi_assert_exact_length", "false", YES_NO, 0, 0},
    {COMMS, "mpi_assert_allow_overtaking", "false", YES_NO, 0, 0},
    {COMMS, "mpi_assert_strict_persistent_collective_ordering", "false", YES_NO, RELEASE(4, 2), 0},
    {COMMS, "enable_multi_nic_striping", "true", YES_NO, 0, 0},
    {COMMS, "enable_multi_nic_hashing", "true", YES_NO, 0, 0},
    {COMMS, "multi_nic_pref_nic", "-1", NUMBER, 0, 0},
    {COMMS, "sender_vci", "-1", NUMBER, 0, 0},
    {COMMS, "receiver_vci", "-1", NUMBER, 0, 0},
    {COMMS, "vci", "-1", NUMBER, 0, 0},
    {WINDOWS, "no_locks", "false", YES_NO, 0, 0},
    {WINDOWS, "accumulate_ordering", "rar,raw,war,waw", ORDERING, 0, 0},
    {WINDOWS, "accumulate_ops", "same_op_no_op", OPS, 0, 0},
    {WINDOWS, "alloc_shared_noncontig", "false", YES_NO, 0, 0},
    {WINDOWS, "same_size", "false", YES_NO, 0, 0},
    {WINDOWS, "same_disp_unit", "false", YES_NO, 0, 0},
    {OF(ALLOCATE) | OF(SHARED), "alloc_shm", "true", YES_NO, 0, 0},
    {OF(CREATE) | OF(DYNAMIC), "alloc_shm", "false", YES_NO, 0, 0},
    {WINDOWS, "which_accumulate_ops", ACCUMULATES, ANYTHING, 0, RELEASE(4, 2)},
    {WINDOWS, "which_accumulate_ops", ACCUMULATES ",equal", ANYTHING, RELEASE(4, 2), 0},
    {WINDOWS, "accumulate_noncontig_dtype", "true", YES_NO, 0, 0},
    {WINDOWS, "accumulate_max_bytes", "unlimited", ANYTHING, 0, 0},
    {WINDOWS, "disable_shm_accumulate", "false", YES_NO, 0, 0},
    {WINDOWS, "coll_attach", "false", YES_NO, 0, 0},
    {WINDOWS, "perf_preference", ACCUMULATES, ANYTHING, 0, RELEASE(4, 2)},
    {WINDOWS, "perf_preference", ACCUMULATES ",equal", ANYTHING, RELEASE(4, 2), 0},
    {WINDOWS, "optimized_mr", "false", YES_NO, RELEASE(4, 2), 0},
    {WINDOWS, "symheap_required", "false", YES_NO, RELEASE(5, 0), 0},
    {COMMS | WINDOWS, "mpi_memory_alloc_kinds", FRONT_MEMORY_KINDS, FIXED, RELEASE(4, 2), 0},
};
static const struct hint openmpi_hints[] = {
    {MADE, "ompi_assert_lazy_barrier", "false", YES_NO, RELEASE(5, 0), 0},
    {MADE, "ompi_assert_active_poll", "true", YES_NO, RELEASE(5, 0), 0},
    {COMMS, "mpi_assert_no_any_source", "false", YES_NO, 0, 0},
    {COMMS, "mpi_assert_allow_overtaking", "false", YES_NO, 0, 0},
    {OF(CREATE) | OF(DYNAMIC), "no_locks", "false", YES_NO, 0, 0},
    {OF(ALLOCATE), "no_locks", "false", YES_NO, 0, RELEASE(5, 0)},
    {OF(CREATE) | OF(DYNAMIC), "accumulate_ops", NULL, OPS, RELEASE(5, 0), 0},
    {OF(CREATE) | OF(DYNAMIC), "same_size", NULL, YES_NO, RELEASE(5, 0), 0},
    {OF(SHARED), "alloc_shared_noncontig", "false", YES_NO, 0, RELEASE(5, 0)},
    {OF(SHARED), "blocking_fence", "true", YES_NO, 0, RELEASE(5, 0)},
};

static int usable(enum form form, const char *value) {
    switch (form) {
    case YES_NO:
        return strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
    case NUMBER:
        return value[strspn(value, "-0123456789")] == 0;
    case ORDERING: // of accumulates: any of the four, or none
        return strcmp(value, "none") == 0 || value[strspn(value, "raw,")] == 0;
    case OPS:
        return strcmp(value, "same_op") == 0 || strcmp(value, "same_op_no_op") == 0;
    case FIXED:
        return 0;
    default:
        return 1;
    }
}

// The next hint from number *i on that such an object has in that release.
static const struct hint *hint_of(const struct front_words *w, int of, size_t *i) {
    size_t n =
        w->mpich ? sizeof mpich_hints / sizeof *mpich_hints : sizeof openmpi_hints / sizeof *openmpi_hints;
    for (; *i < n; ++*i) {
        const struct hint *h = w->mpich ? &mpich_hints[*i] : &openmpi_hints[*i];
        if (h->of & of && w->release >= h->since && (h->until == 0 || w->release < h->until)) return h;
    }
    return NULL;
}

static const struct hint *hint_named(const struct front_words *w, int of, const char *key) {
    const struct hint *h;
    for (size_t i = 0; (h = hint_of(w, of, &i)) != NULL; i++)
        if (strcmp(h->key, key) == 0) return h;
    return NULL;
}

// What is kept of hints that an object is given: all when it is made, also those that no table has, since a restart may
// be above a release that knows them; later those that are known.
static MPI_Info with(int of, const char *had, const char *given, int first) {
    const struct front_words w = front_words();
    MPI_Info info = front_info_new(had ? had : "");
    for (const char *key = given; key != NULL && *key; key = info_next(key)) {
        const struct hint *h = hint_named(&w, of, key);
        const char *value = info_value(given, key);
        if (first || (h != NULL && usable(h->form, value) && (h->value || info_value(in_info(info), key))))
            front_info_set(info, key, value);
    }
    return info;
}

// The hints that an object returns of which given is kept, which may be NULL.
static MPI_Info returned(int of, const char *given) {
    const struct front_words w = front_words();
    int all = !w.mpich && w.release < RELEASE(5, 0);
    MPI_Info info = front_info_new(all && given ? given : "");
    const struct hint *h;
    for (size_t i = 0; (h = hint_of(&w, of, &i)) != NULL; i++) {
        const char *value = given ? info_value(given, h->key) : NULL;
        if (value == NULL || (!all && !usable(h->form, value))) value = h->value;
        if (value != NULL) front_info_set(info, h->key, value);
    }
    return info;
}

static int of_what(int sort, ckpt_vid v) {
    if (sort == FRONT_WIN) return OF(front_side(FRONT_WIN, v)->window->flavor);
    return CKPT_VID_INDEX(v) < CKPT_VID_PREDEFINED ? COMMS & ~MADE : MADE;
}

static void keep(struct front_side *s, MPI_Info info) {
    const char *content = in_info(info);
    size_t n = info_bytes(content);
    free((void *)s->info);
    s->info = memcpy(front_alloc(n), content, n);
    front_info_drop(info);
}

void front_hints_made(int sort, ckpt_vid v, const char *given) {
    if (given != NULL) keep(front_side(sort, v), with(of_what(sort, v), NULL, given, 1));
}

static int set_info(int sort, ckpt_kind kind, ckpt_vid v, unsigned fn, int class, MPI_Info info) {
    if (front_is_null(kind, front_slot(fn, kind, v))) return front_error(sort, v, fn, class);
    struct front_side *s = front_side(sort, v);
    keep(s, with(of_what(sort, v), s->info, in_info(info), 0));
    return MPI_SUCCESS;
}

static int get_info(int sort, ckpt_kind kind, ckpt_vid v, unsigned fn, int class, MPI_Info *info) {
    FRONT_NEEDS(sort, v, fn, info != NULL);
    if (front_is_null(kind, front_slot(fn, kind, v))) return front_error(sort, v, fn, class);
    *info = returned(of_what(sort, v), front_side(sort, v)->info);
    return MPI_SUCCESS;
}

#define INFOS(name, type, SORT, in)                                                                \
    FRONT(int, name##_set_info, (type object, MPI_Info info)) {                                    \
        return set_info(FRONT_##SORT, CKPT_KIND_##SORT, in(object), CKPT_FN_MPI_##SORT##_SET_INFO, \
                        CANON_ERRCLASS_ERR_##SORT, info);                                          \
    }                                                                                              \
    FRONT(int, name##_get_info, (type object, MPI_Info * info)) {                                  \
        return get_info(FRONT_##SORT, CKPT_KIND_##SORT, in(object), CKPT_FN_MPI_##SORT##_GET_INFO, \
                        CANON_ERRCLASS_ERR_##SORT, info);                                          \
    }

INFOS(Comm, MPI_Comm, COMM, in_comm)
INFOS(Win, MPI_Win, WIN, in_win)
