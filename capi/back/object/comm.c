// SPDX-License-Identifier: Apache-2.0
//
// comm.c: communicators: making, describing, making again.
//
// A descriptor says what a communicator is (members, topology), not how the application got it.  A restart
// makes the communicator again with calls that are collective over its members only.
#include <stdio.h>
#include <stdlib.h>

#include "back/impl/above.h"
#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/impl/lock.h"
#include "back/impl/special.h"
#include "back/object/comm.h"
#include "back/object/describe.h"
#include "back/object/outside.h"
#include "back/object/untold.h"

// ---- identity ----

static uint64_t mix(uint64_t h, uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdull;
    return h ^ h >> 33;
}

static uint64_t mix_ints(uint64_t h, const int *v, int n) {
    for (int i = 0; i < n; i++) h = mix(h, (uint32_t)v[i]);
    return mix(h, (uint64_t)n);
}

// Identities that a thread remembers.
static struct known {
    uint64_t identity;
    ckpt_vid vid;
    uint32_t generation;
} * known_of(ckpt_vid vid) {
    static _Thread_local struct known known[64];
    return &known[CKPT_VID_INDEX(vid) % (sizeof known / sizeof *known)];
}

static void remember(ckpt_vid vid, uint64_t identity) {
    *known_of(vid) = (struct known){identity, vid, back_slot(CKPT_KIND_COMM, vid)->generation};
}

// The identity of a communicator, from the beginning of its descriptor (describe.h).
uint64_t back_comm_identity(ckpt_vid vid) {
    const struct known *known = known_of(vid);
    int32_t head[5];
    if (CKPT_VID_INDEX(vid) < CKPT_VID_PREDEFINED) return CKPT_VID_INDEX(vid);
    if (known->vid == vid && back_same(CKPT_KIND_COMM, vid, known->generation)) return known->identity;
    if (ckpt_vid_descriptor(back.job, vid, head, sizeof head) < (long)sizeof head) return 0;
    remember(vid, (uint32_t)head[3] | (uint64_t)(uint32_t)head[4] << 32);
    return known->identity;
}

uint64_t back_agree_identity(MPI_Comm comm) {
    uint64_t id = mix(mix(0x6964656e74ull, (uint64_t)back.rank), ++back.state->serial);
    int inter = 0, rank = 0;
    MPI_Comm_test_inter(comm, &inter);
    MPI_Comm_rank(comm, &rank);
    if (!inter) {
        MPI_Bcast(&id, 8, MPI_BYTE, 0, comm);
        return id;
    }
    // A reduction on an intercommunicator gives each side the other side's result.  So the first one gives
    // the smallest number of the other side, and the second one the smallest number of our own side.
    uint64_t theirs = 0, ours = 0;
    MPI_Allreduce(&id, &theirs, 1, MPI_UINT64_T, MPI_MIN, comm);
    MPI_Allreduce(&theirs, &ours, 1, MPI_UINT64_T, MPI_MIN, comm);
    return ours < theirs ? mix(ours, theirs) : mix(theirs, ours);
}

// ---- members ----

struct members {
    int *world, n;
};

// Processes of other jobs get numbers after those of the world.
static int translate(MPI_Group group, int n, const int *ranks, int *world) {
    int rc = MPI_Group_translate_ranks(group, n, ranks, back.everyone, world), unknown = 0;
    for (int i = 0; rc == MPI_SUCCESS && i < n; i++) unknown |= world[i] == MPI_UNDEFINED;
    if (rc != MPI_SUCCESS || !unknown) return rc;
    back_lock(LOCK_EVERYONE);
    MPI_Group more;
    rc = MPI_Group_union(back.everyone, group, &more);
    if (rc == MPI_SUCCESS) back.everyone = more; // the old group stays: another thread may be using it
    back_unlock(LOCK_EVERYONE);
    return rc == MPI_SUCCESS ? MPI_Group_translate_ranks(group, n, ranks, back.everyone, world) : rc;
}

