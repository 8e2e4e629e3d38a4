// SPDX-License-Identifier: Apache-2.0
//
// scenario.c: a program of collclock/scenario as a real one.
//
//   scenario PROGRAM PAUSE DONE
//
// PROGRAM is a file in the language of the scenarios, with one thread a rank.  Before each operation
// a rank computes for PAUSE milliseconds, more or less, the first of which begin when the file DONE-not
// is there; at the end it waits, outside MPI, until the file DONE is.  Verbs: coll, bcast, icoll, wait, send, ssend, recv, any.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 16 };

static int rank;
static MPI_Comm comms[MANY];
static char names[MANY][16];
static int ncomms;
static MPI_Request requests[MANY];
static char waits[MANY][16];
static int nrequests;

static void fail(const char *what, const char *text) {
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static MPI_Comm comm(const char *name) {
    for (int i = 0; i < ncomms; i++)
        if (strcmp(names[i], name) == 0) return comms[i];
    fail("no communicator", name);
    return MPI_COMM_NULL;
}

// All ranks make all communicators, in the order of the file.
static void declare(char *line) {
    char *name = strtok(line + 5, " \n"), *word;
    int member = 0;
    if (ncomms == MANY || name == NULL) fail("bad declaration", line);
    while ((word = strtok(NULL, " \n")) != NULL) member |= atoi(word) == rank;
    snprintf(names[ncomms], sizeof names[0], "%s", name);
    MPI_Comm_split(MPI_COMM_WORLD, member ? 0 : MPI_UNDEFINED, rank, &comms[ncomms++]);
}

static void pause_for(int ms) {
    long ns = (long)ms * 500000 + rand() % (ms * 1000 + 1) * 1000L;
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    nanosleep(&t, NULL);
}

static void operation(char *text) {
    char verb[16] = "", a[16] = "", b[16] = "";
    int value = 1;
    sscanf(text, " %15s %15s %15s", verb, a, b);
    if (strcmp(verb, "coll") == 0) {
        MPI_Barrier(comm(a));
    } else if (strcmp(verb, "bcast") == 0) {
        int root, world = atoi(b);
        MPI_Group g, w;
        MPI_Comm_group(comm(a), &g);
        MPI_Comm_group(MPI_COMM_WORLD, &w);
        MPI_Group_translate_ranks(w, 1, &world, g, &root);
        MPI_Bcast(&value, 1, MPI_INT, root, comm(a));
        MPI_Group_free(&g);
        MPI_Group_free(&w);
    } else if (strcmp(verb, "icoll") == 0 && nrequests < MANY) {
        snprintf(waits[nrequests], sizeof waits[0], "%s", b);
        MPI_Ibarrier(comm(a), &requests[nrequests++]);
    } else if (strcmp(verb, "wait") == 0) {
        for (int i = 0; i < nrequests; i++)
            if (strcmp(waits[i], a) == 0) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    } else if (strcmp(verb, "send") == 0) {
        MPI_Send(&value, 1, MPI_INT, atoi(a), 0, MPI_COMM_WORLD);
    } else if (strcmp(verb, "ssend") == 0) {
        MPI_Ssend(&value, 1, MPI_INT, atoi(a), 0, MPI_COMM_WORLD);
    } else if (strcmp(verb, "recv") == 0) {
        MPI_Recv(&value, 1, MPI_INT, atoi(a), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (strcmp(verb, "any") == 0) {
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        fail("unknown operation", text);
    }
}

int main(int argc, char **argv) {
    char line[512], mine[512] = "";
    if (argc != 4) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    comms[ncomms] = MPI_COMM_WORLD;
    strcpy(names[ncomms++], "W");
    srand((unsigned)(time(NULL) + rank));
    FILE *f = fopen(argv[1], "r");
    if (f == NULL) fail("cannot open", argv[1]);
    while (fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "comm ", 5) == 0)
            declare(line);
        else if (colon != NULL && atoi(line) == rank)
            strcpy(mine, colon + 1);
    }
    fclose(f);
    MPI_Barrier(MPI_COMM_WORLD); // the model begins when all communicators are there
    if (rank == 0) {
        snprintf(line, sizeof line, "%s-not", argv[3]);
        fclose(fopen(line, "w"));
    }
    char *rest = mine, *one;
    while ((one = strsep(&rest, ",")) != NULL) {
        if (strspn(one, " \n") == strlen(one)) continue;
        pause_for(atoi(argv[2]));
        operation(one);
    }
    while (access(argv[3], F_OK) != 0) usleep(10000);
    MPI_Finalize();
    return 0;
}
