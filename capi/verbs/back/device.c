// SPDX-License-Identifier: Apache-2.0
//
// device.c: devices and ports.  What a process has seen first of a port is what its program sees for ever.
#include "verbs/back/lower.h"

#include <fcntl.h>

// After a restart the program finds its devices by their names, whatever stands for them here.
static void under_former_names(struct v_about *about, int n) {
    for (const struct v_device *d = root ? root->devices : NULL; d; d = d->next) {
        char name[IBV_SYSFS_NAME_MAX], why[300];
        bool here = false;
        for (int i = 0; i < n; i++) here = here || !strcmp(about[i].name, d->d.name);
        if (here || device_name(d->d.name, name, why, sizeof why)) continue;
        for (int i = 0; i < n; i++) {
            if (strcmp(about[i].name, name)) continue;
            memcpy(about[i].name, d->d.name, sizeof about[i].name);
            about[i].guid = d->guid;
            break;
        }
    }
}

long f_devices(const long *a) {
    struct v_about *about = ARG(struct v_about *, 0);
    int max = ARG(int, 1), n = 0;
    errno = 0;
    struct ibv_device **list = real.ibv_get_device_list(&n);
    if (!list) return -error_number();
    if (n > max) n = max;
    for (int i = 0; i < n; i++) {
        memcpy(about[i].name, list[i]->name, sizeof about[i].name);
        memcpy(about[i].dev_name, list[i]->dev_name, sizeof about[i].dev_name);
        memcpy(about[i].dev_path, list[i]->dev_path, sizeof about[i].dev_path);
        memcpy(about[i].ibdev_path, list[i]->ibdev_path, sizeof about[i].ibdev_path);
        about[i].node_type = list[i]->node_type;
        about[i].transport_type = list[i]->transport_type;
        about[i].guid = real.ibv_get_device_guid(list[i]);
        about[i].index = real.ibv_get_device_index(list[i]);
    }
    real.ibv_free_device_list(list);
    under_former_names(about, n);
    return n;
}

// Which device of this machine stands for one that the program has opened.
int device_name(const char *wanted, char *name, char *why, size_t bytes) {
    const char *chosen = getenv("CKPT_VERBS_DEVICE");
    int n = 0, r = ENODEV;
    errno = 0;
    struct ibv_device **list = real.ibv_get_device_list(&n);
    if (!list) {
        snprintf(why, bytes, "the program uses the InfiniBand device %s, and this machine has none: %s",
                 wanted, strerror(error_number()));
        return ENODEV;
    }
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i]->name, chosen ? chosen : wanted)) r = 0, strcpy(name, list[i]->name);
    if (r && !chosen && n == 1) r = 0, strcpy(name, list[0]->name);
    if (r && chosen)
        snprintf(why, bytes, "CKPT_VERBS_DEVICE=%s: this machine has no such device", chosen);
    else if (r)
        snprintf(why, bytes,
                 "this machine has no InfiniBand device %s, but %d others: name one by CKPT_VERBS_DEVICE",
                 wanted, n);
    real.ibv_free_device_list(list);
    return r;
}

// Which sort of address a gid is: one stands for another of the same sort.
enum { NOTHING, LINK_LOCAL, IPV4, GLOBAL };
static int sort_of(const union ibv_gid *g) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, nothing[16];
    if (!memcmp(g->raw, nothing, 16)) return NOTHING;
    if (g->raw[0] == 0xfe && (g->raw[1] & 0xc0) == 0x80) return LINK_LOCAL;
    return memcmp(g->raw, mapped, 12) ? GLOBAL : IPV4;
}

// How well an entry of another type stands for one: peers that have the same entries must choose alike.
static int fitness(const struct v_port *now, int k, int sort) {
    int s = sort_of(&now->gid[k]);
    if (s == NOTHING) return 0;
    return 1 + (now->gid_type[k] == IBV_GID_TYPE_ROCE_V2) + 2 * (s == sort);
}

// Finds the entry of the table `now` that stands for the i-th of `first`: the one of its sort and type that comes as late
// among its like, else one of its sort, else any.
static int stands_for(const struct v_port *first, int i, const struct v_port *now) {
    int sort = sort_of(&first->gid[i]), nth = 0, best = i, fits = 0;
    for (int k = 0; k < i; k++)
        nth += sort_of(&first->gid[k]) == sort && first->gid_type[k] == first->gid_type[i];
    for (int k = 0; k < (int)now->gids; k++) {
        if (sort_of(&now->gid[k]) == sort && now->gid_type[k] == first->gid_type[i] && nth-- == 0) return k;
        int f = fitness(now, k, sort);
        if (f > fits) best = k, fits = f;
    }
    return best;
}

