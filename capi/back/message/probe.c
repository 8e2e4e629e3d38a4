// SPDX-License-Identifier: Apache-2.0
//
// probe.c: messages that are looked at before they are received.
#include <stdlib.h>

#include "back/impl/counts.h"
#include "back/impl/error.h"
#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/message/drained.h"
#include "back/request/done.h"
#include "back/request/wait.h"

// MPICH's probes leave the bit of a status that says "cancelled" as they find it, so ours begin as zeros.
long back_Iprobe(const long *a) {
    ARGS(Iprobe) p = (const void *)a;
    MPI_Status st = {.MPI_TAG = 0};
    ckpt_mpi_status drained;
    if (back_pending()) back_attend();
    if (__builtin_expect(back.drained, 0) && back_drained_probe(p->source, p->tag, p->comm, &drained)) {
        *p->flag = 1;
        give_canon(&drained, p->status);
        return 0;
    }
    int rc = MPI_Iprobe(real_rank(p->source), real_tag(p->tag), real_comm(p->comm), p->flag, &st);
    if (rc == MPI_SUCCESS && *p->flag) give_status(&st, p->status);
    return back_error(rc);
}

long back_Probe(const long *a) {
    ARGS(Probe) p = (const void *)a;
    int flag = 0;
    long rc, b[] = {p->source, p->tag, p->comm, (long)&flag, p->status};
    struct back_waiting w;
    unsigned turn = 0;
    for (; (rc = back_Iprobe(b)) == 0 && !flag; turn = back_next(turn)) {
        back_slow(turn, &w, CKPT_WAIT_MESSAGE, "MPI_Probe", p->comm, p->source, p->tag);
        back_turn(turn);
    }
    back_over(turn, &w);
    return rc;
}

// Slots of messages: clock: communicator, extra: struct drained.
static void set_message(ckpt_vid v, long comm, struct drained *m) {
    ckpt_slot *s = back_slot(CKPT_KIND_MESSAGE, v);
    s->clock = (ckpt_vid)comm;
    s->extra = (uint64_t)(uintptr_t)m;
}

// Matches a message of the real MPI, and keeps the message under the id v.  *flag is 0 when there is none,
// *id 0 when it is from MPI_PROC_NULL.  A matched message can only be received, so all memory is taken
// before.
static long match(const long *a, ckpt_vid v, int *flag, ckpt_vid *id) {
    ARGS(Improbe) p = (const void *)a;
    MPI_Message m = MPI_MESSAGE_NULL;
    MPI_Status st = {.MPI_TAG = 0};
    struct drained *d = back_matched_begin();
    if (d == NULL) return CANON_ERR(NO_MEM);
    int rc = MPI_Improbe(real_rank(p->source), real_tag(p->tag), real_comm(p->comm), flag, &m, &st);
    if (rc != MPI_SUCCESS || !*flag) {
        back_matched_drop(d);
        return back_error(rc);
    }
    give_status(&st, p->status);
    if (m == MPI_MESSAGE_NO_PROC) {
        *id = VID_MESSAGE_NO_PROC;
        back_matched_drop(d);
        return 0;
    }
    back_matched_end(d, m, &st, p->comm);
    set_message(v, p->comm, d);
    *id = v;
    return 0;
}

long back_Improbe(const long *a) {
    ARGS(Improbe) p = (const void *)a;
    ckpt_mpi_status canon;
    int *flag = p->flag;
    ckpt_vid *id = p->message;
    *id = VID_MESSAGE_NULL;
    *flag = 0;
    if (back_pending()) back_attend();
    ckpt_vid v = back_take_id(CKPT_KIND_MESSAGE);
    if (v == CKPT_VID_NONE) return CANON_ERR(NO_MEM);
    set_message(v, VID_COMM_NULL, NULL);
    struct drained *d = NULL;
    if (__builtin_expect(back.drained, 0) &&
        (d = back_drained_match(p->source, p->tag, p->comm, &canon)) != NULL) {
        *flag = 1;
        give_canon(&canon, p->status);
        set_message(v, p->comm, d);
        *id = v;
        return 0;
    }
    long rc = match(a, v, flag, id);
    if (*id != v) back_give_id(CKPT_KIND_MESSAGE, v);
    return rc;
}

