// SPDX-License-Identifier: Apache-2.0
//
// statuses.c: what statuses say when a call waits in one MPI and goes on in another.
//
//   statuses DIRECTORY
//
// Rank 0 sends; every other rank waits in a call of its own for messages that rank 0 sends when
// DIRECTORY/first exists, and once more in a second round, when DIRECTORY/second does.  Some messages come
// before: they are in the image of those who did not ask for them yet.  Rank 0 ends with one line
// "statuses RESULT".  Nine ranks.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EARLY = 5, A = 11, B = 12, C = 13 }; // tags; the message of tag t has t ints
enum { LEFT = 4711, FILL = 0x5a };
static int rank, bad;
static const char *directory;

static void check(int ok, const char *what) {
    if (!ok) {
        printf("rank %d: %s is wrong\n", rank, what), fflush(stdout);
        bad++;
    }
}

// Statuses between others that nobody may touch.
static struct { MPI_Status before, s[3], after; } x;

static void fill(void) {
    memset(&x, FILL, sizeof x);
    for (int i = 0; i < 3; i++) x.s[i].MPI_ERROR = LEFT;
}

static int untouched(const MPI_Status *s, int error) {
    MPI_Status want;
    memset(&want, FILL, sizeof want);
    if (error) want.MPI_ERROR = LEFT;
    return memcmp(&want, s, sizeof want) == 0;
}

static void guards(const char *what) { check(untouched(&x.before, 0) && untouched(&x.after, 0), what); }

static void says(const MPI_Status *s, int tag, int error, const char *what) {
    int count = -1, cancelled = -1, elements = -1;
    MPI_Get_count(s, MPI_INT, &count);
    MPI_Get_elements(s, MPI_INT, &elements);
    MPI_Test_cancelled(s, &cancelled);
    int right = s->MPI_SOURCE == 0 && s->MPI_TAG == tag && count == tag && elements == tag && !cancelled &&
                s->MPI_ERROR == error;
    check(right, what);
    if (!right)
        printf("rank %d: source %d, tag %d, %d ints, %d elements, cancelled %d, error %d\n", rank,
               s->MPI_SOURCE, s->MPI_TAG, count, elements, cancelled, s->MPI_ERROR);
}

// MPI_ERROR of a call on several requests, when there was no error, other than MPI_Waitall.
#ifdef OPEN_MPI
enum { SEVERAL = MPI_SUCCESS };
#else
enum { SEVERAL = LEFT };
#endif

// MPI_ERROR of an empty status: newer MPIs set it; above another MPI it is as in the first release (docs/limits.md).
#if defined(OPEN_MPI) ? OMPI_MAJOR_VERSION >= 6 : MPICH_NUMVERSION >= 40200000
#define EMPTY(error) ((error) == LEFT || (error) == MPI_SUCCESS)
#else
#define EMPTY(error) ((error) == LEFT)
#endif

static int box[3][64];

static void receive(int i, int tag, MPI_Request *r) {
    MPI_Irecv(box[i], 64, MPI_INT, 0, tag, MPI_COMM_WORLD, r);
}

