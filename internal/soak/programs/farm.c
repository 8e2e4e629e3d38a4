// SPDX-License-Identifier: Apache-2.0
//
// farm TASKS: rank 0 gives tasks to whoever asks, and takes results from any source in any order;
// a task may bring new ones.  The sum of all results does not depend on who did what.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TASK = 1, STOP = 2, RESULT = 3, MORE = 4 };

// Some work, of very different lengths.
static uint64_t work(uint64_t task) {
    uint64_t h = task;
    for (uint64_t i = 0, n = 1000 + task * 7919 % 200000; i < n; i++)
        h = (h ^ i) * 0xff51afd7ed558ccdull + (h >> 29);
    return h;
}

static uint64_t master(int workers, int tasks) {
    int first = tasks, room = 2 * tasks, waiting = 0, busy = 0, nidle = 0;
    uint64_t *todo = malloc((size_t)room * sizeof *todo), sum = 0;
    int *idle = malloc((size_t)workers * sizeof *idle);
    if (!todo || !idle) MPI_Abort(MPI_COMM_WORLD, 1);
    for (; waiting < first; waiting++) todo[waiting] = (uint64_t)waiting;
    for (int w = 1; w <= workers; w++) idle[nidle++] = w;
    while (waiting > 0 || busy > 0) {
        for (; waiting > 0 && nidle > 0; busy++)
            MPI_Send(&todo[--waiting], 1, MPI_UINT64_T, idle[--nidle], TASK, MPI_COMM_WORLD);
        uint64_t in[2];
        MPI_Status st;
        MPI_Recv(in, 2, MPI_UINT64_T, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &st);
        if (st.MPI_TAG == MORE && waiting < room) {
            todo[waiting++] = in[0];
        } else {
            sum += in[0] * (in[1] + 1);
            idle[nidle++] = st.MPI_SOURCE;
            busy--;
        }
    }
    for (int w = 1; w <= workers; w++) MPI_Send(NULL, 0, MPI_UINT64_T, w, STOP, MPI_COMM_WORLD);
    free(todo);
    free(idle);
    return sum;
}

static void worker(uint64_t tasks) {
    for (;;) {
        uint64_t task, out[2];
        MPI_Status st;
        MPI_Recv(&task, 1, MPI_UINT64_T, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &st);
        if (st.MPI_TAG == STOP) return;
        out[0] = work(task);
        out[1] = task;
        if (task < tasks && task % 3 == 0) {
            uint64_t more[2] = {task + tasks, 0};
            MPI_Send(more, 2, MPI_UINT64_T, 0, MORE, MPI_COMM_WORLD);
        }
        MPI_Send(out, 2, MPI_UINT64_T, 0, RESULT, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    int rank, size, tasks = argc > 1 ? atoi(argv[1]) : 300;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        printf("sum %016llx\n", (unsigned long long)master(size - 1, tasks));
    else
        worker((uint64_t)tasks);
    MPI_Finalize();
    return 0;
}
