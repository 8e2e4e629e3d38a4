// SPDX-License-Identifier: Apache-2.0
//
// cq.c: completion queues, those with the functions of ibv_cq_ex too.
#include "verbs/front/front.h"

// The ring holds all that a program may leave in a queue while it is stopped, and a receive for each kept message.
static struct ibv_wc *ring_for(int cqe, uint32_t *capacity) {
    uint32_t n = 64;
    while (n < (uint32_t)cqe + 32) n *= 2;
    *capacity = n;
    return calloc(n, sizeof(struct ibv_wc));
}

struct v_cq *front_cq(struct ibv_context *context, int cqe, void *cq_context,
                      struct ibv_comp_channel *channel, int vector) {
    if (cqe <= 0 || cqe > 1 << 24) return FAILED(EINVAL, NULL);
    struct v_cq *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    if (!(c->kept = ring_for(cqe, &c->capacity))) return FAILED(ENOMEM, c);
    c->entries = cqe;
    c->vector = vector;
    c->channel = channel ? v_of(v_channel, c, channel) : NULL;
    c->q.context = context;
    c->q.channel = channel;
    c->q.cq_context = cq_context;
    pthread_mutex_init(&c->q.mutex, NULL);
    pthread_cond_init(&c->q.cond, NULL);
    long r = CROSS(V_CQ, (long)c);
    if (r) {
        free(c->kept);
        return FAILED(r, c);
    }
    if (channel) __atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_RELAXED);
    return c;
}

API struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                 struct ibv_comp_channel *channel, int vector) {
    struct v_cq *c = front_cq(context, cqe, cq_context, channel, vector);
    return c ? &c->q : NULL;
}

API int ibv_resize_cq(struct ibv_cq *cq, int cqe) {
    struct v_cq *c = v_of(v_cq, q, cq);
    if (cqe <= 0 || cqe > 1 << 24) return EINVAL;
    uint32_t capacity;
    struct ibv_wc *ring = ring_for(cqe, &capacity), *former = ring;
    if (!ring) return ENOMEM;
    long r = CROSS(V_CQ_RESIZE, (long)c, cqe, (long)&former, capacity);
    free(former); // the one that is not in use
    return (int)r;
}

API int ibv_destroy_cq(struct ibv_cq *cq) {
    struct v_cq *c = v_of(v_cq, q, cq);
    long r = CROSS(V_CQ_END, (long)c);
    if (r) return (int)r;
    pthread_mutex_lock(&cq->mutex);
    while ((int32_t)(c->given - cq->comp_events_completed) > 0) pthread_cond_wait(&cq->cond, &cq->mutex);
    pthread_mutex_unlock(&cq->mutex);
    front_given_back((struct v_owed){&cq->async_events_completed, &cq->mutex, &cq->cond});
    if (cq->channel) __atomic_sub_fetch(&cq->channel->refcnt, 1, __ATOMIC_RELAXED);
    free(c->kept);
    free(c);
    return 0;
}

// ---- ibv_cq_ex: up to 16 completions by one crossing ------------------------------------------------

static void show(struct v_cq *c) {
    const struct ibv_wc *w = &c->batch[c->batch_at];
    c->x.status = w->status;
    c->x.wr_id = w->wr_id;
}

static int next_poll(struct ibv_cq_ex *x) {
    struct v_cq *c = v_of(v_cq, x, x);
    if (++c->batch_at < c->batch_n) {
        show(c);
        return 0;
    }
    long n = CROSS(V_POLL, (long)c, 16, (long)c->batch);
    c->batch_at = 0;
    c->batch_n = n > 0 ? (int)n : 0;
    if (n <= 0) return n ? (int)-n : ENOENT;
    show(c);
    return 0;
}

static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *attr) {
    struct v_cq *c = v_of(v_cq, x, x);
    if (attr->comp_mask) return EINVAL;
    if (c->batch_at < c->batch_n) { // left over from the last time
        show(c);
        return 0;
    }
    c->batch_at = c->batch_n;
    return next_poll(x);
}

// The current one has been taken.
static void end_poll(struct ibv_cq_ex *x) {
    struct v_cq *c = v_of(v_cq, x, x);
    if (c->batch_at < c->batch_n) c->batch_at++;
}

#define READ(type, name, field)                    \
    static type read_##name(struct ibv_cq_ex *x) { \
        struct v_cq *c = v_of(v_cq, x, x);         \
        return (type)c->batch[c->batch_at].field;  \
    }
READ(enum ibv_wc_opcode, opcode, opcode)
READ(uint32_t, vendor_err, vendor_err)
READ(uint32_t, byte_len, byte_len)
READ(__be32, imm_data, imm_data)
READ(uint32_t, qp_num, qp_num)
READ(uint32_t, src_qp, src_qp)
READ(unsigned, wc_flags, wc_flags)
READ(uint32_t, slid, slid)
READ(uint8_t, sl, sl)
READ(uint8_t, dlid_path_bits, dlid_path_bits)

struct ibv_cq_ex *front_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *a) {
    const uint64_t can = IBV_WC_STANDARD_FLAGS;
    if (a->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS) || a->wc_flags & ~can ||
        (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS &&
         a->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
        return FAILED(EOPNOTSUPP, NULL);
    struct v_cq *c = front_cq(context, (int)a->cqe, a->cq_context, a->channel, (int)a->comp_vector);
    if (!c) return NULL;
    struct ibv_cq_ex *x = &c->x;
    x->start_poll = start_poll;
    x->next_poll = next_poll;
    x->end_poll = end_poll;
    x->read_opcode = read_opcode;
    x->read_vendor_err = read_vendor_err;
    x->read_byte_len = read_byte_len;
    x->read_imm_data = read_imm_data;
    x->read_qp_num = read_qp_num;
    x->read_src_qp = read_src_qp;
    x->read_wc_flags = read_wc_flags;
    x->read_slid = read_slid;
    x->read_sl = read_sl;
    x->read_dlid_path_bits = read_dlid_path_bits;
    return x;
}
