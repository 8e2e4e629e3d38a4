// SPDX-License-Identifier: Apache-2.0
//
// objects.h: the objects of libibverbs as a program under ckptrun sees them.
//
// They lie in the program's memory and so in images.  What they know of the real objects (the words named real, and
// all that is said to be the lower half's) is stale after a restart, and made again before the program goes on
// (back/make.c).  The front allocates and frees objects; all else is done below, where no thread is ever stopped:
//
//     field                          written by   at a restart
//     what libibverbs' headers name  front        stays
//     lists, counters, logs, kept    back         stay
//     real, lower, caches            back         made again, or forgotten
//
// Locks: of send queue, receive queue or shared receive queue first, then that of the completion queue, then that of
// the channel; the lists' lock and that of the ids last.  Taking completions needs only the last three.  None is held
// while the program is stopped.
#ifndef VERBS_OBJECTS_H
#define VERBS_OBJECTS_H

#include <infiniband/verbs.h>
#include <stdint.h>

enum { V_VERSION = 2, V_GIDS = 8, V_PORTS = 4, V_ASYNC = 16, V_RANKS = 256 };

// Functions behind the gate, counted from CKPT_FN_VERBS.  Each returns 0 or an error number unless said otherwise.
enum v_function {
    V_DEVICES,     // struct v_about *, int max; how many, or an error number, negative
    V_OPEN,        // v_context
    V_CLOSE,       // v_context
    V_DEVICE,      // v_context, ibv_device_attr *
    V_DEVICE_EX,   // v_context, ibv_device_attr_ex *, size_t
    V_PORT,        // v_context, port, ibv_port_attr *
    V_GID,         // v_context, port, index, ibv_gid *
    V_GID_EX,      // v_context, port, index, ibv_gid_entry *, flags, size_t
    V_GID_TABLE,   // v_context, ibv_gid_entry *, max, flags, size_t; how many, or an error number, negative
    V_PKEY,        // v_context, port, index, __be16 *
    V_PD,          // v_pd
    V_PD_END,      // v_pd
    V_MR,          // v_mr
    V_MR_END,      // v_mr
    V_CHANNEL,     // v_channel
    V_CHANNEL_END, // v_channel
    V_CQ,          // v_cq
    V_CQ_RESIZE,   // v_cq, entries, ibv_wc * (a larger ring), *former
    V_CQ_END,      // v_cq
    V_EVENT,       // v_channel, v_cq **
    V_ASYNC_EVENT, // v_context, ibv_async_event *
    V_SRQ,         // v_srq
    V_SRQ_MODIFY,  // v_srq, ibv_srq_attr *, mask
    V_SRQ_QUERY,   // v_srq, ibv_srq_attr *
    V_SRQ_END,     // v_srq
    V_QP,          // v_qp
    V_QP_MODIFY,   // v_qp, ibv_qp_attr *, mask
    V_QP_QUERY,    // v_qp, ibv_qp_attr *, mask, ibv_qp_init_attr *
    V_QP_END,      // v_qp
    V_AH,          // v_ah
    V_AH_END,      // v_ah
    V_MULTICAST,   // v_qp, ibv_gid *, lid, 1: attach, 0: detach
    V_SEND,        // v_qp, ibv_send_wr *, ibv_send_wr **
    V_RECEIVE,     // v_qp, ibv_recv_wr *, ibv_recv_wr **
    V_SRQ_RECEIVE, // v_srq, ibv_recv_wr *, ibv_recv_wr **
    V_POLL,        // v_cq, int, ibv_wc *; how many, or negative
    V_ARM,         // v_cq, solicited only
    V_TEXT,        // enum v_text, number, char *, size_t
    V_RATE,        // enum v_rate, number; a number
    V_MR_AGAIN,    // v_mr, flags, ibv_pd *, addr, length, access, int *errno; enum ibv_rereg_mr_err_code
    V_MW,          // v_mw
    V_MW_END,      // v_mw
    V_BIND,        // v_qp, v_mw, ibv_mw_bind *
    V_FUNCTIONS
};

enum v_text { V_TEXT_STATUS, V_TEXT_NODE, V_TEXT_PORT, V_TEXT_EVENT };
enum v_rate { V_RATE_TO_MULT, V_RATE_OF_MULT, V_RATE_TO_MBPS, V_RATE_OF_MBPS };

