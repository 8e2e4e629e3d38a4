// SPDX-License-Identifier: Apache-2.0
//
// impl.h: what the files of the adapter share. All of it is under the lock `soft.lock`, and only the files
// here include it.
#ifndef SOFT_IMPL_H
#define SOFT_IMPL_H

#include <pthread.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "verbs/soft/soft.h"

// ---- what goes over a connection ----

enum soft_op {
    SOFT_SEND = 1, // requests
    SOFT_WRITE,
    SOFT_READ,
    SOFT_SWAP,
    SOFT_ADD,
    SOFT_ACK, // answers, in the order of the requests
    SOFT_DATA,
};

enum {
    SOFT_WITH_IMM = 1,
    SOFT_SOLICITED = 2,
    SOFT_INVALIDATES = 8, // the window whose key is in imm
    SOFT_GLOBAL = 4,      // a datagram whose payload begins with a global route header
};

// Both ends are the same program on machines of one byte order. Payload follows a SEND, a WRITE and DATA.
struct soft_header {
    uint8_t op, flags, type; // type: enum ibv_qp_type
    uint8_t rnr_retry;       // how long the other side may have no receive: 7 is for ever
    uint32_t from, to;       // queue pairs
    uint32_t order;          // of the request in its queue pair
    uint32_t imm, rkey, length, status, qkey;
    uint16_t from_lid, to_lid;
    uint64_t at, a, b;
};
_Static_assert(sizeof(struct soft_header) == 64, "the header on the wire");

// What comes first on a connection, and alone.
struct soft_hello {
    uint32_t magic, version;
    uint64_t secret;
};
enum { SOFT_MAGIC = 0x74666f73, SOFT_VERSION = 1 };

// ---- receives ----

struct soft_receive {
    uint64_t id;
    int pieces;
    struct ibv_sge piece[SOFT_SGES];
};

struct soft_queue {
    struct soft_receive *ring;
    uint32_t size, head, tail; // head: the next one posted; tail: the next one used
    uint32_t pieces;           // a receive has at most as many
    uint32_t limit;            // below so many receives a shared queue tells, once; 0: never
    const void *pd;
    void *of;
    bool shared;
    uint32_t users; // queue pairs of a shared one
};

// ---- sends ----

struct soft_send;

// A frame is a header and its payload on the way out.
struct soft_frame {
    STAILQ_ENTRY(soft_frame) behind;
    struct soft_header header;
    struct ibv_grh route; // SOFT_GLOBAL
    struct iovec piece[SOFT_SGES + 1];
    int pieces;
    size_t sent, total;
    struct soft_send *send; // the request of an own queue pair, or NULL: the frame is freed when sent
    void *owned;            // payload that is freed with the frame
    uint64_t due;           // an answer that is kept back for tests, until then; 0: it is not
    bool held;              // the same, until a file has gone
};

// A send waits in its queue pair until it is answered (RC) or sent (UC).
struct soft_send {
    STAILQ_ENTRY(soft_send) behind;
    struct soft_frame frame;
    struct soft_qp *qp;
    uint64_t id;
    uint32_t order, length;
    enum ibv_wc_opcode code;
    enum ibv_wc_status failed; // found bad here: it is completed so when its turn comes
    bool signaled, fenced, fetches, queued;
    int pieces; // where what is fetched goes
    struct ibv_sge piece[SOFT_SGES];
};

// ---- connections ----

// A link is one TCP connection. Requests go one way only, from the side that made it, and answers the other
// way. A reliable or unreliable connected queue pair has one of its own; datagrams to one process share one.
struct soft_link {
    LIST_ENTRY(soft_link) others;
    int fd; // -1: closed, to be freed when the present round is over
    bool ours, connecting, want_out;
    struct soft_qp *qp; // ours: whose requests; NULL for datagrams. Theirs: whom the present request is for
    struct sockaddr_in to; // ours
    bool greeted;          // theirs: it has said hello
    uint64_t greet_by;     // theirs: until when it must
    STAILQ_HEAD(soft_frames, soft_frame) out;
    unsigned backlog; // frames in it

    struct soft_header in;
    size_t got;   // of it
    bool begun;   // the payload has a place
    bool stalled; // nothing is read until there is a receive, or the deadline has come
    uint64_t deadline;
    struct iovec piece[SOFT_SGES + 2];
    int pieces, at;
    size_t left; // of the payload; what has no place is thrown away
    bool took;
    struct soft_receive receive; // the one that was taken
};

// ---- objects ----

struct soft_key {
    uint32_t number;
    int access;
    const void *pd;
    char *at;
    uint64_t iova;
    size_t length;
    int window;              // its type; 0: it is a region
    struct soft_key *region; // that the window is bound to; NULL: it is not
    unsigned windows;        // that are bound to this region
};

