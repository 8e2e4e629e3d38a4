// SPDX-License-Identifier: Apache-2.0
//
// bsend.c: buffered sends: ordinary sends of a packed copy.
//
// The real MPI would do the same, but a thread that detaches the buffer would wait inside the real MPI, where
// it cannot be held.  Here that wait is a loop in which the thread can be held.  The copies are in memory of
// our own; the size of the attached buffer limits them.  The real MPI knows the attached buffer too, so that
// attaching and detaching return what they would without libckpt.
#include <limits.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "back/impl/counts.h"
#include "back/impl/error.h"
#include "back/impl/lock.h"
#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/message/bsend.h"
#include "back/message/sync.h"
#include "back/request/done.h"
#include "back/request/wait.h"

// What a message takes beside its bytes: the smaller MPI_BSEND_OVERHEAD of the MPIs that programs are built
// for. So what fits into a buffer without libckpt also fits here.
enum { OVERHEAD = 96 };
// Open MPI sends a message that its transports take at once without a buffer.
#if defined(OPEN_MPI)
enum { UNBUFFERED = 4000 };
#else
enum { UNBUFFERED = -1 };
#endif

// Where a message goes.
struct target {
    ckpt_vid comm;
    long dest, tag;
};

struct buffered {
    TAILQ_ENTRY(buffered) others;
    MPI_Request request;
    struct target to;
    int64_t room;
    char data[];
};

static TAILQ_HEAD(, buffered) buffered = TAILQ_HEAD_INITIALIZER(buffered); // the oldest first
static int64_t taken;                                                      // of the attached buffer

// Forgets sends that are complete; all: not only the oldest ones.
static void reap_locked(int all) {
    for (struct buffered *b = TAILQ_FIRST(&buffered), *next; b != NULL; b = next) {
        next = TAILQ_NEXT(b, others);
        int flag = 0, rc = MPI_Test(&b->request, &flag, MPI_STATUS_IGNORE);
        if (!flag && rc == MPI_SUCCESS) {
            if (!all) return;
            continue;
        }
        TAILQ_REMOVE(&buffered, b, others);
        taken -= b->room;
        free(b);
    }
}

// The error of wrong arguments: the real MPI checks all of them, and sends nothing.
static int refusal(const long *a) {
    ARGS(Send) p = (const void *)a;
    MPI_Request r;
    int rc = MPI_Send_init(real_buf(p->buf), p->count, real_type(p->datatype), real_rank(p->dest),
                           real_tag(p->tag), real_comm(p->comm), &r);
    if (rc == MPI_SUCCESS) MPI_Request_free(&r);
    return rc;
}

// Takes so much of the attached buffer, if there is so much.
static int take_room(int64_t room) {
    back_lock(LOCK_BUFFERED);
    reap_locked(0);
    if (taken + room > back.state->bsend_bytes) reap_locked(1);
    int fits = taken + room <= back.state->bsend_bytes;
    if (fits) taken += room;
    back_unlock(LOCK_BUFFERED);
    return fits;
}

// Packs the message into b and sends it from there; room in the attached buffer is taken already.
static int pack_and_send(const long *a, int bytes, struct buffered *b) {
    ARGS(Send) p = (const void *)a;
    MPI_Comm comm = real_comm(p->comm);
    int at = 0, rc = MPI_Pack(real_buf(p->buf), p->count, real_type(p->datatype), b->data, bytes, &at, comm);
    if (rc == MPI_SUCCESS)
        rc = MPI_Isend(b->data, at, MPI_PACKED, real_rank(p->dest), real_tag(p->tag), comm, &b->request);
    return rc;
}

// Packs and sends a message that takes so much room; gives the room back when that fails.
static int send_copy(const long *a, int bytes, int64_t room) {
    ARGS(Send) p = (const void *)a;
    struct buffered *b = malloc(sizeof *b + (size_t)bytes);
    int rc = b == NULL ? MPI_ERR_NO_MEM : pack_and_send(a, bytes, b);
    back_lock(LOCK_BUFFERED);
    if (rc == MPI_SUCCESS) {
        b->to = (struct target){p->comm, p->dest, p->tag};
        b->room = room;
        TAILQ_INSERT_TAIL(&buffered, b, others);
    } else {
        taken -= room;
        free(b);
    }
    back_unlock(LOCK_BUFFERED);
    return rc;
}

