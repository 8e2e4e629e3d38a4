// SPDX-License-Identifier: Apache-2.0
//
// device.c: devices, which are opened once and for ever, and which of them an address belongs to.
#include "verbs/cm/cm.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // before the library's lock
static struct cm_device *devices, **last = &devices;

static int known(const struct ibv_device *d) {
    for (struct cm_device *k = devices; k; k = k->next)
        if (k->device == d) return 1;
    return 0;
}

// Devices that are new since the last time come behind those that were there.
int cm_devices(void) {
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    if (!list) return cm_fail(ENODEV);
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < n; i++) {
        struct cm_device *d = known(list[i]) ? NULL : calloc(1, sizeof *d);
        if (!d) continue;
        d->device = list[i];
        *last = d;
        last = &d->next;
    }
    n = devices != NULL;
    pthread_mutex_unlock(&mutex);
    ibv_free_device_list(list);
    return n ? 0 : cm_fail(ENODEV);
}

// With the mutex held.
static int opened(struct cm_device *d) {
    struct ibv_device_attr a;
    if (d->verbs) return 0;
    struct ibv_context *c = ibv_open_device(d->device);
    if (!c) return -1;
    int e = ibv_query_device(c, &a);
    if (e) {
        ibv_close_device(c);
        return cm_fail(e);
    }
    d->max_wr = a.max_qp_wr;
    d->max_initiator_depth = (uint8_t)(a.max_qp_init_rd_atom < 255 ? a.max_qp_init_rd_atom : 255);
    d->max_responder_resources = (uint8_t)(a.max_qp_rd_atom < 255 ? a.max_qp_rd_atom : 255);
    d->ports = a.phys_port_cnt;
    d->verbs = c;
    return 0;
}

API struct ibv_context **rdma_get_devices(int *n) {
    size_t count = 0;
    struct ibv_context **list = NULL;
    if (n) *n = 0;
    if (cm_devices()) return NULL;
    pthread_mutex_lock(&mutex);
    for (struct cm_device *d = devices; d; d = d->next) count++;
    list = calloc(count + 1, sizeof *list);
    count = 0;
    for (struct cm_device *d = devices; list && d; d = d->next)
        if (!opened(d)) list[count++] = d->verbs;
    pthread_mutex_unlock(&mutex);
    if (list && n) *n = (int)count;
    return list;
}

API void rdma_free_devices(struct ibv_context **list) { free(list); }

int cm_max_wr(void) {
    int least = 0;
    if (cm_devices()) return 0;
    pthread_mutex_lock(&mutex);
    for (struct cm_device *d = devices; d; d = d->next)
        if (!opened(d) && (!least || d->max_wr < least)) least = d->max_wr;
    pthread_mutex_unlock(&mutex);
    return least;
}

// On Ethernet a port has a gid for each address: that of an IPv4 address is the mapped one.
static bool of_address(const union ibv_gid *gid, const struct sockaddr *a) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (a->sa_family == AF_INET6)
        return !memcmp(gid, &((const struct sockaddr_in6 *)a)->sin6_addr, sizeof *gid);
    return !memcmp(gid, mapped, sizeof mapped) &&
           !memcmp(gid->raw + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
}

// How well a gid of a port serves an address; 0: not at all.
static int serves(struct cm_device *d, uint8_t number, int index, const struct ibv_port_attr *port,
                  const struct sockaddr *a, union ibv_gid *gid) {
    static const union ibv_gid none;
    if (ibv_query_gid(d->verbs, number, index, gid) || !memcmp(gid, &none, sizeof none)) return 0;
    if (port->link_layer != IBV_LINK_LAYER_ETHERNET) return index == 0 ? 2 : 0;
    struct ibv_gid_entry e;
    int routed =
        !ibv_query_gid_ex(d->verbs, number, (uint32_t)index, &e, 0) && e.gid_type == IBV_GID_TYPE_ROCE_V2;
    return 1 + routed + (of_address(gid, a) ? 4 : 0);
}

// The port whose gid is the source address; else the first that is active, for which nothing says that it is the wrong one.
int cm_place(struct cm_id *id) {
    struct rdma_addr *to = &id->id.route.addr;
    int best = 0;
    if (id->device) return 0;
    if (cm_devices()) return -1;
    pthread_mutex_lock(&mutex);
    for (struct cm_device *d = devices; d; d = d->next) {
        if (opened(d)) continue;
        for (uint8_t number = 1; number <= d->ports; number++) {
            struct ibv_port_attr port;
            union ibv_gid gid;
            if (ibv_query_port(d->verbs, number, &port) || port.state != IBV_PORT_ACTIVE) continue;
            for (int i = 0; i < port.gid_tbl_len && i < 64; i++) {
                int n = serves(d, number, i, &port, &to->src_addr, &gid);
                if (n <= best) continue;
                best = n;
                id->device = d;
                id->gid_index = i;
                id->port = port;
                id->id.port_num = number;
                to->addr.ibaddr.sgid = gid;
            }
        }
    }
    if (id->device && !id->device->pd && !(id->device->pd = ibv_alloc_pd(id->device->verbs)))
        id->device = NULL;
    pthread_mutex_unlock(&mutex);
    if (!id->device) return cm_fail(ENODEV);
    id->id.verbs = id->device->verbs;
    if (!id->id.pd) id->id.pd = id->device->pd;
    to->addr.ibaddr.pkey = 0xffff;
    (void)ibv_query_pkey(id->id.verbs, id->id.port_num, 0, &to->addr.ibaddr.pkey);
    return 0;
}
