// SPDX-License-Identifier: Apache-2.0
//
// connect.c: connections: asked for, accepted, refused, ended; and what a program's thread does when it takes an event.
#include "verbs/cm/cm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,   // requests that nobody has taken
    PATIENCE = 60000, // ms for an answer
};

static uint64_t answer_until(void) { return cm_now() + cm_patience("CKPT_RDMACM_ANSWER_MS", PATIENCE); }

// Private data that a message of InfiniBand has room for.
static size_t room(const struct cm_id *id, enum cm_kind kind) {
    if (id->id.qp_type == IBV_QPT_UD) return kind == CM_REQ ? 180 : 136;
    return kind == CM_REQ ? 56 : kind == CM_REP ? 196 : 148;
}

void cm_about(const struct cm_id *id, struct cm_message *m, enum cm_kind kind) {
    memset(m, 0, sizeof *m);
    m->magic = CM_MAGIC;
    m->version = CM_VERSION;
    m->kind = (uint16_t)kind;
    m->ps = (uint16_t)id->id.ps;
    m->qp_type = (uint8_t)id->id.qp_type;
    m->psn = id->psn;
    m->qkey = RDMA_UDP_QKEY;
    m->lid = id->port.lid;
    m->mtu = (uint8_t)id->port.active_mtu;
    m->gid = id->id.route.addr.addr.ibaddr.sgid;
    m->responder_resources = id->responder_resources;
    m->initiator_depth = id->initiator_depth;
    if (!id->id.qp) return;
    m->qp_num = id->id.qp->qp_num;
    m->srq = id->id.qp->srq != NULL;
}

// Private data behind what is there: 0, or an error number.
static int add(struct cm_message *m, size_t most, const void *data, size_t bytes) {
    if (!data || !bytes) return 0;
    if (m->private_bytes + bytes > most) return EINVAL;
    memcpy(m->private_data + m->private_bytes, data, bytes);
    m->private_bytes = (uint8_t)(m->private_bytes + bytes);
    return 0;
}

static int with(const struct cm_id *id, struct cm_message *m, const struct rdma_conn_param *p) {
    if (!p) {
        m->retry_count = m->rnr_retry_count = 7;
        return 0;
    }
    m->flow_control = p->flow_control;
    m->retry_count = p->retry_count & 7;
    m->rnr_retry_count = p->rnr_retry_count & 7;
    if (!id->id.qp) {
        m->qp_num = p->qp_num;
        m->srq = p->srq;
    }
    return add(m, room(id, m->kind), p->private_data, p->private_data_len);
}

static int valid(const struct cm_id *id, const struct rdma_conn_param *p) {
    if (!id->id.qp && !p) return EINVAL;
    if (!p || id->id.qp_type == IBV_QPT_UD) return 0;
    if (p->responder_resources != RDMA_MAX_RESP_RES &&
        p->responder_resources > id->device->max_responder_resources)
        return EINVAL;
    if (p->initiator_depth != RDMA_MAX_INIT_DEPTH && p->initiator_depth > id->device->max_initiator_depth)
        return EINVAL;
    return 0;
}

static uint8_t least(uint8_t a, uint8_t b) { return a < b ? a : b; }

API int rdma_listen(struct rdma_cm_id *p, int backlog) {
    struct cm_id *id = CM_ID(p);
    if (id->state == IDLE) {
        struct sockaddr_storage any = {.ss_family = AF_INET};
        if (rdma_bind_addr(p, (struct sockaddr *)&any)) return -1;
    }
    if (id->state != BOUND) return cm_fail(EINVAL);
    // The thread takes connections at once; how many requests may wait is for it to count.
    if (listen(id->fd, 128)) return -1;
    pthread_mutex_lock(&cm_lock);
    id->backlog = backlog > 0 && backlog < BACKLOG ? (uint32_t)backlog : BACKLOG;
    int e = cm_link(id, id->fd, LINK_LISTENS);
    if (!e) {
        id->fd = -1;
        id->state = LISTENS;
    }
    pthread_mutex_unlock(&cm_lock);
    return cm_result(e);
}

