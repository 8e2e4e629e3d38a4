// SPDX-License-Identifier: Apache-2.0
//
// polling ROUNDS: never blocks.  Each rank asks all others for a value, answers what it is asked, and
// knows by a non-blocking barrier that nobody asks any more, all in one loop of tests and probes.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ASK = 1, ANSWER = 2 };

static uint64_t value(uint64_t of, uint64_t round) {
    uint64_t h = of * 0x9e3779b97f4a7c15u + round;
    return (h ^ h >> 31) * 0xbf58476d1ce4e5b9u;
}

int main(int argc, char **argv) {
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 200;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm comm[2]; // in turn: a fast rank may ask for the next round already
    MPI_Comm_dup(MPI_COMM_WORLD, &comm[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm[1]);
    uint64_t sum = 0;
    for (int round = 0; round < rounds; round++) {
        MPI_Comm c = comm[round % 2];
        MPI_Request ask, done = MPI_REQUEST_NULL;
        uint64_t question = (uint64_t)round, answer;
        int asked = 0, answered = 0, sent = 1, flag = 0, over = 0;
        MPI_Status st;
        while (!over) {
            if (sent && asked < size - 1) { // one question at a time
                asked++;
                MPI_Isend(&question, 1, MPI_UINT64_T, (rank + asked) % size, ASK, c, &ask);
                sent = 0;
            }
            if (!sent) MPI_Test(&ask, &sent, MPI_STATUS_IGNORE);
            MPI_Iprobe(MPI_ANY_SOURCE, ASK, c, &flag, &st);
            if (flag) {
                uint64_t q, a;
                MPI_Recv(&q, 1, MPI_UINT64_T, st.MPI_SOURCE, ASK, c, MPI_STATUS_IGNORE);
                a = value((uint64_t)rank, q);
                MPI_Send(&a, 1, MPI_UINT64_T, st.MPI_SOURCE, ANSWER, c);
            }
            MPI_Iprobe(MPI_ANY_SOURCE, ANSWER, c, &flag, &st);
            if (flag) {
                MPI_Recv(&answer, 1, MPI_UINT64_T, st.MPI_SOURCE, ANSWER, c, MPI_STATUS_IGNORE);
                if (answer != value((uint64_t)st.MPI_SOURCE, question)) MPI_Abort(MPI_COMM_WORLD, 2);
                sum += answer * (uint64_t)(rank + 1);
                answered++;
            }
            if (answered == size - 1 && sent && done == MPI_REQUEST_NULL) {
                MPI_Ibarrier(c, &done);
            } else if (done != MPI_REQUEST_NULL) {
                MPI_Test(&done, &over, MPI_STATUS_IGNORE);
            }
        }
    }
    uint64_t all = 0;
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("sum %016llx\n", (unsigned long long)all);
    MPI_Comm_free(&comm[0]);
    MPI_Comm_free(&comm[1]);
    MPI_Finalize();
    return 0;
}
