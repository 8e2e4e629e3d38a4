// SPDX-License-Identifier: Apache-2.0
//
// p2p.c: messages.  A blocking call is the non-blocking one and back_wait, so that a thread is
// never held inside the real MPI.
//
// Bookmarks: a message counts as sent when its send is posted, as received when its receive is
// complete; the difference is what the network holds.
#include <limits.h>
#include <stdlib.h>

#include "back/image/drain.h"
#include "back/image/sync.h"

long back_Wait(const long *a);

typedef int isend_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

// buf, count, type, dest, tag, comm
static inline __attribute__((always_inline)) long send(const long *a, isend_fn *isend, const char *call,
                                                       struct back_sync *sync) {
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, a[5]);
    int dest = real_rank(a[3]);
    MPI_Request r;
    back_sync_count(a[5], a[3], a[4]);
    int rc = isend(real_buf(a[0]), (int)a[1], real_type(a[2]), dest, real_tag(a[4]),
                   (MPI_Comm)(uintptr_t)comm->real, &r);
    if (rc != MPI_SUCCESS) {
        back_sync_uncount(a[5], a[3], a[4]);
        return back_error(rc);
    }
    back_count_sent(comm, (int)a[3]);
    if (sync != NULL) back_sync_begin(sync, a[5], a[3], a[4]);
    return back_error(back_wait_send(&r, a + 3, sync, call, a[5], a[4]));
}

// ..., request
static inline __attribute__((always_inline)) long start_send(const long *a, isend_fn *isend, int flags) {
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, a[5]);
    ckpt_vid v = back_take_request();
    MPI_Request r;
    if (__builtin_expect(v == CKPT_VID_NONE, 0)) return CANON_ERR(NO_MEM);
    back_sync_count(a[5], a[3], a[4]);
    int rc = isend(real_buf(a[0]), (int)a[1], real_type(a[2]), real_rank(a[3]), real_tag(a[4]),
                   (MPI_Comm)(uintptr_t)comm->real, &r);
    if (__builtin_expect(rc != MPI_SUCCESS, 0)) {
        back_give_id(CKPT_KIND_REQUEST, v);
        back_sync_uncount(a[5], a[3], a[4]);
        return back_error(rc);
    }
    back_count_sent(comm, (int)a[3]);
    back_set_request(v, r, REQUEST_SEND | flags, (int)a[3], (ckpt_vid)a[5]);
    *(ckpt_vid *)a[6] = v;
    return 0;
}

// Persistent: nothing is sent before MPI_Start.
int back_make_persistent(const struct persistent *p, MPI_Request *r) {
    static isend_fn *const init[] = {MPI_Send_init, MPI_Bsend_init, MPI_Ssend_init, MPI_Rsend_init};
    const long *a = p->a;
    if (p->mode == 0)
        return MPI_Recv_init((void *)a[0], (int)a[1], real_type(a[2]), real_rank(a[3]), real_tag(a[4]),
                             real_comm(a[5]), r);
    return init[p->mode - 1](real_buf(a[0]), (int)a[1], real_type(a[2]), real_rank(a[3]), real_tag(a[4]),
                             real_comm(a[5]), r);
}

static long init_request(const long *a, int mode) {
    MPI_Request r;
    struct persistent *p = calloc(1, sizeof *p);
    if (p == NULL) return CANON_ERR(NO_MEM);
    p->mode = mode;
    memcpy(p->a, a, sizeof p->a);
    ckpt_slot *type = back_slot(CKPT_KIND_DATATYPE, a[2]);
    p->type_generation = type->generation;
    p->comm_generation = back_slot(CKPT_KIND_COMM, a[5])->generation;
    int rc = back_make_persistent(p, &r);
    if (rc != MPI_SUCCESS) {
        free(p);
        return back_error(rc);
    }
    int flags = (mode == 0 ? REQUEST_RECV : mode == 3 ? REQUEST_SEND | REQUEST_SYNC : REQUEST_SEND);
    long canon = back_new_request(r, flags | REQUEST_PERSISTENT, (int)a[3], (ckpt_vid)a[5], (ckpt_vid *)a[6]);
    if (canon == 0) {
        back_slot(CKPT_KIND_REQUEST, *(ckpt_vid *)a[6])->extra = (uint64_t)(uintptr_t)p;
        back_receives_with(type);
    } else {
        MPI_Request_free(&r);
        free(p);
    }
    return canon;
}

long back_Send(const long *a) { return send(a, MPI_Isend, "MPI_Send", NULL); }
long back_Send_init(const long *a) { return init_request(a, 1); }
long back_Bsend_init(const long *a) { return init_request(a, PERSISTENT_BSEND); }
long back_Rsend(const long *a) { return send(a, MPI_Irsend, "MPI_Rsend", NULL); }
long back_Rsend_init(const long *a) { return init_request(a, 4); }
long back_Ssend_init(const long *a) { return init_request(a, 3); }

