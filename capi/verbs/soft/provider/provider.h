// SPDX-License-Identifier: Apache-2.0
//
// provider.h: what the files of the provider share.
#ifndef SOFT_PROVIDER_H
#define SOFT_PROVIDER_H

#include "verbs/soft/provider/abi34.h"
#include "verbs/soft/soft.h"

enum { PROVIDER_GIDS = 8 };

// The one port of the one device, as the tree describes it.
struct provider_port {
    uint16_t lid;
    bool ethernet; // peers are found by gid, not by lid
    uint8_t gids;
    union ibv_gid gid[PROVIDER_GIDS];
    bool v2[PROVIDER_GIDS]; // RoCE v2
};
extern struct provider_port provider_port;

struct provider_context {
    struct verbs_context verbs;
    int events; // where events are written that the application reads from async_fd
    uint16_t lid;
    bool ethernet; // peers are found by gid
    uint8_t gids;  // of which a way on Ethernet must name one; 0: a way may lack it
};

struct provider_cq {
    struct abi_cq cq;
    struct soft_cq *soft;
    int channel;                // its events go there; -1: it has none
    unsigned told, events_sent; // events that were written: of completions, of errors
    struct ibv_wc now;          // what the functions of ibv_cq_ex read
};

struct provider_srq {
    struct abi_srq srq;
    struct soft_queue *soft;
    unsigned events_sent;
};

// A request that wr_* functions have described, until wr_complete.
struct provider_wr {
    struct ibv_send_wr wr;
    struct ibv_sge piece[SOFT_SGES];
    char *inlined;
};

struct provider_qp {
    struct abi_qp qp;
    struct soft_qp *soft;
    struct ibv_qp_init_attr init;
    unsigned events_sent;
    struct provider_wr *list;
    uint32_t room, listed;
    int wrong; // an errno: the list cannot be posted
};

static inline struct provider_context *provider_of(struct ibv_context *context) {
    return (struct provider_context *)((char *)context - offsetof(struct provider_context, verbs.context));
}

// ---- names.c: how other processes' queue pairs are found ----
int provider_net(struct soft_net *net); // 0, or an errno

// ---- catch.c: what libibverbs does without asking ----
int provider_catch(int cmd_fd); // 0, or an errno
void provider_release(int cmd_fd);

// ---- pipes.c: descriptors that the application waits on ----
extern const struct soft_tell provider_tell;
int provider_channel(int fd); // where events for a channel are written; -1: there is none
// Takes an element's events out of a pipe that nobody has read, each of this size: how many. Of an element that is ended,
// all others that were sent are acknowledged by the application, and until then it is there.
unsigned provider_forget(int fd, uint64_t element, size_t size);
int provider_events(
    int *fd, bool of_device); // makes a pair of ends: where to read, and what is returned, where to write

// ---- objects.c, pairs.c ----
extern const struct abi_context_ops provider_ops;
struct ibv_qp *provider_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *provider_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int provider_destroy_qp(struct ibv_qp *qp);
int provider_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int provider_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int provider_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int provider_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_ah *provider_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int provider_destroy_ah(struct ibv_ah *ah);

// ---- completions.c: ibv_cq_ex ----
struct ibv_cq *provider_create_cq(struct ibv_context *context, int entries, struct ibv_comp_channel *channel,
                                  int vector);
struct ibv_cq_ex *provider_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);

// ---- requests.c: ibv_qp_ex ----
void provider_wr_functions(struct ibv_qp_ex *qp);

#endif