// What the front is told of a device.
struct v_about {
    char name[IBV_SYSFS_NAME_MAX], dev_name[IBV_SYSFS_NAME_MAX];
    char dev_path[IBV_SYSFS_PATH_MAX], ibdev_path[IBV_SYSFS_PATH_MAX];
    int32_t node_type, transport_type, index;
    uint64_t guid;
};

struct v_node {
    struct v_node *next, **at;
};

// A port as this process saw it first: so the program sees it for ever.
struct v_port {
    uint32_t seen, gids;
    uint16_t lid;
    uint8_t link_layer;
    union ibv_gid gid[V_GIDS];
    uint8_t gid_type[V_GIDS];
};

struct v_device {
    struct ibv_device d;
    struct v_device *next;
    uint64_t guid;
    int32_t index;
    struct v_port port[V_PORTS + 1]; // by number
};

// A descriptor of the program that becomes readable when there is something to take: an epoll set (front) with the
// real descriptor and a counter (both the lower half's) in it.
struct v_bell {
    int32_t fd, real, counter;
    uint32_t lock, kept; // events that are kept above
};

struct v_context {
    struct v_node node;
    uint64_t real;
    uint64_t lower;     // its ports as they are now
    struct v_bell bell; // of asynchronous events
    struct ibv_async_event async[V_ASYNC];
    struct verbs_context v; // the program's
};

struct v_pd {
    struct v_node node;
    uint64_t real, lower; // lower: memory for probes
    struct ibv_pd p;
};

struct v_mr {
    struct v_node node;
    uint64_t real, iova;
    uint32_t lkey, rkey; // real
    int32_t access;
    struct v_mr *chain;           // by lkey, the lower half's
    uint64_t asked[V_RANKS / 64]; // ranks that know the real rkey
    struct ibv_mr m;
};

struct v_mw {
    struct v_node node;
    uint64_t real;
    uint32_t rkey, bound;         // real; to info
    struct ibv_mw_bind_info info; // the program's region
    struct v_qp *qp;              // that it was bound by; compared, not followed
    uint64_t asked[V_RANKS / 64];
    struct ibv_mw w;
};

struct v_channel {
    struct v_node node;
    uint64_t real;
    struct v_bell bell;
    struct ibv_comp_channel c;
};

struct v_cq {
    struct v_node node;
    uint64_t real;
    struct v_channel *channel;
    int32_t entries, vector; // as asked for
    uint32_t lock;
    uint32_t armed;  // 0, 1: for any, 2: for solicited ones
    uint32_t events; // kept ones, under the bell's lock
    uint32_t given;  // events that the program has taken
    // Completions that were taken while the program was stopped; capacity is a power of two.
    struct ibv_wc *kept;
    uint32_t capacity, head, tail, overrun;
    struct ibv_wc batch[16]; // ibv_cq_ex
    int32_t batch_n, batch_at;
    union {
        struct ibv_cq q;
        struct ibv_cq_ex x;
    };
};

// A message that was received though the program had posted no receive: memory of its own.
struct v_message {
    struct v_message *next;
    uint64_t bytes; // mapped
    uint64_t real;  // registration, while it is being received
    struct ibv_wc wc;
    uint8_t data[];
};

struct v_messages {
    struct v_message *first, *last;
};

// Of v_send.own: a probe; a completion that the program has not asked for, unless it failed.
enum { V_OWN = 1, V_OWN_END = 2 };

// A send that has been posted.
struct v_send {
    uint64_t wr_id, remote, takes; // takes: sends so far that take a receive, with this one
    uint32_t rkey, length;
    uint8_t opcode, signaled, take, own; // own: V_OWN
};

// A receive; a queue has them at a distance of v_receive_bytes.
struct v_receive {
    uint64_t wr_id;
    uint32_t posted, n;
    struct ibv_sge sge[];
};

static inline uint64_t v_receive_bytes(uint32_t max_sge) {
    return sizeof(struct v_receive) + max_sge * sizeof(struct ibv_sge);
}

struct v_srq {
    struct v_node node;
    uint64_t real;
    struct ibv_srq_attr attr;
    uint32_t lock, hint, number;
    uint8_t *slots; // attr.max_wr of struct v_receive
    uint64_t posted, done;
    struct v_messages kept;
    struct v_message *bounce; // a receive of our own
    uint64_t waiting;         // in a drain: messages that are on their way
    uint32_t longest;
    struct ibv_srq s;
};

enum { V_PEER_NONE = -1, V_PEER_FOREIGN = -2 };

