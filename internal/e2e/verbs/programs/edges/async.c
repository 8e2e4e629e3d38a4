// SPDX-License-Identifier: Apache-2.0
//
// async.c: asynchronous events. Each is told once, and an object is there until its events are given back.
#include "edges.h"

#include <stdatomic.h>

static struct ibv_qp *pair_of(struct ibv_srq *srq) {
    struct ibv_qp_init_attr init = {.qp_context = srq,
                                    .send_cq = sends,
                                    .recv_cq = receives,
                                    .srq = srq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {1, 0, 1, 0, 0}};
    if (!(qp = ibv_create_qp(pd, &init))) wrong("no queue pair");
    begin_pair();
    return qp;
}

// A queue pair with a shared queue that is flushed says so.
static void flush(struct ibv_qp *one) {
    good(ibv_modify_qp(one, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR}, IBV_QP_STATE), "ERR");
}

static struct ibv_async_event flushed_is(const struct ibv_qp *one, const char *which) {
    struct ibv_async_event e;
    good(ibv_get_async_event(context, &e), "get_async_event");
    if (e.event_type != IBV_EVENT_QP_LAST_WQE_REACHED || e.element.qp != one)
        wrong("event %d of %s", e.event_type, which);
    return e;
}

static int is_event(void) {
    struct pollfd p = {.fd = context->async_fd, .events = POLLIN};
    return poll(&p, 1, 0);
}

static atomic_int destroyed;

static void *destroy(void *one) {
    good(ibv_destroy_qp(one), "destroy_qp");
    atomic_store(&destroyed, 1);
    return NULL;
}

// Looks at each event until it is told that it has the last one.
static void *look(void *srq) {
    struct ibv_async_event e;
    do {
        good(ibv_get_async_event(context, &e), "get_async_event");
        if (e.element.qp->qp_context != srq) wrong("an event of what is destroyed");
        ibv_ack_async_event(&e);
    } while (!atomic_load(&destroyed));
    return NULL;
}

// A thread takes events while another destroys what they are of. LATE_READ holds it between its read and its look.
void looked(void) {
    enum { PAIRS = 20 };
    struct ibv_srq *srq = shared_queue();
    pthread_t looks;
    good(pthread_create(&looks, NULL, look, srq), "pthread_create");
    for (int i = 0; i < PAIRS; i++) {
        struct ibv_qp *one = pair_of(srq);
        flush(one);
        nap();
        good(ibv_destroy_qp(one), "destroy_qp");
        nap();
    }
    atomic_store(&destroyed, 1);
    struct ibv_qp *last = pair_of(srq);
    flush(last);
    good(pthread_join(looks, NULL), "pthread_join");
    good(ibv_destroy_qp(last), "destroy_qp");
    good(ibv_destroy_srq(srq), "destroy_srq");
}

// Of queue pairs that have been flushed the program is stopped when it has heard of one, has not yet given back what it
// heard of another, and has not heard of two more, one of which it destroys before.
void flushed(void) {
    struct ibv_srq *srq = shared_queue();
    struct ibv_qp *heard = pair_of(srq), *held = pair_of(srq), *unheard = pair_of(srq), *never = pair_of(srq);
    flush(heard), flush(held);
    struct ibv_async_event e = flushed_is(heard, "what is heard");
    ibv_ack_async_event(&e);
    e = flushed_is(held, "what is held");
    flush(unheard), flush(never);
    ready();

    good(ibv_destroy_qp(never), "destroy_qp");
    struct ibv_async_event other = flushed_is(unheard, "what is unheard");
    if (is_event()) wrong("another event");
    ibv_ack_async_event(&other);

    pthread_t destroys;
    good(pthread_create(&destroys, NULL, destroy, held), "pthread_create");
    for (int i = 0; i < 20; i++) nap();
    if (atomic_load(&destroyed)) wrong("it is destroyed while an event of it is looked at");
    if (e.element.qp->qp_num != held->qp_num) wrong("the event is of another queue pair");
    ibv_ack_async_event(&e);
    good(pthread_join(destroys, NULL), "pthread_join");

    // Once more for one that is used again.
    good(ibv_modify_qp(heard, &(struct ibv_qp_attr){.qp_state = IBV_QPS_RESET}, IBV_QP_STATE), "RESET");
    qp = heard;
    begin_pair();
    flush(heard);
    e = flushed_is(heard, "what is used again");
    ibv_ack_async_event(&e);
    if (is_event()) wrong("one event more");
    good(ibv_destroy_qp(heard), "destroy_qp");
    good(ibv_destroy_qp(unheard), "destroy_qp");
    good(ibv_destroy_srq(srq), "destroy_srq");
    together("checked");
}
