// SPDX-License-Identifier: Apache-2.0
//
// libcr.c: the interface of BLCR, as MPICH's nemesis channel uses it, over ckpt.h.
//
//   MPI_Init          cr_init, cr_register_callback: the job is open, a thread looks whether somebody asks
//   ckptctl           the thread calls MPICH's callback on every rank; MPICH drains its channels with markers, halts
//                     its progress engine, and calls cr_checkpoint
//   the run goes on   MPICH's sockets are open as before
//   after a restart   they are closed; MPICH reads where the new launcher listens, opens PMI, publishes its new
//                     address, and connects again
//
// Lives in the program's half, so all of it is in the image (ckptrun --whole).
#include "libcr.h"

#include <ckpt.h>
#include <ckpt/rail.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// MPICH's own, which the program has loaded with this library.
#define WEAK __attribute__((weak))
WEAK int PMI_Get_rank(int *rank);
WEAK int PMI_Get_size(int *size);
WEAK int PMI_KVS_Get_name_length_max(int *bytes);
WEAK int PMI_KVS_Get_my_name(char *name, int bytes);
WEAK int PMI_KVS_Put(const char *name, const char *key, const char *value);
WEAK int PMI_KVS_Commit(const char *name);
WEAK int PMI_KVS_Get(const char *name, const char *key, char *value, int bytes);
WEAK int PMI_Barrier(void);
WEAK int PMPI_Finalized(int *flag);

enum {
    PIECE = 120,             // bytes in a value of PMI's, in hexadecimal digits there
    EVERY = 2 * 1000 * 1000, // ns between two looks
    DESCRIPTORS = 4096       // more than a program has under ckptrun
};

static ckpt_job *job;
static ckpt_error error = {.size = sizeof error};
static int rank, size;
static cr_callback_t callback;
static void *callback_arg;
static pthread_t watcher;
static struct cr_restart_info restart_info;
static bool in_callback, // the watcher is inside MPICH
    drained,             // MPICH has drained its channels
    ending;

// ---- before there is a network: PMI ----------------------------------------------------------------

static int op_rank(void *ctx) { return (void)ctx, rank; }
static int op_ranks(void *ctx) { return (void)ctx, size; }

static void to_hex(char *text, const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) sprintf(text + 2 * i, "%02x", bytes[i]);
    text[2 * n] = 0;
}

static bool from_hex(unsigned char *bytes, size_t n, const char *text) {
    for (size_t i = 0; i < n; i++)
        if (sscanf(text + 2 * i, "%2hhx", &bytes[i]) != 1) return false;
    return true;
}

// Each rank puts its bytes piece by piece, and gets those of the others.
static int op_allgather(void *ctx, const void *mine, void *all, size_t bytes) {
    static int round;
    char name[512], key[64], value[2 * PIECE + 1];
    int longest;
    (void)ctx;
    if (PMI_KVS_Get_name_length_max(&longest) || longest >= (int)sizeof name ||
        PMI_KVS_Get_my_name(name, longest))
        return CKPT_E_SYSTEM;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        snprintf(key, sizeof key, "libcr-%d-%d-%zu", round, rank, at);
        to_hex(value, (const unsigned char *)mine + at, n);
        if (PMI_KVS_Put(name, key, value)) return CKPT_E_SYSTEM;
    }
    if (PMI_KVS_Commit(name) || PMI_Barrier()) return CKPT_E_SYSTEM;
    for (int r = 0; r < size; r++)
        for (size_t at = 0; at < bytes; at += PIECE) {
            size_t n = bytes - at < PIECE ? bytes - at : PIECE;
            snprintf(key, sizeof key, "libcr-%d-%d-%zu", round, r, at);
            if (PMI_KVS_Get(name, key, value, sizeof value) ||
                !from_hex((unsigned char *)all + (size_t)r * bytes + at, n, value))
                return CKPT_E_SYSTEM;
        }
    round++;
    return 0;
}

// MPIX_Checkpoint of the program comes past MPICH, which has not drained anything then.
static int op_holds(void *ctx, char *why, size_t bytes) {
    (void)ctx;
    if (drained) return 0;
    snprintf(why, bytes,
             "MPICH is not prepared: ask with ckptctl, or by an interval, and not from the program");
    return 1;
}

static const ckpt_state_ops state_ops = {.size = sizeof state_ops, .holds = op_holds};
static const ckpt_runtime_ops ops = {.size = sizeof ops,
                                     .rank = op_rank,
                                     .ranks = op_ranks,
                                     .oob_allgather = op_allgather,
                                     .state = &state_ops};

// ---- the job's life --------------------------------------------------------------------------------

// The program ends.  The job is closed when all ranks do so, which only MPI_Finalize tells; otherwise the launcher
// ends them.
static void leave(void) {
    int finalized = 0;
    __atomic_store_n(&ending, true, __ATOMIC_SEQ_CST);
    // A watcher inside MPICH's callback waits for what no longer comes.
    if (callback && !__atomic_load_n(&in_callback, __ATOMIC_SEQ_CST)) pthread_join(watcher, NULL);
    if (PMPI_Finalized && PMPI_Finalized(&finalized) == 0 && finalized && ckpt_close(job, &error))
        fprintf(stderr, "libcr: rank %d: closing the job: %s\n", rank, error.message);
}