static int members_of(MPI_Group group, struct members *m) {
    int rc = MPI_Group_size(group, &m->n);
    m->world = NULL;
    if (rc != MPI_SUCCESS) return rc;
    int *ranks = calloc((size_t)m->n + 1, sizeof(int));
    m->world = malloc((size_t)(m->n + 1) * sizeof(int));
    if (ranks == NULL || m->world == NULL) {
        free(ranks);
        free(m->world);
        m->world = NULL;
        return MPI_ERR_NO_MEM;
    }
    for (int i = 0; i < m->n; i++) ranks[i] = i;
    rc = translate(group, m->n, ranks, m->world);
    free(ranks);
    return rc;
}

// Members of comm's local or remote group.
static int comm_members(MPI_Comm comm, int remote, struct members *m) {
    MPI_Group group;
    m->world = NULL;
    int rc = remote ? MPI_Comm_remote_group(comm, &group) : MPI_Comm_group(comm, &group);
    if (rc != MPI_SUCCESS) return rc;
    rc = members_of(group, m);
    for (int i = 0; rc == MPI_SUCCESS && i < m->n; i++)
        if (m->world[i] >= back.size) m->world[i] = -1;
    MPI_Group_free(&group);
    return rc;
}

int *back_comm_world(MPI_Comm comm, int remote, int *n) {
    struct members m = {0};
    if (comm_members(comm, remote, &m) != MPI_SUCCESS) {
        free(m.world);
        m = (struct members){0};
    }
    *n = m.n;
    return m.world;
}

long back_group_out(MPI_Group group, int is_member, int *size, ckpt_mpi_group *g) {
    struct members m = {0};
    int rc = members_of(group, &m), rank = CANON_UNDEFINED;
    if (rc != MPI_SUCCESS) return back_error(rc);
    *size = m.n;
    if (g != NULL) {
        if (is_member) MPI_Group_rank(group, &rank);
        g->size = m.n;
        g->rank = rank;
        memcpy(g->world, m.world, (size_t)m.n * sizeof(int));
    }
    free(m.world);
    return 0;
}

// comm, size out, ckpt_mpi_group out (NULL: only the size)
static long group_out(const long *a, int remote) {
    ARGS(Comm_group) p = (const void *)a;
    MPI_Comm comm = real_comm(p->comm);
    MPI_Group group;
    if (comm == MPI_COMM_NULL) return CANON_ERR(COMM);
    int rc = remote ? MPI_Comm_remote_group(comm, &group) : MPI_Comm_group(comm, &group);
    if (rc != MPI_SUCCESS) return back_error(rc);
    long canon = back_group_out(group, !remote, p->size, p->members);
    MPI_Group_free(&group);
    return canon;
}

long back_Comm_group(const long *a) { return group_out(a, 0); }

long back_Comm_remote_group(const long *a) { return group_out(a, 1); }

MPI_Group back_group(const ckpt_mpi_group *g) {
    MPI_Group group = MPI_GROUP_NULL;
    if (g != NULL && MPI_Group_incl(back.everyone, g->size, g->world, &group) != MPI_SUCCESS)
        group = MPI_GROUP_NULL;
    return group;
}

void back_group_done(MPI_Group *group) {
    if (*group != MPI_GROUP_NULL && *group != MPI_GROUP_EMPTY) MPI_Group_free(group);
}

MPI_Info back_info(const char *content) {
    MPI_Info info = MPI_INFO_NULL;
    if (content == NULL || MPI_Info_create(&info) != MPI_SUCCESS) return MPI_INFO_NULL;
    while (*content) {
        const char *value = content + strlen(content) + 1;
        MPI_Info_set(info, content, value);
        content = value + strlen(value) + 1;
    }
    return info;
}

void back_info_done(MPI_Info *info) {
    if (*info != MPI_INFO_NULL) MPI_Info_free(info);
}

// ---- describing ----

