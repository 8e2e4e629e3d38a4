// SPDX-License-Identifier: Apache-2.0
//
// files STEPS SEED [named]: each rank does to four files, all the time open, what programs do to theirs: it
// appends, writes over, cuts, renames, deletes, and puts new ones in their places. With "named" it never
// changes what was written: only names do. It knows what each file must hold, compares what it has open as
// it goes, and in the end what stands under the names.
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 4, MOST = 16384, NAMES = 3, UNNAMED = -1 };

struct file {
    int fd, name; // name: which of its names it has
    size_t size;
    unsigned char content[MOST]; // what it must hold
};

static int rank, step;
static uint64_t state;

static unsigned below(unsigned n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

static void need(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "files: rank %d, step %d: %s\n", rank, step, what);
    perror("files: if it was a call");
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static const char *path(int i, int name, char *to) {
    sprintf(to, "file.%d.%d.%d", rank, i, name);
    return to;
}

static void holds(const struct file *f, int fd, const char *what) {
    static unsigned char found[MOST + 1];
    ssize_t n = pread(fd, found, sizeof found, 0);
    need(n == (ssize_t)f->size && !memcmp(found, f->content, f->size), what);
}

static void put(struct file *f, size_t at, size_t length) {
    for (size_t i = 0; i < length; i++) f->content[at + i] = (unsigned char)below(256);
    need(pwrite(f->fd, f->content + at, length, (off_t)at) == (ssize_t)length, "a write");
    if (at + length > f->size) f->size = at + length;
}

// Makes a new file, first under a name aside, as careful programs do.
static void make(struct file *f, int i) {
    char aside[64], name[64];
    int old = f->fd;
    if (f->name == UNNAMED) f->name = 0;
    sprintf(aside, "aside.%d.%d", rank, i);
    f->fd = open(aside, O_RDWR | O_CREAT | O_TRUNC, 0644);
    need(f->fd >= 0, "a new file");
    f->size = 0;
    put(f, 0, 1 + below(MOST / 4));
    need(!rename(aside, path(i, f->name, name)), "the new file's name");
    if (old >= 0) close(old);
}

static void change(struct file *f, int i, int named) {
    char a[64], b[64];
    int next = (f->name + 1) % NAMES;
    switch (named ? 3 + below(3) : below(6)) {
    case 0:
        if (f->size < MOST) put(f, f->size, 1 + below((unsigned)(MOST - f->size)) / 8);
        break;
    case 1:
        if (f->size) put(f, below((unsigned)f->size), 1);
        break;
    case 2:
        f->size = below((unsigned)f->size + 1);
        need(!ftruncate(f->fd, (off_t)f->size), "a cut");
        break;
    case 3:
        if (f->name == UNNAMED) break;
        need(!rename(path(i, f->name, a), path(i, next, b)), "another name");
        f->name = next;
        break;
    case 4:
        if (f->name != UNNAMED) need(!unlink(path(i, f->name, a)), "a deletion");
        f->name = UNNAMED;
        break;
    default:
        make(f, i);
    }
    holds(f, f->fd, "the open file is not what was written");
}

int main(int argc, char **argv) {
    static struct file files[FILES];
    int steps = argc > 1 ? atoi(argv[1]) : 200, named = argc > 3;
    uint64_t mine = 1, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    state = (argc > 2 ? strtoull(argv[2], NULL, 0) : 1) + (uint64_t)rank * 7919;
    for (int i = 0; i < FILES; i++) {
        files[i].fd = UNNAMED;
        files[i].name = UNNAMED;
        make(&files[i], i);
    }
    for (step = 0; step < steps; step++) {
        int i = (int)below(FILES);
        change(&files[i], i, named);
        mine = mine * 31 + files[i].size + (uint64_t)files[i].name;
        MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        mine ^= all;
        usleep(4000);
    }
    for (int i = 0; i < FILES; i++) {
        char name[64];
        holds(&files[i], files[i].fd, "an open file is not what was written in the end");
        if (files[i].name == UNNAMED) continue;
        struct stat here, there;
        int fd = open(path(i, files[i].name, name), O_RDONLY);
        need(fd >= 0, "a file is missing in the end");
        holds(&files[i], fd, "a file is not what was written in the end");
        need(!fstat(fd, &here) && !fstat(files[i].fd, &there) && here.st_ino == there.st_ino,
             "another file has the name");
        close(fd);
    }
    if (rank == 0) printf("files %016llx\n", (unsigned long long)all);
    MPI_Finalize();
    return 0;
}
