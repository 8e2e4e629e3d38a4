/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c: groups are lists of world ranks, kept in the application's memory: asking and combining
 * them needs nobody else, and an image holds them as they are.
 */
#include <stdlib.h>
#include <string.h>

#include "front.h"

static const ckpt_mpi_group empty = {0, CANON_UNDEFINED};

const ckpt_mpi_group *in_group(MPI_Group g) {
    ckpt_vid v = in_group_vid(g);
    if (CKPT_VID_INDEX(v) == 1)
        return &empty;
    return front_object(CKPT_KIND_GROUP, v);
}

MPI_Group front_group_new(ckpt_mpi_group *g) {
    if (g->size == 0) {
        free(g);
        return MPI_GROUP_EMPTY;
    }
    return out_group(front_object_new(CKPT_KIND_GROUP, g));
}

static ckpt_mpi_group *alloc(int size) {
    ckpt_mpi_group *g = front_alloc(sizeof *g + (size_t)size * sizeof(int));
    g->rank = CANON_UNDEFINED;
    return g;
}

/* The rank of a world rank in g, or MPI_UNDEFINED. */
static int find(const ckpt_mpi_group *g, int world) {
    for (int i = 0; i < g->size; i++)
        if (g->world[i] == world)
            return i;
    return MPI_UNDEFINED;
}

/* Membership of many world ranks: world rank -> rank + 1. */
struct index {
    int *at, n;
};

static struct index index_of(const ckpt_mpi_group *g) {
    struct index x = {NULL, 0};
    for (int i = 0; i < g->size; i++)
        if (g->world[i] >= x.n)
            x.n = g->world[i] + 1;
    x.at = front_alloc((size_t)x.n * sizeof(int));
    for (int i = 0; i < g->size; i++)
        x.at[g->world[i]] = i + 1;
    return x;
}

static int rank_in(const struct index *x, int world) {
    return world >= 0 && world < x->n && x->at[world] ? x->at[world] - 1 : MPI_UNDEFINED;
}

static int my_world(const ckpt_mpi_group *g) { return g->rank >= 0 ? g->world[g->rank] : -1; }

/* Appends member i of from. */
static void append(ckpt_mpi_group *g, const ckpt_mpi_group *from, int i) {
    if (i == from->rank)
        g->rank = g->size;
    g->world[g->size++] = from->world[i];
}

static int group_error(unsigned fn) { return FRONT_ERR(fn, GROUP); }

FRONT(int, Group_size, (MPI_Group group, int *size)) {
    const ckpt_mpi_group *g = in_group(group);
    if (g == NULL)
        return group_error(CKPT_FN_MPI_GROUP_SIZE);
    *size = g->size;
    return MPI_SUCCESS;
}

FRONT(int, Group_rank, (MPI_Group group, int *rank)) {
    const ckpt_mpi_group *g = in_group(group);
    if (g == NULL)
        return group_error(CKPT_FN_MPI_GROUP_RANK);
    *rank = g->rank;
    return MPI_SUCCESS;
}

FRONT(int, Group_free, (MPI_Group * group)) {
    ckpt_vid v = in_group_vid(*group);
    ckpt_mpi_group *g = front_object(CKPT_KIND_GROUP, v);
    if (g != NULL) {
        front_object_drop(CKPT_KIND_GROUP, v);
        free(g);
    } else if (CKPT_VID_INDEX(v) != 1) {
        return group_error(CKPT_FN_MPI_GROUP_FREE);
    }
    *group = MPI_GROUP_NULL;
    return MPI_SUCCESS;
}

FRONT(int, Group_compare, (MPI_Group group1, MPI_Group group2, int *result)) {
    const ckpt_mpi_group *a = in_group(group1), *b = in_group(group2);
    if (a == NULL || b == NULL)
        return group_error(CKPT_FN_MPI_GROUP_COMPARE);
    *result = MPI_UNEQUAL;
    if (a->size != b->size)
        return MPI_SUCCESS;
    if (memcmp(a->world, b->world, (size_t)a->size * sizeof(int)) == 0) {
        *result = MPI_IDENT;
        return MPI_SUCCESS;
    }
    struct index x = index_of(b);
    int same = 1;
    for (int i = 0; i < a->size && same; i++)
        same = rank_in(&x, a->world[i]) != MPI_UNDEFINED;
    free(x.at);
    if (same)
        *result = MPI_SIMILAR;
    return MPI_SUCCESS;
}

