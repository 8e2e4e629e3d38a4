// SPDX-License-Identifier: Apache-2.0
//
// queue.c: completion queues, and queues of receives.
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "verbs/soft/impl.h"
#include "verbs/soft/engine.h"

// ---- completions ----

int soft_cq_new(int entries, void *of, bool told, struct soft_cq **made) {
    if (entries < 1 || entries > SOFT_CQES) return EINVAL;
    struct soft_cq *cq = calloc(1, sizeof *cq);
    struct ibv_wc *ring = calloc((size_t)entries, sizeof *ring);
    if (cq == NULL || ring == NULL) {
        free(cq);
        free(ring);
        return ENOMEM;
    }
    *cq = (struct soft_cq){.ring = ring, .size = (uint32_t)entries, .told = told, .of = of};
    *made = cq;
    return 0;
}

int soft_cq_resize(struct soft_cq *cq, int entries) {
    if (entries < 1 || entries > SOFT_CQES) return EINVAL;
    struct ibv_wc *ring = calloc((size_t)entries, sizeof *ring);
    if (ring == NULL) return ENOMEM;
    pthread_mutex_lock(&soft.lock);
    uint32_t n = cq->head - cq->tail;
    if (n > (uint32_t)entries) {
        pthread_mutex_unlock(&soft.lock);
        free(ring);
        return EINVAL;
    }
    for (uint32_t i = 0; i < n; i++) ring[i] = cq->ring[(cq->tail + i) % cq->size];
    free(cq->ring);
    cq->ring = ring, cq->size = (uint32_t)entries, cq->tail = 0, cq->head = n;
    pthread_mutex_unlock(&soft.lock);
    return 0;
}

void soft_cq_free(struct soft_cq *cq) {
    // Its queue pairs are gone, so nobody but the caller knows it; the lock is for the thread's last use of it.
    pthread_mutex_lock(&soft.lock);
    if (cq->late) LIST_REMOVE(cq, later);
    pthread_mutex_unlock(&soft.lock);
    free(cq->ring);
    free(cq);
}

void soft_complete(struct soft_cq *cq, const struct ibv_wc *wc, bool solicited) {
    if (cq->head - cq->tail >= cq->size) {
        if (!cq->overrun) soft.tell.event(cq->of, IBV_EVENT_CQ_ERR);
        cq->overrun = true;
        return;
    }
    cq->ring[cq->head++ % cq->size] = *wc;
    if (cq->armed == SOFT_ANY ||
        (cq->armed == SOFT_SOLICITED_ONLY && (solicited || wc->status != IBV_WC_SUCCESS))) {
        cq->armed = SOFT_UNARMED;
        if (!cq->told || cq->late) return;
        if (soft.hold_events != NULL && access(soft.hold_events, F_OK) == 0) {
            LIST_INSERT_HEAD(&soft.late, cq, later);
            cq->late = true;
        } else
            soft.tell.completion(cq->of);
    }
}

void soft_events_late(void) {
    if (access(soft.hold_events, F_OK) == 0) return;
    struct soft_cq *cq;
    while ((cq = LIST_FIRST(&soft.late)) != NULL) {
        LIST_REMOVE(cq, later);
        cq->late = false;
        soft.tell.completion(cq->of);
    }
}

// A reset takes back what its queue pair has completed and nobody has polled.
void soft_cq_forget(struct soft_cq *cq, uint32_t number) {
    uint32_t to = cq->tail;
    for (uint32_t from = cq->tail; from != cq->head; from++) {
        const struct ibv_wc *wc = &cq->ring[from % cq->size];
        if (wc->qp_num != number) cq->ring[to++ % cq->size] = *wc;
    }
    cq->head = to;
}

// On a machine with fewer processors than pollers, who finds nothing must let others run: a poller that does not
// keeps its peer from sending what it polls for.
enum { IDLE_YIELD = 50, IDLE_SLEEP = 60 };

int soft_cq_poll(struct soft_cq *cq, int n, struct ibv_wc *wc) {
    pthread_mutex_lock(&soft.lock);
    if (cq->head == cq->tail) {
        // Who has armed the queue looks once more and sleeps: the thread is needed.
        if (cq->armed == SOFT_UNARMED) soft_asked();
        soft_round(0);
        if (cq->head == cq->tail && ++cq->idle > IDLE_YIELD) {
            bool sleep = cq->idle > IDLE_SLEEP;
            pthread_mutex_unlock(&soft.lock);
            struct epoll_event e;
            if (sleep)
                (void)epoll_wait(soft.epoll, &e, 1, 1); // the round that follows finds it again
            else
                sched_yield();
            pthread_mutex_lock(&soft.lock);
            soft_round(0);
        }
    }
    int got = 0;
    while (got < n && cq->tail != cq->head) wc[got++] = cq->ring[cq->tail++ % cq->size];
    if (got > 0) cq->idle = 0;
    if (cq->overrun) got = -1;
    pthread_mutex_unlock(&soft.lock);
    return got;
}