static void read_gids(struct ibv_context *rc, int port, int length, struct v_port *p) {
    while (p->gids < V_GIDS && (int)p->gids < length &&
           !real.ibv_query_gid(rc, (uint8_t)port, (int)p->gids, &p->gid[p->gids])) {
        struct ibv_gid_entry e;
        bool told = sort_of(&p->gid[p->gids]) != NOTHING &&
                    !real._ibv_query_gid_ex(rc, (uint32_t)port, p->gids, &e, 0, sizeof e);
        p->gid_type[p->gids++] = told ? (uint8_t)e.gid_type : 0xff;
    }
}

static void look_at_ports(struct v_context *c) {
    struct v_device *d = (struct v_device *)c->v.context.device;
    struct ports *now = (struct ports *)c->lower;
    for (int p = 1; p <= V_PORTS; p++) {
        struct ibv_port_attr attr;
        if (real_port(REAL_CONTEXT(c), p, &attr)) break;
        now->lid[p] = attr.lid;
        now->ethernet[p] = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
        now->mtu[p] = (uint16_t)attr.active_mtu;
        struct v_port table = {.seen = 1, .lid = attr.lid, .link_layer = attr.link_layer};
        read_gids(REAL_CONTEXT(c), p, attr.gid_tbl_len, &table);
        if (!d->port[p].seen) d->port[p] = table;
        for (int i = 0; i < (int)d->port[p].gids; i++) {
            int k = stands_for(&d->port[p], i, &table);
            now->gid_index[p][i] = (uint8_t)k;
            now->gid[p][i] = table.gid[k < V_GIDS ? k : 0];
            now->gid_type[p][i] = k < (int)table.gids ? table.gid_type[k] : 0xff;
        }
    }
}

// What is not offered is not promised.
static void mask(struct ibv_device_attr *d) {
    d->max_fmr = d->max_rdd = d->max_ee = 0;
    d->max_raw_ipv6_qp = d->max_raw_ethy_qp = 0;
    d->max_qp_wr = d->max_qp_wr > 16 ? d->max_qp_wr - 8 : d->max_qp_wr; // some are ours
    d->max_srq_wr = d->max_srq_wr > 16 ? d->max_srq_wr - 8 : d->max_srq_wr;
    d->max_cqe = d->max_cqe > 256 ? d->max_cqe - 64 : d->max_cqe;
    d->device_cap_flags &=
        ~(unsigned)(IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_XRC | IBV_DEVICE_MANAGED_FLOW_STEERING);
}

uint8_t device_gid_index(const struct v_context *c, int port, uint8_t index) {
    const struct v_device *d = (const struct v_device *)c->v.context.device;
    const struct ports *now = (const struct ports *)c->lower;
    if (!now || port < 1 || port > V_PORTS || index >= d->port[port].gids) return index;
    return now->gid_index[port][index];
}

struct way device_way(const struct v_context *c, const struct ibv_ah_attr *a) {
    const struct v_device *d = (const struct v_device *)c->v.context.device;
    struct way w = {.port = a->port_num, .index = a->grh.sgid_index, .type = 0xff};
    if (w.port < 1 || w.port > V_PORTS) return w;
    const struct v_port *p = &d->port[w.port];
    w.ethernet = p->link_layer == IBV_LINK_LAYER_ETHERNET;
    if (w.index < p->gids) w.type = p->gid_type[w.index];
    return w;
}

static const char *type_text(uint8_t type, const union ibv_gid *gid, char *text, size_t n) {
    static const char *const types[] = {[IBV_GID_TYPE_IB] = "InfiniBand",
                                        [IBV_GID_TYPE_ROCE_V1] = "RoCE v1",
                                        [IBV_GID_TYPE_ROCE_V2] = "RoCE v2"};
    snprintf(text, n, "%s, %s", type < sizeof types / sizeof *types ? types[type] : "unknown",
             sort_of(gid) == IPV4 ? "IPv4" : "IPv6");
    return text;
}

