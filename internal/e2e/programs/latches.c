// SPDX-License-Identifier: Apache-2.0
//
// latches.c: threads of all ranks but 0 wait in shared memory without a name while the job is saved: for a semaphore, a condition and a
// mutex that rank 0 holds.  Rank 0 holds a robust mutex, too, which must not look like that of a process that died.
//
//   latches NAME HOLD     the file has NAME for a moment; after the checkpoint the program stays for as long as the file HOLD is there
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <mpix_checkpoint.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct board {
    pthread_mutex_t lock, held, robust;
    pthread_cond_t moved;
    sem_t posted;
    int open;
    _Atomic int waiting, through;
} * board;

static int rank, ranks;

#define CHECK(what)                                                                                 \
    do {                                                                                            \
        if (!(what)) {                                                                              \
            fprintf(stderr, "rank %d, line %d: %s (%s)\n", rank, __LINE__, #what, strerror(errno)); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                           \
        }                                                                                           \
    } while (0)

static void *for_semaphore(void *unused) {
    board->waiting++;
    CHECK(sem_wait(&board->posted) == 0);
    board->through++;
    return unused;
}

static void *for_condition(void *unused) {
    CHECK(pthread_mutex_lock(&board->lock) == 0);
    board->waiting++;
    while (!board->open) CHECK(pthread_cond_wait(&board->moved, &board->lock) == 0);
    CHECK(pthread_mutex_unlock(&board->lock) == 0);
    board->through++;
    return unused;
}

static void *for_mutex(void *unused) {
    board->waiting++;
    CHECK(pthread_mutex_lock(&board->held) == 0);
    CHECK(pthread_mutex_unlock(&board->held) == 0);
    board->through++;
    return unused;
}

static void prepare(void) {
    pthread_mutexattr_t mutex;
    pthread_condattr_t condition;
    CHECK(pthread_mutexattr_init(&mutex) == 0 &&
          pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_mutex_init(&board->lock, &mutex) == 0 && pthread_mutex_init(&board->held, &mutex) == 0);
    CHECK(pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST) == 0 &&
          pthread_mutex_init(&board->robust, &mutex) == 0);
    CHECK(pthread_condattr_init(&condition) == 0 &&
          pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED) == 0);
    CHECK(pthread_cond_init(&board->moved, &condition) == 0 && sem_init(&board->posted, 1, 0) == 0);
    CHECK(pthread_mutex_lock(&board->held) == 0 && pthread_mutex_lock(&board->robust) == 0);
}

static void together(void) { CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS); }

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(argc == 3);
    int fd = shm_open(argv[1], O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && ftruncate(fd, sizeof *board) == 0);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(board != MAP_FAILED && close(fd) == 0);
    together();
    if (rank == 0) {
        CHECK(shm_unlink(argv[1]) == 0);
        prepare();
    }
    together();
    pthread_t thread[3];
    void *(*const waits[3])(void *) = {for_semaphore, for_condition, for_mutex};
    for (int i = 0; rank && i < 3; i++) CHECK(pthread_create(&thread[i], NULL, waits[i], NULL) == 0);
    while (board->waiting < 3 * (ranks - 1)) usleep(1000);
    usleep(100000); // they have said so, and most are in the kernel now
    together();

    MPIX_CR_state_t state = MPIX_CR_STATE_ERROR;
    CHECK(MPIX_Checkpoint(&state) == MPI_SUCCESS);
    if (state != MPIX_CR_STATE_RESTART) {
        together();
        if (rank == 0) {
            printf("saved\n");
            fflush(stdout);
        }
        while (access(argv[2], F_OK) == 0) usleep(1000);
    }
    CHECK(board->through == 0);
    together();
    if (rank == 0) {
        for (int i = 1; i < ranks; i++) CHECK(sem_post(&board->posted) == 0);
        CHECK(pthread_mutex_lock(&board->lock) == 0);
        board->open = 1;
        CHECK(pthread_cond_broadcast(&board->moved) == 0);
        CHECK(pthread_mutex_unlock(&board->lock) == 0);
        CHECK(pthread_mutex_unlock(&board->held) == 0);
        CHECK(pthread_mutex_unlock(&board->robust) == 0);
    } else {
        CHECK(pthread_mutex_lock(&board->robust) == 0);
        CHECK(pthread_mutex_unlock(&board->robust) == 0);
        for (int i = 0; i < 3; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    }
    together();
    CHECK(board->through == 3 * (ranks - 1));
    if (rank == 0) printf("good\n");
    MPI_Finalize();
    return 0;
}