API int rdma_connect(struct rdma_cm_id *p, struct rdma_conn_param *param) {
    struct cm_id *id = CM_ID(p);
    struct cm_message m;
    if (id->state != ROUTED) return cm_fail(EINVAL);
    int e = valid(id, param);
    if (e) return cm_fail(e);
    id->initiator_depth = param && param->initiator_depth != RDMA_MAX_INIT_DEPTH
                              ? param->initiator_depth
                              : id->device->max_initiator_depth;
    id->responder_resources = param && param->responder_resources != RDMA_MAX_RESP_RES
                                  ? param->responder_resources
                                  : id->device->max_responder_resources;
    cm_about(id, &m, CM_REQ);
    m.ece_vendor = id->local_ece.vendor_id;
    m.ece_options = id->local_ece.options;
    e = add(&m, room(id, CM_REQ), id->connect, id->connect_bytes);
    if (!e) e = with(id, &m, param);
    if (e) return cm_fail(e);
    id->retry_count = m.retry_count;
    if (connect(id->fd, &p->route.addr.dst_addr, cm_length(&p->route.addr.dst_addr)) && errno != EINPROGRESS)
        e = errno;
    pthread_mutex_lock(&cm_lock);
    id->state = CALLS;
    if (e) {
        // As an event, as it comes when it is found out later.
        struct cm_link none = {.id = id, .fd = -1};
        cm_lost(&none, e);
        e = 0;
    } else if (!(e = cm_link(id, id->fd, LINK_CONNECTS))) {
        id->fd = -1;
        id->link->until = answer_until();
        e = cm_say(id, &m);
    }
    if (e) id->state = ROUTED;
    pthread_mutex_unlock(&cm_lock);
    if (e) return cm_fail(e);
    id->connect_bytes = 0;
    return cm_complete(id);
}

API int rdma_accept(struct rdma_cm_id *p, struct rdma_conn_param *param) {
    struct cm_id *id = CM_ID(p);
    struct cm_message m;
    bool datagrams = p->qp_type == IBV_QPT_UD;
    if (id->state != ASKED) return cm_fail(EINVAL);
    int e = valid(id, param);
    if (e) return cm_fail(e);
    id->initiator_depth = param && param->initiator_depth != RDMA_MAX_INIT_DEPTH
                              ? param->initiator_depth
                              : least(id->initiator_depth, id->device->max_initiator_depth);
    id->responder_resources = param && param->responder_resources != RDMA_MAX_RESP_RES
                                  ? param->responder_resources
                                  : least(id->responder_resources, id->device->max_responder_resources);
    cm_about(id, &m, CM_REP);
    m.ece_vendor = id->remote_ece.vendor_id;
    m.ece_options = id->local_ece.options;
    if ((e = with(id, &m, param))) return cm_fail(e);
    if (!datagrams && cm_to_ready(id, -1, -1)) return -1;
    pthread_mutex_lock(&cm_lock);
    id->state = datagrams ? OVER : ACCEPTED;
    if (id->link && !datagrams) id->link->until = answer_until();
    e = cm_say(id, &m);
    // Who asked has gone.
    if (e && !datagrams) {
        id->state = OVER;
        e = cm_queue(id, RDMA_CM_EVENT_REJECTED, CM_REFUSED, NULL);
    }
    pthread_mutex_unlock(&cm_lock);
    return datagrams ? 0 : e ? cm_fail(e) : cm_complete(id);
}

API int rdma_establish(struct rdma_cm_id *p) {
    struct cm_id *id = CM_ID(p);
    struct cm_message m;
    if (p->qp || id->state != ANSWERED) return cm_fail(EINVAL);
    cm_about(id, &m, CM_RTU);
    pthread_mutex_lock(&cm_lock);
    int e = cm_say(id, &m);
    if (!e) id->state = CONNECTED;
    pthread_mutex_unlock(&cm_lock);
    return cm_result(e);
}

static int reject(struct rdma_cm_id *p, const void *data, uint8_t bytes, uint32_t status) {
    struct cm_id *id = CM_ID(p);
    struct cm_message m;
    if (id->state != ASKED && id->state != ANSWERED) return cm_fail(EINVAL);
    cm_about(id, &m, CM_REJ);
    m.status = p->qp_type == IBV_QPT_UD ? CM_UD_REFUSED : status;
    int e = add(&m, room(id, CM_REJ), data, bytes);
    if (e) return cm_fail(e);
    pthread_mutex_lock(&cm_lock);
    (void)cm_say(id, &m); // who has gone needs no answer
    cm_unlink(id);
    id->state = OVER;
    pthread_mutex_unlock(&cm_lock);
    return 0;
}