long back_Ssend(const long *a) {
    struct back_sync sync = {0};
    long rc = 0;
    if (a[3] != BACK_AWAITED) {
        rc = send(a, MPI_Issend, "MPI_Ssend", &sync);
        back_sync_end(&sync);
    }
    if (__builtin_expect(a[3] == BACK_AWAITED, 0)) {
        ckpt_vid request = (ckpt_vid)a[4];
        const long wait[] = {(long)&request, 0};
        rc = back_Wait(wait);
    }
    return rc;
}

long back_Isend(const long *a) { return start_send(a, MPI_Isend, 0); }
long back_Issend(const long *a) {
    long rc = start_send(a, MPI_Issend, REQUEST_SYNC);
    if (rc == 0) back_sync_began(back_slot(CKPT_KIND_REQUEST, *(ckpt_vid *)a[6]), a[4]);
    return rc;
}
long back_Irsend(const long *a) { return start_send(a, MPI_Irsend, 0); }

long back_Recv(const long *a) {
    const struct back_take take = {(void *)a[0], (int)a[1], real_type(a[2]), a[3], a[4],
                                   a[5],         NULL,      "MPI_Recv"};
    return back_take(&take, a[6]);
}

// A request for a message that was drained; 0 when there is none.
static int recv_drained(const long *a, ckpt_vid v, long *canon) {
    const struct back_take take = {(void *)a[0], (int)a[1], real_type(a[2]), a[3], a[4], a[5], NULL, NULL};
    struct back_done ready = {0};
    ckpt_mpi_status st;
    MPI_Message message;
    MPI_Request r;
    int rc;
    if (!back_drained_probe(a[3], a[4], a[5], &st)) return 0;
    *canon = back_error(back_done_begin(&ready));
    if (*canon != 0) return 1;
    if (!back_drained_recv(&take, &st, &rc, &message)) { // another thread has it
        back_done_drop(&ready);
        return 0;
    }
    if (message == MPI_MESSAGE_NULL) {
        back_set_request(v, back_done_end(&ready, &st, rc), REQUEST_RECV | REQUEST_DONE, (int)a[3],
                         (ckpt_vid)a[5]);
    } else {
        back_done_drop(&ready);
        *canon = back_error(MPI_Imrecv(take.buf, take.count, take.type, &message, &r));
        if (*canon != 0) return 1;
        back_set_request(v, r, REQUEST_RECV | REQUEST_MATCHED, (int)a[3], (ckpt_vid)a[5]);
    }
    *(ckpt_vid *)a[6] = v;
    return 1;
}

long back_Irecv(const long *a) {
    MPI_Request r;
    long canon = 0;
    ckpt_vid v = back_take_request();
    if (__builtin_expect(v == CKPT_VID_NONE, 0)) return CANON_ERR(NO_MEM);
    if (__builtin_expect(back.drained, 0) && recv_drained(a, v, &canon)) {
        if (canon != 0) back_give_id(CKPT_KIND_REQUEST, v);
        return canon;
    }
    ckpt_slot *type = back_slot(CKPT_KIND_DATATYPE, a[2]);
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, a[5]);
    int rc = MPI_Irecv((void *)a[0], (int)a[1], (MPI_Datatype)(uintptr_t)type->real, real_rank(a[3]),
                       real_tag(a[4]), (MPI_Comm)(uintptr_t)comm->real, &r);
    if (__builtin_expect(rc != MPI_SUCCESS, 0)) {
        back_give_id(CKPT_KIND_REQUEST, v);
        return back_error(rc);
    }
    back_set_request(v, r, REQUEST_RECV, (int)a[3], (ckpt_vid)a[5]);
    *(ckpt_vid *)a[6] = v;
    if (BACK_COUNTS) back_posted(v, a, type, comm);
    return 0;
}

long back_Recv_init(const long *a) { return init_request(a, 0); }

// Both halves.  The send is posted first: whether a receive may be taken from the drained messages
// is asked afterwards.  args are the call's own, where its destination, source and status stand.
static long sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, long sendtag,
                     const struct back_take *what, const long *dest, const long *source, const long *status) {
    const ckpt_slot *comm = back_slot(CKPT_KIND_COMM, what->comm);
    MPI_Request s;
    back_sync_count(what->comm, *dest, sendtag);
    int rc = MPI_Isend(sendbuf, sendcount, sendtype, real_rank(*dest), real_tag(sendtag),
                       (MPI_Comm)(uintptr_t)comm->real, &s);
    if (rc != MPI_SUCCESS) {
        back_sync_uncount(what->comm, *dest, sendtag);
        return back_error(rc);
    }
    back_count_sent(comm, (int)*dest);
    struct back_held h = {NULL, &s, (long *)dest, NULL, NULL};
    struct back_take take = *what;
    take.send = &h;
    long canon = back_take(&take, *status);
    // Issued again, the call has only its send left.
    *(long *)source = CANON_PROC_NULL;
    *(long *)status = 0;
    rc = canon == 0 ? back_wait_send(&s, dest, NULL, what->call, what->comm, sendtag)
                    : back_wait(&s, MPI_STATUS_IGNORE);
    return canon ? canon : back_error(rc);
}