cr_client_id_t cr_init(void) {
    ckpt_config config = {.size = sizeof config,
                          .api_major = CKPT_API_MAJOR,
                          .api_minor = CKPT_API_MINOR,
                          .runtime = "mpich-nemesis",
                          .runtime_version = "4.0.2",
                          .thread_level = CKPT_THREAD_MULTIPLE};
    errno = ENOSYS;
    if (!PMI_Get_rank || !PMI_Get_size || !PMI_KVS_Get_name_length_max || !PMI_KVS_Get_my_name ||
        !PMI_KVS_Put || !PMI_KVS_Commit || !PMI_KVS_Get || !PMI_Barrier) {
        fprintf(stderr, "libcr: the MPI does not show its functions of PMI: configure it with "
                        "--disable-visibility\n");
        return -1;
    }
    if (PMI_Get_rank(&rank) || PMI_Get_size(&size)) return -1;
    // The launcher takes one connection by PMI_FD; after a restart there are two, libckpt's and MPICH's.
    if (!getenv("PMI_PORT")) {
        fprintf(stderr, "libcr: rank %d: start the program with mpiexec -pmi-port\n", rank);
        return -1;
    }
    job = ckpt_open(&config, &ops, NULL, &error);
    if (!job) {
        fprintf(stderr, "libcr: rank %d: %s\n", rank, error.message);
        return -1;
    }
    atexit(leave);
    errno = 0;
    return 1;
}

static void *watch(void *none) {
    for (;;) {
        nanosleep(&(struct timespec){0, EVERY}, NULL);
        __atomic_store_n(&in_callback, true, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&ending, __ATOMIC_SEQ_CST)) break;
        if (ckpt_poll(job) == CKPT_POLL_CHECKPOINT && callback(callback_arg) != 0) {
            fprintf(stderr, "libcr: rank %d: MPICH cannot go on\n", rank);
            _exit(1); // the launcher ends the others
        }
        __atomic_store_n(&in_callback, false, __ATOMIC_SEQ_CST);
    }
    return none;
}

cr_callback_id_t cr_register_callback(cr_callback_t f, void *arg, int flags) {
    (void)flags;
    if (!job || callback) {
        errno = EINVAL;
        return -1;
    }
    callback = f;
    callback_arg = arg;
    int e = pthread_create(&watcher, NULL, watch, NULL);
    if (e == 0) return 1;
    callback = NULL;
    errno = e;
    return -1;
}

// ---- checkpoint and restart ------------------------------------------------------------------------

// Declares the sockets of now: they are neither saved nor in the way, and stay open when the run goes on.  The rail
// lives as long as a checkpoint, since their numbers may be those of files at the next one.
static ckpt_rail *declare_sockets(void) {
    ckpt_rail_ops rail_ops = {.size = sizeof rail_ops, .name = "nemesis", .flags = CKPT_RAIL_CHECKPOINTABLE};
    ckpt_rail *rail;
    struct stat st;
    if (ckpt_rail_register(job, &rail_ops, NULL, &rail, &error)) return NULL;
    for (int fd = 3; fd < DESCRIPTORS; fd++)
        if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode)) ckpt_rail_fd(rail, fd);
    return rail;
}

// Writes the variables of the new launcher to where MPICH reads them.
static int write_environment(void) {
    static const char *const names[] = {"PMI_PORT", "PMI_ID", "PMI_RANK", "PMI_SIZE"};
    char path[64], value[1000];
    restart_info.requester = getpid();
    snprintf(path, sizeof path, "/tmp/hydra-env-file-%d:%d", (int)restart_info.requester, rank);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ckpt_launch_env(job, names[i], value, sizeof value)) dprintf(fd, "%s=%s\n", names[i], value);
    return close(fd);
}

int cr_checkpoint(int flags) {
    ckpt_state state;
    char before[1000] = "", now[1000] = "";
    (void)flags;
    ckpt_launch_env(job, "PMI_PORT", before, sizeof before);
    ckpt_rail *rail = declare_sockets();
    if (!rail) return -1;
    drained = true;
    ckpt_checkpoint(job, 0, &state, &error);
    drained = false;
    ckpt_rail_unregister(job, rail);
    ckpt_launch_env(job, "PMI_PORT", now, sizeof now);
    if (state != CKPT_STATE_RESTART) {
        if (!strcmp(before, now)) return 0;
        fprintf(stderr, "libcr: rank %d: continuing: %s\n", rank, error.message);
        return -1;
    }
    if (!now[0]) {
        fprintf(stderr, "libcr: rank %d: continue the program with mpiexec -pmi-port\n", rank);
        _exit(1);
    }
    if (write_environment()) {
        fprintf(stderr, "libcr: rank %d: the new environment for MPICH: %s\n", rank, strerror(errno));
        _exit(1);
    }
    return 1;
}

const struct cr_restart_info *cr_get_restart_info(void) { return &restart_info; }
