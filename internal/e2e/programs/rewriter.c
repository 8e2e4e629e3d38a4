// SPDX-License-Identifier: Apache-2.0
//
// A program that keeps its state in files which it closes: it writes them over, cuts, appends to, replaces, renames and removes them, by itself
// and by children, and finds each as it left it.
//   rewriter STEPS FOLDER   by itself
//   rewriter HOLD           compiled with -DMPI=1: all ranks in turn, on the same files, for as long as the file HOLD is there
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#if MPI
#include <mpi.h>
#endif

enum { SLOTS = 12, WORDS = 3000, NEW = SLOTS };
static struct {
    uint32_t version; // of the content; 0: there is no file
    uint32_t words;
} slot[SLOTS];
static uint32_t versions;
static int step, latest = -1; // what the symbolic link says
static int moved;             // the folder d1 is called moved
static int empty;             // there is an empty folder
static int rank, ranks = 1;
static char folder[3000];

static uint64_t state = 88172645463325252ull;
static uint32_t below(uint32_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 20) % n;
}

static void fail(const char *what, int i) {
    int v = i < SLOTS ? i : 0;
    printf("rank %d, step %d, file %d, version %u of %u words: %s (%s)\n", rank, step, i, slot[v].version,
           slot[v].words, what, errno ? strerror(errno) : "no error");
    fflush(stdout);
#if MPI
    MPI_Abort(MPI_COMM_WORLD, 1);
#endif
    exit(1);
}

static const char *within(const char *name) {
    static char paths[6][4096];
    static int n;
    char *p = paths[n++ % 6];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static const char *path(int i) {
    char name[100];
    if (i == NEW) return within("d0/new");
    if (i % 3 == 1 && moved)
        snprintf(name, sizeof name, "moved/state%d", i);
    else
        snprintf(name, sizeof name, "d%d/state%d", i % 3, i);
    return within(name);
}

static uint32_t word(uint32_t version, uint32_t at) { return version * 2654435761u + at * 40503u; }

static void look(int i) {
    static uint32_t have[2 * WORDS + 1];
    errno = 0;
    int fd = open(path(i), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT || slot[i].version) fail("cannot be opened", i);
        return;
    }
    if (!slot[i].version) fail("is there", i);
    long n = read(fd, have, sizeof have);
    if (n != 4l * slot[i].words) fail("has another length", i);
    for (uint32_t k = 0; k < slot[i].words; k++)
        if (have[k] != word(slot[i].version, k)) fail("has other content", i);
    close(fd);
}

static void look_at_all(void) {
    for (int k = 0; k < SLOTS; k++) look(k);
    char target[200];
    errno = 0;
    long n = readlink(within("latest"), target, sizeof target - 1);
    if ((n > 0) != (latest >= 0)) fail("the link", SLOTS);
    target[n > 0 ? n : 0] = 0;
    if (n > 0 && atoi(target + strlen("d0/state")) != latest) fail("the link names another file", latest);
    if ((access(within("empty"), F_OK) == 0) != empty) fail("the empty folder", 0);
}

static void put(const char *name, int flags, uint32_t version, uint32_t from, uint32_t words) {
    uint32_t what[WORDS];
    for (uint32_t k = 0; k < words; k++) what[k] = word(version, from + k);
    int fd = open(name, flags | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, what, 4l * words) != 4l * words) fail("cannot be written", 0);
    if (!(flags & O_APPEND) && ftruncate(fd, 4l * words) != 0) fail("ftruncate", 0);
    if (close(fd) != 0) fail("close", 0);
}

enum { IN_PLACE, ANEW, BY_NEW, REMOVE, CUT, RENAME, APPEND, SWAP, LINK, BY_LINK, FOLDER, EMPTY, WAYS };

// Whether that can be done.
static int can(int i, int how, int other, uint32_t *words) {
    switch (how) {
    case CUT:
        if (*words > slot[i].words) *words = slot[i].words;
        return slot[i].version != 0;
    case RENAME:
        return slot[i].version && i != other;
    case APPEND:
        return slot[i].version && slot[i].words + *words <= 2 * WORDS;
    case SWAP:
        return slot[i].version && slot[other].version && i != other;
    case LINK:
        return i % 3 != 1 && i < 10;
    case BY_LINK:
        return latest >= 0 && slot[latest].version;
    default:
        return 1;
    }
}