struct soft_cq {
    struct ibv_wc *ring;
    uint32_t size, head, tail;
    unsigned idle; // empty polls in a row
    bool told, overrun;
    bool late; // its event is kept back for tests
    LIST_ENTRY(soft_cq) later;
    enum { SOFT_UNARMED, SOFT_SOLICITED_ONLY, SOFT_ANY } armed;
    void *of;
};

struct soft_qp {
    LIST_ENTRY(soft_qp) others;
    uint32_t number, order;
    enum ibv_qp_type type;
    enum ibv_qp_state state;
    struct ibv_qp_attr attr;
    struct ibv_qp_cap cap;
    const void *pd;
    uint16_t lid;
    bool all_signaled;
    struct soft_cq *send, *receive;
    struct soft_queue own, *queue;
    void *of;
    struct soft_link *link; // for its requests
    STAILQ_HEAD(, soft_send) sends;
    unsigned waiting; // in it
    bool doomed;      // one of them is bad: nothing goes out behind it
    // A receive whose message was cut off: it is flushed with the others.
    bool torn;
    struct soft_receive torn_receive;
};

enum { SOFT_BUCKETS = 1024 };

struct soft_adapter {
    pthread_mutex_t lock;
    struct soft_net net;
    struct soft_tell tell;
    int epoll, listener, wake;
    uint16_t port;
    LIST_HEAD(, soft_link) links;
    LIST_HEAD(, soft_qp) qps[SOFT_BUCKETS];
    struct soft_key **keys; // by the upper 24 bits of their number
    uint32_t keys_size, keys_last;
    uint64_t polled;       // when the application last asked by itself
    bool asleep;           // the thread leaves progress to the application
    uint64_t next;         // when the next deadline comes; 0: there is none
    uint64_t answer_delay; // for tests, ns
    const char *hold;      // for tests: while this file exists no answer goes out
    const char *gone;      // for tests: once this file exists there is no device
    uint32_t most_wrs;     // of a queue; SOFT_WRS, or less for tests
    bool lost;             // the device is gone
    // For tests, too: while this file exists no event goes out, as a kernel's comes later than its completion.
    const char *hold_events;
    LIST_HEAD(, soft_cq) late;
    bool heeds_memlock; // what is registered counts against RLIMIT_MEMLOCK, as in the kernel
    uint64_t registered;
};
extern struct soft_adapter soft;

uint64_t soft_now(void); // ns, of a clock that only grows

// ---- link.c ----
struct soft_link *soft_link_to(const struct soft_address *to);
struct soft_link *soft_link_shared(const struct soft_address *to);
void soft_link_accept(void);
void soft_link_close(struct soft_link *link);
void soft_link_out(struct soft_link *link, struct soft_frame *frame);
void soft_link_flush(struct soft_link *link);
void soft_link_in(struct soft_link *link);
void soft_link_watch(struct soft_link *link);
void soft_link_tick(uint64_t now);
void soft_link_sweep(void);
void soft_link_let_go(void);

// ---- request.c: the side that asks ----
void soft_answer_begin(struct soft_link *link);
void soft_answer_end(struct soft_link *link);
void soft_sent(struct soft_frame *frame);
bool soft_may_go(const struct soft_frame *frame);
void soft_link_lost(struct soft_qp *qp);
void soft_flush_sends(struct soft_qp *qp);
void soft_send_free(struct soft_send *send);

// ---- respond.c: the side that is asked ----
bool soft_request_begin(struct soft_link *link); // false: it cannot be taken yet
void soft_request_end(struct soft_link *link);
void soft_request_cut(struct soft_link *link);
void soft_request_refuse(struct soft_link *link);
void soft_queue_filled(struct soft_queue *queue);

// ---- queue.c ----
void soft_complete(struct soft_cq *cq, const struct ibv_wc *wc, bool solicited);
int soft_queue_init(struct soft_queue *queue, uint32_t size, uint32_t pieces, const void *pd);
void soft_cq_forget(struct soft_cq *cq, uint32_t number); // completions of a queue pair
int soft_queue_post(struct soft_queue *queue, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void soft_events_late(void);
bool soft_queue_take(struct soft_queue *queue, struct soft_receive *into);

// ---- memory.c ----
// Where a range is that a key gives, or NULL: it gives no such range, for this domain and these rights.
enum ibv_wc_status soft_window_bind(const struct ibv_send_wr *wr, const void *pd);
bool soft_window_invalidate(uint32_t key, const void *pd);
void *soft_memory(uint32_t key, const void *pd, uint64_t iova, uint64_t length, int access);

// ---- pair.c ----
struct soft_qp *soft_qp_find(uint32_t number);
void soft_qp_fail(struct soft_qp *qp);
void soft_qp_fail_all(void);

#endif
