// SPDX-License-Identifier: Apache-2.0
//
// group.c: groups are lists of world ranks in the application's memory.  Functions on groups need no
// other rank and no call of the real MPI, and an image holds groups as they are.
#include <stdlib.h>
#include <string.h>

#include "front/front.h"

// A group never changes.  So a communicator keeps its group from the first MPI_Comm_group on, and all such
// calls return the same handle.  The group is freed with the last of its holders.
struct front_group {
    uint32_t holders; // handles that the application has not freed, and KEPT
    ckpt_vid vid;
    ckpt_mpi_group members; // last: as long as it needs
};
#define KEPT 0x80000000u // a communicator keeps it

static const ckpt_mpi_group empty = {0, CANON_UNDEFINED};

static struct front_group *group_of(const ckpt_mpi_group *g) {
    return (struct front_group *)((char *)(uintptr_t)g - offsetof(struct front_group, members));
}

// NULL when the application has no handle of the group.
static struct front_group *held(ckpt_vid v) {
    struct front_group *g = front_object(CKPT_KIND_GROUP, v);
    return g != NULL && __atomic_load_n(&g->holders, __ATOMIC_RELAXED) & ~KEPT ? g : NULL;
}

const ckpt_mpi_group *in_group(MPI_Group group) {
    ckpt_vid v = in_group_vid(group);
    if (CKPT_VID_INDEX(v) == 1) return &empty;
    const struct front_group *g = held(v);
    return g != NULL ? &g->members : NULL;
}

ckpt_mpi_group *front_group_alloc(int size) {
    struct front_group *g = front_alloc(sizeof *g + (size_t)size * sizeof(int));
    g->members.rank = CANON_UNDEFINED;
    return &g->members;
}

void front_group_discard(ckpt_mpi_group *g) { free(group_of(g)); }

MPI_Group front_group_new(ckpt_mpi_group *members) {
    struct front_group *g = group_of(members);
    if (members->size == 0) {
        free(g);
        return MPI_GROUP_EMPTY;
    }
    g->holders = 1;
    g->vid = front_object_new(CKPT_KIND_GROUP, g);
    return out_group(g->vid);
}

static void end(struct front_group *g) {
    front_object_drop(CKPT_KIND_GROUP, g->vid);
    free(g);
}

void front_group_let_go(struct front_group *g) {
    if (g != NULL && __atomic_sub_fetch(&g->holders, KEPT, __ATOMIC_ACQ_REL) == 0) end(g);
}

// The rank of a world rank in g, or MPI_UNDEFINED.
static int find(const ckpt_mpi_group *g, int world) {
    for (int i = 0; i < g->size; i++)
        if (g->world[i] == world) return i;
    return MPI_UNDEFINED;
}

// Membership of many world ranks: world rank -> rank + 1.
struct index {
    int *at, n;
};

static struct index index_of(const ckpt_mpi_group *g) {
    struct index x = {NULL, 0};
    for (int i = 0; i < g->size; i++)
        if (g->world[i] >= x.n) x.n = g->world[i] + 1;
    x.at = front_alloc((size_t)x.n * sizeof(int));
    for (int i = 0; i < g->size; i++) x.at[g->world[i]] = i + 1;
    return x;
}

static int rank_in(const struct index *x, int world) {
    return world >= 0 && world < x->n && x->at[world] ? x->at[world] - 1 : MPI_UNDEFINED;
}

static int my_world(const ckpt_mpi_group *g) { return g->rank >= 0 ? g->world[g->rank] : -1; }

// Appends member i of from.
static void append(ckpt_mpi_group *g, const ckpt_mpi_group *from, int i) {
    if (i == from->rank) g->rank = g->size;
    g->world[g->size++] = from->world[i];
}

static int group_error(unsigned fn) { return FRONT_ERR(fn, GROUP); }

FRONT(int, Group_size, (MPI_Group group, int *size)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_SIZE, size != NULL);
    const ckpt_mpi_group *g = in_group(group);
    if (g == NULL) return group_error(CKPT_FN_MPI_GROUP_SIZE);
    *size = g->size;
    return MPI_SUCCESS;
}

FRONT(int, Group_rank, (MPI_Group group, int *rank)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_RANK, rank != NULL);
    const ckpt_mpi_group *g = in_group(group);
    if (g == NULL) return group_error(CKPT_FN_MPI_GROUP_RANK);
    *rank = g->rank;
    return MPI_SUCCESS;
}

FRONT(int, Group_free, (MPI_Group * group)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_FREE, group != NULL);
    ckpt_vid v = in_group_vid(*group);
    struct front_group *g = held(v);
    if (g != NULL) {
        if (__atomic_sub_fetch(&g->holders, 1, __ATOMIC_ACQ_REL) == 0) end(g);
    } else if (CKPT_VID_INDEX(v) != 1) {
        return group_error(CKPT_FN_MPI_GROUP_FREE);
    }
    *group = MPI_GROUP_NULL;
    return MPI_SUCCESS;
}

