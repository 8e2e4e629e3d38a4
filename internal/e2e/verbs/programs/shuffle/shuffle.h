// SPDX-License-Identifier: Apache-2.0
//
// shuffle.h: ranks that send, write, read and add by a plan that all know, and check what arrives against it.
#ifndef SHUFFLE_H
#define SHUFFLE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    RANKS = 16,       // at most
    LONGEST = 4096,   // of a message
    SLOTS = 16,       // that a peer writes, and those that a rank writes from
    RECEIVES = 24,    // of a queue
    SIGNAL_EVERY = 6, // a send is signaled at the latest
    GRH = 40,
};

// ---- plan.c: what each rank does to each other ----

enum op { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, ADD, SWAP, UC_SEND, UC_WRITE, UD_SEND, OPS };

struct step {
    enum op op;
    uint32_t number; // in the plan, from 0
    uint32_t length, slot;
    uint64_t value; // that is added
    bool inlined, quiet;
};

// The steps of one rank towards another. The last one is a SEND, so that what was before has happened when it arrives.
struct plan {
    uint64_t random, key;
    uint32_t next, steps;
};

struct plan plan_of(uint64_t seed, int from, int to, uint32_t steps);
bool plan_next(struct plan *plan, struct step *step); // false: it is over
// The content of a message of the plan, and whether bytes are that.
void fill(void *at, size_t n, uint64_t key, uint32_t number);
bool is(const void *at, size_t n, uint64_t key, uint32_t number);

// ---- fabric.c: the objects ----

// What a rank tells the others.
struct card {
    uint32_t rc[RANKS], uc[RANKS], ud, rkey;
    uint64_t memory;
    uint16_t lid;
    bool global; // it is found by its gid
    union ibv_gid gid;
};

// The memory that others reach, one for each of them. What is read never changes.
struct window {
    char written[SLOTS][LONGEST], uc_written[SLOTS][LONGEST];
    char read[LONGEST];
    uint64_t swapped;
};

struct memory {
    uint64_t added; // by all
    struct window of[RANKS];
    char out[RANKS][3][SLOTS][LONGEST];              // by transport
    char in[RANKS * 2 + 1][RECEIVES][LONGEST + GRH]; // RC of a peer or the shared queue, UC of a peer, UD
};

enum transport { RC, UC, UD };

struct fabric {
    int rank, ranks;
    bool events, shared; // sleeps on events; has a shared receive queue
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    struct ibv_qp *qp[RANKS][2], *ud;
    struct ibv_ah *ah[RANKS];
    struct memory *memory;
    struct card mine, card[RANKS];
};

void fabric_open(struct fabric *f);
void fabric_connect(struct fabric *f);
void fabric_close(struct fabric *f);
// Posts the receive number `at` of a queue again.
void fabric_receive(struct fabric *f, int peer, enum transport transport, int at);

// wr_id: what, with whom, and which.
static inline uint64_t id_of(bool receive, enum transport t, int peer, uint32_t at) {
    return (uint64_t)receive << 48 | (uint64_t)t << 40 | (uint64_t)peer << 32 | at;
}

// ---- work.c ----
void work(struct fabric *f, uint64_t seed, uint32_t steps, unsigned pace, unsigned lazy);

// Says what was wrong, and ends the process.
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
