// SPDX-License-Identifier: Apache-2.0
//
// grequest.c: generalized requests of the application.
//
// For each the real MPI has a generalized request too, whose functions call the front, which calls the
// application's.  The application completes the request in its own time, by means that nobody else knows:
// until then the request holds a checkpoint back.  A complete request that nobody has waited for is made
// again, and completed, by a restart.
#include <stdlib.h>

#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/request/grequest.h"

struct below {
    void *upper; // the front's object
    ckpt_mpi_grequest_thunk *thunk;
    ckpt_vid vid;
};

static long up(const struct below *b, int what, ckpt_mpi_status *status, int complete) {
    const long args[6] = {(long)b->upper, what, (long)status, complete};
    return ckpt_upcall(back.job, (void *)b->thunk, args);
}

static int to_real(long canon) { return canon == 0 ? MPI_SUCCESS : back_real_class((int)canon); }

static int query(void *state, MPI_Status *status) {
    ckpt_mpi_status s = canon_empty;
    long rc = up(state, CANON_GREQUEST_QUERY, &s, 0);
    MPI_Status_set_elements_x(status, MPI_BYTE, s.bytes);
    MPI_Status_set_cancelled(status, s.cancelled);
    status->MPI_SOURCE = real_rank(s.source);
    status->MPI_TAG = real_tag(s.tag);
    return to_real(rc);
}

static int cancel(void *state, int complete) {
    return to_real(up(state, CANON_GREQUEST_CANCEL, NULL, complete));
}

static int release(void *state) {
    struct below *b = state;
    int rc = to_real(up(b, CANON_GREQUEST_FREE, NULL, 0));
    free(b);
    return rc;
}

// Starts the real generalized request for slot s, of id vid.
static int start(ckpt_slot *s, ckpt_vid vid, void *upper, void *thunk) {
    struct back_grequest *again = malloc(sizeof *again);
    struct below *b = malloc(sizeof *b);
    MPI_Request r;
    int rc = MPI_ERR_NO_MEM;
    if (again != NULL && b != NULL) {
        *again = (struct back_grequest){upper, thunk};
        *b = (struct below){upper, (ckpt_mpi_grequest_thunk *)thunk, vid};
        rc = MPI_Grequest_start(query, release, cancel, b, &r);
    }
    if (rc != MPI_SUCCESS) {
        free(again);
        free(b);
        return rc;
    }
    s->real = TO_REAL(r);
    s->extra = (uint64_t)(uintptr_t)again;
    return rc;
}

// the front's object, its thunk, id out
long back_Grequest_start(const long *a) {
    ARGS(Grequest_start) p = (const void *)a;
    ckpt_vid vid;
    long canon = back_new_request(MPI_REQUEST_NULL, REQUEST_GENERALIZED, 0, VID_COMM_NULL, &vid);
    if (canon != 0) return canon;
    int rc = start(back_slot(CKPT_KIND_REQUEST, vid), vid, p->object, p->thunk);
    if (rc != MPI_SUCCESS)
        ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, vid, back.shared);
    else
        *p->request = vid;
    return back_error(rc);
}

long back_Grequest_complete(const long *a) {
    ARGS(Grequest_complete) p = (const void *)a;
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, p->request);
    if (!(s->generation & 1) || !(s->a & REQUEST_GENERALIZED) || s->a & REQUEST_ENDED)
        return CANON_ERR(REQUEST);
    MPI_Request r = real_of(s);
    if (s->a & REQUEST_FREED) { // by MPI_Request_free, which left the rest to us
        free(back_grequest_of(s));
        ckpt_vid_give(back.tables, CKPT_KIND_REQUEST, p->request, back.shared);
    } else {
        s->a |= REQUEST_ENDED;
    }
    return back_error(MPI_Grequest_complete(r));
}

int back_grequest_again(ckpt_slot *s, ckpt_vid vid, void *upper, void *thunk) {
    int rc = start(s, vid, upper, thunk);
    if (rc == MPI_SUCCESS) rc = MPI_Grequest_complete(real_of(s));
    if (rc == MPI_SUCCESS) return 0;
    back_fail(rc, "making a generalized request again");
    return CKPT_E_SYSTEM;
}
