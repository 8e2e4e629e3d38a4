// SPDX-License-Identifier: Apache-2.0
//
// promise.c: MPI_Comm_idup while a checkpoint is pending that needs what follows it.
//
//   promise DIRECTORY
//
// Ranks 1 and 2 have begun a barrier; rank 0 begins it when it has a message that rank 1 sends behind
// its MPI_Comm_idup, which rank 0 calls much later.  A stage lasts until the file of its name is in
// DIRECTORY; at.RANK says that a rank has begun the barrier.  Three ranks; it ends with one line "promise RESULT" from rank 0.
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static int rank;
static const char *directory;

static void stage(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    while (access(path, F_OK) != 0) usleep(2000);
}

static void begun(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/at.%d", directory, rank);
    fclose(fopen(path, "w"));
}

int main(int argc, char **argv) {
    MPI_Comm twin, child, again;
    MPI_Request q[2];
    int value = 7, sum = 0, relation = -1;
    directory = argc > 1 ? argv[1] : ".";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    if (rank == 0) {
        MPI_Recv(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Ibarrier(MPI_COMM_WORLD, &q[0]);
        stage("later");
        MPI_Comm_idup(twin, &child, &q[1]);
    } else {
        MPI_Ibarrier(MPI_COMM_WORLD, &q[0]);
        begun();
        stage("sooner");
        MPI_Comm_idup(twin, &child, &q[1]);
        if (rank == 1) MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    }
    stage("last");
    MPI_Waitall(2, q, MPI_STATUSES_IGNORE);
    MPI_Comm_compare(child, twin, &relation);
    value += rank + 10 * (relation == MPI_CONGRUENT);
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, child);
    MPI_Sendrecv(&sum, 1, MPI_INT, (rank + 1) % 3, 2, &value, 1, MPI_INT, (rank + 2) % 3, 2, child,
                 MPI_STATUS_IGNORE);
    MPI_Comm_dup(child, &again);
    MPI_Comm_free(&child);
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, again);
    MPI_Comm_free(&again);
    MPI_Comm_free(&twin);
    if (rank == 0) printf("promise %d\n", sum);
    MPI_Finalize();
    return 0;
}
