// SPDX-License-Identifier: Apache-2.0
//
// persist.c: persistent sends and receives.  Nothing is sent before MPI_Start.
#include <stdlib.h>

#include "back/impl/counts.h"
#include "back/impl/error.h"
#include "back/impl/special.h"
#include "back/impl/status.h"
#include "back/message/blocking.h"
#include "back/message/bsend.h"
#include "back/message/drained.h"
#include "back/message/persist.h"
#include "back/message/sync.h"
#include "back/request/done.h"
#include "back/request/posted.h"
#include "back/request/wait.h"

typedef int init_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

int back_make_persistent(const struct persistent *p, MPI_Request *r) {
    static init_fn *const init[] = {MPI_Send_init, MPI_Bsend_init, MPI_Ssend_init, MPI_Rsend_init};
    const long *a = p->a;
    if (p->mode == 0)
        return MPI_Recv_init((void *)a[0], (int)a[1], real_type(a[2]), real_rank(a[3]), real_tag(a[4]),
                             real_comm(a[5]), r);
    return init[p->mode - 1](real_buf(a[0]), (int)a[1], real_type(a[2]), real_rank(a[3]), real_tag(a[4]),
                             real_comm(a[5]), r);
}

static long init_request(const long *a, int mode) {
    ARGS(Send_init) args = (const void *)a;
    MPI_Request r;
    struct persistent *p = calloc(1, sizeof *p);
    if (p == NULL) return CANON_ERR(NO_MEM);
    p->mode = mode;
    memcpy(p->a, a, sizeof p->a);
    ckpt_slot *type = back_slot(CKPT_KIND_DATATYPE, args->datatype);
    p->type_generation = type->generation;
    p->comm_generation = back_slot(CKPT_KIND_COMM, args->comm)->generation;
    int rc = back_make_persistent(p, &r);
    if (rc != MPI_SUCCESS) {
        free(p);
        return back_error(rc);
    }
    int flags = (mode == 0 ? REQUEST_RECV : mode == 3 ? REQUEST_SEND | REQUEST_SYNC : REQUEST_SEND);
    long canon = back_new_request(r, flags | REQUEST_PERSISTENT, args->dest, args->comm, args->request);
    if (canon == 0) {
        back_slot(CKPT_KIND_REQUEST, *args->request)->extra = (uint64_t)(uintptr_t)p;
        back_receives_with(type);
    } else {
        MPI_Request_free(&r);
        free(p);
    }
    return canon;
}

long back_Send_init(const long *a) { return init_request(a, 1); }
long back_Bsend_init(const long *a) { return init_request(a, PERSISTENT_BSEND); }
long back_Ssend_init(const long *a) { return init_request(a, 3); }
long back_Rsend_init(const long *a) { return init_request(a, 4); }
long back_Recv_init(const long *a) { return init_request(a, 0); }

// Starts a receive whose message may have been drained: *taken says that it was.  The real MPI's code.
static int start_drained(ckpt_slot *s, struct persistent *p, int *taken) {
    const struct back_take take = {
        (void *)p->a[0], (int)p->a[1], real_type(p->a[2]), p->a[3], p->a[4], p->a[5], NULL, NULL};
    struct back_done ready = {0};
    ckpt_mpi_status st;
    int rc;
    if (!back_drained_probe(p->a[3], p->a[4], p->a[5], &st)) return MPI_SUCCESS;
    MPI_Message message;
    int began = back_done_begin(&ready);
    if (began != MPI_SUCCESS) return began;
    *taken = back_drained_recv(&take, &st, &rc, &message);
    if (*taken && message != MPI_MESSAGE_NULL) {
        MPI_Request r;
        MPI_Status real;
        rc = MPI_Imrecv(take.buf, take.count, take.type, &message, &r);
        if (rc == MPI_SUCCESS) rc = back_wait_real(&r, &real);
        if (rc == MPI_SUCCESS) canon_status(&real, &st);
        if (back_took(rc)) back_count_received(back_slot(CKPT_KIND_COMM, s->clock), &real);
    }
    if (*taken) {
        p->real = s->real;
        s->real = TO_REAL(back_done_end(&ready, &st, rc));
        s->a |= REQUEST_ACTIVE | REQUEST_DONE;
    }
    back_done_drop(&ready);
    return MPI_SUCCESS;
}

int back_message_start(ckpt_vid v, ckpt_slot *s) {
    MPI_Request r = real_of(s);
    struct persistent *p = persistent_of(s);
    if (__builtin_expect(back.drained, 0) && (s->a & REQUEST_KIND) == REQUEST_RECV && p != NULL) {
        int taken = 0, rc = start_drained(s, p, &taken);
        if (taken || rc != MPI_SUCCESS) return rc;
    }
    if ((s->a & REQUEST_KIND) == REQUEST_SEND && p != NULL && p->mode == PERSISTENT_BSEND) {
        p->real = s->real;
        int rc = back_buffered_request(p->a, &r);
        if (rc == MPI_SUCCESS) {
            s->real = TO_REAL(r);
            s->a |= REQUEST_ACTIVE | REQUEST_DONE;
        }
        return rc;
    }
    int send = (s->a & REQUEST_KIND) == REQUEST_SEND && p != NULL;
    if (send) back_sync_count((long)s->clock, s->b, p->a[4]);
    int rc = MPI_Start(&r);
    if (rc != MPI_SUCCESS && send) back_sync_uncount((long)s->clock, s->b, p->a[4]);
    if (rc == MPI_SUCCESS) {
        s->real = TO_REAL(r);
        s->a |= REQUEST_ACTIVE;
        if (send) back_count_sent(back_slot(CKPT_KIND_COMM, s->clock), s->b);
        if (send && s->a & REQUEST_SYNC)
            back_sync_began(s, p->a[4]);
        else if ((s->a & REQUEST_KIND) == REQUEST_RECV && p != NULL)
            back_posted(v, p->a, back_slot(CKPT_KIND_DATATYPE, p->a[2]),
                        back_slot(CKPT_KIND_COMM, p->a[5])); // its place among the receives that are posted
    }
    return rc;
}
