// SPDX-License-Identifier: Apache-2.0
//
// id.c: ids: made, moved to another channel, destroyed; and their options.
#include "verbs/cm/cm.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct cm_id *cm_new(struct cm_channel *channel, void *context, enum rdma_port_space ps,
                     enum ibv_qp_type type) {
    struct cm_id *id = calloc(1, sizeof *id);
    if (!id) return NULL;
    id->id.channel = channel ? &channel->c : NULL;
    id->id.context = context;
    id->id.ps = ps;
    id->id.qp_type = type;
    id->fd = -1;
    if (getrandom(&id->psn, sizeof id->psn, GRND_NONBLOCK) != sizeof id->psn)
        id->psn = (uint32_t)(uintptr_t)id;
    id->psn &= 0xffffff;
    return id;
}

static void free_id(struct cm_id *id) {
    free(id->id.route.path_rec);
    free(id->init);
    free(id->connect);
    free(id);
}

void cm_drop(struct cm_id *id) {
    struct cm_message m;
    cm_about(id, &m, id->state == CONNECTED || id->state == ACCEPTED ? CM_DREQ : CM_REJ);
    m.status = id->id.qp_type == IBV_QPT_UD ? CM_UD_REFUSED : CM_REFUSED;
    switch (id->state) {
    case ASKED:
    case ANSWERED:
    case ACCEPTED:
    case CONNECTED:
        (void)cm_say(id, &m);
        break;
    default:
        break;
    }
    cm_unlink(id);
    if (id->fd >= 0) close(id->fd);
    free_id(id);
}

int cm_create(struct rdma_event_channel *channel, struct rdma_cm_id **made, void *context,
              enum rdma_port_space ps, enum ibv_qp_type type) {
    if (ps != RDMA_PS_TCP && ps != RDMA_PS_UDP) return cm_fail(EPROTONOSUPPORT);
    if (type != IBV_QPT_RC && type != IBV_QPT_UC && type != IBV_QPT_UD) return cm_fail(EOPNOTSUPP);
    bool own = channel == NULL;
    if (own ? !(channel = rdma_create_event_channel()) : cm_devices()) return -1;
    struct cm_id *id = cm_new(CM_CHANNEL(channel), context, ps, type);
    if (!id) {
        if (own) rdma_destroy_event_channel(channel);
        return cm_fail(ENOMEM);
    }
    id->sync = own;
    *made = &id->id;
    return 0;
}

API int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                       enum rdma_port_space ps) {
    return cm_create(channel, id, context, ps, ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
}

// With the lock held: until the program has given all events of the id back.
static void await_acks(struct cm_id *id) {
    while (id->acked != id->given) pthread_cond_wait(&cm_acked, &cm_lock);
}

API int rdma_destroy_id(struct rdma_cm_id *p) {
    struct cm_id *id = CM_ID(p);
    struct rdma_event_channel *own = id->sync ? p->channel : NULL;
    if (p->event) rdma_ack_cm_event(p->event);
    p->event = NULL;
    pthread_mutex_lock(&cm_lock);
    cm_unqueue(id);
    // What comes now finds no id.
    struct cm_message bye;
    bool told = id->state == CONNECTED || id->state == ACCEPTED;
    if (told) {
        cm_about(id, &bye, CM_DREQ);
        (void)cm_say(id, &bye);
        id->state = OVER;
    }
    if (id->state == LISTENS) cm_unlink(id);
    await_acks(id);
    cm_unqueue(id);
    cm_drop(id);
    pthread_mutex_unlock(&cm_lock);
    if (own) rdma_destroy_event_channel(own);
    return 0;
}

API int rdma_migrate_id(struct rdma_cm_id *p, struct rdma_event_channel *channel) {
    struct cm_id *id = CM_ID(p);
    bool own = channel == NULL;
    struct rdma_event_channel *former = p->channel;
    if (id->sync && own) return cm_fail(EINVAL);
    if (own && !(channel = rdma_create_event_channel())) return -1;
    bool was_own = id->sync;
    if (was_own && p->event) {
        rdma_ack_cm_event(p->event);
        p->event = NULL;
    }
    pthread_mutex_lock(&cm_lock);
    cm_move(id, CM_CHANNEL(channel));
    p->channel = channel;
    id->sync = own;
    await_acks(id);
    pthread_mutex_unlock(&cm_lock);
    if (was_own) rdma_destroy_event_channel(former);
    return 0;
}

// How packets are marked on the way is not for a connection over TCP; it is heard, and nothing follows.
API int rdma_set_option(struct rdma_cm_id *p, int level, int name, void *value, size_t bytes) {
    struct cm_id *id = CM_ID(p);
    if (level != RDMA_OPTION_ID) return cm_fail(level == RDMA_OPTION_IB ? EOPNOTSUPP : ENOSYS);
    switch (name) {
    case RDMA_OPTION_ID_TOS:
        return bytes == sizeof(uint8_t) ? 0 : cm_fail(EINVAL);
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (bytes != sizeof(uint8_t) || *(uint8_t *)value > 31) return cm_fail(EINVAL);
        id->ack_timeout = *(uint8_t *)value;
        return 0;
    case RDMA_OPTION_ID_REUSEADDR: // so they are always
        return bytes == sizeof(int) && id->state == IDLE ? 0 : cm_fail(EINVAL);
    case RDMA_OPTION_ID_AFONLY:
        if (bytes != sizeof(int) || id->state != IDLE) return cm_fail(EINVAL);
        id->v6only = *(int *)value != 0;
        return 0;
    default:
        return cm_fail(ENOSYS);
    }
}

static __be16 port_of(const struct sockaddr *a) {
    switch (a->sa_family) {
    case AF_INET:
        return ((const struct sockaddr_in *)a)->sin_port;
    case AF_INET6:
        return ((const struct sockaddr_in6 *)a)->sin6_port;
    default:
        return 0;
    }
}

API __be16 rdma_get_src_port(struct rdma_cm_id *id) { return port_of(&id->route.addr.src_addr); }
API __be16 rdma_get_dst_port(struct rdma_cm_id *id) { return port_of(&id->route.addr.dst_addr); }

API int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece) {
    if (!id || id->qp || !ece || !ece->vendor_id || ece->comp_mask) return cm_fail(EINVAL);
    CM_ID(id)->local_ece = *ece;
    return 0;
}

API int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece) {
    if (!id || id->qp || !ece || ece->comp_mask) return cm_fail(EINVAL);
    ece->vendor_id = CM_ID(id)->remote_ece.vendor_id;
    ece->options = CM_ID(id)->remote_ece.options;
    return 0;
}
