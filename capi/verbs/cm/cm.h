// SPDX-License-Identifier: Apache-2.0
//
// cm.h: what the files of librdmacm share.
//
// This library stands in for the machine's librdmacm. It is a connection manager that lives in the program's half alone:
// above libibverbs, and above a TCP connection for each pair of ids that are connected. Ids, events and what is under way
// are the program's memory, the connections are sockets of the job, and both are saved; so nothing has to be made again.
//
// The states of an id, by the function or the message that leads there:
//
//     IDLE ─bind_addr─► BOUND ─listen─► LISTENS
//      └─────┬────────────┘
//       resolve_addr─► FOUND ─resolve_route─► ROUTED ─connect─► CALLS ─REP─► ANSWERED ─get_cm_event, establish─► CONNECTED
//                                                                 └─── REJ, time ───► OVER
//     (an id of a request) ASKED ─accept─► ACCEPTED ─RTU─► CONNECTED
//     CONNECTED ─DREQ, the peer has ended─► OVER;   CONNECTED ─disconnect─► ENDING ─DREP─► OVER
//
// One lock is for all of it. It is not held while verbs are called, nor while somebody waits. A thread of this library takes
// what comes on sockets, so that a program that polls its channel sees events; it changes states and queues events, and
// never calls verbs: that is done by whoever takes the event.
#ifndef VERBS_CM_H
#define VERBS_CM_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define API __attribute__((visibility("default")))

// ---- messages: each is one structure of this size, as it lies in memory ----

enum cm_kind { CM_REQ = 1, CM_REP, CM_RTU, CM_REJ, CM_DREQ, CM_DREP };

enum { CM_VERSION = 1, CM_PRIVATE = 255 };
#define CM_MAGIC 0x314d43544b50434bull

struct cm_message {
    uint64_t magic;
    uint16_t version, kind;
    uint16_t ps; // REQ: of the id
    uint16_t lid;
    union ibv_gid gid;
    uint32_t qp_num, psn, qkey;
    uint32_t status; // REJ: why
    uint32_t ece_vendor, ece_options;
    uint8_t qp_type, srq, flow_control, mtu;
    uint8_t retry_count, rnr_retry_count, responder_resources, initiator_depth;
    uint8_t private_bytes, private_data[CM_PRIVATE];
};
_Static_assert(sizeof(struct cm_message) == 320, "both sides of a connection are built from the same");

// Reasons of the InfiniBand specification, as programs see them in the status of an event.
enum {
    CM_NO_SERVICE = 8,
    CM_NO_ROOM = 3,
    CM_REFUSED = 28,
    CM_ECE = 35,
    CM_UD_NO_SERVICE = 1,
    CM_UD_REFUSED = 2
};

// ---- objects ----

struct cm_device {
    struct cm_device *next;
    struct ibv_device *device;
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    int max_wr;
    uint8_t max_initiator_depth, max_responder_resources, ports;
};

enum cm_state {
    IDLE,
    BOUND,
    LISTENS,
    FOUND,
    ROUTED,
    CALLS,
    ANSWERED,
    ASKED,
    ACCEPTED,
    CONNECTED,
    ENDING,
    OVER
};

struct cm_id {
    struct rdma_cm_id id;
    enum cm_state state;
    int fd; // a socket that is bound, until it listens or connects; -1
    struct cm_link *link;
    bool sync;               // its channel is its own
    uint32_t given, acked;   // events that the program took, and gave back
    uint32_t waits, backlog; // of one that listens: requests that nobody has taken
    struct cm_device *device;
    int gid_index;
    struct ibv_port_attr port;
    uint32_t psn;
    struct cm_message peer; // what the other side said: a REQ, or a REP
    uint8_t responder_resources, initiator_depth, retry_count, rnr_retry_count;
    uint8_t ack_timeout;
    bool v6only;
    struct ibv_ece local_ece, remote_ece;
    // What rdma_create_ep was given.
    struct ibv_qp_init_attr *init;
    uint8_t *connect;
    size_t connect_bytes;
};

struct cm_event {
    struct rdma_cm_event event;
    struct cm_event *next;
    struct cm_id *counted; // whose event it is when it is given back
    uint8_t private_data[CM_PRIVATE + 1];
};

// Its descriptor is readable while there are events.
struct cm_channel {
    struct rdma_event_channel c;
    struct cm_event *first, **last;
    sem_t more;  // posted with an event that a thread may wait for
    int waiting; // threads
    bool gone;
    bool waits; // once it is gone: whether a call would have waited
};

enum cm_link_kind { LINK_LISTENS, LINK_CONNECTS, LINK_STRANGER, LINK_TALKS, LINK_FLUSHES };

// A socket that the thread watches.
struct cm_link {
    struct cm_link *next;
    enum cm_link_kind kind;
    int fd;           // -1: it is closed, the thread frees the link
    struct cm_id *id; // whose it is; of a stranger: the id that listens
    uint64_t until;   // by cm_now; 0: for ever
    struct cm_message in;
    size_t in_bytes;
    struct cm_message out[4];
    size_t out_from, out_to; // in bytes
};

#define CM_ID(p) ((struct cm_id *)(p))
#define CM_CHANNEL(p) ((struct cm_channel *)(p))

extern pthread_mutex_t cm_lock;
extern pthread_cond_t cm_acked;

// -1 with errno, as all functions of librdmacm fail.
static inline int cm_fail(int error) {
    errno = error;
    return -1;
}
static inline int cm_result(int error) { return error ? cm_fail(error) : 0; }

// device.c
int cm_devices(void);           // 0, or -1 with errno
int cm_place(struct cm_id *id); // a device and port for its source address
int cm_max_wr(void);            // of all devices
// channel.c: with the lock held but for cm_complete
int cm_queue(struct cm_id *id, enum rdma_cm_event_type type, int status, const struct cm_message *with);
int cm_queue_request(struct cm_id *listener, struct cm_id *id, const struct cm_message *req);
void cm_unqueue(struct cm_id *id);
void cm_move(struct cm_id *id, struct cm_channel *to);
int cm_complete(struct cm_id *id);
// id.c
struct cm_id *cm_new(struct cm_channel *channel, void *context, enum rdma_port_space ps,
                     enum ibv_qp_type type);
int cm_create(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
              enum rdma_port_space ps, enum ibv_qp_type type);
void cm_drop(struct cm_id *id); // with the lock held: what the program has not seen, or sees no more
// address.c
socklen_t cm_length(const struct sockaddr *addr);
int cm_names(struct cm_id *id, int fd); // of a connected socket
// qp.c
int cm_to_ready(struct cm_id *id, int responder_resources,
                int initiator_depth); // RTR and RTS; -1: what was agreed on
int cm_to_error(struct cm_id *id);
void cm_ah(const struct cm_id *id, struct ibv_ah_attr *attr);
// connect.c
int cm_deliver(struct cm_event *event); // 0: the program gets it; else it is dropped
void cm_about(const struct cm_id *id, struct cm_message *m, enum cm_kind kind);
// wire.c: with the lock held
int cm_link(struct cm_id *id, int fd, enum cm_link_kind kind);
int cm_say(struct cm_id *id, struct cm_message *m);
void cm_unlink(struct cm_id *id);
void cm_wake(void);
// talk.c: with the lock held, by the thread
bool cm_hear(struct cm_link *link, const struct cm_message *m); // false: the connection is of no more use
void cm_lost(struct cm_link *link, int error);
uint64_t cm_now(void); // ms in which this process ran: a stop does not count
// ms that something may take: what the environment says, which is for tests, else the usual.
uint64_t cm_patience(const char *variable, uint64_t usual);

#endif
