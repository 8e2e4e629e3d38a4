// SPDX-License-Identifier: Apache-2.0
//
// objects.c: what a context is asked for, but queue pairs.
//
// libibverbs fills in the public part of what is made here; of queue pairs it does not.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/ib_user_verbs.h>

#include "verbs/soft/provider/provider.h"

static void *failed(void *object, int rc) {
    free(object);
    errno = rc;
    return NULL;
}

// ---- domains and memory ----

struct provider_pd {
    struct ibv_pd pd;
    unsigned users;
};

static struct ibv_pd *alloc_pd(struct ibv_context *context) {
    struct provider_pd *pd = calloc(1, sizeof *pd);
    (void)context;
    return pd == NULL ? failed(NULL, ENOMEM) : &pd->pd;
}

static int dealloc_pd(struct ibv_pd *pd) {
    if (__atomic_load_n(&((struct provider_pd *)pd)->users, __ATOMIC_SEQ_CST) > 0) return EBUSY;
    free(pd);
    return 0;
}

static void use(struct ibv_pd *pd, int n) {
    __atomic_add_fetch(&((struct provider_pd *)pd)->users, (unsigned)n, __ATOMIC_SEQ_CST);
}

struct provider_mr {
    struct abi_mr mr;
    struct soft_key *soft;
};

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *at, size_t length, uint64_t iova, int access) {
    struct provider_mr *mr = calloc(1, sizeof *mr);
    if (mr == NULL) return failed(NULL, ENOMEM);
    int rc = soft_register(pd, at, length, iova, access, &mr->soft);
    if (rc != 0) return failed(mr, rc);
    mr->mr.access = access;
    mr->mr.mr.lkey = mr->mr.mr.rkey = soft_key_number(mr->soft);
    use(pd, 1);
    return &mr->mr.mr;
}

static int rereg_mr(struct abi_mr *mr, int flags, struct ibv_pd *pd, void *at, size_t length, int access) {
    int rc = soft_rekey(((struct provider_mr *)mr)->soft, flags, pd, at, length, access);
    if (rc == 0 && flags & IBV_REREG_MR_CHANGE_PD) use(mr->mr.pd, -1), use(pd, 1);
    return rc;
}

static int dereg_mr(struct abi_mr *mr) {
    int rc = soft_unregister(((struct provider_mr *)mr)->soft);
    if (rc != 0) return rc;
    use(mr->mr.pd, -1);
    free(mr);
    return 0;
}

struct provider_mw {
    struct ibv_mw mw;
    struct soft_key *soft;
};

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) {
    struct provider_mw *mw = calloc(1, sizeof *mw);
    if (mw == NULL) return failed(NULL, ENOMEM);
    int rc = soft_window_new(pd, (int)type, &mw->soft);
    if (rc != 0) return failed(mw, rc);
    mw->mw =
        (struct ibv_mw){.context = pd->context, .pd = pd, .rkey = soft_key_number(mw->soft), .type = type};
    use(pd, 1);
    return &mw->mw;
}

static int dealloc_mw(struct ibv_mw *mw) {
    (void)soft_unregister(((struct provider_mw *)mw)->soft);
    use(mw->pd, -1);
    free(mw);
    return 0;
}

// Of the first type: the adapter chooses the key.
static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
    struct ibv_send_wr wr = {.wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags},
                       *bad;
    wr.bind_mw.mw = mw, wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey), wr.bind_mw.bind_info = bind->bind_info;
    int rc = provider_post_send(qp, &wr, &bad);
    if (rc == 0) mw->rkey = wr.bind_mw.rkey;
    return rc;
}

// ---- completion queues ----

struct ibv_cq *provider_create_cq(struct ibv_context *context, int entries, struct ibv_comp_channel *channel,
                                  int vector) {
    struct provider_cq *cq = calloc(1, sizeof *cq);
    if (vector < 0 || vector >= context->num_comp_vectors) return failed(cq, EINVAL);
    if (cq == NULL) return failed(NULL, ENOMEM);
    cq->channel = channel != NULL ? provider_channel(channel->fd) : -1;
    // Events may come before libibverbs has filled it in.
    cq->cq.cq.context = context;
    int rc = soft_cq_new(entries, cq, channel != NULL, &cq->soft);
    if (rc != 0) return failed(cq, rc);
    cq->cq.cq.cqe = entries;
    return &cq->cq.cq;
}

static int resize_cq(struct ibv_cq *cq, int entries) {
    int rc = soft_cq_resize(((struct provider_cq *)cq)->soft, entries);
    if (rc == 0) cq->cqe = entries;
    return rc;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
    return soft_cq_poll(((struct provider_cq *)cq)->soft, n, wc);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited) {
    soft_cq_arm(((struct provider_cq *)cq)->soft, solicited != 0);
    return 0;
}

static int destroy_cq(struct ibv_cq *cq) {
    struct provider_cq *c = (struct provider_cq *)cq;
    if (c->channel >= 0) c->told -= provider_forget(c->channel, (uintptr_t)cq, sizeof(uint64_t));
    c->events_sent -= provider_forget(provider_of(cq->context)->events, (uintptr_t)cq,
                                      sizeof(struct ib_uverbs_async_event_desc));
    // Who has an event of it must acknowledge it first.
    pthread_mutex_lock(&cq->mutex);
    while (cq->comp_events_completed != c->told || cq->async_events_completed != c->events_sent)
        pthread_cond_wait(&cq->cond, &cq->mutex);
    pthread_mutex_unlock(&cq->mutex);
    soft_cq_free(c->soft);
    free(c);
    return 0;
}

