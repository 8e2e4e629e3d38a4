// SPDX-License-Identifier: Apache-2.0
//
// boards.c: ranks that share files in memory, and semaphores in them, each of which is made in one of the usual ways.
//
//   boards NAME HOLD     names begin with NAME; after the checkpoint all is written over, for as long as the file HOLD is there
//
//   - "a" of shm_open, mapped by all, whose name is removed then, and its descriptors closed
//   - "b" likewise, but the name stays, only rank 0 may write to it, and has it open
//   - "c" of which each rank has mapped a page, and closed it
//   - a semaphore that has a name no more, and one that has
//   - a ring of each rank: a memory file (memfd_create), mapped twice beside itself, and open
//   - a file on a disk, whose name is removed while it is mapped and open
//
// After a restart all is as it was, names too, and is shared by the same ranks and descriptors.  MPI is the judge of when.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <mpix_checkpoint.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 3 * PAGE + 100, LAST = SIZE / 4 - 1, RING = 2 * PAGE, DISK = 5000 };

static int rank, ranks;

#define CHECK(what)                                                                                 \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            fprintf(stderr, "rank %d, line %d: %s (%s)\n", rank, __LINE__, #what, strerror(errno)); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                           \
        }                                                                                           \
    } while (0)

static const char *named(const char *prefix, const char *name) {
    static char out[8][200];
    static int next;
    next = (next + 1) % 8;
    snprintf(out[next], sizeof out[next], "/%s-%s", prefix, name);
    return out[next];
}

static void make(const char *name, off_t size) {
    int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0640);
    CHECK(fd >= 0);
    CHECK(ftruncate(fd, size) == 0);
    CHECK(close(fd) == 0);
}

static void *map(int fd, size_t bytes, int prot, off_t at) {
    void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, at);
    CHECK(p != MAP_FAILED);
    return p;
}

