// SPDX-License-Identifier: Apache-2.0
//
// random.h: a random MPI program that cannot deadlock.
//
// From the seed every rank draws the same script, a sequence of phases; each rank then plays its own
// part.  Every phase can end without the help of a later one, so no legal MPI can block it.  What a
// rank does for itself (how it waits, how long it computes) it draws from a stream of its own.
//
// What arrives is checked at once where the receiver can know it, and goes into a digest, which in
// turn is part of what the rank sends: one wrong bit anywhere changes the end of the run.
#ifndef SOAK_RANDOM_H
#define SOAK_RANDOM_H

#include <mpi.h>
#include <stdint.h>

enum { RANKS = 16, COMMS = 20 };

// ---- main.c: streams, digest, time ----

struct gen {
    uint64_t s;
};

extern struct gen script; // the same on all ranks: all must draw from it alike
extern struct gen own;    // this rank's
extern int rank, size, phase;
extern uint64_t digest;

static inline uint64_t mix(uint64_t h, uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdull;
    return h ^ h >> 33;
}

static inline uint64_t draw(struct gen *g) {
    uint64_t z = g->s += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

// 0 to n-1
static inline int pick(struct gen *g, int n) { return (int)(draw(g) % (uint64_t)n); }
static inline int between(struct gen *g, int low, int high) { return low + pick(g, high - low + 1); }

static inline void fold(uint64_t v) { digest = mix(digest, v); }
void dally(void); // computes or sleeps for a random time, mostly none
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *need(size_t bytes);

// ---- comms.c: communicators that come and go ----

enum kind { NONE, INTRA, CART, GRAPH, INTER };

// An intercommunicator has two sides; otherwise both are the same.
struct comm {
    enum kind kind;
    MPI_Comm comm;           // of members
    int n[2], who[2][RANKS]; // world rank of each rank
    int ndims, dims[2];      // CART
    int degree;              // GRAPH: rank i sends to i+1 .. i+degree
    int busy;                // operations that outlive their phase
};

extern struct comm comms[COMMS];
int seat(const struct comm *c, int side); // this rank's place on a side, or -1
int member(const struct comm *c);
int side_of(const struct comm *c);         // of a member
struct comm *some_comm(void);              // drawn by all, not INTER
struct comm *some_comm_of(enum kind kind); // NULL when there is none
void comms_begin(void);
void phase_comm(void);
void comms_end(void);

// ---- message.c: one message ----

enum mode { STANDARD, SYNCHRONOUS, BUFFERED, READY };

struct msg {
    struct comm *c;
    int side, src, dst, tag, n; // from src of that side to dst of the other; n words
    uint64_t id;
    enum mode mode;
    int out_shape, in_shape; // datatypes of sender and receiver
};

// Something that was started.
struct op {
    MPI_Request req;
    struct msg m;
    enum { OP_NONE, OP_SEND, OP_RECV, OP_COLL } what;
    uint64_t *buf;     // message
    MPI_Datatype type; // MPI_DATATYPE_NULL: not ours to free
    int persistent;
    MPI_Message held; // matched, to be received when the phase `due` begins
    int due;
    struct coll *coll;
};

enum { WILDCARD = 1 }; // of post_recv, take: MPI_ANY_SOURCE

int fresh_tag(void);
struct msg some_msg(struct comm *c, int most_words);
int is_src(const struct msg *m);
int is_dst(const struct msg *m);
int some_size(int most);
void post_send(struct op *o, const struct msg *m);
void post_recv(struct op *o, const struct msg *m, int wild);
void init_send(struct op *o, const struct msg *m); // persistent
void init_recv(struct op *o, const struct msg *m);
void refill(struct op *o); // before a persistent send is started
void blocking_send(const struct msg *m);
// Receives one of n messages that differ in source and id only, in a random way; its number.
int take(const struct msg *m, int n, int wild);
void finish(struct op *o, const MPI_Status *st); // checks and folds what is complete
void complete(struct op *ops, int n);            // waits for all in a random way
void messages_flush(void);                       // the buffer of MPI_Bsend
void messages_begin(void);
void messages_end(void);

// ---- phases ----

void phase_linear(void);
void phase_exchange(void);
void phase_unexpected(void);
void phase_wild(void);
void phase_any_tag(void);
void phase_persistent(void);
void persistent_forget(const struct comm *c); // NULL: all
void phase_ready(void);
void phase_sendrecv(void);
void phase_cancel(void);
void phase_burst(void);
void phase_later(void);
void later_due(int all);

void phase_collectives(void);
void phase_icollectives(void);
void phase_neighbours(void);
void phase_inter(void);
void coll_start(struct op *o, struct comm *c, int blocking);
void coll_finish(struct op *o);
void colls_begin(void);
void colls_end(void);
void later_add(struct op *o, int due);
#endif