static void take(int tag) { MPI_Recv(box[0], 64, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

static void in_recv(void) {
    int flag;
    MPI_Iprobe(0, A, MPI_COMM_WORLD, &flag, &x.s[0]);
    check(flag || untouched(&x.s[0], 1), "MPI_Iprobe");
    fill();
    MPI_Recv(box[0], 64, MPI_INT, MPI_ANY_SOURCE, A, MPI_COMM_WORLD, &x.s[0]);
    says(&x.s[0], A, LEFT, "MPI_Recv");
    take(B), take(C);
}

static void in_sendrecv(void) {
    MPI_Sendrecv(&rank, 1, MPI_INT, 0, EARLY, box[0], 64, MPI_INT, 0, A, MPI_COMM_WORLD, &x.s[0]);
    says(&x.s[0], A, LEFT, "MPI_Sendrecv");
    take(B), take(C);
}

static void in_wait(void) {
    MPI_Request r;
    int flag = 0;
    receive(0, A, &r);
    MPI_Test(&r, &flag, &x.s[0]);
    check(flag || untouched(&x.s[0], 1), "MPI_Test");
    if (!flag) {
        MPI_Request_get_status(r, &flag, &x.s[1]);
        check(flag || untouched(&x.s[1], 1), "MPI_Request_get_status");
        fill();
        MPI_Wait(&r, &x.s[0]);
    }
    says(&x.s[0], A, LEFT, "MPI_Wait");
    MPI_Wait(&r, &x.s[1]);
    check(x.s[1].MPI_SOURCE == MPI_ANY_SOURCE && x.s[1].MPI_TAG == MPI_ANY_TAG && EMPTY(x.s[1].MPI_ERROR),
          "an empty status");
    MPI_Irecv(box[0], 1, MPI_INT, MPI_PROC_NULL, A, MPI_COMM_WORLD, &r);
    MPI_Wait(&r, &x.s[2]);
    check(x.s[2].MPI_SOURCE == MPI_PROC_NULL && x.s[2].MPI_TAG == MPI_ANY_TAG && x.s[2].MPI_ERROR == LEFT,
          "a status of MPI_PROC_NULL");
    take(B), take(C);
}

static void in_waitany(void) {
    static const int tags[3] = {A, B, C};
    MPI_Request r[3];
    int index;
    for (int i = 0; i < 3; i++) receive(i, tags[i], &r[i]);
    for (int i = 0; i < 3; i++) {
        fill();
        MPI_Waitany(3, r, &index, &x.s[1]);
        check(untouched(&x.s[0], 1) && untouched(&x.s[2], 1), "what stands beside that of MPI_Waitany");
        says(&x.s[1], tags[index], LEFT, "MPI_Waitany");
    }
}

static void in_waitsome(void) {
    static const int tags[3] = {A, B, C};
    MPI_Request r[3];
    int index[3], n;
    for (int i = 0; i < 3; i++) receive(i, tags[i], &r[i]);
    for (int left = 3; left > 0; left -= n) {
        fill();
        MPI_Waitsome(3, r, &n, index, x.s);
        for (int i = 0; i < 3; i++)
            if (i < n)
                says(&x.s[i], tags[index[i]], SEVERAL, "MPI_Waitsome");
            else
                check(untouched(&x.s[i], 1), "what MPI_Waitsome has not completed");
    }
}

static void in_waitall(void) {
    MPI_Request r[3];
    receive(0, EARLY, &r[0]);
    receive(1, B, &r[1]);
    receive(2, A, &r[2]);
    MPI_Waitall(3, r, x.s);
    says(&x.s[0], EARLY, MPI_SUCCESS, "the first of MPI_Waitall");
    says(&x.s[1], B, MPI_SUCCESS, "the second of MPI_Waitall");
    says(&x.s[2], A, MPI_SUCCESS, "the third of MPI_Waitall");
    take(C);
}

// The first is complete before the save, and does not know then that the second will fail.
static void in_error(void) {
    static const int tags[3] = {EARLY, A, B};
    MPI_Request r[3];
    int class, rc;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 3; i++) // one that is too short
        MPI_Recv_init(box[i], i == 1 ? 2 : 64, MPI_INT, 0, tags[i], MPI_COMM_WORLD, &r[i]);
    MPI_Startall(3, r);
    rc = MPI_Waitall(3, r, x.s);
    MPI_Error_class(rc, &class);
    check(class == MPI_ERR_IN_STATUS, "the result of MPI_Waitall");
    says(&x.s[0], EARLY, MPI_SUCCESS, "the first before an error");
    MPI_Error_class(x.s[1].MPI_ERROR, &class);
    check(class == MPI_ERR_TRUNCATE, "the error of the second");
    says(&x.s[2], B, MPI_SUCCESS, "the third behind an error");
    for (int i = 0; i < 3; i++)
        if (r[i] != MPI_REQUEST_NULL) // some MPIs free what failed
            MPI_Request_free(&r[i]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    take(C);
}

static void in_probe(void) {
    MPI_Probe(MPI_ANY_SOURCE, A, MPI_COMM_WORLD, &x.s[0]);
    says(&x.s[0], A, LEFT, "MPI_Probe");
    MPI_Recv(box[0], 64, MPI_INT, 0, EARLY, MPI_COMM_WORLD, &x.s[1]);
    says(&x.s[1], EARLY, LEFT, "MPI_Recv of what came early");
    take(A), take(B), take(C);
}

static void in_mprobe(void) {
    MPI_Message early, m;
    MPI_Mprobe(0, EARLY, MPI_COMM_WORLD, &early, &x.s[0]);
    says(&x.s[0], EARLY, LEFT, "MPI_Mprobe of what came early");
    fill();
    MPI_Mprobe(0, A, MPI_COMM_WORLD, &m, &x.s[0]);
    says(&x.s[0], A, LEFT, "MPI_Mprobe");
    MPI_Mrecv(box[0], 64, MPI_INT, &early, &x.s[1]);
    says(&x.s[1], EARLY, LEFT, "MPI_Mrecv of what came early");
    MPI_Mrecv(box[0], 64, MPI_INT, &m, &x.s[2]);
    says(&x.s[2], A, LEFT, "MPI_Mrecv");
    take(B), take(C);
}

// Rank r + 1 is in calls[r]; those who ask for what comes early.
static void (*const calls[])(void) = {in_recv,     in_sendrecv, in_wait,  in_waitany,
                                      in_waitsome, in_waitall,  in_error, in_probe};
static const int early[] = {0, 0, 0, 0, 0, 1, 1, 1};
enum { WAITERS = sizeof calls / sizeof *calls };

static void send(int to, int tag) {
    static int message[64];
    MPI_Send(message, tag, MPI_INT, to, tag, MPI_COMM_WORLD);
}

static void round_of(const char *stage, int matched) {
    char path[4096];
    if (rank > 0) {
        fill();
        (rank == WAITERS && matched ? in_mprobe : calls[rank - 1])();
        guards("what stands around the statuses");
        return;
    }
    for (int r = 1; r <= WAITERS; r++)
        if (early[r - 1]) send(r, EARLY);
    snprintf(path, sizeof path, "%s/%s", directory, stage);
    while (access(path, F_OK) != 0) usleep(2000);
    int word;
    MPI_Recv(&word, 1, MPI_INT, 2, EARLY, MPI_COMM_WORLD, MPI_STATUS_IGNORE); // of MPI_Sendrecv
    for (int r = 1; r <= WAITERS; r++)
        for (int tag = A; tag <= C; tag++) send(r, tag);
}

int main(int argc, char **argv) {
    int all = 0, size;
    directory = argc > 1 ? argv[1] : ".";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != WAITERS + 1) MPI_Abort(MPI_COMM_WORLD, 2);
    round_of("first", 0);
    round_of("second", 1);
    MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("statuses %s\n", all == 0 ? "right" : "wrong"), fflush(stdout);
    MPI_Finalize();
    return 0;
}
