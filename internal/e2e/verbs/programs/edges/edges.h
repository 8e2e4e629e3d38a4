// SPDX-License-Identifier: Apache-2.0
//
// edges.h: what the cases share: two ranks with a reliable queue pair between them, and files by which they meet.
#ifndef EDGES_H
#define EDGES_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 512, WRITES = 100, SENDS = 3 };
enum {
    REACH =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

struct card {
    uint32_t qpn, rkey, spare_rkey;
    uint64_t words, spare;
    uint16_t lid;
    union ibv_gid gid;
};

extern int rank;
extern const char *dir;
extern struct ibv_context *context;
extern struct ibv_pd *pd;
extern struct ibv_cq *sends, *receives;
extern struct ibv_comp_channel *channel;
extern struct ibv_qp *qp;
extern struct ibv_mr *mr, *spare_mr;
extern uint64_t *words;
extern uint64_t *spare;
extern struct card mine, theirs;
extern uint16_t lid;
extern union ibv_gid gid;
extern uint8_t rnr_retry, rnr_timer;

void wrong(const char *format, ...);
void good(int e, const char *what);
void nap(void);
void tell(const char *what, int who, const void *p, size_t n);
void hear(const char *what, int who, void *p, size_t n);
void together(const char *what);
int is_there(const char *what);
int gone(void);
void say_ready(void);
void ready(void);
void begin_pair(void);
struct ibv_srq *shared_queue(void);
void open_all(void);
void close_all(void);
void lead(uint32_t qpn, uint16_t to, union ibv_gid at);
void meet(void);
void again(void);
void post(enum ibv_wr_opcode op, uint64_t id, unsigned flags, void *from, uint32_t bytes, uint64_t to,
          uint32_t rkey);
void post_receive(uint64_t id, void *to);
struct ibv_wc one(struct ibv_cq *cq);
struct ibv_wc fine(struct ibv_cq *cq, uint64_t id);

void windows(void);
void late(void);
void event(void);
void numbers(void);
void forks(void);
void adds(void);
void flushed(void);
void looked(void);
void stream(void);
void shared(void);
void reply(void);
void limit(void);
void events(void);
void blocked(void);
void vanishes(void);
void idle(void);
void writes(void);

#endif
