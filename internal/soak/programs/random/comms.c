// SPDX-License-Identifier: Apache-2.0
//
// comms.c: communicators that are made from one another, and freed.
//
// All ranks know of all communicators; the handle is good on members only.
#include <stdlib.h>
#include <string.h>

#include "random.h"

struct comm comms[COMMS];

// MPI_COMM_WORLD, and one for messages whose tag nobody asks for, stay.
enum { FIRST = 2 };

int seat(const struct comm *c, int side) {
    for (int i = 0; i < c->n[side]; i++)
        if (c->who[side][i] == rank) return i;
    return -1;
}

int member(const struct comm *c) { return seat(c, 0) >= 0 || seat(c, 1) >= 0; }
int side_of(const struct comm *c) { return seat(c, 0) >= 0 ? 0 : 1; }

struct comm *some_comm_of(enum kind kind) {
    int found[COMMS], n = 0;
    for (int i = 0; i < COMMS; i++)
        if (comms[i].kind == kind) found[n++] = i;
    return n ? &comms[found[pick(&script, n)]] : NULL;
}

struct comm *some_comm(void) {
    int found[COMMS], n = 0;
    for (int i = 0; i < COMMS; i++)
        if (i != 1 && comms[i].kind != NONE && comms[i].kind != INTER) found[n++] = i;
    return &comms[found[pick(&script, n)]];
}

static struct comm *place(void) {
    for (int i = FIRST; i < COMMS; i++)
        if (comms[i].kind == NONE) {
            memset(&comms[i], 0, sizeof comms[i]);
            comms[i].comm = MPI_COMM_NULL;
            return &comms[i];
        }
    return NULL;
}

static void mirror(struct comm *c) {
    c->n[1] = c->n[0];
    memcpy(c->who[1], c->who[0], sizeof c->who[0]);
}

// Does MPI see what the script says?
static void agree(const struct comm *c) {
    if (!member(c)) return;
    int side = side_of(c), r, n, inter;
    MPI_Comm_rank(c->comm, &r);
    MPI_Comm_size(c->comm, &n);
    MPI_Comm_test_inter(c->comm, &inter);
    if (r != seat(c, side) || n != c->n[side] || inter != (c->kind == INTER))
        fail("rank %d of %d in a communicator (inter: %d), expected %d of %d", r, n, inter, seat(c, side),
             c->n[side]);
    if (inter) {
        MPI_Comm_remote_size(c->comm, &n);
        if (n != c->n[1 - side]) fail("%d remote ranks, expected %d", n, c->n[1 - side]);
    }
}

static void drop(struct comm *c) {
    persistent_forget(c);
    if (member(c)) MPI_Comm_free(&c->comm);
    c->kind = NONE;
}

// ---- ways to make one ----

static void copy_members(struct comm *to, const struct comm *from) {
    memcpy(to->n, from->n, sizeof to->n);
    memcpy(to->who, from->who, sizeof to->who);
    to->kind = from->kind;
    to->ndims = from->ndims;
    to->degree = from->degree;
    memcpy(to->dims, from->dims, sizeof to->dims);
}

static void make_dup(struct comm *p) {
    struct comm *c = place();
    int how = pick(&script, 4);
    copy_members(c, p);
    if (!member(c)) return;
    if (how == 0) {
        MPI_Request r;
        MPI_Comm_idup(p->comm, &c->comm, &r);
        dally();
        MPI_Wait(&r, MPI_STATUS_IGNORE);
    } else if (how == 1) {
        MPI_Comm_dup_with_info(p->comm, MPI_INFO_NULL, &c->comm);
    } else {
        MPI_Comm_dup(p->comm, &c->comm);
    }
}

// Colors 0 and 1, or none; keys turn the order.
static void make_split(const struct comm *p) {
    int color[RANKS], turn = pick(&script, p->n[0]), n = p->n[0], mine = MPI_UNDEFINED;
    struct comm *made[2] = {NULL, NULL};
    for (int i = 0; i < n; i++) {
        int c = pick(&script, 5);
        color[i] = c < 2 ? 0 : c < 4 ? 1 : MPI_UNDEFINED;
    }
    for (int k = 0; k < 2; k++) {
        struct comm *c = place();
        if (c == NULL) { // no room to remember it
            for (int i = 0; i < n; i++)
                if (color[i] == k) color[i] = MPI_UNDEFINED;
            continue;
        }
        for (int key = 0; key < n; key++) {
            int i = (key + turn) % n;
            if (color[i] == k) c->who[0][c->n[0]++] = p->who[0][i];
        }
        if (c->n[0] > 0) {
            c->kind = INTRA;
            mirror(c);
            made[k] = c;
        }
    }
    int me = seat(p, 0);
    if (me < 0) return;
    mine = color[me];
    MPI_Comm made_comm;
    MPI_Comm_split(p->comm, mine, (me - turn + n) % n, &made_comm);
    if (mine == MPI_UNDEFINED) {
        if (made_comm != MPI_COMM_NULL) fail("a communicator for no color");
    } else {
        made[mine]->comm = made_comm;
    }
}