static void together(void) { CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS); }

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(argc == 3);
    const char *prefix = argv[1], *hold = argv[2];
    sem_t *gone = NULL, *kept = NULL;
    if (rank == 0) {
        make(named(prefix, "a"), SIZE);
        make(named(prefix, "b"), SIZE);
        make(named(prefix, "c"), (off_t)ranks * PAGE);
        gone = sem_open(named(prefix, "gone"), O_CREAT | O_EXCL, 0600, 0);
        kept = sem_open(named(prefix, "kept"), O_CREAT | O_EXCL, 0600, 5);
        CHECK(gone != SEM_FAILED && kept != SEM_FAILED);
    }
    together();
    int fa = shm_open(named(prefix, "a"), O_RDWR, 0), fb = shm_open(named(prefix, "b"), O_RDWR, 0),
        fc = shm_open(named(prefix, "c"), O_RDWR, 0);
    CHECK(fa >= 0 && fb >= 0 && fc >= 0);
    int *a = map(fa, SIZE, PROT_READ | PROT_WRITE, 0),
        *b = map(fb, SIZE, PROT_READ | (rank ? 0 : PROT_WRITE), 0);
    int *c = map(fc, PAGE, PROT_READ | PROT_WRITE, (off_t)rank * PAGE);
    close(fa);
    close(fc);
    if (rank) {
        close(fb);
        gone = sem_open(named(prefix, "gone"), 0);
        kept = sem_open(named(prefix, "kept"), 0);
        CHECK(gone != SEM_FAILED && kept != SEM_FAILED);
    }
    int fr = memfd_create("ring", 0);
    CHECK(fr >= 0 && ftruncate(fr, RING) == 0);
    char *ring = mmap(NULL, 2 * RING, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 2; i++)
        CHECK(mmap(ring + i * RING, RING, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fr, 0) ==
              ring + i * RING);
    char path[] = "boards-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && ftruncate(fd, DISK) == 0 && unlink(path) == 0);
    char *disk = map(fd, DISK, PROT_READ | PROT_WRITE, 0);
    together();
    if (rank == 0) CHECK(shm_unlink(named(prefix, "a")) == 0 && sem_unlink(named(prefix, "gone")) == 0);

    a[10 + rank] = 100 + rank;
    if (rank == 0) b[LAST] = 7;
    c[5] = 50 + rank;
    strcpy(ring + RING - 2, "over");
    disk[DISK - 1] = 'x';
    together();
    MPIX_CR_state_t state = MPIX_CR_STATE_ERROR;
    CHECK(MPIX_Checkpoint(&state) == MPI_SUCCESS);
    if (state != MPIX_CR_STATE_RESTART) { // all that comes is the future
        memset(a, 0x5a, SIZE);
        if (rank == 0) memset(b, 0x5a, SIZE);
        memset(c, 0x5a, PAGE);
        memset(ring, 0x5a, RING);
        sem_post(kept);
        together();
        if (rank == 0) {
            CHECK(ftruncate(fb, 100) == 0);
            printf("saved\n");
            fflush(stdout);
        }
        while (access(hold, F_OK) == 0) usleep(1000);
        MPI_Finalize();
        return 0;
    }
    for (int i = 0; i < ranks; i++) CHECK(a[10 + i] == 100 + i);
    CHECK(a[0] == 0 && a[LAST] == 0 && b[0] == 0 && b[LAST] == 7 && c[5] == 50 + rank && c[6] == 0);
    CHECK(strcmp(ring + RING - 2, "over") == 0 && ring[0] == 'e' && ring[4] == 0 && disk[DISK - 1] == 'x');
    together();

    int x = 9;
    if (rank == 0) {
        a[0] = 4711;
        b[1] = 4712;
        CHECK(pwrite(fb, &x, 4, 8) == 4);
        for (int i = 1; i < ranks; i++) sem_post(gone);
    } else {
        CHECK(sem_wait(gone) == 0);
    }
    CHECK(sem_wait(kept) == 0);
    together();
    CHECK(a[0] == 4711 && b[1] == 4712 && b[2] == 9);
    char q;
    ring[0] = 'Q';
    CHECK(ring[RING] == 'Q' && pread(fr, &q, 1, 0) == 1 && q == 'Q');
    CHECK(pwrite(fr, "Z", 1, 1) == 1 && ring[1] == 'Z' && ring[RING + 1] == 'Z');
    disk[0] = 'y';
    CHECK(pread(fd, &q, 1, 0) == 1 && q == 'y' && pread(fd, &q, 1, DISK - 1) == 1 && q == 'x');
    struct stat st;
    CHECK(fstat(fr, &st) == 0 && st.st_size == RING);
    CHECK(fstat(fd, &st) == 0 && st.st_size == DISK && st.st_nlink == 0);

    int again = shm_open(named(prefix, "b"), O_RDWR, 0);
    CHECK(again >= 0 && pread(again, &x, 4, 4) == 4 && x == 4712);
    CHECK(fstat(again, &st) == 0 && st.st_size == SIZE && (st.st_mode & 0777) == 0640);
    again = shm_open(named(prefix, "c"), O_RDWR, 0);
    for (int i = 0; i < ranks; i++) CHECK(pread(again, &x, 4, (off_t)i * PAGE + 20) == 4 && x == 50 + i);
    sem_t *other = sem_open(named(prefix, "kept"), 0);
    int value = 0;
    CHECK(other != SEM_FAILED && sem_getvalue(other, &value) == 0 && value == 5 - ranks);
    CHECK(shm_open(named(prefix, "a"), O_RDWR, 0) < 0 && sem_open(named(prefix, "gone"), 0) == SEM_FAILED);
    together();
    if (rank == 0) {
        CHECK(shm_unlink(named(prefix, "b")) == 0 && shm_unlink(named(prefix, "c")) == 0 &&
              sem_unlink(named(prefix, "kept")) == 0);
        printf("good\n");
    }
    MPI_Finalize();
    return 0;
}
