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

/* The object that a request belongs, or belonged, to: its slot still says so when it is free again. */
static int owner_error(ckpt_vid request, unsigned fn, long rc) {
    uint32_t index = CKPT_VID_INDEX(request);
    const ckpt_slot *page = CKPT_VID_KIND(request) == CKPT_KIND_REQUEST
                                ? CKPT_GATE->tables->pages[CKPT_KIND_REQUEST][index / CKPT_PAGE_SLOTS]
                                : NULL;
    if (page == NULL || index < CKPT_VID_PREDEFINED)
        return front_error(FRONT_COMM, VID_COMM_WORLD, fn, rc);
    ckpt_vid owner = page[index % CKPT_PAGE_SLOTS].clock;
    int sort = CKPT_VID_KIND(owner) == CKPT_KIND_FILE  ? FRONT_FILE
               : CKPT_VID_KIND(owner) == CKPT_KIND_WIN ? FRONT_WIN
                                                       : FRONT_COMM;
    return front_error(sort, owner, fn, rc);
}

int front_request_error(MPI_Request *request, ckpt_vid now, unsigned fn, long rc) {
    ckpt_vid was = in_request(*request);
    *request = out_request(now);
    return owner_error(was, fn, rc);
}

/* Which of the first n statuses has an error; 0 when they do not tell. */
static int first_error(const struct batch *b, int n, long rc) {
    if (b->statuses != NULL && in_status_error(rc))
        for (int i = 0; i < n; i++)
            if (b->statuses[i].error != 0)
                return i;
    return 0;
}

/* Ends a call on several requests, whose error is that of one of them. */
static int finish(struct batch *b, MPI_Request *requests, long rc, unsigned fn, int failed) {
    ckpt_vid was = rc != 0 && failed >= 0 && failed < b->n ? in_request(requests[failed])
                                                           : VID_REQUEST_NULL;
    end(b, requests);
    return rc ? owner_error(was, fn, rc) : MPI_SUCCESS;
}

FRONT(int, Waitall, (int count, MPI_Request *requests, MPI_Status *statuses)) {
    struct batch b;
    begin(&b, count, requests, is_status(statuses));
    long a[] = {count, (long)b.vids, (long)b.statuses};
    long rc = front_call(CKPT_FN_MPI_WAITALL, a);
    if (b.statuses != NULL && (rc == 0 || in_status_error(rc)))
        put_statuses(&b, b.n, statuses, rc != 0);
    return finish(&b, requests, rc, CKPT_FN_MPI_WAITALL, first_error(&b, b.n, rc));
}

FRONT(int, Testall, (int count, MPI_Request *requests, int *flag, MPI_Status *statuses)) {
    struct batch b;
    begin(&b, count, requests, is_status(statuses));
    long a[] = {count, (long)b.vids, (long)flag, (long)b.statuses};
    long rc = front_call(CKPT_FN_MPI_TESTALL, a);
    if (b.statuses != NULL && *flag && (rc == 0 || in_status_error(rc)))
        put_statuses(&b, b.n, statuses, rc != 0);
    return finish(&b, requests, rc, CKPT_FN_MPI_TESTALL, first_error(&b, b.n, rc));
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
    return finish(&b, requests, rc, CKPT_FN_MPI_WAITANY, *index);
}

FRONT(int, Testany, (int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)) {
    struct batch b;
    ckpt_mpi_status s;
    begin(&b, count, requests, 0);
    long a[] = {count, (long)b.vids, (long)index, (long)flag, (long)&s};
    long rc = front_call(CKPT_FN_MPI_TESTANY, a);
    if (rc == 0 && *flag && is_status(status))
        out_status(&s, status);
    return finish(&b, requests, rc, CKPT_FN_MPI_TESTANY, *index);
}

static int some(unsigned fn, int incount, MPI_Request *requests, int *outcount, int *indices,
                MPI_Status *statuses) {
    struct batch b;
    begin(&b, incount, requests, is_status(statuses));
    long a[] = {incount, (long)b.vids, (long)outcount, (long)indices, (long)b.statuses};
    long rc = front_call(fn, a);
    if (b.statuses != NULL && *outcount != MPI_UNDEFINED && (rc == 0 || in_status_error(rc)))
        put_statuses(&b, *outcount, statuses, rc != 0);
    int failed = *outcount > 0 ? indices[first_error(&b, *outcount, rc)] : 0;
    return finish(&b, requests, rc, fn, failed);
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
    return finish(&b, requests, rc, CKPT_FN_MPI_STARTALL, 0);
}
