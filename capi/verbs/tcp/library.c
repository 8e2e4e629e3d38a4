// SPDX-License-Identifier: Apache-2.0
//
// library.c: a libibverbs with one device, the soft adapter over TCP: for machines that have no InfiniBand.
//
// The back of programs on verbs calls it as it calls the machine's libibverbs, by the names of its functions. It has
// those that the back needs. What libibverbs fills in of objects is filled in here; the rest is that of the provider.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>

#include "verbs/tcp/tcp.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

static struct ibv_device device = {
    .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "tcp0", .dev_name = "tcp0"};

static const struct abi_context_ops *const ops = &provider_ops;

// ---- devices ----

TCP_EXPORT struct ibv_device **ibv_get_device_list(int *n) {
    struct ibv_device **list = calloc(2, sizeof *list);
    if (list == NULL) return NULL;
    list[0] = &device;
    if (n != NULL) *n = 1;
    return list;
}

TCP_EXPORT void ibv_free_device_list(struct ibv_device **list) { free(list); }
TCP_EXPORT const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }
TCP_EXPORT int ibv_get_device_index(struct ibv_device *d) { return d == &device ? 0 : -1; }

// Of the process: the device is.
TCP_EXPORT __be64 ibv_get_device_guid(struct ibv_device *d) {
    union ibv_gid gid;
    (void)d;
    if (tcp_start(&provider_tell) != 0) return 0;
    tcp_gid(&gid);
    return gid.global.interface_id;
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size) {
    struct ibv_port_attr all;
    int rc = ops->query_port(context, port, &all);
    if (rc != 0) return rc;
    memset(attr, 0, size);
    memcpy(attr, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

TCP_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *d) {
    int rc = tcp_start(&provider_tell);
    struct provider_context *c = rc == 0 ? calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        errno = rc != 0 ? rc : ENOMEM;
        return NULL;
    }
    struct ibv_context *context = &c->verbs.context;
    c->ethernet = true;
    c->lid = tcp_lid();
    c->events = provider_events(&context->async_fd, true);
    if (c->events < 0) {
        free(c);
        return NULL;
    }
    context->device = d, context->cmd_fd = -1, context->num_comp_vectors = 1;
    context->abi_compat = __VERBS_ABI_IS_EXTENDED;
    pthread_mutex_init(&context->mutex, NULL);
    context->ops.poll_cq = ops->poll_cq, context->ops.req_notify_cq = ops->req_notify_cq;
    context->ops.post_send = ops->post_send, context->ops.post_recv = ops->post_recv;
    context->ops.post_srq_recv = ops->post_srq_recv;
    context->ops.alloc_mw = ops->alloc_mw, context->ops.dealloc_mw = ops->dealloc_mw;
    context->ops.bind_mw = ops->bind_mw;
    c->verbs.sz = sizeof c->verbs;
    c->verbs.query_port = query_port;
    c->verbs.query_device_ex = ops->query_device_ex;
    c->verbs.create_qp_ex = ops->create_qp_ex;
    return context;
}

TCP_EXPORT int ibv_close_device(struct ibv_context *context) {
    close(context->async_fd);
    pthread_mutex_destroy(&context->mutex);
    free(provider_of(context));
    return 0;
}

TCP_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    struct ibv_device_attr_ex all;
    int rc = ops->query_device_ex(context, NULL, &all, sizeof all);
    if (rc == 0) *attr = all.orig_attr;
    return rc;
}

// Of programs that were compiled before there were flags in it: the new form begins like the old one.
TCP_EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
    return query_port(context, port, (struct ibv_port_attr *)attr,
                      offsetof(struct ibv_port_attr, link_layer) + 2);
}

TCP_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    (void)context;
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    tcp_gid(gid);
    return 0;
}

TCP_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                                 struct ibv_gid_entry *entry, uint32_t flags, size_t size) {
    if (flags != 0) return EOPNOTSUPP;
    if (port != 1 || index != 0 || size < sizeof *entry) return EINVAL;
    *entry = (struct ibv_gid_entry){.port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2};
    return ibv_query_gid(context, 1, 0, &entry->gid) != 0 ? errno : 0;
}

TCP_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                        size_t max, uint32_t flags, size_t size) {
    if (max < 1) return -EINVAL;
    int rc = _ibv_query_gid_ex(context, 1, 0, entries, flags, size);
    return rc != 0 ? -rc : 1;
}

TCP_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey) {
    (void)context;
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = 0xffff;
    return 0;
}

// ---- objects ----

TCP_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct ibv_pd *pd = ops->alloc_pd(context);
    if (pd != NULL) pd->context = context;
    return pd;
}

TCP_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd) { return ops->dealloc_pd(pd); }

TCP_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t length, uint64_t iova,
                                           unsigned access) {
    struct ibv_mr *mr =
        ops->reg_mr(pd, at, length, iova, (int)(access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE));
    if (mr != NULL) mr->context = pd->context, mr->pd = pd, mr->addr = at, mr->length = length;
    return mr;
}

