/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c: completing several requests at once.
 */
#include <stdlib.h>

#include "front.h"

ckpt_vid *front_vids(ckpt_vid *small, int count) {
    return count <= FRONT_SMALL ? small : front_alloc((size_t)count * sizeof(ckpt_vid));
}

/* One call on an array of requests: their ids, canonical statuses, and the way back. */
struct batch {
    int n, want; /* requests; whether the application wants statuses */
    ckpt_vid *vids;
    ckpt_mpi_status *statuses; /* NULL unless wanted */
    ckpt_vid small_vids[FRONT_SMALL];
    ckpt_mpi_status small_statuses[FRONT_SMALL];
};

static void begin(struct batch *b, int n, const MPI_Request *requests, int want) {
    b->n = n > 0 ? n : 0;
    b->vids = front_vids(b->small_vids, b->n);
    b->statuses = NULL;
    if (want)
        b->statuses = b->n <= FRONT_SMALL ? b->small_statuses
                                          : front_alloc((size_t)b->n * sizeof *b->statuses);
    for (int i = 0; i < b->n; i++)
        b->vids[i] = in_request(requests[i]);
}

/* Writes handles back; those that did not change are not touched. */
static void end(struct batch *b, MPI_Request *requests) {
    for (int i = 0; i < b->n; i++) {
        MPI_Request r = out_request(b->vids[i]);
        if (requests[i] != r)
            requests[i] = r;
    }
    front_vids_done(b->vids, b->small_vids);
    if (b->statuses != NULL && b->statuses != b->small_statuses)
        free(b->statuses);
}

static void put_statuses(struct batch *b, int n, MPI_Status *statuses, int errors) {
    for (int i = 0; i < n; i++) {
        out_status(&b->statuses[i], &statuses[i]);
        if (errors)
            statuses[i].MPI_ERROR = front_code(b->statuses[i].error);
    }
}

static int in_status_error(long rc) { return (rc & 0xff) == CANON_ERRCLASS_ERR_IN_STATUS; }

static int result(long rc, unsigned fn) {
    return rc ? front_error(FRONT_COMM, VID_COMM_WORLD, fn, rc) : MPI_SUCCESS;
}

FRONT(int, Waitall, (int count, MPI_Request *requests, MPI_Status *statuses)) {
    struct batch b;
    begin(&b, count, requests, is_status(statuses));
    long a[] = {count, (long)b.vids, (long)b.statuses};
    long rc = front_call(CKPT_FN_MPI_WAITALL, a);
    if (b.statuses != NULL && (rc == 0 || in_status_error(rc)))
        put_statuses(&b, b.n, statuses, rc != 0);
    end(&b, requests);
    return result(rc, CKPT_FN_MPI_WAITALL);
}

FRONT(int, Testall, (int count, MPI_Request *requests, int *flag, MPI_Status *statuses)) {
    struct batch b;
    begin(&b, count, requests, is_status(statuses));
    long a[] = {count, (long)b.vids, (long)flag, (long)b.statuses};
    long rc = front_call(CKPT_FN_MPI_TESTALL, a);
    if (b.statuses != NULL && *flag && (rc == 0 || in_status_error(rc)))
        put_statuses(&b, b.n, statuses, rc != 0);
    end(&b, requests);
    return result(rc, CKPT_FN_MPI_TESTALL);
}

/* Index results: MPI_UNDEFINED is the same number everywhere. */

FRONT(int, Waitany, (int count, MPI_Request *requests, int *index, MPI_Status *status)) {
    struct batch b;
    ckpt_mpi_status s;
    begin(&b, count, requests, 0);
    long a[] = {count, (long)b.vids, (long)index, (long)&s};
    long rc = front_call(CKPT_FN_MPI_WAITANY, a);
    if (rc == 0 && is_status(status))
        out_status(&s, status);
    end(&b, requests);
    return result(rc, CKPT_FN_MPI_WAITANY);
}

FRONT(int, Testany, (int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)) {
    struct batch b;
    ckpt_mpi_status s;
    begin(&b, count, requests, 0);
    long a[] = {count, (long)b.vids, (long)index, (long)flag, (long)&s};
    long rc = front_call(CKPT_FN_MPI_TESTANY, a);
    if (rc == 0 && *flag && is_status(status))
        out_status(&s, status);
    end(&b, requests);
    return result(rc, CKPT_FN_MPI_TESTANY);
}

static int some(unsigned fn, int incount, MPI_Request *requests, int *outcount, int *indices,
                MPI_Status *statuses) {
    struct batch b;
    begin(&b, incount, requests, is_status(statuses));
    long a[] = {incount, (long)b.vids, (long)outcount, (long)indices, (long)b.statuses};
    long rc = front_call(fn, a);
    if (b.statuses != NULL && *outcount != MPI_UNDEFINED && (rc == 0 || in_status_error(rc)))
        put_statuses(&b, *outcount, statuses, rc != 0);
    end(&b, requests);
    return result(rc, fn);
}

FRONT(int, Waitsome,
      (int incount, MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses)) {
    return some(CKPT_FN_MPI_WAITSOME, incount, requests, outcount, indices, statuses);
}

FRONT(int, Testsome,
      (int incount, MPI_Request *requests, int *outcount, int *indices, MPI_Status *statuses)) {
    return some(CKPT_FN_MPI_TESTSOME, incount, requests, outcount, indices, statuses);
}

FRONT(int, Startall, (int count, MPI_Request *requests)) {
    struct batch b;
    begin(&b, count, requests, 0);
    long a[] = {count, (long)b.vids};
    long rc = front_call(CKPT_FN_MPI_STARTALL, a);
    end(&b, requests);
    return result(rc, CKPT_FN_MPI_STARTALL);
}
