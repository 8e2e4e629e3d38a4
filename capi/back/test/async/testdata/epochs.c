// SPDX-License-Identifier: Apache-2.0
//
// epochs.c: a program that stays in epochs of windows until it is told to go on; the first two hold a
// checkpoint back.
//
//   epochs DIRECTORY
//
// It leaves a stage when DIRECTORY/STAGE exists.  Rank 0 ends with one line "epochs RESULT".  Three
// ranks.
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static int rank;
static const char *directory;

// Rank 1 opens the epoch, and says so.
static void stay(const char *stage) {
    char path[4096];
    FILE *f;
    snprintf(path, sizeof path, "%s/at.%s", directory, stage);
    if (rank == 1 && (f = fopen(path, "w")) != NULL) fclose(f);
    snprintf(path, sizeof path, "%s/%s", directory, stage);
    while (access(path, F_OK) != 0) usleep(2000);
}

// Rank 1 has locked itself: others may have to call MPI for that.
static void locked(MPI_Win win) {
    int one = 1;
    if (rank == 1) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        MPI_Accumulate(&one, 1, MPI_INT, 1, 0, 1, MPI_INT, MPI_SUM, win);
    }
    stay("locked");
    if (rank == 1) MPI_Win_unlock(1, win);
    MPI_Barrier(MPI_COMM_WORLD);
}

// Rank 0 waits for rank 1, which is not done.
static void posted(MPI_Win win) {
    int two = 2, other = 1 - rank;
    MPI_Group all, group;
    MPI_Win_get_group(win, &all);
    if (rank == 0) {
        MPI_Group_incl(all, 1, &other, &group);
        MPI_Win_post(group, 0, win);
        MPI_Win_wait(win);
        MPI_Group_free(&group);
    } else if (rank == 1) {
        MPI_Group_incl(all, 1, &other, &group);
        MPI_Win_start(group, 0, win);
        MPI_Put(&two, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
        stay("posted");
        MPI_Win_complete(win);
        MPI_Group_free(&group);
    } else {
        stay("posted");
    }
    MPI_Group_free(&all);
    MPI_Barrier(MPI_COMM_WORLD);
}

// Rank 1 waits for a word in its own memory as an image of gfortran's coarrays waits for an event; rank 0 sends
// it under a lock that would wait for any other.
static void unchecked(MPI_Win win, volatile int *mine) {
    int five = 5;
    mine[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    stay("unchecked");
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        MPI_Accumulate(&five, 1, MPI_INT, 1, 1, 1, MPI_INT, MPI_SUM, win);
        MPI_Win_unlock(1, win);
    } else if (rank == 1) {
        while (mine[1] != 5) {
            MPI_Win_sync(win);
            MPI_Win_flush(1, win);
        }
        MPI_Win_unlock_all(win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    MPI_Win win;
    int *mine, sum = 0;
    directory = argc > 1 ? argv[1] : ".";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate(4 * sizeof *mine, sizeof *mine, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    MPI_Win_set_name(win, "board");
    mine[0] = 10 * rank;
    MPI_Barrier(MPI_COMM_WORLD);
    locked(win);
    stay("after locked");
    posted(win);
    stay("after posted");
    unchecked(win, mine);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    int word = mine[0];
    MPI_Win_unlock(rank, win);
    MPI_Reduce(&word, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("epochs %d\n", sum); // 2 + 11 + 20
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
