// SPDX-License-Identifier: Apache-2.0
//
// completions.c: the functions of ibv_cq_ex: completions are read field by field, one at a time.
#include <errno.h>

#include "verbs/soft/provider/provider.h"

static struct provider_cq *of(struct ibv_cq_ex *cq) { return (struct provider_cq *)cq; }

static int next_poll(struct ibv_cq_ex *cq) {
    struct provider_cq *c = of(cq);
    int n = soft_cq_poll(c->soft, 1, &c->now);
    if (n <= 0) return n == 0 ? ENOENT : EIO;
    cq->wr_id = c->now.wr_id, cq->status = c->now.status;
    return 0;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr) {
    return attr->comp_mask != 0 ? EINVAL : next_poll(cq);
}

static void end_poll(struct ibv_cq_ex *cq) { (void)cq; }

#define READ(type, field) \
    static type read_##field(struct ibv_cq_ex *cq) { return (type)of(cq)->now.field; }
READ(enum ibv_wc_opcode, opcode)
READ(uint32_t, vendor_err)
READ(uint32_t, byte_len)
READ(__be32, imm_data)
READ(uint32_t, qp_num)
READ(uint32_t, src_qp)
READ(unsigned, wc_flags)
READ(uint32_t, slid)
READ(uint8_t, sl)
READ(uint8_t, dlid_path_bits)
#undef READ

struct ibv_cq_ex *provider_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr) {
    bool flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS;
    if (attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS ||
        attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS ||
        (flags && attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct provider_cq *c = (struct provider_cq *)provider_create_cq(context, (int)attr->cqe, attr->channel,
                                                                     (int)attr->comp_vector);
    if (c == NULL) return NULL;
    struct ibv_cq_ex *x = &c->cq.ex;
    x->start_poll = start_poll, x->next_poll = next_poll, x->end_poll = end_poll;
    x->read_opcode = read_opcode, x->read_vendor_err = read_vendor_err, x->read_byte_len = read_byte_len;
    x->read_imm_data = read_imm_data, x->read_qp_num = read_qp_num, x->read_src_qp = read_src_qp;
    x->read_wc_flags = read_wc_flags, x->read_slid = read_slid, x->read_sl = read_sl;
    x->read_dlid_path_bits = read_dlid_path_bits;
    return x;
}