static int put_cart(struct writer *w, MPI_Comm comm) {
    int n = 0, rc = MPI_Cartdim_get(comm, &n);
    int *v = rc == MPI_SUCCESS ? malloc((size_t)(3 * n + 1) * sizeof(int)) : NULL;
    if (v == NULL) return rc == MPI_SUCCESS ? MPI_ERR_NO_MEM : rc;
    rc = MPI_Cart_get(comm, n, v, v + n, v + 2 * n);
    put(w, n);
    put_ints(w, v, 2 * n);
    free(v);
    return rc;
}

static int put_graph(struct writer *w, MPI_Comm comm) {
    int nodes = 0, edges = 0, rc = MPI_Graphdims_get(comm, &nodes, &edges);
    int *v = rc == MPI_SUCCESS ? malloc((size_t)(nodes + edges + 1) * sizeof(int)) : NULL;
    if (v == NULL) return rc == MPI_SUCCESS ? MPI_ERR_NO_MEM : rc;
    rc = MPI_Graph_get(comm, nodes, edges, v, v + nodes);
    put(w, nodes);
    put(w, edges);
    put_ints(w, v, nodes + edges);
    free(v);
    return rc;
}

static int put_dist_graph(struct writer *w, MPI_Comm comm) {
    int in = 0, out = 0, weighted = 0;
    int rc = MPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
    int *v = rc == MPI_SUCCESS ? calloc((size_t)(2 * (in + out) + 1), sizeof(int)) : NULL;
    if (v == NULL) return rc == MPI_SUCCESS ? MPI_ERR_NO_MEM : rc;
    rc = MPI_Dist_graph_neighbors(comm, in, v, weighted ? v + in : MPI_UNWEIGHTED, out, v + 2 * in,
                                  weighted ? v + 2 * in + out : MPI_UNWEIGHTED);
    put(w, in);
    put(w, out);
    put(w, weighted);
    put_ints(w, v, 2 * (in + out));
    free(v);
    return rc;
}

static int put_topology(struct writer *w, MPI_Comm comm, int topology) {
    switch (topology) {
    case CANON_CART:
        return put_cart(w, comm);
    case CANON_GRAPH:
        return put_graph(w, comm);
    case CANON_DIST_GRAPH:
        return put_dist_graph(w, comm);
    default:
        return MPI_SUCCESS;
    }
}

// More kinds than inter and intra (describe.h).  NOT_MADE: the communicator has no more than an identity yet.
// OF_REQUEST, added to any other kind: it belongs to a persistent request (persist_comm.c).
enum { NOT_MADE = 2, OF_REQUEST = 4 };

// Everything that is known of a new communicator before it has an id.
struct facts {
    int inter, topology, rank, size;
    struct members local, remote;
};

static void facts_free(struct facts *f) {
    free(f->local.world);
    free(f->remote.world);
}

// parent: what comm is made from; VID_COMM_NULL: nothing.
static int facts_of(MPI_Comm comm, ckpt_vid parent, struct facts *f) {
    memset(f, 0, sizeof *f);
    int topology = MPI_UNDEFINED, rc = MPI_Comm_test_inter(comm, &f->inter);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_rank(comm, &f->rank);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_size(comm, &f->size);
    if (rc == MPI_SUCCESS && !f->inter) rc = MPI_Topo_test(comm, &topology);
    f->topology = canon_topo(topology);
    if (rc == MPI_SUCCESS) rc = comm_members(comm, 0, &f->local);
    if (rc == MPI_SUCCESS && f->inter) rc = comm_members(comm, 1, &f->remote);
    if (rc == MPI_SUCCESS && parent != VID_COMM_NULL)
        back_outside_strangers(parent, f->local.world, f->local.n, f->remote.world, f->remote.n);
    return rc;
}

// Whether processes of another job are among the members.
static int outsiders(const struct facts *f) {
    int n = 0;
    for (int i = 0; i < f->local.n; i++) n += f->local.world[i] < 0;
    for (int i = 0; i < f->remote.n; i++) n += f->remote.world[i] < 0;
    return n;
}