// ---- groups of communicators, windows and files ----

int front_group_of(int sort, unsigned fn, ckpt_vid object, MPI_Group *group) {
    int size = 0;
    long a[] = {object, (long)&size, 0}; // first the size, then the members
    long rc = front_call(fn, a);
    if (rc != 0) return front_error(sort, object, fn, rc);
    ckpt_mpi_group *g = front_group_alloc(size);
    a[2] = (long)g;
    rc = front_call(fn, a);
    if (rc != 0) {
        front_group_discard(g);
        return front_error(sort, object, fn, rc);
    }
    *group = front_group_new(g);
    return MPI_SUCCESS;
}

// The communicator keeps the group that was just made for it, unless another thread was first.
static void keep(struct front_side *side, MPI_Group group) {
    struct front_group *g = held(in_group_vid(group)), *none = NULL;
    if (g == NULL) // the empty group
        return;
    __atomic_add_fetch(&g->holders, KEPT, __ATOMIC_RELAXED);
    if (!__atomic_compare_exchange_n(&side->group, &none, g, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        front_group_let_go(g);
}

FRONT(int, Comm_group, (MPI_Comm comm, MPI_Group *group)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_GROUP, group != NULL);
    ckpt_vid v = in_comm(comm);
    const ckpt_slot *slot = front_slot(CKPT_FN_MPI_COMM_GROUP, CKPT_KIND_COMM, v);
    if (front_is_null(CKPT_KIND_COMM, slot)) // the back says what is wrong
        return front_group_of(FRONT_COMM, CKPT_FN_MPI_COMM_GROUP, v, group);
    struct front_side *side = front_side(FRONT_COMM, v);
    struct front_group *g = __atomic_load_n(&side->group, __ATOMIC_ACQUIRE);
    if (g == NULL) {
        int rc = front_group_of(FRONT_COMM, CKPT_FN_MPI_COMM_GROUP, v, group);
        if (rc == MPI_SUCCESS) keep(side, *group);
        return rc;
    }
    __atomic_add_fetch(&g->holders, 1, __ATOMIC_RELAXED);
    *group = out_group(g->vid);
    return MPI_SUCCESS;
}

FRONT(int, Comm_remote_group, (MPI_Comm comm, MPI_Group *group)) {
    FRONT_NEEDS(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_COMM_REMOTE_GROUP, group != NULL);
    return front_group_of(FRONT_COMM, CKPT_FN_MPI_COMM_REMOTE_GROUP, in_comm(comm), group);
}

// ---- comparing and combining ----

FRONT(int, Group_compare, (MPI_Group group1, MPI_Group group2, int *result)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_COMPARE, result != NULL);
    const ckpt_mpi_group *a = in_group(group1), *b = in_group(group2);
    if (a == NULL || b == NULL) return group_error(CKPT_FN_MPI_GROUP_COMPARE);
    *result = MPI_UNEQUAL;
    if (a->size != b->size) return MPI_SUCCESS;
    if (memcmp(a->world, b->world, (size_t)a->size * sizeof(int)) == 0) {
        *result = MPI_IDENT;
        return MPI_SUCCESS;
    }
    struct index x = index_of(b);
    int same = 1;
    for (int i = 0; i < a->size && same; i++) same = rank_in(&x, a->world[i]) != MPI_UNDEFINED;
    free(x.at);
    if (same) *result = MPI_SIMILAR;
    return MPI_SUCCESS;
}

FRONT(int, Group_translate_ranks,
      (MPI_Group group1, int n, const int *ranks1, MPI_Group group2, int *ranks2)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_TRANSLATE_RANKS, ranks1 != NULL || n <= 0);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_TRANSLATE_RANKS, ranks2 != NULL || n <= 0);
    const ckpt_mpi_group *a = in_group(group1), *b = in_group(group2);
    if (a == NULL || b == NULL) return group_error(CKPT_FN_MPI_GROUP_TRANSLATE_RANKS);
    struct index x = index_of(b);
    int bad = n < 0;
    for (int i = 0; i < n && !bad; i++) {
        if (in_rank(ranks1[i]) == CANON_PROC_NULL)
            ranks2[i] = ranks1[i];
        else if (ranks1[i] < 0 || ranks1[i] >= a->size)
            bad = 1;
        else
            ranks2[i] = rank_in(&x, a->world[ranks1[i]]);
    }
    free(x.at);
    return bad ? FRONT_ERR(CKPT_FN_MPI_GROUP_TRANSLATE_RANKS, RANK) : MPI_SUCCESS;
}

