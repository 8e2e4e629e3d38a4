// SPDX-License-Identifier: Apache-2.0
//
// closed.c: files that the application could write to and has closed.
//
// What it wrote may be in memory only.  An epoch relies on these files, since the program that is continued has them
// behind it: they are made durable before the commit (ckpt/files).  A file is known by its number on its file system;
// the path is where to look for it.  There is room for a thousand, each once; with more of them, a file system as
// a whole takes the place of its files.
#include "host.h"
#include "fds.h"
#include "hostgo.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { CLOSED_MOST = 1024 };
// Apart from the paths, so that a search reads little.  Under host.lock; number 0: free.
static struct entry {
    uint64_t dev, ino, number;
    uint64_t and_all;
} entries[CLOSED_MOST];
static char paths[CLOSED_MOST][sizeof((struct closed_file *)0)->path];
static uint64_t last;

// A place for a file; NULL: its file system is there as a whole.
static struct entry *place_for(const struct stat *st) {
    struct entry *room = NULL, *of_fs = NULL, *any = NULL;
    for (int i = 0; i < CLOSED_MOST; i++) {
        struct entry *e = &entries[i];
        if (e->number == 0) {
            if (!room) room = e;
            continue;
        }
        any = e;
        if (e->dev != st->st_dev) continue;
        of_fs = e;
        if (!e->and_all && e->ino != st->st_ino) continue;
        e->number = ++last;
        return e->and_all ? NULL : e; // its path may be another one now
    }
    if (room) return room;
    // One file of a file system stands for all of it, and the others of it make room.
    struct entry *stays = of_fs ? of_fs : any;
    stays->and_all = 1;
    stays->number = ++last;
    for (int i = 0; i < CLOSED_MOST; i++)
        if (&entries[i] != stays && entries[i].dev == stays->dev) {
            entries[i].number = 0;
            room = &entries[i];
        }
    return of_fs ? NULL : room;
}

long fd_path(int fd, char *path, size_t bytes) {
    char link[32] = "/proc/self/fd/", digits[8];
    int digit = 0, at = (int)strlen(link);
    for (int v = fd; digit == 0 || v; v /= 10) digits[digit++] = (char)('0' + v % 10);
    while (digit) link[at++] = digits[--digit];
    return RAW3(SYS_readlink, link, path, bytes);
}

void closed_note(int fd) {
    struct stat st;
    if (host.child) return; // another process: nobody saves it
    long flags = RAW2(SYS_fcntl, fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || (flags & O_PATH)) return;
    if (RAW2(SYS_fstat, fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink == 0) return;
    struct entry *e = place_for(&st);
    if (!e) return;
    char *path = paths[e - entries];
    long n = fd_path(fd, path, sizeof paths[0] - 1);
    path[n > 0 ? n : 0] = 0;
    *e = (struct entry){st.st_dev, st.st_ino, ++last, 0};
}

int closed_file(int i, struct closed_file *out) {
    int found = 0;
    lock();
    for (int k = 0; k < CLOSED_MOST && !found; k++)
        if (entries[k].number != 0 && i-- == 0) {
            out->dev = entries[k].dev;
            out->ino = entries[k].ino;
            out->number = entries[k].number;
            out->and_all = (uint32_t)entries[k].and_all;
            strcpy(out->path, paths[k]);
            found = 1;
        }
    unlock();
    return found;
}

void closed_safe(uint64_t number) {
    lock();
    for (int k = 0; k < CLOSED_MOST; k++)
        if (entries[k].number <= number) entries[k].number = 0;
    unlock();
}
