// SPDX-License-Identifier: Apache-2.0
//
// address.c: addresses and ports, which are those of TCP on the same interfaces.
#include "verbs/cm/cm.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

socklen_t cm_length(const struct sockaddr *a) {
    if (!a) return 0;
    return a->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
           : a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                      : 0;
}

static bool is_any(const struct sockaddr *a) {
    if (a->sa_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)a)->sin6_addr);
    return ((const struct sockaddr_in *)a)->sin_addr.s_addr == htonl(INADDR_ANY);
}

// An IPv4 address in the clothes of IPv6 becomes one.
static void plain(struct sockaddr_storage *a) {
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)a;
    if (six->sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) return;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six->sin6_port};
    memcpy(&four.sin_addr, six->sin6_addr.s6_addr + 12, 4);
    memset(a, 0, sizeof *a);
    memcpy(a, &four, sizeof four);
}

int cm_names(struct cm_id *id, int fd) {
    struct rdma_addr *to = &id->id.route.addr;
    socklen_t here = sizeof to->src_storage, there = sizeof to->dst_storage;
    if (getsockname(fd, &to->src_addr, &here) || getpeername(fd, &to->dst_addr, &there)) return errno;
    plain(&to->src_storage);
    plain(&to->dst_storage);
    return 0;
}

// A socket at an address, which the id then has, with the port that it got: 0, or an error number.
static int bind_to(struct cm_id *id, const struct sockaddr *a) {
    int on = 1, only = id->v6only;
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    socklen_t n = sizeof id->id.route.addr.src_storage;
    // The kernel remembers connections of a port for a minute, which the ports of RDMA do not do.
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (a->sa_family == AF_INET6 && only) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    if (bind(fd, a, cm_length(a)) || getsockname(fd, &id->id.route.addr.src_addr, &n)) {
        int e = errno;
        close(fd);
        return e;
    }
    id->fd = fd;
    id->state = BOUND;
    return 0;
}

API int rdma_bind_addr(struct rdma_cm_id *p, struct sockaddr *addr) {
    struct cm_id *id = CM_ID(p);
    if (!cm_length(addr) || id->state != IDLE) return cm_fail(EINVAL);
    int e = bind_to(id, addr);
    if (e) return cm_fail(e);
    // At all addresses it belongs to no device yet.
    return is_any(addr) ? 0 : cm_place(id);
}

// The address from which packets to another one leave; its port is 0.
static int source_for(const struct sockaddr *to, struct sockaddr_storage *from) {
    int e = 0, fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    struct sockaddr_storage there;
    socklen_t n = sizeof *from;
    memcpy(&there, to, cm_length(to));
    // What has no port cannot be connected to.
    if (to->sa_family == AF_INET && !((struct sockaddr_in *)&there)->sin_port)
        ((struct sockaddr_in *)&there)->sin_port = htons(9);
    if (to->sa_family == AF_INET6 && !((struct sockaddr_in6 *)&there)->sin6_port)
        ((struct sockaddr_in6 *)&there)->sin6_port = htons(9);
    if (connect(fd, (struct sockaddr *)&there, cm_length(to)) || getsockname(fd, (struct sockaddr *)from, &n))
        e = errno;
    close(fd);
    if (from->ss_family == AF_INET) ((struct sockaddr_in *)from)->sin_port = 0;
    if (from->ss_family == AF_INET6) ((struct sockaddr_in6 *)from)->sin6_port = 0;
    return e;
}

API int rdma_resolve_addr(struct rdma_cm_id *p, struct sockaddr *src, struct sockaddr *dst, int timeout_ms) {
    struct cm_id *id = CM_ID(p);
    struct rdma_addr *to = &p->route.addr;
    struct sockaddr_storage from;
    (void)timeout_ms; // nobody has to be asked
    if (!cm_length(dst) || (src && !cm_length(src)) || (id->state != IDLE && id->state != BOUND))
        return cm_fail(EINVAL);
    int e = source_for(dst, &from);
    if (e) return cm_fail(e);
    if (id->state == IDLE) {
        e = bind_to(id, src && !is_any(src) ? src : (struct sockaddr *)&from);
        if (e) return cm_fail(e);
    } else if (is_any(&to->src_addr)) {
        __be16 port = rdma_get_src_port(p);
        memcpy(&to->src_storage, &from, sizeof from);
        if (from.ss_family == AF_INET)
            to->src_sin.sin_port = port;
        else
            to->src_sin6.sin6_port = port;
    }
    memset(&to->dst_storage, 0, sizeof to->dst_storage);
    memcpy(&to->dst_storage, dst, cm_length(dst));
    if (cm_place(id)) return -1;
    pthread_mutex_lock(&cm_lock);
    id->state = FOUND;
    e = cm_queue(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL);
    pthread_mutex_unlock(&cm_lock);
    return e ? cm_fail(e) : cm_complete(id);
}

