// SPDX-License-Identifier: Apache-2.0
//
// request.c: completing several requests at once.
#include <stdlib.h>

#include "front/front.h"

ckpt_vid *front_vids(ckpt_vid *small, int count) {
    return count <= FRONT_SMALL ? small : front_alloc((size_t)count * sizeof(ckpt_vid));
}

// One call on an array of requests: their ids, and the way back.
struct batch {
    int n;
    ckpt_vid *vids;
    ckpt_vid small_vids[FRONT_SMALL];
};

static void begin(struct batch *b, int n, const MPI_Request *requests) {
    b->n = n > 0 ? n : 0;
    b->vids = front_vids(b->small_vids, b->n);
    for (int i = 0; i < b->n; i++) b->vids[i] = in_request(requests[i]);
}

// Writes handles back; those that did not change are not touched.
static void end(struct batch *b, MPI_Request *requests) {
    for (int i = 0; i < b->n; i++) {
        MPI_Request r = out_request(b->vids[i]);
        if (requests[i] != r) requests[i] = r;
    }
    front_vids_done(b->vids, b->small_vids);
}

// After a call whose error is in one of n statuses: converts our codes there to those of the ABI.  Returns the
// index of the first status with an error; 0 when no status has one.
static int errors(MPI_Status *statuses, int n, long rc) {
    int first = n;
    if (!is_status(statuses) || (rc & 0xff) != CANON_ERRCLASS_ERR_IN_STATUS) return 0;
    for (int i = n - 1; i >= 0; i--) {
        first = statuses[i].MPI_ERROR ? i : first;
        statuses[i].MPI_ERROR = front_code(statuses[i].MPI_ERROR);
    }
    return first < n ? first : 0;
}

// Raises the error on the object that a request belongs, or belonged, to: a slot still has this object when it
// is free again.
static int owner_error(ckpt_vid request, unsigned fn, long rc) {
    uint32_t index = CKPT_VID_INDEX(request);
    const ckpt_slot *page = CKPT_VID_KIND(request) == CKPT_KIND_REQUEST
                                ? CKPT_GATE->tables->pages[CKPT_KIND_REQUEST][index / CKPT_PAGE_SLOTS]
                                : NULL;
    if (page == NULL || index < CKPT_VID_PREDEFINED) return front_error(FRONT_COMM, VID_COMM_WORLD, fn, rc);
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

// Ends a call on several requests; its error is that of the request with index failed.
static int finish(struct batch *b, MPI_Request *requests, long rc, unsigned fn, int failed) {
    ckpt_vid was = rc != 0 && failed >= 0 && failed < b->n ? in_request(requests[failed]) : VID_REQUEST_NULL;
    end(b, requests);
    return rc ? owner_error(was, fn, rc) : MPI_SUCCESS;
}

FRONT(int, Waitall, (int count, MPI_Request *requests, MPI_Status *statuses)) {
    struct batch b;
    begin(&b, count, requests);
    const struct Waitall_words a = {.count = count, .requests = b.vids, .statuses = out_status(statuses)};
    long rc = front_call(CKPT_FN_MPI_WAITALL, &a);
    return finish(&b, requests, rc, CKPT_FN_MPI_WAITALL, errors(statuses, b.n, rc));
}

FRONT(int, Testall, (int count, MPI_Request *requests, int *flag, MPI_Status *statuses)) {
    struct batch b;
    begin(&b, count, requests);
    const struct Testall_words a = {
        .count = count, .requests = b.vids, .flag = flag, .statuses = out_status(statuses)};
    long rc = front_call(CKPT_FN_MPI_TESTALL, &a);
    return finish(&b, requests, rc, CKPT_FN_MPI_TESTALL, errors(statuses, b.n, rc));
}

// Results that are indices need no conversion: MPI_UNDEFINED is the same number in all ABIs.

FRONT(int, Waitany, (int count, MPI_Request *requests, int *index, MPI_Status *status)) {
    struct batch b;
    begin(&b, count, requests);
    const struct Waitany_words a = {
        .count = count, .requests = b.vids, .index = index, .status = out_status(status)};
    long rc = front_call(CKPT_FN_MPI_WAITANY, &a);
    return finish(&b, requests, rc, CKPT_FN_MPI_WAITANY, *index);
}

FRONT(int, Testany, (int count, MPI_Request *requests, int *index, int *flag, MPI_Status *status)) {
    if (count == 1) { // in inner loops
        ckpt_vid v = in_request(*requests);
        const struct Testany_words a = {
            .count = 1, .requests = &v, .index = index, .flag = flag, .status = out_status(status)};
        long rc = front_call(CKPT_FN_MPI_TESTANY, &a);
        if (__builtin_expect(rc != 0, 0)) return front_request_error(requests, v, CKPT_FN_MPI_TESTANY, rc);
        MPI_Request r = out_request(v);
        if (*requests != r) *requests = r;
        return MPI_SUCCESS;
    }
    struct batch b;
    begin(&b, count, requests);
    const struct Testany_words a = {
        .count = count, .requests = b.vids, .index = index, .flag = flag, .status = out_status(status)};
    long rc = front_call(CKPT_FN_MPI_TESTANY, &a);
    return finish(&b, requests, rc, CKPT_FN_MPI_TESTANY, *index);
}

static int some(unsigned fn, int incount, MPI_Request *requests, int *outcount, int *indices,
                MPI_Status *statuses) {
    struct batch b;
    begin(&b, incount, requests);
    const struct Waitsome_words a = {.incount = incount,
                                     .requests = b.vids,
                                     .outcount = outcount,
                                     .indices = indices,
                                     .statuses = out_status(statuses)};
    long rc = front_call(fn, &a);
    int failed = *outcount > 0 ? indices[errors(statuses, *outcount, rc)] : 0;
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
    begin(&b, count, requests);
    const struct Startall_words a = {.count = count, .requests = b.vids};
    long rc = front_call(CKPT_FN_MPI_STARTALL, &a);
    return finish(&b, requests, rc, CKPT_FN_MPI_STARTALL, 0);
}