static int describe(struct writer *w, MPI_Comm comm, const struct facts *f, uint64_t identity, int kind) {
    put(w, DESCRIBE_VERSION);
    put(w, f->inter | kind);
    put(w, f->topology);
    put64(w, identity);
    put(w, f->local.n);
    put_ints(w, f->local.world, f->local.n);
    put(w, f->remote.n);
    put_ints(w, f->remote.world, f->remote.n);
    int rc = put_topology(w, comm, f->topology);
    return w->failed ? MPI_ERR_NO_MEM : rc;
}

static int by_rank(const void *x, const void *y) { return *(const int *)x - *(const int *)y; }

// Who takes part in collective calls on an intercommunicator: both groups, in the same order on both sides.  From
// malloc.
static int *both(const struct facts *f) {
    int n = f->local.n + f->remote.n, *all = malloc((size_t)n * sizeof(int));
    if (all == NULL) return NULL;
    memcpy(all, f->local.world, (size_t)f->local.n * sizeof(int));
    memcpy(all + f->local.n, f->remote.world, (size_t)f->remote.n * sizeof(int));
    qsort(all, (size_t)n, sizeof(int), by_rank);
    return all;
}

// Tells libckpt who takes part in collective calls.
static int callers(ckpt_job *job, ckpt_vid vid, const struct facts *f, uint64_t identity) {
    if (!f->inter) return ckpt_comm_set_members(job, vid, f->local.world, f->local.n, identity);
    int *all = both(f);
    if (all == NULL) return CKPT_E_SYSTEM;
    int rc = ckpt_comm_set_members(job, vid, all, f->local.n + f->remote.n, identity);
    free(all);
    return rc;
}

// Tells libckpt to whom messages on the communicator can be sent.
static int reach(ckpt_job *job, ckpt_vid vid, const struct facts *f, uint64_t identity) {
    const struct members *peers = f->inter ? &f->remote : &f->local;
    int rc = ckpt_comm_describe(job, vid, f->rank, f->size, peers->world, peers->n, identity);
    if (rc != 0) return rc;
    *ckpt_clock_of(back.tables, vid) = (ckpt_clock){0, 0, NULL};
    return callers(job, vid, f, identity);
}

// All members of the parent count a child, also those that are not in it, so that identities stay equal.
static uint64_t count_child(ckpt_vid parent) {
    const ckpt_slot *p = back_slot(CKPT_KIND_COMM, parent);
    return p->counters != 0 ? ++ckpt_comm_of(p)->children : 0;
}

// The identity of the parent's child of that number; f is what is known of the child.
static uint64_t child_identity(ckpt_vid parent, uint64_t child, const struct facts *f) {
    uint64_t identity = mix(mix(back_comm_identity(parent), child), (uint64_t)f->inter);
    // Both sides of an intercommunicator see the same pair of groups, each its own first.
    int first = !f->inter || f->local.world[0] < f->remote.world[0];
    const struct members *x = first ? &f->local : &f->remote, *y = first ? &f->remote : &f->local;
    return mix_ints(mix_ints(identity, x->world, x->n), y->world, y->n);
}

static uint64_t beyond_predefined(uint64_t identity) { // small ones are predefined
    return identity | (uint64_t)(identity < CKPT_VID_PREDEFINED) << 63;
}

// Gives a communicator an id and tells libckpt all of it, now.
static ckpt_vid tell_now(MPI_Comm real, ckpt_vid parent, const struct writer *w, const struct facts *f,
                         uint64_t identity) {
    ckpt_vid v = ckpt_vid_new(back.job, CKPT_KIND_COMM, TO_REAL(real), w->word, 4 * w->n, NULL, 0, identity);
    if (v == CKPT_VID_NONE) return v;
    if (reach(back.job, v, f, identity) == 0 &&
        (!outsiders(f) || back_reaches_outside(v, parent, f->local.world, f->local.n) == 0))
        return v;
    ckpt_vid_free(back.job, v);
    return CKPT_VID_NONE;
}