long back_Mprobe(const long *a) {
    ARGS(Mprobe) p = (const void *)a;
    int flag = 0;
    long rc, b[] = {p->source, p->tag, p->comm, (long)&flag, (long)p->message, p->status};
    struct back_waiting w;
    unsigned turn = 0;
    for (; (rc = back_Improbe(b)) == 0 && !flag; turn = back_next(turn)) {
        back_slow(turn, &w, CKPT_WAIT_MESSAGE, "MPI_Mprobe", p->comm, p->source, p->tag);
        back_turn(turn);
    }
    back_over(turn, &w);
    return rc;
}

// Whether a matched message is in memory of ours.
static int is_drained(ckpt_vid message) {
    const ckpt_slot *s = back_slot(CKPT_KIND_MESSAGE, message);
    return CKPT_VID_INDEX(message) >= CKPT_VID_PREDEFINED && s != back.tables->pages[CKPT_KIND_MESSAGE][0] &&
           back_drained_has(back_matched_of(s));
}

// Starts to receive a matched message, and gives its id back; *comm gets its communicator.  A drained message
// is received at once: *done is 1, and st is the status.
static int imrecv(const long *a, MPI_Request *r, ckpt_vid *comm, int *done, ckpt_mpi_status *st) {
    ARGS(Imrecv) p = (const void *)a;
    ckpt_vid *vid = p->message;
    ckpt_slot *s = back_slot(CKPT_KIND_MESSAGE, *vid);
    int rc, given_out = CKPT_VID_INDEX(*vid) >= CKPT_VID_PREDEFINED;
    struct drained *d = given_out ? back_matched_of(s) : NULL;
    MPI_Message m = d != NULL ? MPI_MESSAGE_NULL : (MPI_Message)(uintptr_t)s->real;
    *comm = given_out ? s->clock : VID_COMM_NULL;
    *done = d != NULL && back_drained_mrecv(d, (void *)p->buf, p->count, real_type(p->datatype), st, &rc);
    if (!*done) {
        if (d != NULL) m = d->message;
        rc = MPI_Imrecv((void *)p->buf, p->count, real_type(p->datatype), &m, r);
        if (rc != MPI_SUCCESS) return rc;
        if (d != NULL) back_drained_give(d);
    }
    if (given_out) back_give_id(CKPT_KIND_MESSAGE, *vid);
    *vid = VID_MESSAGE_NULL;
    return rc;
}

long back_Mrecv(const long *a) {
    ARGS(Mrecv) p = (const void *)a;
    MPI_Request r;
    MPI_Status st;
    ckpt_vid comm;
    ckpt_mpi_status canon;
    int done, rc = imrecv(a, &r, &comm, &done, &canon);
    if (!done && rc == MPI_SUCCESS) {
        rc = back_wait_real(&r, &st);
        if (comm != VID_COMM_NULL && back_took(rc)) back_count_received(back_slot(CKPT_KIND_COMM, comm), &st);
        give_status(&st, p->status);
    } else if (done) {
        give_canon(&canon, p->status);
    }
    return back_error(rc);
}

long back_Imrecv(const long *a) {
    ARGS(Imrecv) p = (const void *)a;
    MPI_Request r;
    struct back_done ready = {0};
    ckpt_vid comm, v = back_take_request();
    ckpt_mpi_status canon;
    int done, rc = MPI_ERR_NO_MEM;
    if (v != CKPT_VID_NONE) rc = is_drained(*p->message) ? back_done_begin(&ready) : MPI_SUCCESS;
    if (rc != MPI_SUCCESS) {
        if (v != CKPT_VID_NONE) back_give_id(CKPT_KIND_REQUEST, v);
        return back_error(rc);
    }
    rc = imrecv(a, &r, &comm, &done, &canon);
    if (!done && rc != MPI_SUCCESS) {
        back_give_id(CKPT_KIND_REQUEST, v);
        return back_error(rc);
    }
    if (done) r = back_done_end(&ready, &canon, rc);
    back_set_request(v, r, REQUEST_RECV | (done ? REQUEST_DONE : REQUEST_MATCHED), 0, comm);
    *p->request = v;
    return 0;
}
