// SPDX-License-Identifier: Apache-2.0
//
// talk.c: what messages, and the ends of connections, make of ids.
#include "verbs/cm/cm.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(struct cm_link *l, uint32_t status) {
    struct cm_message m;
    struct cm_id nobody = {.link = l, .id.qp_type = (enum ibv_qp_type)l->in.qp_type};
    cm_about(&nobody, &m, CM_REJ);
    m.status = status;
    l->kind = LINK_TALKS;
    l->id = NULL;
    (void)cm_say(&nobody, &m);
    return false;
}

// A REQ, the first message of each connection. The stranger is from now on the peer of a new id.
static bool asked(struct cm_link *l, const struct cm_message *m) {
    struct cm_id *listener = l->id;
    bool datagrams = m->qp_type == IBV_QPT_UD;
    if (m->kind != CM_REQ || m->version != CM_VERSION) return false;
    if (m->ps != listener->id.ps || m->qp_type != listener->id.qp_type)
        return refuse(l, datagrams ? CM_UD_NO_SERVICE : CM_NO_SERVICE);
    struct cm_id *id = listener->waits < listener->backlog
                           ? cm_new(CM_CHANNEL(listener->id.channel), listener->id.context, listener->id.ps,
                                    listener->id.qp_type)
                           : NULL;
    if (!id || cm_names(id, l->fd)) {
        free(id);
        return refuse(l, datagrams ? CM_UD_REFUSED : CM_NO_ROOM);
    }
    id->peer = *m;
    id->state = ASKED;
    id->retry_count = m->retry_count;
    id->rnr_retry_count = m->rnr_retry_count;
    id->remote_ece.vendor_id = m->ece_vendor;
    id->remote_ece.options = m->ece_options;
    id->id.route.addr.addr.ibaddr.dgid = m->gid;
    id->link = l;
    l->id = id;
    l->kind = LINK_TALKS;
    l->until = 0;
    if (cm_queue_request(listener, id, m)) {
        id->link = NULL;
        free(id);
        return refuse(l, CM_NO_ROOM);
    }
    listener->waits++;
    return true;
}

// A REP.
static bool answered(struct cm_id *id, const struct cm_message *m) {
    id->peer = *m;
    id->link->until = 0;
    id->remote_ece.vendor_id = m->ece_vendor;
    id->remote_ece.options = m->ece_options;
    id->id.route.addr.addr.ibaddr.dgid = m->gid;
    if (id->id.route.path_rec) {
        id->id.route.path_rec->dgid = m->gid;
        id->id.route.path_rec->dlid = htobe16(m->lid);
    }
    if (id->id.qp_type == IBV_QPT_UD) { // all has been said
        id->state = OVER;
        (void)cm_queue(id, RDMA_CM_EVENT_ESTABLISHED, 0, m);
        return false;
    }
    id->rnr_retry_count = m->rnr_retry_count;
    id->responder_resources = m->initiator_depth;
    id->initiator_depth = m->responder_resources;
    id->state = ANSWERED;
    (void)cm_queue(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, m);
    return true;
}

static bool refused(struct cm_id *id, const struct cm_message *m) {
    bool asking = id->state == CALLS;
    if (!asking && id->state != ACCEPTED) return false;
    id->state = OVER;
    (void)cm_queue(id, id->id.qp_type == IBV_QPT_UD ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_REJECTED,
                   (int)m->status, m);
    return false;
}

static bool ended(struct cm_id *id) {
    bool tell =
        id->state == ACCEPTED || id->state == CONNECTED || id->state == ENDING || id->state == ANSWERED;
    id->state = OVER;
    if (tell) (void)cm_queue(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
    return false;
}

bool cm_hear(struct cm_link *l, const struct cm_message *m) {
    struct cm_id *id = l->id;
    struct cm_message out;
    if (!id) return false;
    if (l->kind == LINK_STRANGER) return asked(l, m);
    switch (m->kind) {
    case CM_REP:
        return id->state == CALLS && answered(id, m);
    case CM_RTU:
        if (id->state != ACCEPTED) return id->state == CONNECTED;
        id->state = CONNECTED;
        l->until = 0;
        (void)cm_queue(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
        return true;
    case CM_REJ:
        return refused(id, m);
    case CM_DREQ:
        cm_about(id, &out, CM_DREP);
        (void)cm_say(id, &out);
        return ended(id);
    case CM_DREP:
        return ended(id);
    default:
        cm_lost(l, EPROTO);
        return false;
    }
}

// A connection is no more, or was never made.
void cm_lost(struct cm_link *l, int error) {
    struct cm_id *id = l->id;
    if (!id) return;
    bool datagrams = id->id.qp_type == IBV_QPT_UD;
    enum cm_state state = id->state;
    if (state != ASKED) id->state = OVER; // who accepts it finds out
    switch (state) {
    case CALLS:
        if (error == ECONNREFUSED || error == 0 || error == ECONNRESET || error == EPROTO || error == EPIPE) {
            int status = error == ECONNREFUSED ? CM_NO_SERVICE : CM_REFUSED;
            if (datagrams)
                (void)cm_queue(id, RDMA_CM_EVENT_UNREACHABLE, CM_UD_NO_SERVICE, NULL);
            else
                (void)cm_queue(id, RDMA_CM_EVENT_REJECTED, status, NULL);
        } else {
            (void)cm_queue(id, RDMA_CM_EVENT_UNREACHABLE, -error, NULL);
        }
        break;
    case ACCEPTED:
        if (error == ETIMEDOUT)
            (void)cm_queue(id, RDMA_CM_EVENT_UNREACHABLE, -error, NULL);
        else
            (void)cm_queue(id, RDMA_CM_EVENT_REJECTED, CM_REFUSED, NULL);
        break;
    case ANSWERED:
    case CONNECTED:
    case ENDING:
        (void)cm_queue(id, RDMA_CM_EVENT_DISCONNECTED, state == ENDING && error == ETIMEDOUT ? -error : 0,
                       NULL);
        break;
    default:
        break;
    }
}
