// SPDX-License-Identifier: Apache-2.0
//
// rail_shm.c: queues in memory that the processes of a node share.
//
// Each process makes one segment, its inbox: a ring of bytes for each sender.  A ring has one writer, the process that
// sends, and one reader; each moves one of its ends.  Nothing in a ring matters once the reader has taken it, so
// the rail unmaps the segments for a checkpoint and makes new ones after it, wherever the process then is.
//
// Its endpoints are static: they are there as soon as the rail is open.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "inside.h"

enum { GATE = 32 << 10, RING = 128 << 10 }; // bytes; a ring has room for any message that passes the gate

struct ring { // an end is the number of all bytes so far
    _Alignas(64) uint64_t written;
    _Alignas(64) uint64_t taken;
    _Alignas(64) char bytes[RING];
};

struct way {           // to one process
    struct endpoint e; // first
    pthread_mutex_t lock;
    struct ring *ring; // in the receiver's inbox; NULL: not of this node
};

static struct {
    struct ring *inbox; // tmpi.processes of them; NULL: closed
    struct way *ways;
} shm;

// ---- a ring ----

static void put(struct ring *r, uint64_t at, const void *data, size_t n) {
    size_t start = at % RING, until = n < RING - start ? n : RING - start;
    memcpy(r->bytes + start, data, until);
    memcpy(r->bytes, (const char *)data + until, n - until);
}

static void get(const struct ring *r, uint64_t at, void *data, size_t n) {
    size_t start = at % RING, until = n < RING - start ? n : RING - start;
    memcpy(data, r->bytes + start, until);
    memcpy((char *)data + until, r->bytes, n - until);
}

static int shm_send(struct endpoint *e, const struct header *h, const void *data) {
    struct way *w = (struct way *)e;
    size_t n = sizeof *h + h->bytes;
    pthread_mutex_lock(&w->lock); // the writer is one process, but not one thread
    uint64_t at = w->ring->written;
    bool room = n <= RING - (at - __atomic_load_n(&w->ring->taken, __ATOMIC_ACQUIRE));
    if (room) {
        put(w->ring, at, h, sizeof *h);
        if (h->bytes > 0) put(w->ring, at + sizeof *h, data, h->bytes);
        __atomic_store_n(&w->ring->written, at + n, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&w->lock);
    return room ? 0 : CKPT_E_AGAIN;
}

static bool shm_poll(void) {
    bool moved = false;
    for (int i = 0; shm.inbox != NULL && i < tmpi.processes; i++) {
        struct ring *r = &shm.inbox[i];
        while (r->taken != __atomic_load_n(&r->written, __ATOMIC_ACQUIRE)) {
            struct header h;
            get(r, r->taken, &h, sizeof h);
            struct message *m = match_room(&h);
            get(r, r->taken + sizeof h, m->data, h.bytes);
            match_arrived(m);
            // After that: the sender takes this for the acknowledgement.
            __atomic_store_n(&r->taken, r->taken + sizeof h + h.bytes, __ATOMIC_RELEASE);
            moved = true;
        }
    }
    return moved;
}

// ---- the rail ----

static int shm_gate(void *ctx, size_t bytes, int kind) {
    (void)ctx, (void)kind;
    return bytes <= GATE;
}

static size_t inbox_bytes(void) { return (size_t)tmpi.processes * sizeof(struct ring); }

static void *map(const char *name, int flags) {
    int fd = open(name, flags | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) return NULL;
    void *at = MAP_FAILED;
    if (!(flags & O_CREAT) || ftruncate(fd, (off_t)inbox_bytes()) == 0)
        at = mmap(NULL, inbox_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

// A process whose segment is not found is on another node: 64 random bits in a name are not met twice.
static bool shm_open_rail(void) {
    char name[64], *names = tmpi_must(calloc((size_t)tmpi.processes, sizeof name));
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random) return false;
    memset(name, 0, sizeof name);
    snprintf(name, sizeof name, "/dev/shm/tmpi-%016llx", (unsigned long long)random);
    shm.inbox = map(name, O_CREAT | O_EXCL);
    if (shm.inbox == NULL) name[0] = 0; // the others still come to the all-gather
    if (shm.ways == NULL) {
        shm.ways = tmpi_must(calloc((size_t)tmpi.processes, sizeof *shm.ways));
        for (int i = 0; i < tmpi.processes; i++) pthread_mutex_init(&shm.ways[i].lock, NULL);
    }
    int rc = ckpt_allgather(tmpi.job, TAG_SHM_NAMES, name, names, sizeof name, NULL);
    for (int i = 0; rc == 0 && i < tmpi.processes; i++) {
        struct way *w = &shm.ways[i];
        char *segment = names + (size_t)i * sizeof name;
        void *inbox = i != tmpi.process && *segment != 0 ? map(segment, 0) : NULL;
        if (inbox == NULL) continue;
        w->ring = (struct ring *)inbox + tmpi.process;
        w->e = (struct endpoint){.base = {.rail = rail_shm.known, .process = i, .flags = CKPT_EP_STATIC},
                                 .send = shm_send};
        rc = ckpt_endpoint_add(tmpi.job, &w->e.base);
    }
    free(names);
    if (rc == 0) rc = ckpt_barrier(tmpi.job, TAG_SHM_MAPPED, NULL);
    if (shm.inbox != NULL) unlink(name); // by now all have mapped it
    return rc == 0 && shm.inbox != NULL;
}

// What this process has sent is with its receivers when they have moved the ends of its rings.
static int shm_quiet(void *ctx) {
    (void)ctx;
    bool quiet = !shm_poll();
    for (int i = 0; i < tmpi.processes; i++) {
        struct ring *r = shm.ways[i].ring;
        if (r != NULL && __atomic_load_n(&r->taken, __ATOMIC_ACQUIRE) != r->written) quiet = false;
    }
    return quiet;
}

static int shm_close(void *ctx) {
    (void)ctx;
    for (int i = 0; i < tmpi.processes; i++)
        if (shm.ways[i].ring != NULL) {
            munmap(shm.ways[i].ring - tmpi.process, inbox_bytes());
            shm.ways[i].ring = NULL;
        }
    if (shm.inbox != NULL) munmap(shm.inbox, inbox_bytes());
    shm.inbox = NULL;
    return 0;
}

// After a restart TMPI_RAILS may name others: all processes have the same launcher, so all of them say no.
static int shm_reopen(void *ctx, int why) {
    char text[256];
    (void)ctx;
    if (why == CKPT_WHY_RESTARTED && *embed_env("TMPI_RAILS", text) != 0 && strstr(text, "shm") == NULL)
        return CKPT_E_NOTSUP;
    return shm_open_rail() ? 0 : CKPT_E_SYSTEM;
}

struct rail rail_shm = {.ops = {.size = sizeof(ckpt_rail_ops),
                                .name = "shm",
                                .priority = PRIORITY_SHM,
                                .flags = CKPT_RAIL_NODE,
                                .gate = shm_gate,
                                .quiet = shm_quiet,
                                .close = shm_close,
                                .reopen = shm_reopen},
                        .open = shm_open_rail,
                        .poll = shm_poll};
