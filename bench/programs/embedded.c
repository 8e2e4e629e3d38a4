// SPDX-License-Identifier: Apache-2.0
//
// embedded: what does libckpt cost a runtime that links it?
//
//     embedded calls BATCHES              one process: calls on the way of a message, while nothing is asked for
//     embedded mesh MEET MIB              processes of an MPI launcher, each connected to each over TCP, with MIB of
//                                         memory: one checkpoint, as the slowest process had it
//     embedded levels BATCHES             the tasks of a runtime of examples/tmpi (made with -DLEVELS)
//
// MEET is a folder in which processes find each other.
#include <ckpt.h>
#include <ckpt/clock.h>
#include <ckpt/rail.h>
#include <ckpt/vid.h>

#include "measure.h"

#ifdef LEVELS
#include "../../examples/tmpi/inside.h"

// Outside of ckptrun a checkpoint is the meeting of the tasks of a process, and nothing else.
static int body(int argc, char **argv) {
    struct measure m = measure_begin(argc - 1, argv + 1);
    char name[64];
    m.silent = tmpi_rank() != 0;
    for (int i = 0; i < 10; i++) tmpi_barrier();
    snprintf(name, sizeof name, "tasks of a process meet, %d", tmpi.local);
    MEASURE(&m, name, 1, DEMAND(tmpi_checkpoint() == CKPT_STATE_IGNORE));
    tmpi_barrier();
    snprintf(name, sizeof name, "tmpi_barrier, %d ranks", tmpi_size());
    MEASURE(&m, name, 1, tmpi_barrier());
    return 0;
}

int main(int argc, char **argv) { return tmpi_run(body, argc, argv); }
#else
#include "../../internal/e2e/programs/meet.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 64 };
static int rank, size = 1, peer[MOST];
static const char *meet;
static ckpt_job *job;
static ckpt_error error = {.size = sizeof error};
static int64_t quiesced, closed, opening, opened;

static int op_rank(void *ctx) { return (void)ctx, rank; }
static int op_ranks(void *ctx) { return (void)ctx, size; }

static int op_allgather(void *ctx, const void *mine, void *all, size_t bytes) {
    return (void)ctx, meet_allgather(meet, rank, size, mine, all, bytes);
}

static int op_quiesce(void *ctx, int on) {
    (void)ctx;
    if (on) quiesced = clock_ns();
    return 0;
}

static const ckpt_config config = {.size = sizeof config,
                                   .api_major = CKPT_API_MAJOR,
                                   .api_minor = CKPT_API_MINOR,
                                   .runtime = "embedded",
                                   .thread_level = CKPT_THREAD_SINGLE};

// ---- calls -------------------------------------------------------------------------------------

static int bind_objects(void *ctx, ckpt_job *j) { return (void)ctx, (void)j, 0; }
static int rebuild(void *ctx, ckpt_kind kind, ckpt_vid vid, const void *d, size_t bytes, uint64_t *real) {
    return (void)ctx, (void)kind, (void)vid, (void)d, (void)bytes, *real = 1, 0;
}

static int calls(int argc, char **argv) {
    struct measure m = measure_begin(argc, argv);
    ckpt_object_ops objects = {.size = sizeof objects, .bind = bind_objects, .rebuild = rebuild};
    ckpt_runtime_ops ops = {.size = sizeof ops,
                            .rank = op_rank,
                            .ranks = op_ranks,
                            .oob_allgather = op_allgather,
                            .objects = &objects};
    job = ckpt_open(&config, &ops, NULL, &error);
    DEMAND(job != NULL);
    ckpt_vid comm = ckpt_vid_new(job, CKPT_KIND_COMM, 1, "world", 5, NULL, 0, 1);
    const int world[1] = {0};
    DEMAND(comm != CKPT_VID_NONE && ckpt_comm_describe(job, comm, 0, 1, world, 1, 77) == 0);
    DEMAND(ckpt_comm_set_members(job, comm, world, 1, 77) == 0);
    const ckpt_slot *slot = ckpt_vid_slot(job->tables, CKPT_KIND_COMM, comm);
    DEMAND(slot != NULL && slot->counters != 0);
    long asked = 0, wrong = 0;
    MEASURE(&m, "a loop around nothing", 1000, __asm__ volatile("" : : "r"(job) : "memory"));
    MEASURE(&m, "ckpt_poll", 1000, {
        asked += ckpt_poll(job) != CKPT_POLL_NOTHING;
        __asm__ volatile("" : : : "memory");
    });
    MEASURE(&m, "a counted send and receive", 1000, {
        ckpt_sent(slot, 0, 0);
        ckpt_received(slot, 0, 0);
        __asm__ volatile("" : : : "memory");
    });
    MEASURE(&m, "a counted collective call", 1000, {
        ckpt_coll call;
        wrong += ckpt_coll_begin(job, comm, "barrier", CKPT_COLL_BLOCKING, &call) != CKPT_COLL_ENTER;
        ckpt_coll_end(job, &call);
        __asm__ volatile("" : : : "memory");
    });
    DEMAND(asked == 0 && wrong == 0);
    ckpt_vid_free(job, comm);
    return ckpt_close(job, &error);
}