// ---- shared receive queues ----

static struct ibv_srq *create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    struct provider_srq *srq = calloc(1, sizeof *srq);
    if (srq == NULL) return failed(NULL, ENOMEM);
    srq->srq.srq.context = pd->context;
    int rc = soft_srq_new(pd, attr->attr.max_wr, attr->attr.max_sge, srq, &srq->soft);
    if (rc != 0) return failed(srq, rc);
    use(pd, 1);
    return &srq->srq.srq;
}

static int modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) {
    return soft_srq_modify(((struct provider_srq *)srq)->soft, attr, mask);
}

static int query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) {
    soft_srq_query(((struct provider_srq *)srq)->soft, attr);
    return 0;
}

static int destroy_srq(struct ibv_srq *srq) {
    struct provider_srq *s = (struct provider_srq *)srq;
    s->events_sent -= provider_forget(provider_of(srq->context)->events, (uintptr_t)srq,
                                      sizeof(struct ib_uverbs_async_event_desc));
    pthread_mutex_lock(&srq->mutex);
    while (srq->events_completed != s->events_sent) pthread_cond_wait(&srq->cond, &srq->mutex);
    pthread_mutex_unlock(&srq->mutex);
    use(srq->pd, -1);
    soft_srq_free(s->soft);
    free(s);
    return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    return soft_srq_post(((struct provider_srq *)srq)->soft, wr, bad);
}

// ---- what it is ----

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr) {
    if (port != 1) return EINVAL;
    *attr = (struct ibv_port_attr){
        .state = IBV_PORT_ACTIVE,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = (enum ibv_mtu)soft_limit("CKPTSOFT_MTU", IBV_MTU_4096),
        .gid_tbl_len = provider_of(context)->gids > 0 ? provider_of(context)->gids : 1,
        .max_msg_sz = SOFT_MESSAGE,
        .pkey_tbl_len = 1,
        .lid = provider_of(context)->lid,
        .sm_lid = 1,
        .max_vl_num = 1,
        .active_width = 2,
        .active_speed = 32,
        .phys_state = 5,
        .link_layer = provider_of(context)->ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND};
    return 0;
}

static int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
    uint64_t guid = ibv_get_device_guid(context->device);
    (void)input;
    struct ibv_device_attr_ex all = {.phys_port_cnt_ex = 1};
    all.orig_attr =
        (struct ibv_device_attr){.fw_ver = "soft",
                                 .node_guid = guid,
                                 .sys_image_guid = guid,
                                 .max_mr_size = UINT64_MAX,
                                 .page_size_cap = 0xfffff000,
                                 .vendor_id = 0xffffff,
                                 .max_qp = 1 << 16,
                                 .max_qp_wr = (int)soft_most_wrs(),
                                 .max_sge = SOFT_SGES,
                                 .max_sge_rd = SOFT_SGES,
                                 .max_cq = 1 << 16,
                                 .max_cqe = SOFT_CQES,
                                 .device_cap_flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
                                 .max_mw = 1 << 16,
                                 .max_mr = 1 << 16,
                                 .max_pd = 1 << 16,
                                 .max_qp_rd_atom = soft_limit("CKPTSOFT_RD_ATOMIC", SOFT_RD_ATOMIC),
                                 .max_res_rd_atom = SOFT_RD_ATOMIC << 16,
                                 .max_qp_init_rd_atom = soft_limit("CKPTSOFT_RD_ATOMIC", SOFT_RD_ATOMIC),
                                 .atomic_cap = IBV_ATOMIC_HCA,
                                 .max_ah = 1 << 16,
                                 .max_srq = 1 << 16,
                                 .max_srq_wr = SOFT_WRS,
                                 .max_srq_sge = SOFT_SGES,
                                 .max_pkeys = 1,
                                 .local_ca_ack_delay = 15,
                                 .phys_port_cnt = 1};
    memset(attr, 0, size);
    memcpy(attr, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

const struct abi_context_ops provider_ops = {.alloc_mw = alloc_mw,
                                             .alloc_pd = alloc_pd,
                                             .bind_mw = bind_mw,
                                             .create_ah = provider_create_ah,
                                             .create_cq = provider_create_cq,
                                             .create_cq_ex = provider_create_cq_ex,
                                             .create_qp = provider_create_qp,
                                             .create_qp_ex = provider_create_qp_ex,
                                             .create_srq = create_srq,
                                             .dealloc_mw = dealloc_mw,
                                             .dealloc_pd = dealloc_pd,
                                             .dereg_mr = dereg_mr,
                                             .destroy_ah = provider_destroy_ah,
                                             .destroy_cq = destroy_cq,
                                             .destroy_qp = provider_destroy_qp,
                                             .destroy_srq = destroy_srq,
                                             .modify_qp = provider_modify_qp,
                                             .modify_srq = modify_srq,
                                             .poll_cq = poll_cq,
                                             .post_recv = provider_post_recv,
                                             .post_send = provider_post_send,
                                             .post_srq_recv = post_srq_recv,
                                             .query_device_ex = query_device_ex,
                                             .query_port = query_port,
                                             .query_qp = provider_query_qp,
                                             .query_srq = query_srq,
                                             .reg_mr = reg_mr,
                                             .req_notify_cq = req_notify_cq,
                                             .rereg_mr = rereg_mr,
                                             .resize_cq = resize_cq};
