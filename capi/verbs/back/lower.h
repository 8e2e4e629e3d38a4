// SPDX-License-Identifier: Apache-2.0
//
// lower.h: what the files of the lower half of verbs share.
//
//   entry.c    the library's one symbol, and the functions behind the gate
//   real.c     the machine's libibverbs
//   ids.c      numbers that programs see, and the real ones; questions to other ranks
//   device.c   devices and ports; objects.c: all other objects; qp.c: queue pairs
//   window.c   memory windows
//   post.c     sends and receives; poll.c: completions; event.c: events
//   rnr.c      a peer that has no receive for too long
//   drain.c    nothing is under way any more; make.c: all is made again after a restart
#ifndef VERBS_LOWER_H
#define VERBS_LOWER_H

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/private/mutex.h"
#include "verbs/back.h"
#include "verbs/objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

// ---- real.c: by its names, in the versions that rdma-core 44 has -------------------------------------
// clang-format off
#define REAL_FUNCTIONS(X) \
    X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_guid) X(ibv_get_device_index) \
    X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) X(ibv_query_port) X(ibv_query_gid) \
    X(ibv_query_pkey) X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr_iova2) X(ibv_rereg_mr) X(ibv_dereg_mr) \
    X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) X(ibv_create_cq) X(ibv_resize_cq) \
    X(ibv_destroy_cq) X(ibv_get_cq_event) X(ibv_ack_cq_events) X(ibv_create_srq) X(ibv_modify_srq) \
    X(ibv_query_srq) X(ibv_destroy_srq) X(ibv_create_qp) X(ibv_modify_qp) X(ibv_query_qp) \
    X(ibv_destroy_qp) X(ibv_create_ah) X(ibv_destroy_ah) X(ibv_attach_mcast) X(ibv_detach_mcast) \
    X(ibv_get_async_event) X(ibv_ack_async_event) X(ibv_wc_status_str) X(ibv_node_type_str) \
    X(ibv_port_state_str) X(ibv_event_type_str) X(ibv_rate_to_mult) X(mult_to_ibv_rate) \
    X(ibv_rate_to_mbps) X(mbps_to_ibv_rate) X(_ibv_query_gid_ex) X(_ibv_query_gid_table)
// clang-format on
struct real {
#define X(name) typeof(name) *name;
    REAL_FUNCTIONS(X)
#undef X
};
extern struct real real;
extern bool real_over_tcp;              // it is ours, over TCP
const char *real_open(void);            // NULL, or what is wrong
const char *real_without_devices(void); // the same, at a restart
int real_port(struct ibv_context *c, int port, struct ibv_port_attr *attr);