// ---- a mesh ------------------------------------------------------------------------------------

// Collective: all listen, tell their ports, and connect to those below them.
static int rail_open(void *ctx, int why) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    (void)ctx, (void)why;
    opening = clock_ns();
    int ports[MOST], listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (void *)&at, n) || listen(listener, MOST) || getsockname(listener, (void *)&at, &n))
        return CKPT_E_SYSTEM;
    int mine = at.sin_port;
    if (ckpt_allgather(job, 7, &mine, ports, sizeof mine, &error)) return error.code;
    for (int r = 0; r < rank; r++) {
        at.sin_port = (in_port_t)ports[r];
        peer[r] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(peer[r], (void *)&at, sizeof at) || send(peer[r], &rank, sizeof rank, 0) != sizeof rank)
            return CKPT_E_SYSTEM;
    }
    for (int r = rank + 1; r < size; r++) {
        int fd = accept(listener, NULL, NULL), who = -1;
        if (recv(fd, &who, sizeof who, MSG_WAITALL) != sizeof who) return CKPT_E_SYSTEM;
        peer[who] = fd;
    }
    close(listener);
    opened = clock_ns();
    return 0;
}

static int rail_close(void *ctx) {
    (void)ctx;
    for (int r = 0; r < size; r++)
        if (r != rank) close(peer[r]);
    closed = clock_ns();
    return 0;
}

// The greatest of all processes.
static int64_t greatest(int64_t mine) {
    int64_t all[MOST], most = 0;
    DEMAND(ckpt_allgather(job, 8, &mine, all, sizeof mine, &error) == 0);
    for (int r = 0; r < size; r++) most = all[r] > most ? all[r] : most;
    return most;
}

static void report(const char *name, int64_t mine) {
    mine = greatest(mine);
    if (rank == 0) printf("took\t%s\t%lld\n", name, (long long)mine);
}

static int mesh(size_t bytes) {
    ckpt_runtime_ops ops = {.size = sizeof ops,
                            .rank = op_rank,
                            .ranks = op_ranks,
                            .oob_allgather = op_allgather,
                            .quiesce = op_quiesce};
    ckpt_rail_ops rail = {.size = sizeof rail, .name = "tcp", .close = rail_close, .reopen = rail_open};
    ckpt_rail *r;
    rank = meet_rank();
    size = meet_size();
    DEMAND(size <= MOST);
    uint64_t *words = malloc(bytes);
    DEMAND(words != NULL);
    for (size_t i = 0; i < bytes / 8; i++) words[i] = (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)rank << 32;
    job = ckpt_open(&config, &ops, NULL, &error);
    DEMAND(job != NULL);
    DEMAND(ckpt_rail_register(job, &rail, NULL, &r, &error) == 0);
    DEMAND(rail_open(NULL, 0) == 0);
    ckpt_state state;
    DEMAND(ckpt_barrier(job, 9, &error) == 0);
    int64_t called = clock_ns();
    int rc = ckpt_checkpoint(job, 0, &state, &error);
    int64_t back = clock_ns();
    if (rc != 0 || state != CKPT_STATE_CHECKPOINT) {
        fprintf(stderr, "embedded: process %d: state %d: %s\n", rank, (int)state, error.message);
        return 1;
    }
    report("stopped", back - called);
    report("rails closed after quiesce", closed - quiesced);
    report("rails opened again", opened - opening);
    free(words);
    return ckpt_close(job, &error);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "calls") == 0) return calls(argc - 1, argv + 1);
    DEMAND(argc > 3 && strcmp(argv[1], "mesh") == 0);
    meet = argv[2];
    return mesh((size_t)atoi(argv[3]) << 20);
}
#endif
