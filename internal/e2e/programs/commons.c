// SPDX-License-Identifier: Apache-2.0
//
// commons.c: processes that share memory (ckpt_shm_map), and are saved with it (ckptrun --whole).
//
//   CKPT_RANK=r CKPT_SIZE=n RELAY_MEET=folder commons run STEPS EVERY [late]
//
// "pasture" is shared by all, "half" by the upper half of the processes, "scratch" (CKPT_SHM_ZERO) by all.  In each of
// STEPS steps each process mixes what its neighbour wrote in the last step into the words that are its own in the one
// of two fields, and all wait for each other on words of the segment: so a word that is lost, old or not shared any more
// changes the result, or ends the program.  Every EVERY-th step the program saves itself.  The last line is the
// checksum, the same on each run.  late: all map one more after three quarters of the steps.
//
//   commons wrong           each wrong call, and what it is answered
//   commons once [BYTES]    maps one segment in all processes, says so, and ends; BYTES 0: process 1 ends before it
#include <ckpt.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "meet.h"

enum { WORDS = 5000 }; // of each process and field

static int rank, size;
static const char *meet;
static ckpt_job *job;
static ckpt_error error = {.size = sizeof error};

static void die(const char *what) {
    fprintf(stderr, "commons: rank %d: %s: %s\n", rank, what, error.message);
    exit(1);
}

static int op_rank(void *ctx) { return (void)ctx, rank; }
static int op_ranks(void *ctx) { return (void)ctx, size; }

static int op_allgather(void *ctx, const void *mine, void *all, size_t bytes) {
    return (void)ctx, meet_allgather(meet, rank, size, mine, all, bytes);
}

static int everybody[64];

static int map(const char *name, size_t bytes, const int *who, int n, unsigned flags, void *at) {
    ckpt_shm shm = {
        .size = sizeof shm, .name = name, .bytes = bytes, .processes = who, .n = n, .flags = flags};
    error.code = 0, error.message[0] = 0;
    return ckpt_shm_map(job, &shm, (void **)at, &error);
}

// ---- run ---------------------------------------------------------------------------------------

struct pasture {
    uint64_t done[64]; // steps, by process
    uint64_t field[2][64 * WORDS];
};

static struct pasture *pasture;
static uint64_t *half, *scratch, *late;

static void checkpoint(const char *who) {
    static const char *const names[] = {"error", "checkpoint", "restart", "ignore"};
    ckpt_state s;
    error.message[0] = 0;
    ckpt_checkpoint(job, 0, &s, &error);
    fprintf(stderr, "commons: rank %d: %s: %s: %s\n", rank, who, names[s], error.message);
    if (s == CKPT_STATE_RESTART && scratch[rank] != 0)
        die("scratch is not zero after a restart"); // others may go on
}

// Until all have done that many steps.  Others may be in ckpt_checkpoint meanwhile.
static void await(uint64_t steps) {
    for (int r = 0; r < size; r++)
        while (__atomic_load_n(&pasture->done[r], __ATOMIC_ACQUIRE) < steps) {
            if (ckpt_poll(job) == CKPT_POLL_CHECKPOINT) checkpoint("asked");
            sched_yield();
        }
}

static void run(uint64_t steps, uint64_t every, int more) {
    const int *upper = everybody + size / 2;
    if (map("pasture", sizeof *pasture, everybody, size, 0, &pasture)) die("pasture");
    if (rank >= size / 2 && map("half", 100000, upper, size - size / 2, 0, &half)) die("half");
    if (map("scratch", 8192, everybody, size, CKPT_SHM_ZERO, &scratch)) die("scratch");
    for (uint64_t i = 1; i <= steps; i++) {
        uint64_t *mine = pasture->field[i % 2] + (size_t)rank * WORDS;
        const uint64_t *theirs = pasture->field[(i + 1) % 2] + (size_t)((rank + 1) % size) * WORDS;
        for (size_t k = 0; k < WORDS; k++)
            mine[k] = (theirs[k] ^ (theirs[k] >> 29)) * 0xbf58476d1ce4e5b9u + i + k + (uint64_t)rank;
        if (more && i == steps * 3 / 4) {
            if (map("late", 4096, everybody, size, 0, &late)) die("late");
            late[rank] = mine[1];
        }
        if (half) half[rank] += mine[i % WORDS];
        if (half && rank == size / 2) half[12000]++;
        scratch[rank] = i;
        __atomic_store_n(&pasture->done[rank], i, __ATOMIC_RELEASE);
        await(i);
        if (every && i % every == 0) checkpoint("called");
        if (i == steps / 2) { // the leader's part in the first segment ends, the others keep it
            if (rank == size / 2 && ckpt_shm_unmap(job, "half")) die("unmap");
            if (rank == size / 2) half = NULL;
        }
    }
    uint64_t sum = 0;
    for (int f = 0; f < 2; f++)
        for (size_t k = 0; k < 64 * WORDS; k++) sum = (sum ^ pasture->field[f][k]) * 0x100000001b3u;
    if (half) sum += half[rank] * 31 + half[size / 2] + half[12000];
    for (int r = 0; late && r < size; r++) sum = sum * 31 + late[r];
    printf("commons: rank %d: %016llx after %llu steps\n", rank, (unsigned long long)sum,
           (unsigned long long)steps);
}

