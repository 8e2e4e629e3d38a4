// SPDX-License-Identifier: Apache-2.0
//
// endpoint.c: ids that are made for an address, and that wait in each function.
#include "verbs/cm/cm.h"

#include <stdlib.h>
#include <string.h>

static int passive(struct cm_id *id, struct rdma_addrinfo *r, struct ibv_pd *pd,
                   const struct ibv_qp_init_attr *init) {
    if (rdma_bind_addr(&id->id, r->ai_src_addr)) return -1;
    if (pd) id->id.pd = pd;
    if (!init) return 0;
    if (!(id->init = malloc(sizeof *init))) return cm_fail(ENOMEM);
    *id->init = *init;
    id->init->qp_type = (enum ibv_qp_type)r->ai_qp_type;
    return 0;
}

static int active(struct cm_id *id, struct rdma_addrinfo *r, struct ibv_pd *pd,
                  struct ibv_qp_init_attr *init) {
    enum { MS = 2000 };
    if (rdma_resolve_addr(&id->id, r->ai_src_addr, r->ai_dst_addr, MS)) return -1;
    if (rdma_resolve_route(&id->id, MS)) return -1;
    if (init) {
        init->qp_type = (enum ibv_qp_type)r->ai_qp_type;
        if (rdma_create_qp(&id->id, pd, init)) return -1;
    }
    if (!r->ai_connect_len) return 0;
    if (!(id->connect = malloc(r->ai_connect_len))) return cm_fail(ENOMEM);
    memcpy(id->connect, r->ai_connect, r->ai_connect_len);
    id->connect_bytes = r->ai_connect_len;
    return 0;
}

API int rdma_create_ep(struct rdma_cm_id **made, struct rdma_addrinfo *r, struct ibv_pd *pd,
                       struct ibv_qp_init_attr *init) {
    struct rdma_cm_id *p;
    enum rdma_port_space ps = (enum rdma_port_space)r->ai_port_space;
    if (cm_create(NULL, &p, NULL, ps, (enum ibv_qp_type)r->ai_qp_type)) return -1;
    int failed = r->ai_flags & RAI_PASSIVE ? passive(CM_ID(p), r, pd, init) : active(CM_ID(p), r, pd, init);
    if (failed) {
        int e = errno;
        rdma_destroy_ep(p);
        return cm_fail(e);
    }
    *made = p;
    return 0;
}

API void rdma_destroy_ep(struct rdma_cm_id *p) {
    if (p->qp) rdma_destroy_qp(p);
    if (p->srq) rdma_destroy_srq(p);
    rdma_destroy_id(p);
}

API int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **made) {
    struct cm_id *id = CM_ID(listener);
    struct rdma_cm_event *e;
    if (!id->sync) return cm_fail(EINVAL);
    if (listener->event) rdma_ack_cm_event(listener->event);
    listener->event = NULL;
    if (rdma_get_cm_event(listener->channel, &e)) return -1;
    int failed = e->event == RDMA_CM_EVENT_REJECTED          ? ECONNREFUSED
                 : e->status                                 ? abs(e->status)
                 : e->event != RDMA_CM_EVENT_CONNECT_REQUEST ? EINVAL
                                                             : 0;
    if (!failed && id->init) {
        struct ibv_qp_init_attr init = *id->init;
        if (rdma_create_qp(e->id, listener->pd, &init)) failed = errno;
    }
    if (failed) {
        listener->event = e;
        return cm_fail(failed);
    }
    *made = e->id;
    e->id->event = e;
    return 0;
}
