// SPDX-License-Identifier: Apache-2.0
//
// Memory of which a part changes between checkpoints: in each step 5 pages of 100, at random places, and a block that is
// unmapped and mapped again at its address, dropped with madvise, or moved with mremap. The ranks add up what their
// memory holds, and save themselves after each step. Half as much memory never changes, and a mapping that is made in
// one step is joined in the next one by another, and both are moved as one. With HOLD and FILE the step of that number ends only when the file
// is gone.
// usage: drift STEPS MIB [HOLD FILE]
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mpix_checkpoint.h"

enum { PAGE = 4096, WORDS = PAGE / 8, BLOCK = 1 << 20 };

static uint64_t seed;

static uint64_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void *map(void *at, size_t bytes) {
    void *p =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

static void fill(uint64_t *page) {
    for (int i = 0; i < WORDS; i++) page[i] = next();
}

static uint64_t digest(const uint64_t *p, size_t bytes) {
    uint64_t d = 1;
    for (size_t i = 0; i < bytes / 8; i++) d = (d ^ p[i]) * 1099511628211u;
    return d;
}

static uint64_t *change(uint64_t *block, int step) {
    switch (step % 4) {
    case 0:
        if (munmap(block, BLOCK) != 0) exit(1);
        block = map(block, BLOCK);
        fill(block + 7 * WORDS);
        break;
    case 1:
        if (madvise((char *)block + BLOCK / 4, BLOCK / 4, MADV_DONTNEED) != 0) exit(1);
        break;
    case 2: // moves it, unless there is room behind it
        block = mremap(block, BLOCK, 2 * BLOCK, MREMAP_MAYMOVE);
        if (block == MAP_FAILED || munmap((char *)block + BLOCK, BLOCK) != 0) exit(1);
        break;
    default:
        for (int i = 0; i < BLOCK / PAGE; i++) fill(block + i * WORDS);
    }
    return block;
}

// Two mappings beside each other are one to mremap.
static uint64_t join(int step) {
    static char *area;
    uint64_t sum = 0;
    if (step % 2 == 0) {
        area = mmap(NULL, 3 * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fill(map(area, BLOCK));
    } else {
        fill(map(area + BLOCK, BLOCK));
        char *both = mremap(area, 2 * BLOCK, 2 * BLOCK + PAGE, MREMAP_MAYMOVE);
        if (both == MAP_FAILED) {
            perror("mremap of two mappings");
            exit(1);
        }
        fill((uint64_t *)(both + 2 * BLOCK));
        sum = digest((uint64_t *)both, 2 * BLOCK + PAGE);
        munmap(both, 2 * BLOCK + PAGE);
        munmap(area, 3 * BLOCK);
    }
    return sum;
}

int main(int argc, char **argv) {
    int rank, steps = atoi(argv[1]), hold = argc > 4 ? atoi(argv[3]) : -1;
    size_t bytes = (size_t)atoi(argv[2]) << 20, pages = bytes / PAGE;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    seed = 88172645463325252u + (uint64_t)rank;
    uint64_t *memory = map(NULL, bytes), *block = map(NULL, BLOCK), sum = 0;
    uint64_t *constant = map(NULL, bytes / 2);
    for (size_t i = 0; i < pages; i++) fill(memory + i * WORDS);
    for (size_t i = 0; i < pages / 2; i++) fill(constant + i * WORDS);
    for (int step = 0; step < steps; step++) {
        for (size_t i = 0; i < pages / 20; i++) fill(memory + next() % pages * WORDS);
        block = change(block, step);
        uint64_t mine =
                     digest(memory, bytes) ^ digest(block, BLOCK) ^ digest(constant, bytes / 2) ^ join(step),
                 all;
        MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        sum = sum * 31 + all;
        memory[next() % pages * WORDS] = sum;
        MPIX_CR_state_t state;
        if (MPIX_Checkpoint(&state) != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
        while (step == hold && access(argv[4], F_OK) == 0) usleep(1000);
    }
    if (rank == 0) printf("%d steps: %016lx\n", steps, (unsigned long)sum);
    MPI_Finalize();
    return 0;
}