// ---- wrong -------------------------------------------------------------------------------------

static void say(const char *what, int code) {
    printf("%s: %d %s\n", what, code, error.message);
    error.message[0] = 0;
}

static void wrong(void) {
    char longest[65];
    void *at, *other;
    int swapped[] = {1, 0}, outside[] = {0, 64}, negative[] = {-1, 0}, me[] = {rank},
        lacks[] = {(rank + 1) % size};
    memset(longest, 'x', 64), longest[64] = 0;
    ckpt_shm shm = {.size = sizeof shm, .name = "a", .bytes = 1, .processes = me, .n = 1};
    // By themselves: nobody else hears of it.
    say("no name", map(NULL, 1, me, 1, 0, &at));
    say("empty name", map("", 1, me, 1, 0, &at));
    say("long name", map(longest, 1, me, 1, 0, &at));
    say("slash", map("a/b", 1, me, 1, 0, &at));
    say("no bytes", map("a", 0, me, 1, 0, &at));
    say("too many bytes", map("a", SIZE_MAX, me, 1, 0, &at));
    say("no processes", map("a", 1, me, 0, 0, &at));
    say("no list", map("a", 1, NULL, 1, 0, &at));
    say("descending", map("a", 1, swapped, 2, 0, &at));
    say("no such process", map("a", 1, outside, 2, 0, &at));
    say("negative", map("a", 1, negative, 2, 0, &at));
    say("without me", map("a", 1, lacks, 1, 0, &at));
    say("flags", map("a", 1, me, 1, 6, &at));
    say("no job", ckpt_shm_map(NULL, &shm, &at, &error));
    say("no struct", ckpt_shm_map(job, NULL, &at, &error));
    say("no place", ckpt_shm_map(job, &shm, NULL, &error));
    shm.size = 8;
    say("no size", ckpt_shm_map(job, &shm, &at, &error));
    say("unmap unknown", ckpt_shm_unmap(job, "a"));
    say("unmap nothing", ckpt_shm_unmap(job, NULL));
    // Together: all are told the same.
    say("sizes", map("b", rank == 2 ? 4097 : 4096, everybody, size, 0, &at));
    say("zero", map("b", 4096, everybody, size, rank == 1 ? CKPT_SHM_ZERO : 0, &at));
    if (rank < 2 ||
        rank == 3) // 3 believes that 2 is there as well, which is not asked before the others are refused
        say("lists", map("c", 4096, rank == 3 ? (const int[]){0, 1, 2, 3} : (const int[]){0, 1, 3},
                         rank == 3 ? 4 : 3, 0, &at));
    say("good", map("b", 5000, everybody, size, 0, &at));
    ((volatile char *)at)[4999 + rank] = 1; // to the end of its last page
    say("used", map("b", 5000, everybody, size, 0, &other));
    if (rank == 0) say("alone, unmapped", ckpt_shm_unmap(job, "b"));
    say("used by others", map("b", 5000, everybody, size, 0, &other));
    if (rank != 0) say("unmapped", ckpt_shm_unmap(job, "b"));
    say("again", map("b", 5000, everybody, size, 0, &other));
    if (*(volatile char *)other != 0) say("it is not new", 0);
    say("own", map("own", 1, me, 1, 0, &at));
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    rank = meet_rank();
    size = meet_size();
    meet = getenv("RELAY_MEET");
    for (int r = 0; r < 64; r++) everybody[r] = r;
    ckpt_runtime_ops ops = {
        .size = sizeof ops, .rank = op_rank, .ranks = op_ranks, .oob_allgather = op_allgather};
    ckpt_config config = {.size = sizeof config,
                          .api_major = CKPT_API_MAJOR,
                          .api_minor = CKPT_API_MINOR,
                          .runtime = "commons",
                          .runtime_version = "1"};
    job = ckpt_open(&config, &ops, NULL, &error);
    if (!job) die("ckpt_open");
    if (!strcmp(argv[1], "run") && argc > 3) {
        run(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), argc > 4);
    } else if (!strcmp(argv[1], "wrong")) {
        wrong();
    } else if (!strcmp(argv[1], "once")) {
        void *at;
        if (argc > 2 && !strcmp(argv[2], "0")) {
            static char said[64];
            if (op_allgather(NULL, "", said, 1)) die("op_allgather"); // the others have opened libckpt
            if (rank == 1) _exit(9);
        }
        int e = map("once", argc > 2 && strcmp(argv[2], "0") ? strtoull(argv[2], NULL, 10) : 4096, everybody,
                    size, 0, &at);
        printf("once: %d %s\n", e, error.message);
        fflush(stdout);
        if (e == CKPT_E_PEER) return 0;
    }
    if (ckpt_close(job, &error)) die("ckpt_close");
    return 0;
}
