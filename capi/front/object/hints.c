// SPDX-License-Identifier: Apache-2.0
//
// hints.c: the hints of communicators and windows (for those of files see file.c).  Hints that are given when
// an object is made go to the real MPI, too.  All hints are kept here, and asking for them gives what the
// application's MPI would give: MPICH returns all hints that it knows and no others, Open MPI also returns
// given hints that it does not know.  Changing a hint later changes only what is returned.
#include <stdlib.h>
#include <string.h>

#include "front/object/window.h"

// The objects that have a hint: communicators, and windows by flavor.
#define OF(flavor) (1 << (flavor))
enum { COMMS = OF(0), WINDOWS = OF(CREATE) | OF(ALLOCATE) | OF(DYNAMIC) | OF(SHARED) };

enum form { YES_NO, NUMBER, ORDERING, OPS, ANYTHING };

struct hint {
    int of;
    const char *key, *value; // the value when none was given
    enum form form;
};

#if FRONT_ABI == 1
enum { KEEPS_ALL = 0 };
#define ACCUMULATES "cswap,max,min,sum,prod,land,band,lor,bor,lxor,bxor,minloc,maxloc,replace,no_op"
static const struct hint hints[] = {
    {COMMS, "mpi_assert_no_any_tag", "false", YES_NO},
    {COMMS, "mpi_assert_no_any_source", "false", YES_NO},
    {COMMS, "mpi_assert_exact_length", "false", YES_NO},
    {COMMS, "mpi_assert_allow_overtaking", "false", YES_NO},
    {COMMS, "enable_multi_nic_striping", "true", YES_NO},
    {COMMS, "enable_multi_nic_hashing", "true", YES_NO},
    {COMMS, "multi_nic_pref_nic", "-1", NUMBER},
    {COMMS, "sender_vci", "-1", NUMBER},
    {COMMS, "receiver_vci", "-1", NUMBER},
    {COMMS, "vci", "-1", NUMBER},
    {WINDOWS, "no_locks", "false", YES_NO},
    {WINDOWS, "accumulate_ordering", "rar,raw,war,waw", ORDERING},
    {WINDOWS, "accumulate_ops", "same_op_no_op", OPS},
    {WINDOWS, "alloc_shared_noncontig", "false", YES_NO},
    {WINDOWS, "same_size", "false", YES_NO},
    {WINDOWS, "same_disp_unit", "false", YES_NO},
    {OF(ALLOCATE) | OF(SHARED), "alloc_shm", "true", YES_NO},
    {OF(CREATE) | OF(DYNAMIC), "alloc_shm", "false", YES_NO},
    {WINDOWS, "which_accumulate_ops", ACCUMULATES, ANYTHING},
    {WINDOWS, "accumulate_noncontig_dtype", "true", YES_NO},
    {WINDOWS, "accumulate_max_bytes", "unlimited", ANYTHING},
    {WINDOWS, "disable_shm_accumulate", "false", YES_NO},
    {WINDOWS, "coll_attach", "false", YES_NO},
    {WINDOWS, "perf_preference", ACCUMULATES, ANYTHING},
};
#else
enum { KEEPS_ALL = 1 };
static const struct hint hints[] = {
    {COMMS, "mpi_assert_no_any_source", "false", YES_NO},
    {COMMS, "mpi_assert_allow_overtaking", "false", YES_NO},
    {OF(CREATE) | OF(ALLOCATE) | OF(DYNAMIC), "no_locks", "false", YES_NO},
    {OF(SHARED), "alloc_shared_noncontig", "false", YES_NO},
    {OF(SHARED), "blocking_fence", "true", YES_NO},
};
#endif
enum { HINTS = sizeof hints / sizeof *hints };

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
    default:
        return 1;
    }
}

// The hints that an object returns when it has had and is given given; either may be NULL.  first: the
// object is just being made.
static MPI_Info merged(int of, const char *had, const char *given, int first) {
    MPI_Info info = front_info_new(had ? had : KEEPS_ALL && given && first ? given : "");
    for (int i = 0; i < HINTS; i++) {
        const struct hint *h = &hints[i];
        if (!(h->of & of)) continue;
        const char *value = given ? info_value(given, h->key) : NULL;
        if (value != NULL && (usable(h->form, value)))
            front_info_set(info, h->key, value);
        else if (info_value(in_info(info), h->key) == NULL)
            front_info_set(info, h->key, h->value);
    }
    return info;
}

static int of_what(int sort, ckpt_vid v) {
    return sort == FRONT_WIN ? OF(front_side(FRONT_WIN, v)->window->flavor) : COMMS;
}

static void keep(struct front_side *s, MPI_Info info) {
    const char *content = in_info(info);
    size_t n = info_bytes(content);
    free((void *)s->info);
    s->info = memcpy(front_alloc(n), content, n);
    front_info_drop(info);
}

void front_hints_made(int sort, ckpt_vid v, const char *given) {
    if (given != NULL) keep(front_side(sort, v), merged(of_what(sort, v), NULL, given, 1));
}

static int set_info(int sort, ckpt_kind kind, ckpt_vid v, unsigned fn, int class, MPI_Info info) {
    if (front_is_null(kind, front_slot(fn, kind, v))) return front_error(sort, v, fn, class);
    struct front_side *s = front_side(sort, v);
    keep(s, merged(of_what(sort, v), s->info, in_info(info), 0));
    return MPI_SUCCESS;
}

static int get_info(int sort, ckpt_kind kind, ckpt_vid v, unsigned fn, int class, MPI_Info *info) {
    FRONT_NEEDS(sort, v, fn, info != NULL);
    if (front_is_null(kind, front_slot(fn, kind, v))) return front_error(sort, v, fn, class);
    *info = merged(of_what(sort, v), front_side(sort, v)->info, NULL, 0);
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