static void change(int i, int how, int other, uint32_t version, uint32_t words) {
    char target[100];
    switch (how) {
    case IN_PLACE:
        put(path(i), O_RDWR, version, 0, words);
        break;
    case ANEW:
        put(path(i), O_WRONLY | O_TRUNC, version, 0, words);
        break;
    case BY_NEW:
        put(path(NEW), O_WRONLY | O_EXCL, version, 0, words);
        if (rename(path(NEW), path(i)) != 0) fail("rename", i);
        break;
    case REMOVE:
        if (unlink(path(i)) != 0 && (errno != ENOENT || slot[i].version)) fail("unlink", i);
        break;
    case CUT:
        if (truncate(path(i), 4l * words) != 0) fail("truncate", i);
        break;
    case RENAME:
        if (rename(path(i), path(other)) != 0) fail("rename", i);
        break;
    case APPEND:
        put(path(i), O_WRONLY | O_APPEND, slot[i].version, slot[i].words, words);
        break;
    case SWAP:
        if (renameat2(AT_FDCWD, path(i), AT_FDCWD, path(other), RENAME_EXCHANGE) != 0) fail("exchange", i);
        break;
    case LINK:
        snprintf(target, sizeof target, "d%d/state%d", i % 3, i);
        if (words % 2) {
            if (latest >= 0 && unlink(within("latest")) != 0) fail("unlink", SLOTS);
            if (symlink(target, within("latest")) != 0) fail("symlink", SLOTS);
        } else if (symlink(target, within("link")) != 0 || rename(within("link"), within("latest")) != 0) {
            fail("symlink", SLOTS);
        }
        break;
    case BY_LINK:
        put(within("latest"), O_WRONLY, version, 0, words);
        break;
    case FOLDER:
        if (rename(within(moved ? "moved" : "d1"), within(moved ? "d1" : "moved")) != 0)
            fail("rename a folder", i);
        break;
    case EMPTY:
        if (empty ? rmdir(within("empty")) : mkdir(within("empty"), 0750)) fail("the empty folder", i);
    }
}

static void know(int i, int how, int other, uint32_t version, uint32_t words) {
    if (how == BY_LINK) i = latest;
    switch (how) {
    case IN_PLACE:
    case ANEW:
    case BY_NEW:
    case BY_LINK:
        slot[i].version = version, slot[i].words = words;
        break;
    case REMOVE:
        slot[i].version = 0;
        break;
    case CUT:
        slot[i].words = words;
        break;
    case RENAME:
        slot[other] = slot[i];
        slot[i].version = 0;
        break;
    case APPEND:
        slot[i].words += words;
        break;
    case SWAP:;
        typeof(slot[0]) s = slot[i];
        slot[i] = slot[other], slot[other] = s;
        break;
    case LINK:
        latest = i;
        break;
    case FOLDER:
        moved = !moved;
        break;
    case EMPTY:
        empty = !empty;
    }
}

#if !MPI
// A lock of the process on a file lasts while it opens the file once more, to write, and has more descriptors of it: nobody closes one.
static void locked(void) {
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int fd = open(within("locked"), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) != 0) fail("lock", 0);
    usleep(2000); // so that some checkpoints come here; the lock has to be there in any case
    int twice = dup(fd), thrice = fcntl(fd, F_DUPFD_CLOEXEC, 50);
    int other = open(within("locked"), O_WRONLY | O_CLOEXEC);
    pid_t child = fork();
    if (child == 0) {
        lock.l_type = F_WRLCK;
        _exit(fcntl(other, F_GETLK, &lock) != 0 || lock.l_type != F_RDLCK);
    }
    int status;
    if (other < 0 || child < 0 || waitpid(child, &status, 0) != child)
        fail("a child that looks for a lock", 0);
    if (status != 0) fail("the lock is gone", 0);
    close(other), close(fd), close(twice), close(thrice);
    if (twice < 0 || thrice < 50) fail("dup", 0);
}
#endif

// What the step does is the same in all ranks, and one of them does it.
static void one_step(void) {
    int i = (int)below(SLOTS), other = (int)below(SLOTS), how = (int)below(WAYS),
        who = (int)below((uint32_t)ranks);
    uint32_t words = below(WORDS);
    int by_child = below(8) == 0;
    versions++;
    look(i);
    if (!can(i, how, other, &words)) return;
#if MPI
    by_child = 0; // of MPI programs no other may be running when a checkpoint is due
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    if (who == rank && by_child) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            change(i, how, other, versions, words);
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("the child", i);
    } else if (who == rank) {
        change(i, how, other, versions, words);
    }
    know(i, how, other, versions, words);
#if MPI
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    if (step % 16 == 0) look_at_all();
}

int main(int n, char **v) {
    if (n < 2) return 2;
    snprintf(folder, sizeof folder, "%s", n > 2 ? v[2] : ".");
#if MPI
    MPI_Init(&n, &v);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    for (int i = 0; i < 3 && rank == 0; i++) {
        char name[10];
        snprintf(name, sizeof name, "d%d", i);
        if (mkdir(within(name), 0755) != 0 && errno != EEXIST) fail("mkdir", i);
    }
#if MPI
    MPI_Barrier(MPI_COMM_WORLD);
    for (int go = 1; go; step++) {
        one_step();
        if (rank == 0) go = access(v[1], F_OK) == 0;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (rank == 0 && step == 100) printf("it goes on\n"), fflush(stdout);
        usleep(1000);
    }
    look_at_all();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("good\n");
    MPI_Finalize();
#else
    int steps = atoi(v[1]);
    put(within("locked"), O_WRONLY, 1, 0, 10);
    for (; step < steps; step++) {
        one_step();
        if (step % 8 == 0) locked();
        usleep(300);
    }
    look_at_all();
    for (int k = 0; k < SLOTS; k++) printf("%d: version %u, %u words\n", k, slot[k].version, slot[k].words);
#endif
    return 0;
}