bool device_no_way(const struct v_context *c, const struct way *from, const struct verbs_who *who, int to,
                   char *why, size_t bytes) {
    uint8_t port = from->port, index = from->index;
    const struct v_device *d = (const struct v_device *)c->v.context.device;
    const struct ports *now = (const struct ports *)c->lower;
    char here[40], there[40];
    static const char *const links[] = {"InfiniBand", "Ethernet"};
    if (port < 1 || port > V_PORTS) return false;
    if (!now->ethernet[port] != !who->ethernet) {
        snprintf(why, bytes, "%s is on %s, and its peer on %s", REAL_CONTEXT(c)->device->name,
                 links[now->ethernet[port] != 0], links[who->ethernet != 0]);
        return true;
    }
    if (to < 0 || index >= d->port[port].gids) return false;
    const union ibv_gid *gid = &now->gid[port][index];
    if (sort_of(gid) == NOTHING) {
        type_text(d->port[port].gid_type[index], &d->port[port].gid[index], here, sizeof here);
        snprintf(why, bytes, "%s has no gid that could stand for the one of type %s",
                 REAL_CONTEXT(c)->device->name, here);
        return true;
    }
    union ibv_gid peer;
    memcpy(&peer, who->real_gid[to], sizeof peer);
    uint8_t type = now->gid_type[port][index];
    if (type == 0xff || who->real_type[to] == 0xff) return false;
    if (type == who->real_type[to] && (sort_of(gid) == IPV4) == (sort_of(&peer) == IPV4)) return false;
    snprintf(why, bytes, "its gid on %s is of type %s, and that of its peer of type %s",
             REAL_CONTEXT(c)->device->name, type_text(type, gid, here, sizeof here),
             type_text(who->real_type[to], &peer, there, sizeof there));
    return true;
}

int device_open(struct v_context *c, const char *name) {
    int n = 0;
    errno = 0;
    struct ibv_device **list = real.ibv_get_device_list(&n);
    if (!list) return error_number();
    struct ibv_context *rc = NULL;
    errno = ENODEV;
    for (int i = 0; i < n && !rc; i++)
        if (!strcmp(list[i]->name, name)) rc = real.ibv_open_device(list[i]);
    int e = rc ? 0 : error_number();
    real.ibv_free_device_list(list);
    if (e) return e;
    struct ports *now = calloc(1, sizeof *now);
    if (!now) e = ENOMEM;
    fcntl(rc->async_fd, F_SETFL, fcntl(rc->async_fd, F_GETFL) | O_NONBLOCK);
    if (!e) e = bell_make(&c->bell, rc->async_fd);
    if (e) {
        free(now);
        real.ibv_close_device(rc);
        return e;
    }
    c->real = (uint64_t)rc;
    c->lower = (uint64_t)now;
    c->v.context.num_comp_vectors = rc->num_comp_vectors;
    struct ibv_device_attr attr;
    if (!real.ibv_query_device(rc, &attr)) {
        now->rd_atomics = attr.max_qp_rd_atom;
        now->rd_atomics_asked = attr.max_qp_init_rd_atom;
    }
    look_at_ports(c);
    real.ibv_query_device(rc, &now->limits);
    mask(&now->limits);
    return 0;
}

long f_open(const long *a) {
    struct v_context *c = ARG(struct v_context *, 0);
    char name[IBV_SYSFS_NAME_MAX], why[300];
    int e = device_open(c, c->v.context.device->name);
    if (e == ENODEV && !device_name(c->v.context.device->name, name, why, sizeof why))
        e = device_open(c, name);
    if (!e) list_add(&root->contexts, &c->node);
    return e;
}

long f_close(const long *a) {
    struct v_context *c = ARG(struct v_context *, 0);
    bell_end(&c->bell);
    int r = real.ibv_close_device(REAL_CONTEXT(c));
    if (r) return r < 0 ? error_number() : r;
    list_remove(&c->node);
    free((void *)c->lower);
    return 0;
}

long f_device(const long *a) {
    struct ibv_device_attr *d = ARG(struct ibv_device_attr *, 1);
    int r = real.ibv_query_device(REAL_CONTEXT(ARG(struct v_context *, 0)), d);
    if (!r) mask(d);
    return r;
}

long f_device_ex(const long *a) {
    struct ibv_context *rc = REAL_CONTEXT(ARG(struct v_context *, 0));
    struct ibv_device_attr_ex *d = ARG(struct ibv_device_attr_ex *, 1);
    struct verbs_context *v = verbs_get_ctx_op(rc, query_device_ex);
    int r = v ? v->query_device_ex(rc, NULL, d, (size_t)a[2]) : EOPNOTSUPP;
    if (r == EOPNOTSUPP || r == ENOSYS) {
        memset(d, 0, sizeof *d);
        r = real.ibv_query_device(rc, &d->orig_attr);
    }
    if (r) return r;
    mask(&d->orig_attr);
    struct ibv_device_attr_ex own = {.orig_attr = d->orig_attr,
                                     .phys_port_cnt_ex = d->phys_port_cnt_ex,
                                     .device_cap_flags_ex = d->orig_attr.device_cap_flags,
                                     .completion_timestamp_mask = 0};
    *d = own;
    return 0;
}