long back_Sendrecv(const long *a) {
    const struct back_take take = {(void *)a[5], (int)a[6], real_type(a[7]), a[8], a[9],
                                   a[10],        NULL,      "MPI_Sendrecv"};
    return sendrecv((void *)a[0], (int)a[1], real_type(a[2]), a[4], &take, a + 3, a + 8, a + 11);
}

// The outgoing message is packed first, which frees the buffer for the incoming one.
long back_Sendrecv_replace(const long *a) {
    MPI_Datatype type = real_type(a[2]);
    MPI_Comm comm = real_comm(a[7]);
    int bytes = 0, at = 0;
    int rc = MPI_Pack_size((int)a[1], type, comm, &bytes);
    if (rc != MPI_SUCCESS) return back_error(rc);
    char *packed = malloc(bytes ? (size_t)bytes : 1);
    if (packed == NULL) return CANON_ERR(NO_MEM);
    rc = MPI_Pack((void *)a[0], (int)a[1], type, packed, bytes, &at, comm);
    const struct back_take take = {(void *)a[0], (int)a[1], type, a[5],
                                   a[6],         a[7],      NULL, "MPI_Sendrecv_replace"};
    long canon = rc == MPI_SUCCESS ? sendrecv(packed, at, MPI_PACKED, a[4], &take, a + 3, a + 5, a + 8)
                                   : back_error(rc);
    free(packed);
    return canon;
}

// ---- probes ----

long back_Iprobe(const long *a) {
    MPI_Status st;
    ckpt_mpi_status drained;
    if (back_pending()) back_attend();
    if (__builtin_expect(back.drained, 0) && back_drained_probe(a[0], a[1], a[2], &drained)) {
        *(int *)a[3] = 1;
        give_canon(&drained, a[4]);
        return 0;
    }
    int rc = MPI_Iprobe(real_rank(a[0]), real_tag(a[1]), real_comm(a[2]), (int *)a[3], &st);
    if (rc == MPI_SUCCESS && *(int *)a[3]) give_status(&st, a[4]);
    return back_error(rc);
}