FRONT(int, Group_translate_ranks,
      (MPI_Group group1, int n, const int *ranks1, MPI_Group group2, int *ranks2)) {
    const ckpt_mpi_group *a = in_group(group1), *b = in_group(group2);
    if (a == NULL || b == NULL)
        return group_error(CKPT_FN_MPI_GROUP_TRANSLATE_RANKS);
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

/* The members of a (those that are in b, or not, by want), then those of b that are not in a when
 * both is set. */
static int combine(unsigned fn, MPI_Group group1, MPI_Group group2, int keep_in, int keep_out,
                   int both, MPI_Group *newgroup) {
    const ckpt_mpi_group *a = in_group(group1), *b = in_group(group2);
    if (a == NULL || b == NULL)
        return group_error(fn);
    ckpt_mpi_group *g = alloc(a->size + b->size);
    struct index in_b = index_of(b);
    for (int i = 0; i < a->size; i++)
        if (rank_in(&in_b, a->world[i]) != MPI_UNDEFINED ? keep_in : keep_out)
            append(g, a, i);
    free(in_b.at);
    if (both) {
        struct index in_a = index_of(a);
        for (int i = 0; i < b->size; i++)
            if (rank_in(&in_a, b->world[i]) == MPI_UNDEFINED)
                append(g, b, i);
        free(in_a.at);
    }
    /* I may be in b under a rank that only a lists, or the other way round. */
    int me = my_world(a) >= 0 ? my_world(a) : my_world(b);
    g->rank = me >= 0 ? find(g, me) : CANON_UNDEFINED;
    *newgroup = front_group_new(g);
    return MPI_SUCCESS;
}

FRONT(int, Group_union, (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup)) {
    return combine(CKPT_FN_MPI_GROUP_UNION, group1, group2, 1, 1, 1, newgroup);
}

FRONT(int, Group_intersection, (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup)) {
    return combine(CKPT_FN_MPI_GROUP_INTERSECTION, group1, group2, 1, 0, 0, newgroup);
}

FRONT(int, Group_difference, (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup)) {
    return combine(CKPT_FN_MPI_GROUP_DIFFERENCE, group1, group2, 0, 1, 0, newgroup);
}

/* Takes (or leaves out) the listed members of a group.  Each may be listed once. */
static int choose(unsigned fn, const ckpt_mpi_group *from, int n, const int *ranks, int exclude,
                  MPI_Group *newgroup) {
    if (from == NULL)
        return group_error(fn);
    char *listed = front_alloc((size_t)from->size);
    ckpt_mpi_group *g = alloc(from->size);
    int bad = n < 0;
    for (int i = 0; i < n && !bad; i++) {
        bad = ranks[i] < 0 || ranks[i] >= from->size || listed[ranks[i]];
        if (!bad) {
            listed[ranks[i]] = 1;
            if (!exclude)
                append(g, from, ranks[i]);
        }
    }
    for (int i = 0; i < from->size && exclude && !bad; i++)
        if (!listed[i])
            append(g, from, i);
    free(listed);
    if (bad) {
        free(g);
        return FRONT_ERR(fn, RANK);
    }
    *newgroup = front_group_new(g);
    return MPI_SUCCESS;
}

FRONT(int, Group_incl, (MPI_Group group, int n, const int *ranks, MPI_Group *newgroup)) {
    return choose(CKPT_FN_MPI_GROUP_INCL, in_group(group), n, ranks, 0, newgroup);
}

FRONT(int, Group_excl, (MPI_Group group, int n, const int *ranks, MPI_Group *newgroup)) {
    return choose(CKPT_FN_MPI_GROUP_EXCL, in_group(group), n, ranks, 1, newgroup);
}

static int choose_ranges(unsigned fn, MPI_Group group, int n, int ranges[][3], int exclude,
                         MPI_Group *newgroup) {
    const ckpt_mpi_group *g = in_group(group);
    if (g == NULL)
        return group_error(fn);
    int *ranks = front_alloc((size_t)(g->size + 1) * sizeof(int)), count = 0, bad = 0;
    for (int i = 0; i < n && !bad; i++) {
        int first = ranges[i][0], last = ranges[i][1], stride = ranges[i][2];
        bad = stride == 0;
        for (int r = first; !bad && (stride > 0 ? r <= last : r >= last); r += stride) {
            bad = count >= g->size;
            if (!bad)
                ranks[count++] = r;
        }
    }
    int rc = bad ? FRONT_ERR(fn, RANK) : choose(fn, g, count, ranks, exclude, newgroup);
    free(ranks);
    return rc;
}

FRONT(int, Group_range_incl, (MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup)) {
    return choose_ranges(CKPT_FN_MPI_GROUP_RANGE_INCL, group, n, ranges, 0, newgroup);
}

FRONT(int, Group_range_excl, (MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup)) {
    return choose_ranges(CKPT_FN_MPI_GROUP_RANGE_EXCL, group, n, ranges, 1, newgroup);
}