// The members of a that are in b if keep_in is set, and those that are not if keep_out is set; then those of b
// that are not in a if both is set.
static int combine(unsigned fn, MPI_Group group1, MPI_Group group2, int keep_in, int keep_out, int both,
                   MPI_Group *newgroup) {
    const ckpt_mpi_group *a = in_group(group1), *b = in_group(group2);
    if (a == NULL || b == NULL) return group_error(fn);
    ckpt_mpi_group *g = front_group_alloc(a->size + b->size);
    struct index in_b = index_of(b);
    for (int i = 0; i < a->size; i++)
        if (rank_in(&in_b, a->world[i]) != MPI_UNDEFINED ? keep_in : keep_out) append(g, a, i);
    free(in_b.at);
    if (both) {
        struct index in_a = index_of(a);
        for (int i = 0; i < b->size; i++)
            if (rank_in(&in_a, b->world[i]) == MPI_UNDEFINED) append(g, b, i);
        free(in_a.at);
    }
    // This process may have a rank in only one of the two groups.
    int me = my_world(a) >= 0 ? my_world(a) : my_world(b);
    g->rank = me >= 0 ? find(g, me) : CANON_UNDEFINED;
    *newgroup = front_group_new(g);
    return MPI_SUCCESS;
}

FRONT(int, Group_union, (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_UNION, newgroup != NULL);
    return combine(CKPT_FN_MPI_GROUP_UNION, group1, group2, 1, 1, 1, newgroup);
}

FRONT(int, Group_intersection, (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_INTERSECTION, newgroup != NULL);
    return combine(CKPT_FN_MPI_GROUP_INTERSECTION, group1, group2, 1, 0, 0, newgroup);
}

FRONT(int, Group_difference, (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_DIFFERENCE, newgroup != NULL);
    return combine(CKPT_FN_MPI_GROUP_DIFFERENCE, group1, group2, 0, 1, 0, newgroup);
}

// Takes, or leaves out, the listed members of a group.  A member may be listed only once.
static int choose(unsigned fn, const ckpt_mpi_group *from, int n, const int *ranks, int exclude,
                  MPI_Group *newgroup) {
    if (from == NULL) return group_error(fn);
    char *listed = front_alloc((size_t)from->size);
    ckpt_mpi_group *g = front_group_alloc(from->size);
    int bad = n < 0;
    for (int i = 0; i < n && !bad; i++) {
        bad = ranks[i] < 0 || ranks[i] >= from->size || listed[ranks[i]];
        if (!bad) {
            listed[ranks[i]] = 1;
            if (!exclude) append(g, from, ranks[i]);
        }
    }
    for (int i = 0; i < from->size && exclude && !bad; i++)
        if (!listed[i]) append(g, from, i);
    free(listed);
    if (bad) {
        front_group_discard(g);
        return FRONT_ERR(fn, RANK);
    }
    *newgroup = front_group_new(g);
    return MPI_SUCCESS;
}

FRONT(int, Group_incl, (MPI_Group group, int n, const int *ranks, MPI_Group *newgroup)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_INCL, newgroup != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_INCL, ranks != NULL || n <= 0);
    return choose(CKPT_FN_MPI_GROUP_INCL, in_group(group), n, ranks, 0, newgroup);
}

FRONT(int, Group_excl, (MPI_Group group, int n, const int *ranks, MPI_Group *newgroup)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_EXCL, newgroup != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_EXCL, ranks != NULL || n <= 0);
    return choose(CKPT_FN_MPI_GROUP_EXCL, in_group(group), n, ranks, 1, newgroup);
}

static int choose_ranges(unsigned fn, MPI_Group group, int n, int ranges[][3], int exclude,
                         MPI_Group *newgroup) {
    const ckpt_mpi_group *g = in_group(group);
    if (g == NULL) return group_error(fn);
    int *ranks = front_alloc((size_t)(g->size + 1) * sizeof(int)), count = 0, bad = 0;
    for (int i = 0; i < n && !bad; i++) {
        int first = ranges[i][0], last = ranges[i][1], stride = ranges[i][2];
        bad = stride == 0;
        for (int r = first; !bad && (stride > 0 ? r <= last : r >= last); r += stride) {
            bad = count >= g->size;
            if (!bad) ranks[count++] = r;
        }
    }
    int rc = bad ? FRONT_ERR(fn, RANK) : choose(fn, g, count, ranks, exclude, newgroup);
    free(ranks);
    return rc;
}

FRONT(int, Group_range_incl, (MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_RANGE_INCL, newgroup != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_RANGE_INCL, ranges != NULL || n <= 0);
    return choose_ranges(CKPT_FN_MPI_GROUP_RANGE_INCL, group, n, ranges, 0, newgroup);
}

FRONT(int, Group_range_excl, (MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_RANGE_EXCL, newgroup != NULL);
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GROUP_RANGE_EXCL, ranges != NULL || n <= 0);
    return choose_ranges(CKPT_FN_MPI_GROUP_RANGE_EXCL, group, n, ranges, 1, newgroup);
}