long back_Probe(const long *a) {
    int flag = 0;
    long rc, b[] = {a[0], a[1], a[2], (long)&flag, a[3]};
    struct back_waiting w;
    unsigned turn = 0;
    for (; (rc = back_Iprobe(b)) == 0 && !flag; turn = back_next(turn)) {
        back_slow(turn, &w, CKPT_WAIT_MESSAGE, "MPI_Probe", a[2], a[0], a[1]);
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

// Matches a message of the real MPI, and keeps it as v; *flag is 0 when there is none, *id when it is from
// nobody.  A message that is matched can only be received, so all memory is taken before.
static long match(const long *a, ckpt_vid v, int *flag, ckpt_vid *id) {
    MPI_Message m = MPI_MESSAGE_NULL;
    MPI_Status st;
    struct drained *d = back_matched_begin();
    if (d == NULL) return CANON_ERR(NO_MEM);
    int rc = MPI_Improbe(real_rank(a[0]), real_tag(a[1]), real_comm(a[2]), flag, &m, &st);
    if (rc != MPI_SUCCESS || !*flag) {
        back_matched_drop(d);
        return back_error(rc);
    }
    give_status(&st, a[5]);
    if (m == MPI_MESSAGE_NO_PROC) {
        *id = VID_MESSAGE_NO_PROC;
        back_matched_drop(d);
        return 0;
    }
    back_matched_end(d, m, &st, a[2]);
    set_message(v, a[2], d);
    *id = v;
    return 0;
}

long back_Improbe(const long *a) {
    ckpt_mpi_status canon;
    int *flag = (int *)a[3];
    ckpt_vid *id = (ckpt_vid *)a[4];
    *id = VID_MESSAGE_NULL;
    *flag = 0;
    if (back_pending()) back_attend();
    ckpt_vid v = back_take_id(CKPT_KIND_MESSAGE);
    if (v == CKPT_VID_NONE) return CANON_ERR(NO_MEM);
    set_message(v, VID_COMM_NULL, NULL);
    struct drained *d = NULL;
    if (__builtin_expect(back.drained, 0) && (d = back_drained_match(a[0], a[1], a[2], &canon)) != NULL) {
        *flag = 1;
        give_canon(&canon, a[5]);
        set_message(v, a[2], d);
        *id = v;
        return 0;
    }
    long rc = match(a, v, flag, id);
    if (*id != v) back_give_id(CKPT_KIND_MESSAGE, v);
    return rc;
}

long back_Mprobe(const long *a) {
    int flag = 0;
    long rc, b[] = {a[0], a[1], a[2], (long)&flag, a[3], a[4]};
    struct back_waiting w;
    unsigned turn = 0;
    for (; (rc = back_Improbe(b)) == 0 && !flag; turn = back_next(turn)) {
        back_slow(turn, &w, CKPT_WAIT_MESSAGE, "MPI_Mprobe", a[2], a[0], a[1]);
        back_turn(turn);
    }
    back_over(turn, &w);
    return rc;
}

// Whether a matched message is in memory of ours.
static int is_drained(ckpt_vid message) {
    const ckpt_slot *s = back_slot(CKPT_KIND_MESSAGE, message);
    return CKPT_VID_INDEX(message) >= CKPT_VID_PREDEFINED && s != back.tables->pages[CKPT_KIND_MESSAGE][0] &&
           back_drained_has((const struct drained *)(uintptr_t)s->extra);
}

// Starts to receive a matched message; its id is gone then.  comm receives its communicator.  A
// drained one is received at once: *done is 1, and st its status.
static int imrecv(const long *a, MPI_Request *r, ckpt_vid *comm, int *done, ckpt_mpi_status *st) {
    ckpt_vid *vid = (ckpt_vid *)a[3];
    ckpt_slot *s = back_slot(CKPT_KIND_MESSAGE, *vid);
    int rc, given_out = CKPT_VID_INDEX(*vid) >= CKPT_VID_PREDEFINED;
    struct drained *d = given_out ? (struct drained *)(uintptr_t)s->extra : NULL;
    MPI_Message m = d != NULL ? MPI_MESSAGE_NULL : (MPI_Message)(uintptr_t)s->real;
    *comm = given_out ? s->clock : VID_COMM_NULL;
    *done = d != NULL && back_drained_mrecv(d, (void *)a[0], (int)a[1], real_type(a[2]), st, &rc);
    if (!*done) {
        if (d != NULL) m = d->message;
        rc = MPI_Imrecv((void *)a[0], (int)a[1], real_type(a[2]), &m, r);
        if (rc != MPI_SUCCESS) return rc;
        if (d != NULL) back_drained_give(d);
    }
    if (given_out) back_give_id(CKPT_KIND_MESSAGE, *vid);
    *vid = VID_MESSAGE_NULL;
    return rc;
}

long back_Mrecv(const long *a) {
    MPI_Request r;
    MPI_Status st;
    ckpt_vid comm;
    ckpt_mpi_status canon;
    int done, rc = imrecv(a, &r, &comm, &done, &canon);
    if (!done && rc == MPI_SUCCESS) {
        rc = back_wait(&r, &st);
        if (comm != VID_COMM_NULL && back_took(rc)) back_count_received(back_slot(CKPT_KIND_COMM, comm), &st);
        give_status(&st, a[4]);
    } else if (done) {
        give_canon(&canon, a[4]);
    }
    return back_error(rc);
}

long back_Imrecv(const long *a) {
    MPI_Request r;
    struct back_done ready = {0};
    ckpt_vid comm, v = back_take_request();
    ckpt_mpi_status canon;
    int done, rc = MPI_ERR_NO_MEM;
    if (v != CKPT_VID_NONE) rc = is_drained(*(ckpt_vid *)a[3]) ? back_done_begin(&ready) : MPI_SUCCESS;
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
    *(ckpt_vid *)a[4] = v;
    return 0;
}

// ---- counts ----

long back_Get_elements_x(const long *a) {
    MPI_Status own = {.MPI_TAG = 0}, *s = &own;
    int rc = MPI_SUCCESS;
    if (status_form(a[0]) == STATUS_REAL)
        s = status_at(a[0]);
    else
        rc = MPI_Status_set_elements_x(s, MPI_BYTE, status_get_bytes(a[0]));
    if (rc == MPI_SUCCESS) rc = MPI_Get_elements_x(s, real_type(a[1]), (MPI_Count *)a[2]);
    if (rc == MPI_SUCCESS && *(MPI_Count *)a[2] == MPI_UNDEFINED) *(MPI_Count *)a[2] = CANON_UNDEFINED;
    return back_error(rc);
}

long back_Get_elements(const long *a) {
    MPI_Count n;
    long b[] = {a[0], a[1], (long)&n};
    long rc = back_Get_elements_x(b);
    if (rc == 0) *(int *)a[2] = n > INT_MAX || n == CANON_UNDEFINED ? CANON_UNDEFINED : (int)n;
    return rc;
}