void soft_cq_arm(struct soft_cq *cq, bool solicited) {
    pthread_mutex_lock(&soft.lock);
    // To ask for less than was asked for before takes nothing back.
    if (!solicited || cq->armed == SOFT_UNARMED) cq->armed = solicited ? SOFT_SOLICITED_ONLY : SOFT_ANY;
    soft_waits();
    pthread_mutex_unlock(&soft.lock);
}

// ---- receives ----

int soft_queue_init(struct soft_queue *queue, uint32_t size, uint32_t pieces, const void *pd) {
    *queue = (struct soft_queue){.size = size, .pieces = pieces, .pd = pd};
    if (size == 0) return 0;
    queue->ring = calloc(size, sizeof *queue->ring);
    return queue->ring == NULL ? ENOMEM : 0;
}

int soft_queue_post(struct soft_queue *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    int rc = 0;
    for (; wr != NULL; wr = wr->next) {
        if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->pieces)
            rc = EINVAL;
        else if (queue->head - queue->tail >= queue->size)
            rc = ENOMEM;
        if (rc != 0) {
            *bad = wr;
            break;
        }
        struct soft_receive *r = &queue->ring[queue->head++ % queue->size];
        r->id = wr->wr_id, r->pieces = wr->num_sge;
        if (wr->num_sge > 0) memcpy(r->piece, wr->sg_list, (size_t)wr->num_sge * sizeof *r->piece);
    }
    soft_queue_filled(queue);
    return rc;
}

bool soft_queue_take(struct soft_queue *queue, struct soft_receive *into) {
    if (queue->head == queue->tail) return false;
    *into = queue->ring[queue->tail++ % queue->size];
    if (queue->limit > 0 && queue->head - queue->tail < queue->limit) {
        queue->limit = 0;
        soft.tell.event(queue->of, IBV_EVENT_SRQ_LIMIT_REACHED);
    }
    return true;
}

int soft_srq_new(const void *pd, uint32_t receives, uint32_t pieces, void *of, struct soft_queue **made) {
    if (receives < 1 || receives > SOFT_WRS || pieces > SOFT_SGES) return EINVAL;
    struct soft_queue *srq = malloc(sizeof *srq);
    if (srq == NULL) return ENOMEM;
    int rc = soft_queue_init(srq, receives, pieces, pd);
    srq->shared = true, srq->of = of;
    if (rc != 0)
        free(srq);
    else
        *made = srq;
    return rc;
}

static int resize(struct soft_queue *srq, uint32_t size) {
    uint32_t n = srq->head - srq->tail;
    if (size < 1 || size > SOFT_WRS || size < n) return EINVAL;
    struct soft_receive *ring = calloc(size, sizeof *ring);
    if (ring == NULL) return ENOMEM;
    for (uint32_t i = 0; i < n; i++) ring[i] = srq->ring[(srq->tail + i) % srq->size];
    free(srq->ring);
    srq->ring = ring, srq->size = size, srq->tail = 0, srq->head = n;
    return 0;
}

int soft_srq_modify(struct soft_queue *srq, const struct ibv_srq_attr *attr, int mask) {
    int rc = 0;
    pthread_mutex_lock(&soft.lock);
    if (mask & IBV_SRQ_MAX_WR) rc = resize(srq, attr->max_wr);
    if (rc == 0 && mask & IBV_SRQ_LIMIT) {
        if (attr->srq_limit > srq->size)
            rc = EINVAL;
        else
            srq->limit = attr->srq_limit;
    }
    pthread_mutex_unlock(&soft.lock);
    return rc;
}

void soft_srq_query(struct soft_queue *srq, struct ibv_srq_attr *attr) {
    pthread_mutex_lock(&soft.lock);
    *attr = (struct ibv_srq_attr){.max_wr = srq->size, .max_sge = srq->pieces, .srq_limit = srq->limit};
    pthread_mutex_unlock(&soft.lock);
}

void soft_srq_free(struct soft_queue *srq) {
    pthread_mutex_lock(&soft.lock);
    pthread_mutex_unlock(&soft.lock);
    free(srq->ring);
    free(srq);
}

int soft_srq_post(struct soft_queue *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    pthread_mutex_lock(&soft.lock);
    int rc = soft_queue_post(srq, wr, bad);
    pthread_mutex_unlock(&soft.lock);
    return rc;
}