// The same, but libckpt is told when it asks (untold.h).  The arrays of w and f are taken over.  *rc is an MPI error:
// then there is no id; else CKPT_VID_NONE: libckpt is to be told now.
static ckpt_vid tell_later(MPI_Comm real, struct writer *w, struct facts *f, uint64_t identity, int *rc) {
    struct members *peers = f->inter ? &f->remote : &f->local;
    struct untold_comm c = {.identity = identity, .rank = f->rank, .size = f->size, .npeers = peers->n};
    ckpt_vid v = untold_new(real, &c);
    if (v == CKPT_VID_NONE) return v;
    c.members = f->inter ? both(f) : f->local.world;
    *rc = c.members == NULL ? MPI_ERR_NO_MEM : back_above.comm_made(v, real);
    if (*rc != MPI_SUCCESS) {
        if (f->inter) free(c.members);
        untold_forget(v);
        return CKPT_VID_NONE;
    }
    c.nmembers = f->local.n + f->remote.n;
    c.peers = peers->world;
    c.words = w->word;
    c.n = w->n;
    peers->world = NULL;
    w->word = NULL;
    untold_tell(v, &c);
    return v;
}

static long new_comm(MPI_Comm real, MPI_Comm like, ckpt_vid parent, uint64_t identity, int kind,
                     ckpt_vid *vid) {
    uint64_t child = identity == 0 ? count_child(parent) : 0;
    *vid = VID_COMM_NULL;
    if (like == MPI_COMM_NULL) return 0;
    struct facts f;
    struct writer w = {0};
    int rc = facts_of(like, parent, &f);
    if (identity != 0) // Open MPI 4.1: MPI_Comm_create_group leaves the parent's topology there
        f.topology = canon_topo(MPI_UNDEFINED);
    if (rc == MPI_SUCCESS && identity == 0) identity = child_identity(parent, child, &f);
    identity = beyond_predefined(identity);
    if (rc == MPI_SUCCESS) rc = describe(&w, like, &f, identity, kind);
    if (rc == MPI_SUCCESS && real != MPI_COMM_NULL) rc = MPI_Comm_set_errhandler(real, MPI_ERRORS_RETURN);
    ckpt_vid v = CKPT_VID_NONE;
    int outside =
        rc == MPI_SUCCESS &&
        outsiders(&f); // other jobs may not know of its barrier; a communicator of a request has none
    if (rc == MPI_SUCCESS && real != MPI_COMM_NULL && kind == 0 && !outside)
        v = tell_later(real, &w, &f, identity, &rc);
    if (rc == MPI_SUCCESS && v == CKPT_VID_NONE) {
        v = tell_now(real, parent, &w, &f, identity);
        if (v == CKPT_VID_NONE)
            rc = MPI_ERR_NO_MEM;
        else if (!outside && kind != OF_REQUEST && (rc = back_above.comm_made(v, real)) != MPI_SUCCESS)
            ckpt_vid_free(back.job, v);
    }
    free(w.word);
    facts_free(&f);
    if (rc == MPI_SUCCESS) {
        *vid = v;
        remember(v, identity);
    }
    return back_error(rc);
}

long back_new_comm(MPI_Comm real, MPI_Comm like, ckpt_vid parent, uint64_t identity, ckpt_vid *vid) {
    return new_comm(real, like, parent, identity, 0, vid);
}

long back_new_own_comm(MPI_Comm real, ckpt_vid parent, ckpt_vid *vid) {
    return new_comm(real, real, parent, 0, OF_REQUEST, vid);
}