// Of v_qp.failed: a completion says so; the peer had no receive, and a completion is to say so (back/rnr.c).
enum { V_FAILED = 1, V_FAILED_RNR = 2 };

struct v_qp {
    struct v_node node;
    uint64_t real;
    struct v_qp *chain, *real_chain; // by number and by real number, the lower half's
    uint32_t real_num;
    uint32_t last_told; // that it was flushed, which it is once more when it is made again after a restart
    struct ibv_qp_init_attr init;
    uint32_t create_flags, ex;
    struct v_cq *send_cq, *recv_cq;
    struct v_srq *srq;
    // All attributes that were given, and in which step.
    struct ibv_qp_attr attr;
    int32_t to_init, to_rtr, to_rts;
    uint32_t state;  // as the program has set it
    uint32_t failed; // V_FAILED
    int32_t peer;    // rank, or V_PEER
    uint32_t peer_known;

    uint32_t send_lock, send_mask;
    struct v_send *send;
    uint64_t send_head, send_tail;
    uint64_t send_proved; // up to there all is known to be done, though no completion says so
    uint64_t probe;       // the ordinal of a probe that is under way, + 1
    uint64_t takes_posted, takes_done;

    uint32_t receive_lock, receive_slots;
    uint8_t *receive;
    uint64_t receive_head, receive_tail; // of what the program has posted
    uint64_t receives_done;              // by messages of the peer, those into our own memory too
    // What the peer has told in a drain: sends that take a receive, and what it has received.
    uint64_t told_posted, told_got;
    uint32_t told, told_failed;
    uint64_t lost; // unreliable: messages of the peer that did not come
    struct v_messages kept;
    struct v_message *bounce;

    uint32_t rkey_v, rkey_real, rkey_epoch; // the last one that was used
    // ibv_qp_ex: the front's
    struct ibv_send_wr *build;
    struct ibv_sge *build_sge;
    uint8_t *build_inline;
    int32_t built, build_error;
    uint32_t build_sges, build_inlined;
    union {
        struct ibv_qp q;
        struct ibv_qp_ex x;
    };
};

struct v_ah {
    struct v_node node;
    uint64_t lower; // real ones by rank
    struct ibv_ah_attr attr;
    struct ibv_ah a;
};

struct v_multicast {
    struct v_node node;
    struct v_qp *qp;
    union ibv_gid gid;
    uint16_t lid;
};

// The members of objects in which libibverbs counts acknowledged asynchronous events, and by which the end of the object
// waits for the rest.  Here they count those that the program has taken and not given back, as a negative number: the
// lower half takes one away under the lock of the device's bell, the front adds one under the object's mutex.
struct v_owed {
    uint32_t *count;
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
};

// NULLs for an event that is of no object.
static inline struct v_owed v_owed(const struct ibv_async_event *e) {
    switch (e->event_type) {
    case IBV_EVENT_CQ_ERR:
        return (struct v_owed){&e->element.cq->async_events_completed, &e->element.cq->mutex,
                               &e->element.cq->cond};
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return (struct v_owed){&e->element.srq->events_completed, &e->element.srq->mutex,
                               &e->element.srq->cond};
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return (struct v_owed){&e->element.qp->events_completed, &e->element.qp->mutex, &e->element.qp->cond};
    default:
        return (struct v_owed){NULL, NULL, NULL};
    }
}

// All there is.
struct v_root {
    uint64_t magic;
    uint32_t version, bytes;
    uint32_t sizes[8]; // of the structures: an image of another build is refused
    struct v_node *contexts, *pds, *mrs, *channels, *cqs, *srqs, *qps, *ahs, *multicasts;
    struct v_device *devices;
    struct v_node *mws;
    uint32_t next_qp, next_key, next_srq;
    uint32_t fixed; // numbers are given out by rank
    int32_t rank, ranks;
};

#define V_MAGIC 0x53425245564b4354ull

static inline void v_sizes(uint32_t *s) {
    s[0] = sizeof(struct v_context), s[1] = sizeof(struct v_mr), s[2] = sizeof(struct v_cq),
    s[3] = sizeof(struct v_qp);
    s[4] = sizeof(struct v_srq), s[5] = sizeof(struct v_ah), s[6] = sizeof(struct v_message),
    s[7] = sizeof(struct v_device) + sizeof(struct v_mw);
}

#define v_of(type, member, p) ((struct type *)((char *)(p) - __builtin_offsetof(struct type, member)))

#endif
