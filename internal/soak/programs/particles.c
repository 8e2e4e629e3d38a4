// SPDX-License-Identifier: Apache-2.0
//
// particles STEPS [PARTICLES]: particles wander over a ring of cells, as many as ranks, and are sent to
// whichever rank owns the cell they come to.  How many come, and from whom, nobody knows before: counts
// go by a non-blocking alltoall, particles by messages of any source.  All numbers are integers, so the
// result is exact.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct particle {
    uint64_t id, place, speed;
};

static int rank, size;

static int owner(uint64_t place) { return (int)((place >> 32) % (uint64_t)size); }

static void move(struct particle *p) {
    p->speed = p->speed * 6364136223846793005u + 1442695040888963407u + p->id;
    p->place += p->speed >> 24;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int steps = argc > 1 ? atoi(argv[1]) : 100, all = argc > 2 ? atoi(argv[2]) : 4000, n = 0;
    struct particle *here = malloc((size_t)all * sizeof *here), *out = malloc((size_t)all * sizeof *out);
    int *to = calloc((size_t)size, sizeof *to), *from = calloc((size_t)size, sizeof *from);
    MPI_Request *sends = malloc((size_t)size * sizeof *sends);
    if (!here || !out || !to || !from || !sends) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Datatype particle;
    MPI_Type_contiguous(3, MPI_UINT64_T, &particle);
    MPI_Type_commit(&particle);
    for (int i = 0; i < all; i++) {
        struct particle p = {(uint64_t)i, (uint64_t)i * 0x9e3779b97f4a7c15u, (uint64_t)i};
        if (owner(p.place) == rank) here[n++] = p;
    }
    for (int step = 0; step < steps; step++) {
        int stay = 0, leave = 0, come = 0, nsends = 0;
        MPI_Request counted;
        for (int r = 0; r < size; r++) to[r] = 0;
        for (int i = 0; i < n; i++) {
            move(&here[i]);
            to[owner(here[i].place)]++;
        }
        to[rank] = 0;
        MPI_Ialltoall(to, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD, &counted);
        for (int r = 0; r < size; r++) { // meanwhile: those who leave, sorted by where they go
            int first = leave;
            for (int i = 0; r != rank && i < n; i++)
                if (owner(here[i].place) == r) out[leave++] = here[i];
            if (leave > first)
                MPI_Isend(out + first, leave - first, particle, r, step, MPI_COMM_WORLD, &sends[nsends++]);
        }
        for (int i = 0; i < n; i++)
            if (owner(here[i].place) == rank) here[stay++] = here[i];
        MPI_Wait(&counted, MPI_STATUS_IGNORE);
        for (int r = 0; r < size; r++) come += from[r] > 0;
        for (n = stay; come > 0; come--) {
            MPI_Status st;
            int got;
            MPI_Recv(here + n, all - n, particle, MPI_ANY_SOURCE, step, MPI_COMM_WORLD, &st);
            MPI_Get_count(&st, particle, &got);
            if (got != from[st.MPI_SOURCE]) MPI_Abort(MPI_COMM_WORLD, 2);
            n += got;
        }
        MPI_Waitall(nsends, sends, MPI_STATUSES_IGNORE);
    }
    uint64_t mine[2] = {0, (uint64_t)n}, sum[2];
    for (int i = 0; i < n; i++) mine[0] += (here[i].place ^ here[i].speed) * (here[i].id + 1);
    MPI_Reduce(mine, sum, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%llu particles, %016llx\n", (unsigned long long)sum[1], (unsigned long long)sum[0]);
    MPI_Type_free(&particle);
    free(here);
    free(out);
    free(to);
    free(from);
    free(sends);
    MPI_Finalize();
    return 0;
}
