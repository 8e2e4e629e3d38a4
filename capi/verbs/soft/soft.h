// SPDX-License-Identifier: Apache-2.0
//
// soft.h: a verbs adapter in user space: queue pairs, keys and completions over TCP.
//
// What is above gives it a way to find other adapters (struct soft_net) and calls it with the structures of
// libibverbs' public header, so that a skin has nothing to convert. A skin is a provider behind the real
// libibverbs, or a back of libckpt for machines without InfiniBand.
//
// One lock is around everything: it is taken by these functions, and by the thread that makes progress while
// the application does not poll. Requests refer to the memory of their poster until they are answered, and the
// receiving side reads from the connection straight into the posted or named memory.
#ifndef SOFT_H
#define SOFT_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SOFT_SGES = 16,      // a work request has at most as many pieces
    SOFT_INLINE = 1024,  // bytes
    SOFT_WRS = 16384,    // of a queue
    SOFT_CQES = 1 << 20, // of a completion queue
    SOFT_RD_ATOMIC = 16,
    SOFT_DATAGRAM = 4096, // the payload of one, at most
};
#define SOFT_MESSAGE (1u << 30)

struct soft_key;   // a range of registered memory
struct soft_cq;    // a completion queue
struct soft_queue; // of receives, of one queue pair or shared
struct soft_qp;    // a queue pair

// soft_address is where an adapter can be reached, and what proves that who calls may do so.
struct soft_address {
    struct sockaddr_in at;
    uint64_t secret;
};

// soft_net is how the adapter finds others. All are called with the lock held, and must not wait.
struct soft_net {
    // Where this adapter listens, at a port of the kernel's choice; and what others must say to it first.
    struct in_addr listen;
    uint64_t secret;
    // A number that no other queue pair has that could be asked for, reachable at the port of this process.
    // An errno when there is none.
    int (*claim)(void *who, uint16_t lid, uint16_t port, uint32_t *number);
    void (*release)(void *who, uint32_t number);
    void (*gid)(void *who, uint8_t index, union ibv_gid *gid); // of this adapter
    bool by_lid; // a request must name the lid that its queue pair is behind
    // Where the queue pair of this number is that the address leads to; ENOENT when there is none.
    int (*find)(void *who, const struct ibv_ah_attr *way, uint32_t number, struct soft_address *to);
    void *who;
};

// soft_tell is what the adapter tells of by itself. They are called with the lock held.
struct soft_tell {
    void (*completion)(void *of);                      // an armed queue has got an entry
    void (*event)(void *of, enum ibv_event_type type); // of a queue pair, queue or shared queue
    void (*lost)(void);                                // the device is gone
};

// soft_start makes the adapter of this process, once. 0, or an errno.
// A limit of the adapter, which a test can lower by the environment.
int soft_limit(const char *name, int most);
int soft_start(const struct soft_net *net, const struct soft_tell *tell);
uint16_t soft_port(void);     // where it listens
uint32_t soft_most_wrs(void); // what a queue can hold

// ---- memory ----

// The key is both lkey and rkey. pd is compared, not followed.
int soft_register(const void *pd, void *at, size_t length, uint64_t iova, int access, struct soft_key **made);
uint32_t soft_key_number(const struct soft_key *key);
int soft_rekey(struct soft_key *key, int flags, const void *pd, void *at, size_t length, int access);
int soft_unregister(struct soft_key *key); // EBUSY: a window is bound to it
int soft_window_new(const void *pd, int type, struct soft_key **made);

// ---- completion queues ----

// `of` is handed to soft_tell.
int soft_cq_new(int entries, void *of, bool told, struct soft_cq **made);
int soft_cq_resize(struct soft_cq *cq, int entries);
void soft_cq_free(struct soft_cq *cq);
int soft_cq_poll(struct soft_cq *cq, int n, struct ibv_wc *wc);
void soft_cq_arm(struct soft_cq *cq, bool solicited);

// ---- shared receive queues ----

int soft_srq_new(const void *pd, uint32_t receives, uint32_t pieces, void *of, struct soft_queue **made);
int soft_srq_modify(struct soft_queue *srq, const struct ibv_srq_attr *attr, int mask);
void soft_srq_query(struct soft_queue *srq, struct ibv_srq_attr *attr);
void soft_srq_free(struct soft_queue *srq);
int soft_srq_post(struct soft_queue *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

// ---- queue pairs ----

struct soft_qp_init {
    enum ibv_qp_type type;
    const void *pd;
    uint16_t lid; // of the port that it is on
    struct soft_cq *send, *receive;
    struct soft_queue *srq; // NULL: it has receives of its own
    struct ibv_qp_cap cap;
    bool all_signaled;
    void *of; // for soft_tell
};

int soft_qp_new(const struct soft_qp_init *init, struct soft_qp **made);
uint32_t soft_qp_number(const struct soft_qp *qp);
int soft_qp_modify(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask);
void soft_qp_query(struct soft_qp *qp, struct ibv_qp_attr *attr);
void soft_qp_free(struct soft_qp *qp);
int soft_qp_receive(struct soft_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

// soft_route is where a datagram goes: what its address handle was made from.
typedef const struct ibv_ah_attr *soft_route(struct ibv_ah *ah);
int soft_qp_send(struct soft_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad, soft_route *route);

#endif
