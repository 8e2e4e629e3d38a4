// SPDX-License-Identifier: Apache-2.0
//
// grequest.c: generalized requests: the real MPI below has them, and calls the application's
// functions from there.
#include <stdlib.h>

#include "front/front.h"

typedef int query_fn(void *extra, MPI_Status *status);
typedef int free_fn(void *extra);
typedef int cancel_fn(void *extra, int complete);
typedef void query_f(void *extra, MPI_Fint *status, MPI_Fint *ierr);
typedef void free_f(void *extra, MPI_Fint *ierr);
typedef void cancel_f(void *extra, MPI_Fint *complete, MPI_Fint *ierr);

struct grequest {
    void *query, *free, *cancel, *extra;
    int fortran;
};

// The lower half calls this for each of the three functions.
static long thunk(struct grequest *g, int what, ckpt_mpi_status *status, int complete) {
    int rc = MPI_SUCCESS;
    if (what == CANON_GREQUEST_QUERY) {
        MPI_Status s = {.MPI_ERROR = MPI_SUCCESS};
        status_put(status_word(FRONT_ABI, &s), status);
        if (g->fortran)
            ((query_f *)g->query)(g->extra, (MPI_Fint *)&s, &rc);
        else
            rc = ((query_fn *)g->query)(g->extra, &s);
        *status = (ckpt_mpi_status){in_rank(s.MPI_SOURCE), in_tag(s.MPI_TAG), 0, status_cancelled(&s),
                                    status_bytes(&s)};
    } else if (what == CANON_GREQUEST_CANCEL) {
        if (g->fortran)
            ((cancel_f *)g->cancel)(g->extra, &complete, &rc);
        else
            rc = ((cancel_fn *)g->cancel)(g->extra, complete);
    } else {
        if (g->fortran)
            ((free_f *)g->free)(g->extra, &rc);
        else
            rc = ((free_fn *)g->free)(g->extra);
        free(g);
    }
    return front_canon(rc);
}

static __thread struct grequest *latest; // the last that this thread started

FRONT(int, Grequest_start,
      (void *query, void *free_request, void *cancel, void *extra_state, MPI_Request *request)) {
    struct grequest *g = front_alloc(sizeof *g);
    *g = (struct grequest){query, free_request, cancel, extra_state, 0};
    ckpt_vid v = VID_REQUEST_NULL;
    ckpt_mpi_grequest_thunk *f = (ckpt_mpi_grequest_thunk *)thunk;
    const struct Grequest_start_words a = {.object = g, .thunk = f, .request = &v};
    long rc = front_call(CKPT_FN_MPI_GREQUEST_START, &a);
    if (rc != 0) {
        free(g);
        return front_error(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_GREQUEST_START, rc);
    }
    latest = g;
    *request = out_request(v);
    return MPI_SUCCESS;
}

void front_grequest_fortran(void) {
    if (latest != NULL) latest->fortran = 1;
}
