// SPDX-License-Identifier: Apache-2.0
//
// file_order.c: non-blocking collective operations on one file are completed one at a time, in the order
// in which they were started.  That order is the same on all ranks.
//
// ROMIO drives such an operation when its request is tested, and uses the same buffers and tags for all
// operations on a file.  If two operations are tested in turn, or in different orders on two ranks, they mix
// their data or wait for ever.  So a test of one request first tests the earlier ones until they are
// complete. A request that became complete this way stays as a done request until the application asks for
// it.
#include <stdlib.h>

#include "back/file/file.h"
#include "back/impl/lock.h"
#include "back/request/done.h"

// An operation that was started.  It is over when its id has another generation, or its request is
// REQUEST_DONE.
struct started {
    struct started *next;
    ckpt_vid request;
    uint32_t generation;
};

void file_ordered(struct file *f, ckpt_vid request) {
    struct started *e = malloc(sizeof *e);
    ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, request);
    if (e == NULL) // the request is tested like any other; only the order is lost
        return;
    *e = (struct started){NULL, request, s->generation};
    back_lock(LOCK_FILES);
    struct started **end = &f->started;
    while (*end != NULL) end = &(*end)->next;
    *end = e;
    s->a |= REQUEST_ORDERED;
    back_unlock(LOCK_FILES);
}

void file_unordered(struct file *f) {
    for (struct started *e; (e = f->started) != NULL;) {
        f->started = e->next;
        free(e);
    }
}

// The first operation that is not over; NULL: none.
static ckpt_slot *first(struct file *f) {
    for (struct started *e; (e = f->started) != NULL;) {
        ckpt_slot *s = back_slot(CKPT_KIND_REQUEST, e->request);
        if (s->generation == e->generation && s->a & REQUEST_ORDERED && !(s->a & REQUEST_DONE)) return s;
        f->started = e->next;
        free(e);
    }
    return NULL;
}

static int test_locked(ckpt_slot *s, int *flag, MPI_Status *status) {
    struct file *f = back_file_of(s->clock);
    for (ckpt_slot *before; f != NULL && !(s->a & REQUEST_DONE) && (before = first(f)) != NULL;) {
        MPI_Request r = real_of(before);
        MPI_Status st, *to = before == s ? status : &st;
        struct back_done ready = {0};
        if (before != s && back_done_begin(&ready) != MPI_SUCCESS)
            return MPI_SUCCESS; // this one waits until there is memory for the earlier one's status
        int rc = MPI_Test(&r, flag, to);
        if (!*flag && rc == MPI_SUCCESS) {
            back_done_drop(&ready);
            return rc;
        }
        if (before == s) {
            s->a &= ~REQUEST_ORDERED; // the real request is gone
            return rc;
        }
        before->real = TO_REAL(r);
        back_request_done(before, &st, rc, &ready);
        back_done_drop(&ready);
        *flag = 0;
    }
    MPI_Request r = real_of(s);
    return MPI_Test(&r, flag, status);
}

int file_test(ckpt_slot *s, int *flag, MPI_Status *status) {
    back_lock(LOCK_FILES);
    *flag = 0;
    int rc = test_locked(s, flag, status);
    back_unlock(LOCK_FILES);
    return rc;
}