// The way is known when the other side has answered; until then it has what is known of this side.
API int rdma_resolve_route(struct rdma_cm_id *p, int timeout_ms) {
    struct cm_id *id = CM_ID(p);
    (void)timeout_ms;
    if (id->state != FOUND) return cm_fail(EINVAL);
    struct ibv_sa_path_rec *path = calloc(1, sizeof *path);
    if (!path) return cm_fail(ENOMEM);
    path->sgid = p->route.addr.addr.ibaddr.sgid;
    path->slid = htons(id->port.lid);
    path->pkey = p->route.addr.addr.ibaddr.pkey;
    path->reversible = path->numb_path = 1;
    path->mtu = (uint8_t)id->port.active_mtu;
    path->mtu_selector = path->rate_selector = path->packet_life_time_selector = 2; // exactly
    path->hop_limit = 64;
    free(p->route.path_rec);
    p->route.path_rec = path;
    p->route.num_paths = 1;
    pthread_mutex_lock(&cm_lock);
    id->state = ROUTED;
    int e = cm_queue(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
    pthread_mutex_unlock(&cm_lock);
    return e ? cm_fail(e) : cm_complete(id);
}

// ---- rdma_getaddrinfo -------------------------------------------------------------------------------

static int copy(struct sockaddr **to, socklen_t *length, const struct sockaddr *a, socklen_t n) {
    if (!a || !n) return 0;
    if (!(*to = malloc(n))) return cm_fail(ENOMEM);
    memcpy(*to, a, n);
    *length = n;
    return 0;
}

static int look_up(const char *node, const char *service, const struct rdma_addrinfo *hints,
                   struct rdma_addrinfo *r) {
    bool datagrams = hints->ai_port_space == RDMA_PS_UDP || hints->ai_qp_type == IBV_QPT_UD;
    struct addrinfo want = {.ai_family = hints->ai_family,
                            .ai_socktype = datagrams ? SOCK_DGRAM : SOCK_STREAM};
    struct addrinfo *found;
    if (hints->ai_flags & RAI_PASSIVE) want.ai_flags |= AI_PASSIVE;
    if (hints->ai_flags & RAI_NUMERICHOST) want.ai_flags |= AI_NUMERICHOST;
    int e = getaddrinfo(node, service, &want, &found);
    if (e) return e;
    r->ai_family = found->ai_family;
    r->ai_qp_type = hints->ai_qp_type ? hints->ai_qp_type : datagrams ? IBV_QPT_UD : IBV_QPT_RC;
    r->ai_port_space = hints->ai_port_space ? hints->ai_port_space : datagrams ? RDMA_PS_UDP : RDMA_PS_TCP;
    if (hints->ai_flags & RAI_PASSIVE) {
        r->ai_flags = RAI_PASSIVE;
        e = copy(&r->ai_src_addr, &r->ai_src_len, found->ai_addr, found->ai_addrlen);
    } else {
        e = copy(&r->ai_dst_addr, &r->ai_dst_len, found->ai_addr, found->ai_addrlen);
    }
    freeaddrinfo(found);
    return e;
}

API int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                         struct rdma_addrinfo **result) {
    static const struct rdma_addrinfo none;
    int e = 0;
    if (!node && !service && !hints) return cm_fail(EINVAL);
    if (cm_devices()) return -1;
    if (!hints) hints = &none;
    struct rdma_addrinfo *r = calloc(1, sizeof *r);
    if (!r) return cm_fail(ENOMEM);
    if (node || service) {
        e = look_up(node, service, hints, r);
    } else {
        r->ai_flags = hints->ai_flags;
        r->ai_family = hints->ai_family;
        r->ai_qp_type = hints->ai_qp_type;
        r->ai_port_space = hints->ai_port_space;
        e = copy(&r->ai_dst_addr, &r->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len);
    }
    if (!e && !r->ai_src_len)
        e = copy(&r->ai_src_addr, &r->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
    if (e) {
        rdma_freeaddrinfo(r);
        return e;
    }
    *result = r;
    return 0;
}

API void rdma_freeaddrinfo(struct rdma_addrinfo *r) {
    while (r) {
        struct rdma_addrinfo *next = r->ai_next;
        free(r->ai_src_addr);
        free(r->ai_dst_addr);
        free(r->ai_src_canonname);
        free(r->ai_dst_canonname);
        free(r->ai_route);
        free(r->ai_connect);
        free(r);
        r = next;
    }
}
