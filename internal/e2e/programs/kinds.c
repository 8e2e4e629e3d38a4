// SPDX-License-Identifier: Apache-2.0
//
// Memory of several kinds: zeros, text, numbers that vary slowly and random ones, MIB of each. The ranks save themselves
// after each step, in which they change a part of it, and write to all of it while the image is written. Rank 0 prints the
// sums of all. With HOLD and FILE the step of that number ends only when the file is gone.
// usage: kinds STEPS MIB [HOLD FILE]
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpix_checkpoint.h"

enum { KINDS = 4 };

static uint64_t seed;

static uint64_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void fill(int kind, char *p, size_t bytes) {
    static const char *words[] = {"the ", "image ",   "of ",    "a ",  "rank ",
                                  "is ",  "written ", "while ", "it ", "computes "};
    uint64_t v;
    switch (kind) {
    case 0:
        memset(p, 0, bytes);
        break;
    case 1:
        for (size_t at = 0; at < bytes;) {
            const char *w = words[next() % 10];
            size_t n = strlen(w) < bytes - at ? strlen(w) : bytes - at;
            memcpy(p + at, w, n);
            at += n;
        }
        break;
    default:
        for (size_t at = 0; at + 8 <= bytes; at += 8) {
            double x = (double)(at / 512) / 1024;
            if (kind == 2)
                memcpy(&v, &x, 8);
            else
                v = next();
            memcpy(p + at, &v, 8);
        }
    }
}

static uint64_t sum(const char *p, size_t bytes) {
    uint64_t s = 1, v;
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        memcpy(&v, p + at, 8);
        s = (s ^ v) * 1099511628211u;
    }
    return s;
}

int main(int argc, char **argv) {
    int rank, steps = atoi(argv[1]), hold = argc > 4 ? atoi(argv[3]) : -1;
    size_t each = (size_t)atoi(argv[2]) << 20, bytes = KINDS * each;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    seed = 88172645463325252u + (uint64_t)rank;
    char *p = malloc(bytes);
    if (!p) return 1;
    for (int k = 0; k < KINDS; k++) fill(k, p + (size_t)k * each, each);
    uint64_t total = 0;
    for (int step = 1; step <= steps; step++) {
        for (int k = 0; k < KINDS; k++) // another tenth in each step
            fill((k + step) % KINDS, p + (size_t)k * each + (size_t)(step % 10) * (each / 10), each / 10);
        uint64_t mine = sum(p, bytes), all;
        MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        total = total * 31 + all;
        MPIX_CR_state_t state;
        if (MPIX_Checkpoint(&state) != MPI_SUCCESS) {
            char why[1000] = "";
            MPIX_Checkpoint_reason(why, sizeof why);
            fprintf(stderr, "rank %d, step %d: %s\n", rank, step, why);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        for (size_t at = 0; at < bytes; at += 4096)
            p[at] ^= (char)step; // the image has what was there before
        if (step == hold)
            while (access(argv[4], F_OK) == 0) usleep(10000);
    }
    if (rank == 0) printf("total %llx\n", (unsigned long long)total);
    free(p);
    MPI_Finalize();
    return 0;
}