static int send_copied(const long *a) {
    ARGS(Send) p = (const void *)a;
    uint64_t size = back_slot(CKPT_KIND_DATATYPE, p->datatype)->extra;
    int bytes = 0, rc = MPI_SUCCESS;
    if (CKPT_VID_INDEX(p->datatype) >= CKPT_VID_PREDEFINED || p->count < 0)
        rc = refusal(a); // packing would accept a datatype that is not committed
    if (rc == MPI_SUCCESS && p->count > 0 && size > (uint64_t)INT_MAX / (uint64_t)p->count)
        rc = MPI_ERR_BUFFER; // more than any buffer can have
    if (rc == MPI_SUCCESS) rc = MPI_Pack_size(p->count, real_type(p->datatype), real_comm(p->comm), &bytes);
    int64_t room = bytes <= UNBUFFERED ? 0 : (int64_t)bytes + OVERHEAD;
    if (rc == MPI_SUCCESS) rc = take_room(room) ? send_copy(a, bytes, room) : MPI_ERR_BUFFER;
    if (rc == MPI_SUCCESS) return rc;
    int wrong = refusal(a);
    return wrong == MPI_SUCCESS ? rc : wrong;
}

// buf, count, type, dest, tag, comm
static int send_buffered(const long *a) {
    ARGS(Send) p = (const void *)a;
    if (p->dest == CANON_PROC_NULL) return refusal(a);
    back_sync_count(p->comm, p->dest, p->tag);
    int rc = send_copied(a);
    if (rc == MPI_SUCCESS)
        back_count_sent(back_slot(CKPT_KIND_COMM, p->comm), p->dest);
    else
        back_sync_uncount(p->comm, p->dest, p->tag);
    return rc;
}

int back_buffered_request(const long *a, MPI_Request *request) {
    struct back_done ready = {0};
    int rc = back_done_begin(&ready);
    if (rc == MPI_SUCCESS) rc = send_buffered(a);
    if (rc == MPI_SUCCESS) *request = back_done_end(&ready, &canon_empty, MPI_SUCCESS);
    back_done_drop(&ready);
    return rc;
}

long back_Bsend(const long *a) { return back_error(send_buffered(a)); }

long back_Ibsend(const long *a) {
    ARGS(Ibsend) p = (const void *)a;
    MPI_Request r;
    ckpt_vid v = back_take_request();
    int rc = v == CKPT_VID_NONE ? MPI_ERR_NO_MEM : back_buffered_request(a, &r);
    if (rc == MPI_SUCCESS) {
        back_set_request(v, r, REQUEST_SEND | REQUEST_DONE, p->dest, p->comm);
        *p->request = v;
    } else if (v != CKPT_VID_NONE) {
        back_give_id(CKPT_KIND_REQUEST, v);
    }
    return back_error(rc);
}

// One turn of waiting; 0 when all buffered sends on comm are complete.
static int waits_for(ckpt_vid comm, struct target *t) {
    back_lock(LOCK_BUFFERED);
    reap_locked(1);
    const struct buffered *b = TAILQ_FIRST(&buffered);
    while (b != NULL && comm != CKPT_VID_NONE && b->to.comm != comm) b = TAILQ_NEXT(b, others);
    if (b != NULL) *t = b->to;
    back_unlock(LOCK_BUFFERED);
    return b != NULL;
}

void back_buffered_wait(ckpt_vid comm, const char *call) {
    struct back_waiting w;
    struct target t = {comm, CANON_PROC_NULL, CANON_ANY_TAG};
    unsigned turn = 0;
    if (__atomic_load_n(&TAILQ_FIRST(&buffered), __ATOMIC_ACQUIRE) == NULL) return;
    for (; waits_for(comm, &t); turn = back_next(turn)) {
        back_slow(turn, &w, CKPT_WAIT_RECEIVER, call, t.comm, t.dest, t.tag);
        back_turn(turn);
    }
    back_over(turn, &w);
}

void back_buffered_gone(ckpt_vid comm) {
    back_lock(LOCK_BUFFERED);
    struct buffered *b;
    TAILQ_FOREACH(b, &buffered, others) {
        if (b->to.comm == comm) b->to.comm = VID_COMM_NULL;
    }
    back_unlock(LOCK_BUFFERED);
}

int back_buffered_left(void) {
    int n = 0;
    back_lock(LOCK_BUFFERED);
    reap_locked(1);
    const struct buffered *b;
    TAILQ_FOREACH(b, &buffered, others) n++;
    back_unlock(LOCK_BUFFERED);
    return n;
}

// ---- the buffer ----

long back_Buffer_attach(const long *a) {
    ARGS(Buffer_attach) p = (const void *)a;
    int rc = MPI_Buffer_attach(p->buffer, p->size);
    if (rc == MPI_SUCCESS) {
        back.state->bsend_buffer = p->buffer;
        back.state->bsend_bytes = p->size;
    }
    return back_error(rc);
}

long back_Buffer_detach(const long *a) {
    ARGS(Buffer_detach) p = (const void *)a;
    back_buffered_wait(CKPT_VID_NONE, "MPI_Buffer_detach");
    int rc = MPI_Buffer_detach(p->buffer, p->size);
    if (rc == MPI_SUCCESS) back.state->bsend_bytes = 0;
    return back_error(rc);
}
