// SPDX-License-Identifier: Apache-2.0
//
// back.h: what ckptrun, the library of the machine's verbs below it, and libckpt-core.so say to each other.
#ifndef VERBS_BACK_H
#define VERBS_BACK_H

#include <stddef.h>
#include <stdint.h>

#define VERBS_BACK_VERSION 3

// What a rank asks another one, which answers without its program's help.
enum verbs_question {
    VERBS_WHO = 1,    // a queue pair number: struct verbs_who
    VERBS_KEY = 2,    // an rkey: struct verbs_key
    VERBS_FORGET = 3, // an rkey of the rank that asks is no longer good; no answer but that it is done
    VERBS_BACK =
        4, // a real queue pair number: struct verbs_who, in which real is the number that programs know
    VERBS_READY = 5 // a queue pair number: struct verbs_ready
};

struct verbs_who {
    uint32_t known, real, gids;
    uint16_t lid, real_lid;
    uint8_t gid[8][16], real_gid[8][16], type[8], real_type[8]; // enum ibv_gid_type; 0xff: not told
    uint32_t ethernet;                                          // it is found by its gid now, not by its lid
    uint16_t mtu, rd_atomics; // the device's now: enum ibv_mtu, and reads that it answers at once
    uint32_t tcp;             // its rank has no adapter, but goes over TCP
};

struct verbs_key {
    uint32_t known, real;
};

// What a queue pair could take now.
struct verbs_ready {
    uint32_t known, receives, draining; // receives: posted, and not known to be done
    uint64_t done;                      // messages
};

enum { VERBS_ANSWER_MAX = 304 };

// Given to the library.
struct verbs_host {
    uint32_t version;
    int rank, ranks; // of the job; ranks 0: the processes do not know each other
    // Memory of the program's half; NULL: there is none left.
    void *(*map)(size_t bytes);
    void (*unmap)(void *p, size_t bytes);
    // Asks a rank: 0, or an error number.
    int (*ask)(int rank, int question, uint32_t id, void *answer, size_t bytes);
    void (*say)(const char *line);
};

// Pairs of queue pairs, told to the peer's rank in a turn of a drain; lengths of sends that wait follow.
struct verbs_pair {
    uint32_t from, to; // numbers
    uint64_t posted;   // sends that take a receive
    uint64_t first;    // the ordinal of the first of those that are not done
    uint32_t lengths, failed;
    uint64_t got; // receives that are done
};

// Called by libckpt-core.so, one at a time but for answer.
struct verbs_calls {
    // Whether the program has opened a device.
    int (*used)(void);
    uint64_t (*root)(void);
    // Whether its devices are those of the library over TCP; after make of a restart.
    int (*tcp)(void);
    // Why the program cannot be saved now, one reason a line; 0: it can.
    size_t (*holds)(char *why, size_t bytes);
    // Descriptors of the lower half that the program's epoll sets watch.
    int (*descriptors)(int *list, int max);
    // A step of a drain: takes what others have told, tells others.  *left: what is not done yet, described in why.
    int (*turn)(int first, const void *in, size_t bytes, void **out, size_t *out_bytes, int *left, char *why,
                size_t why_bytes);
    // The drain is over.
    void (*end)(void);
    int (*answer)(int from, int question, uint32_t id, void *answer, size_t bytes);
    // A restart: 1: makes all objects, 2: connects queue pairs.
    int (*make)(int step, uint64_t root, char *why, size_t bytes);
};

struct verbs_back {
    uint32_t version, functions;
    long (*const *fn)(const long *);
    int (*load)(uint64_t root); // of a program that begins
    const struct verbs_calls *calls;
};

// The library's one symbol; NULL and why when it cannot be used.
const struct verbs_back *ckpt_verbs_entry(const struct verbs_host *host, char *why, size_t bytes);

#endif
