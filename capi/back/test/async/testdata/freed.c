// SPDX-License-Identifier: Apache-2.0
//
// freed.c: a communicator that one rank has used and freed before the others come to it.
//
//   freed DIRECTORY
//
// Rank 0 sends on it and frees it, since nothing makes it wait; the others do so a stage later.  A stage lasts until the
// file of its name is in DIRECTORY; at.0 says that rank 0 has freed it.  It ends with one line "freed RESULT" from
// rank 0.
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

int main(int argc, char **argv) {
    enum { BEFORE = 3 }; // more than one, that this one is not the first that libckpt hears of
    MPI_Comm before[BEFORE], comm, kept;
    int value, sum = 0;
    directory = argc > 1 ? argv[1] : ".";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < BEFORE; i++) MPI_Comm_dup(MPI_COMM_WORLD, &before[i]);
    MPI_Comm_free(&before[0]);
    MPI_Comm_set_name(before[1], "the second"); // libckpt hears of all so far
    MPI_Comm_dup(MPI_COMM_WORLD, &kept);
    MPI_Comm_dup(kept, &comm);
    value = rank == 0 ? 41 : -1;
    if (rank != 0) stage("later");
    MPI_Bcast(&value, 1, MPI_INT, 0, comm);
    MPI_Comm_free(&comm);
    if (rank == 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s/at.0", directory);
        fclose(fopen(path, "w"));
    }
    stage("last");
    MPI_Comm_dup(kept, &comm);
    value += rank;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&comm);
    MPI_Allreduce(&sum, &value, 1, MPI_INT, MPI_MAX, before[1]);
    MPI_Comm_free(&before[1]);
    MPI_Comm_free(&before[2]);
    MPI_Comm_free(&kept);
    if (rank == 0) printf("freed %d\n", value);
    MPI_Finalize();
}