API int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t bytes) {
    return reject(id, data, bytes, CM_REFUSED);
}

API int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t bytes) {
    return reject(id, data, bytes, CM_ECE);
}

// A message came on a connection whose RTU has not.
API int rdma_notify(struct rdma_cm_id *p, enum ibv_event_type event) {
    struct cm_id *id = CM_ID(p);
    int e = 0;
    if (event != IBV_EVENT_COMM_EST) return cm_fail(EINVAL);
    pthread_mutex_lock(&cm_lock);
    if (id->state == ACCEPTED) {
        id->state = CONNECTED;
        if (id->link) id->link->until = 0;
        e = cm_queue(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
    } else if (id->state != CONNECTED) {
        e = EINVAL;
    }
    pthread_mutex_unlock(&cm_lock);
    return cm_result(e);
}

API int rdma_disconnect(struct rdma_cm_id *p) {
    struct cm_id *id = CM_ID(p);
    struct cm_message m;
    if (p->qp_type == IBV_QPT_UD || !id->device) return cm_fail(EINVAL);
    if (cm_to_error(id)) return -1;
    cm_about(id, &m, CM_DREQ);
    int e = 0;
    bool waits = true;
    pthread_mutex_lock(&cm_lock);
    switch (id->state) {
    case ACCEPTED:
    case CONNECTED:
        id->state = ENDING;
        if (!cm_say(id, &m))
            id->link->until = answer_until();
        else if ((id->state = OVER))
            e = cm_queue(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
        break;
    case ENDING:
        break;
    case OVER: // the other side was faster; its event may have been taken
        waits = CM_CHANNEL(p->channel)->first != NULL;
        break;
    default:
        e = EINVAL;
    }
    pthread_mutex_unlock(&cm_lock);
    return e ? cm_fail(e) : waits ? cm_complete(id) : 0;
}

API int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context) {
    (void)id, (void)context;
    return cm_fail(cm_length(addr) ? EOPNOTSUPP : EINVAL);
}

API int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *a, void *context) {
    (void)id, (void)context;
    return cm_fail(a->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS && cm_length(a->addr) ? EOPNOTSUPP : EINVAL);
}

API int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr) {
    (void)id;
    return cm_fail(cm_length(addr) ? EADDRNOTAVAIL : EINVAL);
}

// ---- events, when they are taken --------------------------------------------------------------------

// The id of a request gets a device, by the address at which it was asked.
static int deliver_request(struct cm_event *e) {
    struct cm_id *id = CM_ID(e->event.id), *listener = CM_ID(e->event.listen_id);
    bool good = !cm_place(id);
    if (good) {
        id->initiator_depth = least(id->peer.responder_resources, id->device->max_initiator_depth);
        id->responder_resources = least(id->peer.initiator_depth, id->device->max_responder_resources);
    }
    if (good && listener->sync) good = !rdma_migrate_id(&id->id, NULL);
    if (good) return 0;
    pthread_mutex_lock(&cm_lock);
    cm_drop(id);
    pthread_mutex_unlock(&cm_lock);
    return -1;
}

static void deliver_response(struct cm_event *e) {
    struct cm_id *id = CM_ID(e->event.id);
    struct cm_message m;
    if (!id->id.qp) return; // the program does it, and calls rdma_establish
    cm_about(id, &m, CM_RTU);
    int failed = cm_to_ready(id, -1, -1) ? errno : 0;
    pthread_mutex_lock(&cm_lock);
    if (failed) {
        m.kind = CM_REJ;
        m.status = CM_REFUSED;
    }
    (void)cm_say(id, &m); // a peer that has gone is another event
    if (id->state == ANSWERED) id->state = failed ? OVER : CONNECTED;
    if (failed) cm_unlink(id);
    pthread_mutex_unlock(&cm_lock);
    e->event.event = failed ? RDMA_CM_EVENT_CONNECT_ERROR : RDMA_CM_EVENT_ESTABLISHED;
    e->event.status = -failed;
    if (failed) (void)cm_to_error(id);
}

int cm_deliver(struct cm_event *e) {
    switch (e->event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        return deliver_request(e);
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        deliver_response(e);
        return 0;
    case RDMA_CM_EVENT_REJECTED:
        (void)cm_to_error(CM_ID(e->event.id));
        return 0;
    default:
        return 0;
    }
}
