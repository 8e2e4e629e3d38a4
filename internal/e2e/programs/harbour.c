// SPDX-License-Identifier: Apache-2.0
//
// Three ranks meet at ports that two of them opened before the first checkpoint, round after round.  In each round
// one of the two accepts and the others connect, in turn by the name that the port had when it was opened, which all
// were told, and by what MPI_Lookup_name says, which must be the same.  Before each round a rank waits for the file
// DIR/round-N; DIR/end ends the rounds: ports are closed and names are withdrawn.
//
//   harbour DIR NAME           the three ranks
//   harbour DIR NAME visitor   one rank of another job, which looks NAME up, and connects once
//
// Before the file DIR/visit-N, if it is there, the ranks of round N are joined by such a visitor.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank;

#define OK(call)                                  \
    do {                                          \
        int rc_ = (call);                         \
        if (rc_ != MPI_SUCCESS) fail(#call, rc_); \
    } while (0)

static void fail(const char *call, int rc) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    MPI_Error_string(rc, text, &n);
    fprintf(stderr, "rank %d: %s: %s\n", rank, call, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int is_there(const char *dir, const char *what, int n) {
    char path[4096];
    snprintf(path, sizeof path, n < 0 ? "%s/%s" : "%s/%s-%d", dir, what, n);
    return access(path, F_OK) == 0;
}

// What one who comes and one who is there say to each other.
static void talk(MPI_Comm other, int mine, const char *who) {
    int n, got[2] = {-1, -1};
    OK(MPI_Comm_remote_size(other, &n));
    OK(MPI_Allgather(&mine, 1, MPI_INT, got, 1, MPI_INT, other));
    printf("%s: %d to %d: %d, %d\n", who, mine, n, got[0], got[1]);
    fflush(stdout);
    OK(MPI_Comm_disconnect(&other));
}

static int is_lost(int rc, const char *what) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int class, n;
    if (rc == MPI_SUCCESS) return 0;
    MPI_Error_class(rc, &class);
    if (class != MPI_ERR_PORT) fail(what, rc);
    MPI_Error_string(rc, text, &n);
    printf("%s: MPI_ERR_PORT: %s\n", what, text);
    fflush(stdout);
    return 1;
}

enum { DOORS = 2 };
static const int opener[DOORS] = {0, 2};
static char port[DOORS][MPI_MAX_PORT_NAME], name[DOORS][512];

// The other two, with one of them as root.
static void meet(int round) {
    const int door = round % DOORS, host = opener[door];
    char found[MPI_MAX_PORT_NAME] = "";
    MPI_Comm group, other;
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank == host, rank, &group));
    if (rank == host) {
        if (!is_lost(MPI_Comm_accept(port[door], MPI_INFO_NULL, 0, group, &other), "accept"))
            talk(other, 100 * round + rank, "accepted");
    } else {
        const int root = round / DOORS % 2;
        int me, looked_up = 0;
        OK(MPI_Comm_rank(group, &me));
        if (me == root && MPI_Lookup_name(name[door], MPI_INFO_NULL, found) == MPI_SUCCESS) {
            looked_up = 1;
            if (strcmp(found, port[door]) != 0)
                printf("%s is \"%s\", was \"%s\"\n", name[door], found, port[door]);
        }
        // The name counts on the root only.
        if (!is_lost(MPI_Comm_connect(me == root ? port[door] : NULL, MPI_INFO_NULL, root, group, &other),
                     "connect"))
            talk(other, 100 * round + rank, "connected");
        if (me == root) printf("round %d: %s\n", round, looked_up ? "looked up" : "no such name");
        fflush(stdout);
    }
    OK(MPI_Comm_free(&group));
}

// One who is not of this job: by the name alone.
static int visitor(void) {
    char found[MPI_MAX_PORT_NAME] = "";
    MPI_Comm other;
    OK(MPI_Lookup_name(name[0], MPI_INFO_NULL, found));
    OK(MPI_Comm_connect(found, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other));
    talk(other, 7, "visitor");
    return 0;
}

int main(int argc, char **argv) {
    int size, provided;
    if (argc < 3) return 2;
    OK(MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    for (int d = 0; d < DOORS; d++) snprintf(name[d], sizeof name[d], "%s-%d", argv[2], d);
    if (argc > 3) {
        visitor();
        OK(MPI_Finalize());
        return 0;
    }
    if (size != 3) return 2;
    char gone[MPI_MAX_PORT_NAME];
    for (int d = 0; d < DOORS; d++) {
        if (rank == opener[d]) { // the first one is closed at once: a restart makes another number of ports
            OK(MPI_Open_port(MPI_INFO_NULL, gone));
            OK(MPI_Open_port(MPI_INFO_NULL, port[d]));
            OK(MPI_Close_port(gone));
        }
        OK(MPI_Bcast(port[d], sizeof port[d], MPI_CHAR, opener[d], MPI_COMM_WORLD));
        // Another rank than the one that opened it may publish it.
        if (rank == d) OK(MPI_Publish_name(name[d], MPI_INFO_NULL, port[d]));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    if (rank == 0) printf("open\n");
    fflush(stdout);
    int round = 0;
    for (;;) {
        while (!is_there(argv[1], "round", round) && !is_there(argv[1], "end", -1)) usleep(20000);
        int end = is_there(argv[1], "end", -1) && !is_there(argv[1], "round", round);
        OK(MPI_Allreduce(MPI_IN_PLACE, &end, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
        if (end) break;
        meet(round);
        if (rank == 0 && is_there(argv[1], "visit", round)) {
            MPI_Comm other;
            if (!is_lost(MPI_Comm_accept(port[0], MPI_INFO_NULL, 0, MPI_COMM_SELF, &other), "visited"))
                talk(other, 100 * round, "visited");
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (rank == 0) printf("met %d\n", round);
        fflush(stdout);
        round++;
    }
    for (int d = 0; d < DOORS; d++) {
        char found[MPI_MAX_PORT_NAME];
        if (rank == d) OK(MPI_Unpublish_name(name[d], MPI_INFO_NULL, port[d]));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (MPI_Lookup_name(name[d], MPI_INFO_NULL, found) == MPI_SUCCESS)
            printf("%s is still there\n", name[d]);
        if (rank == opener[d]) { // a new one is no other's
            char fresh[MPI_MAX_PORT_NAME];
            if (MPI_Open_port(MPI_INFO_NULL, fresh) == MPI_SUCCESS) {
                if (strcmp(fresh, port[0]) == 0 || strcmp(fresh, port[1]) == 0)
                    printf("a port was given twice\n");
                OK(MPI_Close_port(fresh));
            }
            OK(MPI_Close_port(port[d]));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    if (rank == 0) printf("closed after %d rounds\n", round);
    OK(MPI_Finalize());
    return 0;
}
