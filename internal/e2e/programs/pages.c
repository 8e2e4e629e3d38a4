// SPDX-License-Identifier: Apache-2.0
//
// Memory of many pages that several threads change at once, for restarts that bring pages when they are touched.
// With MPI, ranks add up what they have. Compiled with -DMPI=0 it runs alone.
// usage: pages MIB STEPS THREADS FILE
//
// In each step every thread reads all pages of its part and writes some; in some steps memory is given back, grows
// and moves, a child is forked that reads all of it, and a file is read into it by the kernel. A sum of everything is
// printed. FILE.RANK.N is made when step N is done; while FILE holds that N, the program waits there.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if MPI
#include <mpi.h>
#endif

enum { PAGE = 4096, WORDS = PAGE / 8, MOST = 64 };

static uint64_t *memory;
static size_t pages;
static int threads, step;
static uint64_t sums[MOST];

static void need(int good, const char *what) {
    if (good) return;
    perror(what);
    abort();
}

static uint64_t sum(size_t from, size_t to) {
    uint64_t s = 0;
    for (size_t i = from * WORDS; i < to * WORDS; i++) s = s * 31 + memory[i];
    return s;
}

static void *part(void *arg) {
    size_t n = (size_t)(uintptr_t)arg, from = pages * n / (size_t)threads,
           to = pages * (n + 1) / (size_t)threads;
    sums[n] = sum(from, to);
    for (size_t p = from + (size_t)step % 7; p < to; p += 7)
        memory[p * WORDS + (size_t)step % WORDS] += sums[n] | 1;
    return NULL;
}

// Takes bytes of the program itself by a system call, which the kernel writes into a page that nobody has touched.
static void by_the_kernel(size_t p) {
    int zero = open("/dev/zero", O_RDONLY);
    need(zero >= 0, "/dev/zero");
    need(read(zero, memory + p * WORDS + 5, 100) == 100, "read");
    close(zero);
    int null = open("/dev/null", O_WRONLY);
    need(null >= 0 && write(null, memory + (p + 1) * WORDS, PAGE) == PAGE, "write");
    close(null);
}

static void by_a_child(void) {
    fflush(NULL);
    int ends[2];
    need(pipe(ends) == 0, "pipe");
    pid_t child = fork();
    need(child >= 0, "fork");
    uint64_t seen = 0;
    if (child == 0) {
        seen = sum(0, pages);
        _exit(write(ends[1], &seen, sizeof seen) != sizeof seen);
    }
    need(read(ends[0], &seen, sizeof seen) == sizeof seen, "read of the child's sum");
    need(waitpid(child, NULL, 0) == child, "waitpid");
    close(ends[0]);
    close(ends[1]);
    printf("child %016lx\n", seen);
}

// Messages that are long enough for one rank to read the other's memory by itself (process_vm_readv).
static void by_the_others(size_t from, size_t to, size_t n) {
#if MPI
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Sendrecv(memory + from * WORDS, (int)(n * WORDS), MPI_UINT64_T, (rank + 1) % size, 1,
                 memory + to * WORDS, (int)(n * WORDS), MPI_UINT64_T, (rank + size - 1) % size, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#else
    memcpy(memory + to * WORDS, memory + from * WORDS, n * PAGE);
#endif
}

static void change(void) {
    size_t third = pages / 3;
    switch (step % 5) {
    case 0:
        by_the_others(third, 2 * third, third / 4);
        break;
    case 1: // given back: zero from now on
        need(madvise(memory + third * WORDS, third / 2 * PAGE, MADV_DONTNEED) == 0, "madvise");
        break;
    case 2: { // moves as a whole
        uint64_t *to = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        need(to != MAP_FAILED, "mmap");
        // UCX replaces the C library's function by one that loses the address.
        long at = syscall(SYS_mremap, memory, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        need(at == (long)to, "mremap");
        memory = to;
        break;
    }
    case 3:
        by_the_kernel(third);
        break;
    case 4:
        by_a_child();
        break;
    }
}

// A test holds the program after a step: the symbolic link's target is its number. A file would be open when the
// program is saved, now and then, and a restart would want it.
static int held(const char *link, int done) {
    char at[16] = "";
    return readlink(link, at, sizeof at - 1) > 0 && atoi(at) == done;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int rank = 0;
#if MPI
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#endif
    pages = (size_t)atol(argv[1]) << 8;
    int steps = atoi(argv[2]);
    threads = atoi(argv[3]);
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(memory != MAP_FAILED && threads <= MOST, "memory");
    uint64_t x = (uint64_t)rank + 88172645463325252ull;
    for (size_t i = 0; i < pages * WORDS; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memory[i] = x;
    }
    for (step = 0; step < steps; step++) {
        change();
        pthread_t id[MOST];
        for (int n = 0; n < threads; n++)
            need(pthread_create(&id[n], NULL, part, (void *)(uintptr_t)n) == 0, "thread");
        uint64_t all = 0;
        for (int n = 0; n < threads; n++) {
            pthread_join(id[n], NULL);
            all += sums[n];
        }
#if MPI
        uint64_t mine = all;
        MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
#endif
        printf("%d %016lx\n", step, all);
        fflush(stdout);
        char name[4200];
        snprintf(name, sizeof name, "%s.%d.%d", argv[4], rank, step);
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        need(fd >= 0, name);
        close(fd);
        while (held(argv[4], step)) usleep(1000);
    }
#if MPI
    MPI_Finalize();
#endif
    return 0;
}