TCP_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t length, int access) {
    return ibv_reg_mr_iova2(pd, at, length, (uintptr_t)at, (unsigned)access);
}

TCP_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *at, size_t length,
                            int access) {
    int rc = ops->rereg_mr((struct abi_mr *)mr, flags, pd, at, length, access);
    if (rc != 0) {
        errno = rc;
        return IBV_REREG_MR_ERR_CMD;
    }
    if (flags & IBV_REREG_MR_CHANGE_PD) mr->pd = pd;
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) mr->addr = at, mr->length = length;
    return 0;
}

TCP_EXPORT int ibv_dereg_mr(struct ibv_mr *mr) { return ops->dereg_mr((struct abi_mr *)mr); }

TCP_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    struct ibv_comp_channel *c = calloc(1, sizeof *c);
    if (c == NULL) return NULL;
    c->context = context;
    if (provider_events(&c->fd, false) >= 0) return c;
    free(c);
    return NULL;
}

TCP_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    if (channel->refcnt > 0) return EBUSY;
    close(channel->fd);
    free(channel);
    return 0;
}

TCP_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *mine,
                                        struct ibv_comp_channel *channel, int vector) {
    struct ibv_cq *cq = ops->create_cq(context, entries, channel, vector);
    if (cq == NULL) return NULL;
    cq->context = context, cq->channel = channel, cq->cq_context = mine;
    pthread_mutex_init(&cq->mutex, NULL);
    pthread_cond_init(&cq->cond, NULL);
    if (channel != NULL) __atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_SEQ_CST);
    return cq;
}

TCP_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int entries) { return ops->resize_cq(cq, entries); }

TCP_EXPORT int ibv_destroy_cq(struct ibv_cq *cq) {
    struct ibv_comp_channel *channel = cq->channel;
    int rc = ops->destroy_cq(cq);
    if (rc == 0 && channel != NULL) __atomic_sub_fetch(&channel->refcnt, 1, __ATOMIC_SEQ_CST);
    return rc;
}

TCP_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **mine) {
    uint64_t handle;
    if (read(channel->fd, &handle, sizeof handle) != sizeof handle) return -1;
    *cq = (struct ibv_cq *)(uintptr_t)handle;
    *mine = (*cq)->cq_context;
    return 0;
}

TCP_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n) {
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += n;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

TCP_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    struct ibv_srq *srq = ops->create_srq(pd, attr);
    if (srq == NULL) return NULL;
    srq->context = pd->context, srq->pd = pd, srq->srq_context = attr->srq_context;
    pthread_mutex_init(&srq->mutex, NULL);
    pthread_cond_init(&srq->cond, NULL);
    return srq;
}

TCP_EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) {
    return ops->modify_srq(srq, attr, mask);
}

TCP_EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) {
    return ops->query_srq(srq, attr);
}
TCP_EXPORT int ibv_destroy_srq(struct ibv_srq *srq) { return ops->destroy_srq(srq); }

TCP_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    return ops->create_qp(pd, attr);
}

TCP_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    int rc = ops->modify_qp(qp, attr, mask);
    if (rc == 0 && mask & IBV_QP_STATE) qp->state = attr->qp_state;
    return rc;
}

TCP_EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                            struct ibv_qp_init_attr *init) {
    return ops->query_qp(qp, attr, mask, init);
}

TCP_EXPORT int ibv_destroy_qp(struct ibv_qp *qp) { return ops->destroy_qp(qp); }

TCP_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
    struct abi_qp *q = (struct abi_qp *)qp;
    return q->has & ABI_QP_EX ? &q->ex : NULL;
}

TCP_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
    return ops->create_ah(pd, attr);
}
TCP_EXPORT int ibv_destroy_ah(struct ibv_ah *ah) { return ops->destroy_ah(ah); }

TCP_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    (void)qp, (void)gid, (void)lid;
    return EOPNOTSUPP;
}

TCP_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    (void)qp, (void)gid, (void)lid;
    return EOPNOTSUPP;
}

// ---- events of objects ----

TCP_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    struct ib_uverbs_async_event_desc e;
    if (read(context->async_fd, &e, sizeof e) != sizeof e) return -1;
    event->event_type = (enum ibv_event_type)e.event_type;
    event->element.qp = (struct ibv_qp *)(uintptr_t)e.element; // or another member: they lie in one place
    return 0;
}

static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed) {
    pthread_mutex_lock(mutex);
    ++*completed;
    pthread_cond_signal(cond);
    pthread_mutex_unlock(mutex);
}

TCP_EXPORT void ibv_ack_async_event(struct ibv_async_event *event) {
    struct ibv_cq *cq = event->element.cq;
    struct ibv_srq *srq = event->element.srq;
    struct ibv_qp *qp = event->element.qp;
    if (event->event_type == IBV_EVENT_CQ_ERR)
        acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed);
    else if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED)
        acknowledge(&srq->mutex, &srq->cond, &srq->events_completed);
    else if (event->event_type != IBV_EVENT_DEVICE_FATAL)
        acknowledge(&qp->mutex, &qp->cond, &qp->events_completed);
}