// ---- entry.c --------------------------------------------------------------------------------------
extern struct v_root *root;
extern struct verbs_host verbs_host;
extern uint32_t lists_lock;
void list_add(struct v_node **list, struct v_node *node);
void list_remove(struct v_node *node);
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// All objects of a kind.  The lists' lock is held, or the program is stopped.
#define EACH(type, member, list)                                                                      \
    for (struct type *member = (struct type *)(list), *member##_next; member; member = member##_next) \
        if (member##_next = (struct type *)member->node.next, 1)

static inline void take(uint32_t *lock) { ckpt_mutex_take(lock); }
static inline void give(uint32_t *lock) { ckpt_mutex_give(lock); }

static inline int error_number(void) { return errno ? errno : EIO; }

#define ARG(type, i) ((type)(a[i]))
#define REAL_CONTEXT(c) ((struct ibv_context *)(c)->real)
#define REAL_PD(pd) ((struct ibv_pd *)v_of(v_pd, p, pd)->real)
#define REAL_CQ(c) ((struct ibv_cq *)(c)->real)
#define REAL_QP(q) ((struct ibv_qp *)(q)->real)
#define REAL_SRQ(s) ((struct ibv_srq *)(s)->real)
#define CONTEXT(ibv) v_of(v_context, v.context, ibv)
#define LIMITS(ibv) (&((const struct ports *)CONTEXT(ibv)->lower)->limits)

// Where a connection or a datagram begins.
struct way {
    uint8_t port, index, type; // of the gid: enum ibv_gid_type
    bool ethernet;
};

// ---- ids.c ----------------------------------------------------------------------------------------
void ids_clear(void);
void ids_mr(struct v_mr *m, bool number); // enters it; number: gives it its keys
void ids_mr_end(struct v_mr *m);
void ids_mw(struct v_mw *w);                      // gives it its key
void ids_changed(uint64_t *asked, uint32_t rkey); // the real one of this key is another now
void ids_qp(struct v_qp *q, bool number);
void ids_qp_end(struct v_qp *q);
void ids_qp_hide(struct v_qp *q, bool hide); // its number leads to nothing
struct v_qp *ids_qp_of(uint32_t number);
struct v_qp *ids_real_qp(uint32_t number);
uint32_t ids_lkey(uint32_t lkey);
uint32_t ids_rkey(struct v_qp *q, uint32_t rkey);
int ids_rank_of(uint32_t qpn);
bool ids_who(uint32_t qpn, struct verbs_who *who); // a queue pair of the job
int ids_ask(int rank, int question, uint32_t id, void *answer, size_t bytes);
bool ids_back(uint32_t real, uint16_t slid, struct verbs_who *who);
uint32_t ids_real_qpn(uint32_t qpn);
bool ids_leads_to(const struct ibv_ah_attr *a, const struct verbs_who *who);
// The program's way, made a real one. Which of the peer's gids it leads to; -1: a lid.
int ids_translate(struct ibv_ah_attr *a, const struct verbs_who *who, const struct way *from);
int ids_answer(int from, int question, uint32_t id, void *answer, size_t bytes);

// ---- device.c -------------------------------------------------------------------------------------
struct ports {                     // as they are now
    uint8_t ethernet[V_PORTS + 1]; // peers are found by gid, not by lid
    uint16_t lid[V_PORTS + 1];
    uint16_t mtu[V_PORTS + 1];              // the largest: enum ibv_mtu
    union ibv_gid gid[V_PORTS + 1][V_GIDS]; // those that stand for the ones that the program knows
    uint8_t gid_index[V_PORTS + 1][V_GIDS]; // and where they stand
    uint8_t gid_type[V_PORTS + 1][V_GIDS];  // enum ibv_gid_type; 0xff: not told
    int rd_atomics, rd_atomics_asked;       // of a queue pair: that others may ask for, and it may ask for
    struct ibv_device_attr limits;          // what is promised to the program
};
long f_devices(const long *), f_open(const long *), f_close(const long *), f_device(const long *),
    f_device_ex(const long *), f_port(const long *), f_gid(const long *), f_gid_ex(const long *),
    f_gid_table(const long *), f_pkey(const long *), f_text(const long *), f_rate(const long *);
int device_open(struct v_context *c, const char *name); // an error number
// The index of a gid on the device of now, by that which the program knows.
uint8_t device_gid_index(const struct v_context *c, int port, uint8_t index);
// Where a way begins, as the program knows it.
struct way device_way(const struct v_context *c, const struct ibv_ah_attr *a);
// Whether it cannot lead to this gid of a peer, and why.
bool device_no_way(const struct v_context *c, const struct way *from, const struct verbs_who *who, int to,
                   char *why, size_t bytes);
int device_name(const char *wanted, char *name, char *why, size_t bytes);

// ---- objects.c ------------------------------------------------------------------------------------
long f_pd(const long *), f_pd_end(const long *), f_mr(const long *), f_mr_end(const long *),
    f_mr_again(const long *), f_cq(const long *), f_cq_resize(const long *), f_cq_end(const long *),
    f_srq(const long *), f_srq_modify(const long *), f_srq_query(const long *), f_srq_end(const long *),
    f_ah(const long *), f_ah_end(const long *);
int pd_make(struct v_pd *p), mr_make(struct v_mr *m), cq_make(struct v_cq *c), srq_make(struct v_srq *s);
struct ibv_mr *pd_scratch(struct v_pd *p); // 8 bytes of our own
struct ibv_ah *ah_to(struct v_ah *h, uint32_t qpn);

// ---- qp.c -----------------------------------------------------------------------------------------
long f_qp(const long *), f_qp_modify(const long *), f_qp_query(const long *), f_qp_end(const long *),
    f_multicast(const long *);
int qp_make(struct v_qp *q);
// Modifies the real one with all that was given. EHOSTUNREACH and why: it would lead nowhere.
int qp_step(struct v_qp *q, enum ibv_qp_state state, char *why, size_t bytes);

// ---- post.c ---------------------------------------------------------------------------------------
enum { ID_SEND = 1, ID_RECEIVE, ID_SRQ, ID_BOUNCE, ID_SRQ_BOUNCE };
#define WR_ID(kind, slot) ((uint64_t)(kind) << 56 | ((slot)&0xffffffffffull))
long f_send(const long *), f_receive(const long *), f_srq_receive(const long *);
void log_send(struct v_qp *q, uint64_t ordinal, const struct ibv_send_wr *w, uint64_t takes);
int post_again(struct v_qp *q); // receives that the program has posted
int post_srq_again(struct v_srq *s);
static inline struct v_receive *receive_of(struct v_qp *q, uint64_t ordinal) {
    return (struct v_receive *)(q->receive +
                                ordinal % q->receive_slots * v_receive_bytes(q->init.cap.max_recv_sge));
}
static inline struct v_receive *srq_slot(struct v_srq *s, uint64_t i) {
    return (struct v_receive *)(s->slots + i * v_receive_bytes(s->attr.max_sge));
}
void messages_drop(struct v_messages *m);

// ---- poll.c ---------------------------------------------------------------------------------------
long f_poll(const long *), f_arm(const long *);
int poll_real(struct v_cq *c, int n, struct ibv_wc *wc); // with its lock; what the program is to see
void cq_keep_all(struct v_cq *c);                        // with its lock; what there is
void cq_take_back(struct v_cq *c, uint32_t number);      // completions of a queue pair that is reset
bool cq_keep(struct v_cq *c, const struct ibv_wc *wc);   // with its lock
extern bool draining;
extern uint64_t last_completion; // in a drain

// ---- window.c -------------------------------------------------------------------------------------
long f_mw(const long *), f_mw_end(const long *), f_bind(const long *);
int mw_make(struct v_mw *w), mw_bind_again(struct v_mw *w);
int mw_translate(struct ibv_send_wr *to, const struct ibv_send_wr *from); // an error number
void mw_posted(struct v_qp *q, const struct ibv_send_wr *w);
void mw_failed(uint32_t rkey);
void mw_invalidated(struct ibv_wc *c);

// ---- event.c --------------------------------------------------------------------------------------
long f_channel(const long *), f_channel_end(const long *), f_event(const long *), f_async(const long *);
int bell_make(struct v_bell *b, int real);
void bell_end(struct v_bell *b);
void took(struct v_bell *b); // a kept event, with the bell's lock
int channel_make(struct v_channel *c);
void event_for(struct v_cq *c); // the program is to hear of it; with the queue's lock
void events_keep(void);         // takes all real events
void events_keep_async(void);   // the asynchronous ones
void events_forget(struct v_context *c, const uint32_t *owed); // of an object, by its v_owed
bool event_waits(struct v_context *c);
int bells(int *list, int max);

// ---- rnr.c ----------------------------------------------------------------------------------------
void rnr_watch(void); // from now on

// ---- drain.c, make.c ------------------------------------------------------------------------------
size_t drain_holds(char *why, size_t bytes);
int drain_turn(int first, const void *in, size_t bytes, void **out, size_t *out_bytes, int *left, char *why,
               size_t why_bytes);
void drain_end(void);
extern bool made_again; // the program was continued
int make_again(int step, uint64_t root_at, char *why, size_t bytes);
uint64_t now_ns(void);

#endif
