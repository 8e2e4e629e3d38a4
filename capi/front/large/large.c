// SPDX-License-Identifier: Apache-2.0
//
// large.c: counts and arrays of functions with large counts, and how long they live.
#include "front/large/large.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/queue.h>

// ---- arrays ----

static void room(struct front_large *w, int arrays) {
    size_t most = (size_t)(w->out > w->in ? w->out : w->in);
    w->ints = front_alloc(((size_t)arrays * most + 1) * sizeof *w->ints);
}

void front_large_begin(struct front_large *w, MPI_Comm comm, enum front_blocks blocks, int arrays) {
    if (blocks == FRONT_BLOCKS_LOCAL) {
        w->rc = PMPI_Comm_size(comm, &w->in);
        w->out = w->in;
    } else {
        w->rc = front_blocks(comm, blocks == FRONT_BLOCKS_NEIGHBORS, &w->out, &w->in);
    }
    if (w->rc == MPI_SUCCESS) room(w, arrays);
}

int front_large_matters(MPI_Comm comm, int root, int at_root) {
    int inter = 0, rank = 0;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &rank);
    return inter ? (at_root ? in_rank(root) == CANON_ROOT : root >= 0) : !at_root || root == rank;
}

void front_large_rooted(struct front_large *w, MPI_Comm comm, int root, int arrays) {
    int inter;
    w->rc = PMPI_Comm_test_inter(comm, &inter); // is it a communicator at all
    if (w->rc == MPI_SUCCESS && front_large_matters(comm, root, 1))
        w->rc = front_blocks(comm, 0, &w->out, &w->in);
    if (w->rc == MPI_SUCCESS) room(w, arrays);
}

const int *front_large_ints(struct front_large *w, const MPI_Count *v, int n) {
    if (w->rc != MPI_SUCCESS) return NULL;
    int *to = w->ints + w->used;
    for (int i = 0; i < n; i++) to[i] = front_large_int(w, v[i]);
    w->used += (size_t)n;
    return to;
}

// ---- one element instead of many ----

int front_large_block(struct front_large *w, MPI_Count count, MPI_Datatype *type) {
    MPI_Datatype many;
    if (w->rc == MPI_SUCCESS) w->rc = PMPI_Type_contiguous_c(count, *type, &many);
    if (w->rc != MPI_SUCCESS) return 0;
    w->types[w->ntypes++] = many;
    w->rc = PMPI_Type_commit(&many);
    *type = many;
    return 1;
}

// ---- until the request is complete ----
// The memory of a request is freed when the request's id is found free, or given to another request
// here.  A search is made when twice as many requests have memory as after the last search.

struct kept {
    LIST_ENTRY(kept) others;
    ckpt_vid request;
    struct front_large w;
};
LIST_HEAD(kept_list, kept);
static struct kept_list kept = LIST_HEAD_INITIALIZER(kept);
static unsigned nkept, look = 64;

static void release(struct front_large *w) {
    free(w->ints);
    for (int i = 0; i < w->ntypes; i++) PMPI_Type_free(&w->types[i]);
}

// Moves those to old whose request has ended, or is the given one.
static void take_old(struct kept_list *old, ckpt_vid request, int all) {
    for (struct kept *k = LIST_FIRST(&kept), *next; k != NULL; k = next) {
        next = LIST_NEXT(k, others);
        if (k->request != request &&
            !(all && front_is_null(CKPT_KIND_REQUEST,
                                   ckpt_vid_slot(CKPT_GATE->tables, CKPT_KIND_REQUEST, k->request))))
            continue;
        LIST_REMOVE(k, others);
        LIST_INSERT_HEAD(old, k, others);
        nkept--;
    }
}

static void keep(const struct front_large *w, ckpt_vid request) {
    struct kept_list old = LIST_HEAD_INITIALIZER(old);
    struct kept *k = front_alloc(sizeof *k);
    *k = (struct kept){.request = request, .w = *w};
    front_lock();
    int all = nkept >= look;
    take_old(&old, request, all);
    if (all) look = nkept < 32 ? 64 : 2 * nkept;
    LIST_INSERT_HEAD(&kept, k, others);
    nkept++;
    front_unlock();
    while ((k = LIST_FIRST(&old)) != NULL) {
        LIST_REMOVE(k, others);
        release(&k->w);
        free(k);
    }
}

int front_large_end_slow(struct front_large *w, int rc, const MPI_Request *request) {
    if (rc == MPI_SUCCESS && request != NULL)
        keep(w, in_request(*request));
    else
        release(w);
    return rc;
}

int front_large_refuse(struct front_large *w, int sort, ckpt_vid object, unsigned fn) {
    int rc = w->rc;
    release(w);
    return rc != MPI_SUCCESS ? rc : front_too_large(sort, object, fn);
}
