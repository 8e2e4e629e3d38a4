// SPDX-License-Identifier: Apache-2.0
//
// abi34.h: what libibverbs and its providers agree on, as far as this provider uses it.
//
// No package has a header for it. The agreement is that of the symbol version IBVERBS_PRIVATE_34, of rdma-core 44:
// another release of rdma-core has another number, and its libibverbs does not load this provider. Sizes and
// offsets are asserted; they were printed by a program that was compiled with rdma-core's own header.
#ifndef SOFT_PROVIDER_ABI34_H
#define SOFT_PROVIDER_ABI34_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct abi_list {
    struct abi_list *next, *prev;
};

// A device as it was found in sysfs; its end is not declared.
struct abi_sysfs_device {
    struct abi_list list;
    void *provider_data;
    const void *match;
    unsigned flags;
    char sysfs_name[IBV_SYSFS_NAME_MAX];
    uint64_t character_device;
    char name[IBV_SYSFS_NAME_MAX];
    char path[IBV_SYSFS_PATH_MAX];
};
_Static_assert(offsetof(struct abi_sysfs_device, name) == 112, "rdma-core 44");
_Static_assert(offsetof(struct abi_sysfs_device, path) == 176, "rdma-core 44");

struct abi_device;
struct verbs_context;

enum { ABI_MATCH_END = 0, ABI_MATCH_MODALIAS = 2 };

struct abi_match {
    void *driver_data;
    const char *modalias;
    uint16_t vendor, device;
    uint8_t kind;
};
_Static_assert(sizeof(struct abi_match) == 24, "rdma-core 44");

struct abi_device_ops {
    const char *name;
    uint32_t lowest_abi, highest_abi;
    const struct abi_match *match;
    const struct abi_device_ops **static_providers;
    bool (*match_device)(struct abi_sysfs_device *sysfs);
    struct verbs_context *(*alloc_context)(struct ibv_device *device, int cmd_fd, void *data);
    struct verbs_context *(*import_context)(struct ibv_device *device, int cmd_fd);
    struct abi_device *(*alloc_device)(struct abi_sysfs_device *sysfs);
    void (*uninit_device)(struct abi_device *device);
};
_Static_assert(sizeof(struct abi_device_ops) == 72, "rdma-core 44");

struct abi_device {
    struct ibv_device device;
    const struct abi_device_ops *ops;
    atomic_int users;
    struct abi_list list;
    struct abi_sysfs_device *sysfs;
    uint64_t core_support;
};
_Static_assert(sizeof(struct abi_device) == 712, "rdma-core 44");

struct abi_mr {
    struct ibv_mr mr;
    int type; // 0: an ordinary one
    int access;
};
_Static_assert(sizeof(struct abi_mr) == 56, "rdma-core 44");

struct abi_qp {
    union {
        struct ibv_qp qp;
        struct ibv_qp_ex ex;
    };
    uint32_t has; // ABI_QP_EX: the functions of ibv_qp_ex are there
    void *xrcd;
};
enum { ABI_QP_EX = 2 };
// ibv_qp_ex has more functions in newer releases, which do not load this provider; over TCP nobody else knows the size.
_Static_assert(sizeof(struct abi_qp) == sizeof(struct ibv_qp_ex) + 16, "rdma-core 44");

struct abi_cq {
    union {
        struct ibv_cq cq;
        struct ibv_cq_ex ex;
    };
};
_Static_assert(sizeof(struct abi_cq) == 288, "rdma-core 44");

struct abi_srq {
    struct ibv_srq srq;
    int type;
    void *xrcd;
    struct ibv_cq *cq;
    uint32_t number;
};
_Static_assert(sizeof(struct abi_srq) == 160, "rdma-core 44");

typedef void abi_unused(void);

// The calls of a context, 76 in the order of their names. Those that are not given stay libibverbs' own, which say
// EOPNOTSUPP.
struct abi_context_ops {
    abi_unused *unused0[2];
    struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, enum ibv_mw_type type);
    abi_unused *unused3[2];
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    abi_unused *unused6[4];
    int (*bind_mw)(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
    abi_unused *unused11[2];
    struct ibv_ah *(*create_ah)(struct ibv_pd *pd, struct ibv_ah_attr *attr);
    abi_unused *unused14[1];
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, struct ibv_comp_channel *channel,
                                int vector);
    struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
    abi_unused *unused17[2];
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    struct ibv_qp *(*create_qp_ex)(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
    abi_unused *unused21[1];
    struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
    abi_unused *unused23[2];
    int (*dealloc_mw)(struct ibv_mw *mw);
    int (*dealloc_pd)(struct ibv_pd *pd);
    abi_unused *unused27[1];
    int (*dereg_mr)(struct abi_mr *mr);
    int (*destroy_ah)(struct ibv_ah *ah);
    abi_unused *unused30[1];
    int (*destroy_cq)(struct ibv_cq *cq);
    abi_unused *unused32[2];
    int (*destroy_qp)(struct ibv_qp *qp);
    abi_unused *unused35[1];
    int (*destroy_srq)(struct ibv_srq *srq);
    abi_unused *unused37[2];
    void (*free_context)(struct ibv_context *context);
    abi_unused *unused40[7];
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    abi_unused *unused48[1];
    int (*modify_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
    abi_unused *unused50[3];
    int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
    int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
    int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
    abi_unused *unused56[1];
    int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
    int (*query_device_ex)(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size);
    abi_unused *unused59[1];
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
    int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
    abi_unused *unused62[2];
    int (*query_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr);
    abi_unused *unused65[3];
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *at, size_t length, uint64_t iova, int access);
    int (*req_notify_cq)(struct ibv_cq *cq, int solicited);
    int (*rereg_mr)(struct abi_mr *mr, int flags, struct ibv_pd *pd, void *at, size_t length, int access);
    int (*resize_cq)(struct ibv_cq *cq, int entries);
    abi_unused *unused72[4];
};
#define ABI_AT(call, at) \
    _Static_assert(offsetof(struct abi_context_ops, call) == (at) * sizeof(void *), "rdma-core 44")
ABI_AT(alloc_mw, 2);
ABI_AT(alloc_pd, 5);
ABI_AT(bind_mw, 10);
ABI_AT(create_cq, 15);
ABI_AT(create_cq_ex, 16);
ABI_AT(create_qp_ex, 20);
ABI_AT(create_srq, 22);
ABI_AT(dealloc_mw, 25);
ABI_AT(dereg_mr, 28);
ABI_AT(destroy_qp, 34);
ABI_AT(free_context, 39);
ABI_AT(modify_srq, 49);
ABI_AT(post_send, 55);
ABI_AT(query_port, 60);
ABI_AT(query_srq, 64);
ABI_AT(resize_cq, 71);
#undef ABI_AT
_Static_assert(sizeof(struct abi_context_ops) == 76 * sizeof(void *), "rdma-core 44");

// What libibverbs offers to providers.
void verbs_register_driver_34(const struct abi_device_ops *ops);
void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
                                    struct verbs_context *at, uint32_t driver);
void verbs_uninit_context(struct verbs_context *context);
void verbs_set_ops(struct verbs_context *context, const struct abi_context_ops *ops);

#endif