long f_port(const long *a) {
    struct v_context *c = ARG(struct v_context *, 0);
    int port = ARG(int, 1);
    struct ibv_port_attr *attr = ARG(struct ibv_port_attr *, 2);
    int r = real_port(REAL_CONTEXT(c), port, attr);
    const struct v_device *d = (const struct v_device *)c->v.context.device;
    if (r || port < 1 || port > V_PORTS || !d->port[port].seen) return r;
    attr->lid = d->port[port].lid;
    if (d->port[port].link_layer) attr->link_layer = d->port[port].link_layer;
    return 0;
}

// Puts the gid as it was first seen in the place of the one that stands there now; false: there was none. An address that
// the port has got since is noted.
static bool former(struct v_context *c, int port, uint32_t index, union ibv_gid *gid) {
    struct v_device *d = (struct v_device *)c->v.context.device;
    if (port < 1 || port > V_PORTS || index >= d->port[port].gids) return false;
    struct v_port *p = &d->port[port];
    struct ports *now = (struct ports *)c->lower;
    if (sort_of(&p->gid[index]) == NOTHING) {
        if (sort_of(gid) == NOTHING) return false;
        p->gid[index] = now->gid[port][index] = *gid;
        now->gid_index[port][index] = (uint8_t)index;
        return true;
    }
    *gid = p->gid[index];
    return true;
}

static void former_entry(struct v_context *c, struct ibv_gid_entry *e) {
    const struct v_device *d = (const struct v_device *)c->v.context.device;
    if (!former(c, (int)e->port_num, e->gid_index, &e->gid)) return;
    uint8_t type = d->port[e->port_num].gid_type[e->gid_index];
    if (type != 0xff) e->gid_type = type;
}

// The new device may have fewer than the program has seen.
long f_gid(const long *a) {
    struct v_context *c = ARG(struct v_context *, 0);
    union ibv_gid gid = {0};
    errno = 0;
    int e = real.ibv_query_gid(REAL_CONTEXT(c), ARG(uint8_t, 1), ARG(int, 2), &gid) ? error_number() : 0;
    if (former(c, ARG(int, 1), ARG(uint32_t, 2), &gid)) e = 0;
    if (!e) *ARG(union ibv_gid *, 3) = gid;
    return e;
}

long f_gid_ex(const long *a) {
    struct v_context *c = ARG(struct v_context *, 0);
    struct ibv_gid_entry *e = ARG(struct ibv_gid_entry *, 3);
    uint8_t there = a[2] >= 0 && a[2] < V_GIDS ? device_gid_index(c, ARG(int, 1), (uint8_t)a[2]) : 0;
    uint32_t index = a[2] >= 0 && a[2] < V_GIDS ? there : ARG(uint32_t, 2);
    int r =
        real._ibv_query_gid_ex(REAL_CONTEXT(c), ARG(uint32_t, 1), index, e, ARG(uint32_t, 4), (size_t)a[5]);
    if (r) return r;
    e->gid_index = ARG(uint32_t, 2);
    former_entry(c, e);
    return 0;
}

long f_gid_table(const long *a) {
    struct v_context *c = ARG(struct v_context *, 0);
    struct ibv_gid_entry *e = ARG(struct ibv_gid_entry *, 1);
    ssize_t n = real._ibv_query_gid_table(REAL_CONTEXT(c), e, (size_t)a[2], ARG(uint32_t, 3), (size_t)a[4]);
    for (ssize_t i = 0; i < n && (size_t)a[4] == sizeof *e; i++) former_entry(c, &e[i]);
    return n;
}

long f_pkey(const long *a) {
    errno = 0;
    int r = real.ibv_query_pkey(REAL_CONTEXT(ARG(struct v_context *, 0)), ARG(uint8_t, 1), ARG(int, 2),
                                ARG(__be16 *, 3));
    return r ? error_number() : 0;
}

long f_text(const long *a) {
    int n = ARG(int, 1);
    const char *s = a[0] == V_TEXT_STATUS ? real.ibv_wc_status_str((enum ibv_wc_status)n)
                    : a[0] == V_TEXT_NODE ? real.ibv_node_type_str((enum ibv_node_type)n)
                    : a[0] == V_TEXT_PORT ? real.ibv_port_state_str((enum ibv_port_state)n)
                                          : real.ibv_event_type_str((enum ibv_event_type)n);
    snprintf(ARG(char *, 2), (size_t)a[3], "%s", s);
    return 0;
}

long f_rate(const long *a) {
    int n = ARG(int, 1);
    switch (a[0]) {
    case V_RATE_TO_MULT:
        return real.ibv_rate_to_mult((enum ibv_rate)n);
    case V_RATE_OF_MULT:
        return real.mult_to_ibv_rate(n);
    case V_RATE_TO_MBPS:
        return real.ibv_rate_to_mbps((enum ibv_rate)n);
    default:
        return real.mbps_to_ibv_rate(n);
    }
}
