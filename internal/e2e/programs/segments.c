// SPDX-License-Identifier: Apache-2.0
//
// segments.c: processes that share System V memory, and look at all that can be seen of it in every step.
//
//   segments KEY STEPS FILE     a job of processes whose number is in CKPT_RANK or the like, else one by itself
//
// The segments, each of which every process has attached unless it says otherwise:
//   - one that is found by KEY; its ids are told in it to the others
//   - a private one, removed while it is attached; the last process has only read permission to it
//   - a private one that nobody has attached between steps; each process attaches it for a moment in its turn
//   - one of each process alone, of which it has unmapped the middle page
// In every step one process in turn changes all of them, and all compare.  The file FILE lets the program come to its end:
// so a test decides when that may be.
#include <errno.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = 3 * PAGE / 8 - 5 }; // no whole number of pages

static int rank, ranks = 1;

#define CHECK(what)                                                                                 \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            fprintf(stderr, "rank %d, line %d: %s (%s)\n", rank, __LINE__, #what, strerror(errno)); \
            exit(1);                                                                                \
        }                                                                                           \
    } while (0)

struct board { // at the beginning of the segment with a key
    _Atomic int ready, arrived;
    _Atomic long step;  // how many are done
    _Atomic int done;   // processes that have compared in this step
    int removed, loose; // ids
    uint64_t word[WORDS];
};

static uint64_t value(long step, int which, int i) {
    uint64_t x = (uint64_t)step * 0x9e3779b97f4a7c15u + (uint64_t)which * 1000003u + (uint64_t)i;
    return x ^ x >> 29;
}

static void fill(uint64_t *to, long step, int which) {
    for (int i = 0; i < WORDS; i++) to[i] = value(step, which, i);
}

static void compare(const uint64_t *have, long step, int which) {
    for (int i = 0; i < WORDS; i++)
        if (have[i] != value(step, which, i)) {
            fprintf(stderr, "rank %d: step %ld, segment %d: word %d is wrong\n", rank, step, which, i);
            exit(1);
        }
}

static struct shmid_ds status(int id) {
    struct shmid_ds ds;
    CHECK(shmctl(id, IPC_STAT, &ds) == 0);
    return ds;
}

static void number_of(const char *const names[], int *to) {
    for (int i = 0; names[i]; i++)
        if (getenv(names[i])) *to = atoi(getenv(names[i]));
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    key_t key = (key_t)strtol(argv[1], NULL, 0);
    long steps = atol(argv[2]);
    number_of((const char *const[]){"CKPT_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", NULL}, &rank);
    number_of((const char *const[]){"CKPT_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", NULL}, &ranks);

    bool strangers = getenv("SEGMENTS_STRANGERS"); // somebody else may have it attached, too

    // The segment with a key.
    int shared;
    if (rank == 0) {
        CHECK((shared = shmget(key, sizeof(struct board), IPC_CREAT | IPC_EXCL | 0640)) >= 0);
        errno = 0;
        CHECK(shmget(key, sizeof(struct board), IPC_CREAT | IPC_EXCL | 0640) < 0 && errno == EEXIST);
    } else {
        while ((shared = shmget(key, sizeof(struct board), 0)) < 0) usleep(10000);
    }
    struct board *b = shmat(shared, NULL, 0);
    CHECK(b != (void *)-1);
    if (rank == 0) {
        b->removed = shmget(IPC_PRIVATE, WORDS * 8, 0600);
        b->loose = shmget(IPC_PRIVATE, WORDS * 8, 0600);
        CHECK(b->removed >= 0 && b->loose >= 0);
    }
    while (rank != 0 && !b->ready) usleep(1000);
    uint64_t *removed = shmat(b->removed, NULL, rank > 0 && rank == ranks - 1 ? SHM_RDONLY : 0);
    CHECK(removed != (void *)-1);
    if (rank == 0) {
        uint64_t *loose = shmat(b->loose, NULL, 0);
        CHECK(loose != (void *)-1);
        fill(b->word, 0, 0), fill(removed, 0, 1), fill(loose, 0, 2);
        CHECK(shmdt(loose) == 0);
        b->ready = 1;
    }
    if (++b->arrived == ranks) CHECK(shmctl(b->removed, IPC_RMID, NULL) == 0);
    while (b->arrived < ranks) usleep(1000);

    // One of this process alone, in two parts.
    int own = shmget(IPC_PRIVATE, WORDS * 8, 0600);
    char *at = shmat(own, NULL, 0);
    CHECK(own >= 0 && at != (char *)-1);
    memset(at, 'a' + rank, WORDS * 8);
    CHECK(munmap(at + PAGE, PAGE) == 0);

    int removed_id = b->removed, loose_id = b->loose; // as a program keeps them
    pid_t self = getpid();
    for (long s = 0;; s++) {
        bool end = s >= steps && access(argv[3], F_OK) == 0;
        while (b->step < s) usleep(200);
        compare(b->word, s, 0);
        compare(removed, s, 1);
        struct shmid_ds one = status(shared), two = status(removed_id), three = status(loose_id),
                        four = status(own);
        // Who attaches is counted twice by the kernel for a moment.
        CHECK(one.shm_nattch >= (unsigned)ranks && one.shm_nattch <= (unsigned)ranks + (strangers ? 2 : 0));
        CHECK(two.shm_nattch == (unsigned)ranks);
        CHECK(three.shm_nattch <= 2);
        CHECK(four.shm_nattch == 2 && four.shm_cpid == self);
        CHECK(one.shm_segsz == sizeof(struct board) && two.shm_segsz == WORDS * 8);
        CHECK((one.shm_perm.mode & 07777) == 0640 && two.shm_perm.mode & SHM_DEST &&
              (three.shm_perm.mode & 07777) == 0600);
        CHECK(one.shm_perm.__key == key && two.shm_perm.__key == 0);
        CHECK(shmget(key, 0, 0) == shared);
        CHECK(at[0] == 'a' + rank && at[2 * PAGE] == 'a' + rank);
        if (s % ranks == rank) {
            uint64_t *loose = shmat(loose_id, NULL, 0);
            CHECK(loose != (void *)-1);
            compare(loose, s, 2);
            fill(loose, s + 1, 2);
            CHECK(shmdt(loose) == 0);
        }
        b->done++;
        // Who changes waits for those who compare; who has no write permission has the next one do it.
        int writer = (int)(s % ranks);
        if (ranks > 1 && writer == ranks - 1) writer = 0;
        if (writer == rank) {
            while (b->done < ranks) usleep(200);
            b->done = 0;
            fill(b->word, s + 1, 0), fill(removed, s + 1, 1);
            if (end) b->ready = 2;
            b->step = s + 1;
        }
        while (b->step < s + 1) usleep(200);
        if (s == 0) printf("begun\n"), fflush(stdout);
        if (b->ready == 2) break;
    }
    CHECK(shmdt(at) == 0 && shmdt(removed) == 0);
    if (--b->arrived == 0) {
        errno = 0;
        CHECK(shmctl(removed_id, IPC_RMID, NULL) < 0 && errno == EINVAL);
        CHECK(shmctl(loose_id, IPC_RMID, NULL) == 0 && shmctl(shared, IPC_RMID, NULL) == 0);
    }
    CHECK(shmctl(own, IPC_RMID, NULL) == 0 && shmdt(b) == 0);
    printf("good\n");
    return 0;
}