long back_promise_comm(ckpt_vid parent, ckpt_vid *vid) {
    uint64_t child = count_child(parent), identity;
    struct facts f;
    struct writer w = {0};
    *vid = VID_COMM_NULL;
    int rc = facts_of(real_comm(parent), parent, &f);
    if (rc == MPI_SUCCESS) {
        identity = beyond_predefined(child_identity(parent, child, &f));
        put(&w, DESCRIBE_VERSION);
        put(&w, NOT_MADE);
        put(&w, canon_topo(MPI_UNDEFINED));
        put64(&w, identity);
        ckpt_vid v = w.failed ? CKPT_VID_NONE
                              : ckpt_vid_new(back.job, CKPT_KIND_COMM, TO_REAL(MPI_COMM_NULL), w.word,
                                             4 * w.n, NULL, 0, identity);
        if (v == CKPT_VID_NONE)
            rc = MPI_ERR_NO_MEM;
        else
            *vid = v;
    }
    free(w.word);
    facts_free(&f);
    return back_error(rc);
}

long back_keep_promise(ckpt_vid parent, ckpt_vid vid) {
    uint64_t identity = back_comm_identity(vid);
    MPI_Comm like = real_comm(parent);
    struct facts f;
    struct writer w = {0};
    int rc = facts_of(like, parent, &f);
    if (rc == MPI_SUCCESS) rc = describe(&w, like, &f, identity, 0);
    if (rc == MPI_SUCCESS &&
        (ckpt_vid_describe(back.job, vid, w.word, 4 * w.n, NULL, 0) != 0 ||
         reach(back.job, vid, &f, identity) != 0 ||
         (outsiders(&f) && back_reaches_outside(vid, parent, f.local.world, f.local.n) != 0)))
        rc = MPI_ERR_NO_MEM;
    free(w.word);
    facts_free(&f);
    return back_error(rc);
}

static int bind(ckpt_job *job, ckpt_vid vid, MPI_Comm comm) {
    struct facts f;
    int rc = ckpt_vid_bind(job, vid, TO_REAL(comm));
    if (rc == 0) {
        rc = facts_of(comm, VID_COMM_NULL, &f);
        if (rc != 0) back_fail(rc, "asking for the members of a communicator");
    }
    if (rc == 0) {
        rc = reach(job, vid, &f, CKPT_VID_INDEX(vid));
        facts_free(&f);
    }
    return rc;
}

int back_bind_comms(ckpt_job *job) {
    return bind(job, VID_COMM_WORLD, MPI_COMM_WORLD) || bind(job, VID_COMM_SELF, MPI_COMM_SELF) ||
           ckpt_vid_set_name(job, VID_COMM_WORLD, "MPI_COMM_WORLD") ||
           ckpt_vid_set_name(job, VID_COMM_SELF, "MPI_COMM_SELF");
}

int back_clock_world(void) {
    struct facts f;
    int rc = facts_of(MPI_COMM_WORLD, VID_COMM_NULL, &f);
    if (rc != MPI_SUCCESS) return CKPT_E_SYSTEM;
    rc = callers(back.job, VID_COMM_WORLD, &f, CKPT_VID_INDEX(VID_COMM_WORLD));
    facts_free(&f);
    return rc;
}

// ---- making again ----

// A communicator of members (world ranks in order), made by them alone.
static int make_intra(const int *world, int n, MPI_Comm *comm) {
    MPI_Group group;
    int rc = MPI_Group_incl(back.world, n, world, &group);
    if (rc != MPI_SUCCESS) return rc;
    rc = MPI_Comm_create_group(back.control, group, 1, comm);
    MPI_Group_free(&group);
    return rc;
}

