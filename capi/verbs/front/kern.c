// SPDX-License-Identifier: Apache-2.0
//
// kern.c: structures of the kernel's interface as those of libibverbs, and back.  librdmacm calls these.
#include "verbs/front/front.h"

#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

API void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src);
API void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src);
API void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src);
API void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src);

#define TAKE(field) dst->field = src->field

void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst, struct ib_uverbs_ah_attr *src) {
    memcpy(dst->grh.dgid.raw, src->grh.dgid, sizeof dst->grh.dgid);
    TAKE(grh.flow_label), TAKE(grh.sgid_index), TAKE(grh.hop_limit), TAKE(grh.traffic_class);
    TAKE(dlid), TAKE(sl), TAKE(src_path_bits), TAKE(static_rate), TAKE(is_global), TAKE(port_num);
}

void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst, struct ib_uverbs_qp_attr *src) {
    TAKE(qp_state), TAKE(cur_qp_state), TAKE(path_mtu), TAKE(path_mig_state), TAKE(qkey), TAKE(rq_psn);
    TAKE(sq_psn), TAKE(dest_qp_num), TAKE(qp_access_flags), TAKE(pkey_index), TAKE(alt_pkey_index);
    dst->cap = (struct ibv_qp_cap){src->max_send_wr, src->max_recv_wr, src->max_send_sge, src->max_recv_sge,
                                   src->max_inline_data};
    ibv_copy_ah_attr_from_kern(&dst->ah_attr, &src->ah_attr);
    ibv_copy_ah_attr_from_kern(&dst->alt_ah_attr, &src->alt_ah_attr);
    TAKE(en_sqd_async_notify), TAKE(sq_draining), TAKE(max_rd_atomic), TAKE(max_dest_rd_atomic),
        TAKE(min_rnr_timer);
    TAKE(port_num), TAKE(timeout), TAKE(retry_cnt), TAKE(rnr_retry), TAKE(alt_port_num), TAKE(alt_timeout);
}

#define PATH_BOTH                                                                                         \
    TAKE(dlid), TAKE(slid), TAKE(raw_traffic), TAKE(flow_label), TAKE(reversible), TAKE(mtu), TAKE(pkey); \
    TAKE(hop_limit), TAKE(traffic_class), TAKE(numb_path), TAKE(sl), TAKE(mtu_selector),                  \
        TAKE(rate_selector);                                                                              \
    TAKE(rate), TAKE(packet_life_time_selector), TAKE(packet_life_time), TAKE(preference)

void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst, struct ib_user_path_rec *src) {
    memcpy(dst->dgid.raw, src->dgid, sizeof dst->dgid);
    memcpy(dst->sgid.raw, src->sgid, sizeof dst->sgid);
    PATH_BOTH;
}

void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst, struct ibv_sa_path_rec *src) {
    memcpy(dst->dgid, src->dgid.raw, sizeof src->dgid);
    memcpy(dst->sgid, src->sgid.raw, sizeof src->sgid);
    PATH_BOTH;
}