// A subset, in an order of its own, by MPI_Comm_create or by its members alone.
static void make_subset(const struct comm *p) {
    struct comm *c = place();
    int alone = pick(&script, 2), ranks[RANKS], n = 0, tag = fresh_tag();
    for (int i = p->n[0] - 1; i >= 0; i--)
        if (pick(&script, 3)) ranks[n++] = i;
    if (n == 0) ranks[n++] = 0;
    c->kind = INTRA;
    c->n[0] = n;
    for (int i = 0; i < n; i++) c->who[0][i] = p->who[0][ranks[i]];
    mirror(c);
    if (!member(p)) return;
    MPI_Group all, some;
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_group(p->comm, &all);
    MPI_Group_incl(all, n, ranks, &some);
    if (!alone)
        MPI_Comm_create(p->comm, some, &made);
    else if (member(c))
        MPI_Comm_create_group(p->comm, some, tag, &made);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    if ((made != MPI_COMM_NULL) != member(c)) fail("a communicator for those who are not in the group");
    c->comm = made;
}

static void make_cart(const struct comm *p) {
    struct comm *c = place();
    int n = p->n[0], around = pick(&script, 2), periods[2] = {0, 0};
    copy_members(c, p);
    c->kind = CART;
    c->ndims = n % 2 == 0 && n > 2 ? 2 : 1;
    c->dims[0] = c->ndims == 2 ? 2 : n;
    c->dims[1] = n / 2;
    // With one neighbour on both sides, MPIs differ in which message comes from which.
    for (int i = 0; i < c->ndims; i++) periods[i] = around && c->dims[i] > 2;
    if (member(c)) MPI_Cart_create(p->comm, c->ndims, c->dims, periods, 0, &c->comm);
}

static void make_graph(const struct comm *p) {
    struct comm *c = place();
    int n = p->n[0], to[RANKS], from[RANKS];
    copy_members(c, p);
    c->kind = GRAPH;
    c->degree = between(&script, 1, n);
    int me = seat(p, 0);
    for (int i = 0; i < c->degree; i++) {
        to[i] = (me + 1 + i) % n;
        from[i] = (me + 2 * n - 1 - i) % n;
    }
    if (me >= 0)
        MPI_Dist_graph_create_adjacent(p->comm, c->degree, from, MPI_UNWEIGHTED, c->degree, to,
                                       MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &c->comm);
}

// Two halves and the bridge between them; sometimes merged again.
static void make_inter(const struct comm *p) {
    struct comm *c = place();
    int n = p->n[0], cut = between(&script, 1, n - 1), tag = fresh_tag(), me = seat(p, 0);
    int merge = pick(&script, 3) == 0;
    c->kind = INTER;
    for (int i = 0; i < n; i++) {
        int side = i >= cut;
        c->who[side][c->n[side]++] = p->who[0][i];
    }
    if (me >= 0) {
        MPI_Comm half;
        int side = me >= cut;
        MPI_Comm_split(p->comm, side, me, &half);
        MPI_Intercomm_create(half, 0, p->comm, side ? 0 : cut, tag, &c->comm);
        MPI_Comm_free(&half);
    }
    struct comm *m = merge ? place() : NULL;
    if (m != NULL) {
        copy_members(m, p);
        m->kind = INTRA;
        if (member(m)) MPI_Intercomm_merge(c->comm, side_of(c), &m->comm);
    }
}

static void make(struct comm *p) {
    struct comm before[COMMS];
    memcpy(before, comms, sizeof before);
    switch (pick(&script, 8)) {
    case 0: {
        struct comm *inter = some_comm_of(INTER);
        make_dup(inter && pick(&script, 2) ? inter : p);
        break;
    }
    case 1:
        make_dup(p);
        break;
    case 2:
    case 3:
        make_split(p);
        break;
    case 4:
    case 5:
        make_subset(p);
        break;
    case 6:
        if (pick(&script, 2))
            make_cart(p);
        else
            make_graph(p);
        break;
    default:
        if (p->n[0] > 1) make_inter(p);
    }
    for (int i = 0; i < COMMS; i++)
        if (before[i].kind == NONE && comms[i].kind != NONE) agree(&comms[i]);
}

void phase_comm(void) {
    for (int n = between(&script, 1, 3); n > 0; n--) {
        int live = 0, victim = between(&script, FIRST, COMMS - 1);
        for (int i = 0; i < COMMS; i++) live += comms[i].kind != NONE;
        // Those with something under way stay; place() finds a hole for two more.
        if (comms[victim].kind != NONE && !comms[victim].busy && pick(&script, 2))
            drop(&comms[victim]);
        else if (live < COMMS - 2)
            make(some_comm());
        dally();
    }
}

static void keep(struct comm *c, MPI_Comm comm) {
    c->kind = INTRA;
    c->comm = comm;
    c->n[0] = size;
    for (int i = 0; i < size; i++) c->who[0][i] = i;
    mirror(c);
}

void comms_begin(void) {
    MPI_Comm wild;
    keep(&comms[0], MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &wild);
    keep(&comms[1], wild);
}

void comms_end(void) {
    for (int i = COMMS - 1; i > 0; i--)
        if (comms[i].kind != NONE) drop(&comms[i]);
}