static int add_topology(struct reader *r, int topology, MPI_Comm *comm) {
    MPI_Comm with = MPI_COMM_NULL;
    int rc = MPI_ERR_ARG;
    if (topology == CANON_CART) {
        int n = get(r);
        const int *dims = get_ints(r, n), *periods = get_ints(r, n);
        if (!r->failed) rc = MPI_Cart_create(*comm, n, dims, periods, 0, &with);
    } else if (topology == CANON_GRAPH) {
        int nodes = get(r), edges = get(r);
        const int *index = get_ints(r, nodes), *edge = get_ints(r, edges);
        if (!r->failed) rc = MPI_Graph_create(*comm, nodes, index, edge, 0, &with);
    } else if (topology == CANON_DIST_GRAPH) {
        int in = get(r), out = get(r), weighted = get(r);
        const int *sources = get_ints(r, in), *sw = get_ints(r, in);
        const int *dests = get_ints(r, out), *dw = get_ints(r, out);
        if (!r->failed)
            rc = MPI_Dist_graph_create_adjacent(*comm, in, sources,
                                                !weighted ? MPI_UNWEIGHTED
                                                : in      ? sw
                                                          : MPI_WEIGHTS_EMPTY,
                                                out, dests,
                                                !weighted ? MPI_UNWEIGHTED
                                                : out     ? dw
                                                          : MPI_WEIGHTS_EMPTY,
                                                MPI_INFO_NULL, 0, &with);
    } else {
        return MPI_SUCCESS;
    }
    if (rc == MPI_SUCCESS) {
        MPI_Comm_free(comm);
        *comm = with;
    }
    return rc;
}

static int make_again(ckpt_vid vid, struct reader *r, int kind, uint64_t *real) {
    int inter = kind & ~OF_REQUEST, topology = get(r);
    uint64_t identity = get64(r);
    int n = get(r);
    const int *local = get_ints(r, n);
    int m = get(r);
    const int *remote = get_ints(r, m);
    if (r->failed || n < 1 || (inter && m < 1)) return CKPT_E_CORRUPT;
    MPI_Comm comm = MPI_COMM_NULL;
    int rc = make_intra(local, n, &comm);
    if (rc == MPI_SUCCESS && inter) {
        MPI_Comm half = comm;
        rc = MPI_Intercomm_create(half, 0, back.control, remote[0], 2, &comm);
        MPI_Comm_free(&half);
    }
    if (rc == MPI_SUCCESS) rc = add_topology(r, topology, &comm);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    struct facts f;
    if (rc == MPI_SUCCESS) rc = facts_of(comm, VID_COMM_NULL, &f);
    if (rc == MPI_SUCCESS && !(kind & OF_REQUEST)) rc = back_above.comm_made(vid, comm);
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "making a communicator of %d members again", n + m);
        return CKPT_E_SYSTEM;
    }
    rc = reach(back.job, vid, &f, identity);
    facts_free(&f);
    *real = TO_REAL(comm);
    return rc ? CKPT_E_CORRUPT : 0;
}

int back_rebuild_comm(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real) {
    struct reader r = reader_of(descriptor, bytes);
    int kind = get(&r);
    if (!r.failed && (kind == NOT_MADE || kind & OF_REQUEST)) {
        *real = TO_REAL(MPI_COMM_NULL);
        return kind == NOT_MADE ? 0 : back_above.own_comm_saved(vid, descriptor, bytes);
    }
    return make_again(vid, &r, kind, real);
}

int back_own_comm_again(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real) {
    struct reader r = reader_of(descriptor, bytes);
    int kind = get(&r);
    return make_again(vid, &r, kind, real);
}

// ---- of persistent requests ----

uint64_t back_own_comm_members(const void *descriptor, size_t bytes, int *members) {
    struct reader r = reader_of(descriptor, bytes);
    int kind = get(&r);
    get(&r);
    uint64_t identity = get64(&r);
    *members = get(&r);
    get_ints(&r, *members);
    *members += get(&r);
    return r.failed || !(kind & OF_REQUEST) ? 0 : identity;
}

int back_is_own_comm(ckpt_vid vid) {
    int32_t head[2];
    return CKPT_VID_INDEX(vid) >= CKPT_VID_PREDEFINED &&
           ckpt_vid_descriptor(back.job, vid, head, sizeof head) >= (long)sizeof head &&
           head[1] & OF_REQUEST && head[1] != NOT_MADE;
}
