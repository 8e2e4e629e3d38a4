// SPDX-License-Identifier: Apache-2.0
//
// made.c: names that the application gives to files.
//
// Who is killed after a checkpoint leaves files that were not there then.  A program that is continued makes them once more,
// which fails with O_EXCL and with mkdir, or finds them and takes them for something else, as a database does with a journal.
// So each is noted in a file that outlives the process, and a restart moves it out of the way (ckpt/files/made.go): once before it is
// made, by its name alone, since the process may be killed at any moment, and once when it is there, with its number.  A record
// is written at once: several threads, and children, write them to the end of one file.
#include "host.h"
#include "emulation.h"
#include "fds.h"
#include "hostgo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int log_file = -1; // of the lower half

void made_log(int fd, int folder, uint64_t at, uint64_t bytes) {
    appended_again();
    spoilt_again(folder, at, bytes);
    atomic_store(&log_file, fd);
}

bool made_logs(void) { return atomic_load_explicit(&log_file, memory_order_relaxed) >= 0; }

int made_file(void) { return atomic_load(&log_file); }

struct record {
    struct made_name head;
    char path[sizeof(struct made_spoilt) + 2 * 4096];
};

static bool put(struct record *r, long path_bytes) {
    long n = (long)sizeof r->head + path_bytes;
    r->head.path_bytes = (uint32_t)path_bytes;
    r->head.thread = (uint32_t)RAW0(SYS_gettid);
    // A full disk costs the note, and not the program.
    return RAW3(SYS_write, atomic_load(&log_file), r, n) == n;
}

bool made_sized(struct made_name *head, int64_t size, int fd) {
    struct record r;
    long n = fd < 0 ? 0 : fd_path(fd, r.path + sizeof size, 4095);
    if (n < 0) return false;
    r.head = *head;
    memcpy(r.path, &size, sizeof size);
    return put(&r, (long)sizeof size + n);
}

bool made_spoils(const struct made_name *head, const struct made_spoilt *what, const char *path,
                 const char *renamed) {
    struct record r = {.head = *head};
    memcpy(r.path, what, sizeof *what);
    long n = sizeof *what;
    size_t length = strlen(path);
    if (n + length + (renamed ? strlen(renamed) : 0) + 1 > sizeof r.path) return false;
    memcpy(r.path + n, path, length);
    n += (long)length;
    if (renamed) {
        r.path[n++] = 0;
        length = strlen(renamed);
        memcpy(r.path + n, renamed, length);
        n += (long)length;
    }
    return put(&r, n);
}

long made_path(long dir, long path, char *absolute) {
    char name[4096];
    long n = 0;
    if (!copy_string(name, sizeof name, (uint64_t)path) || name[0] == 0) return 0;
    if (name[0] != '/') {
        n = (int)dir == AT_FDCWD ? RAW2(SYS_getcwd, absolute, 4095) - 1 : fd_path((int)dir, absolute, 4095);
        if (n <= 0 || absolute[0] != '/') return 0;
        absolute[n++] = '/';
    }
    strcpy(absolute + n, name);
    return n + (long)strlen(name);
}

bool made_begins(long dir, long path, uint64_t ino) {
    if (!made_logs() || RAW3(SYS_faccessat, dir, path, F_OK) != -ENOENT) return false;
    struct record r = {.head = {.born_known = MADE_BEGINS, .ino = ino}};
    long n = made_path(dir, path, r.path);
    if (n <= 0) return false;
    struct timespec now;
    RAW2(SYS_clock_gettime, CLOCK_REALTIME_COARSE, &now); // as file systems look at it
    r.head.born_seconds = now.tv_sec;
    r.head.born_nanoseconds = (uint32_t)now.tv_nsec;
    put(&r, n);
    return true;
}

void made_note(int fd) {
    struct record r;
    struct statx st;
    if (RAW6(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st, 0)) return;
    long n = fd_path(fd, r.path, 4095);
    if (n <= 0) return;
    spoilt_made(&st);
    r.head = (struct made_name){.ino = st.stx_ino,
                                .born_seconds = st.stx_btime.tv_sec,
                                .born_nanoseconds = st.stx_btime.tv_nsec,
                                .born_known = (st.stx_mask & STATX_BTIME) != 0};
    put(&r, n);
}

// The number of the file that gets another name; 0: the call will say what is wrong.
static uint64_t linked(long dir, long path, long flags) {
    struct statx st;
    int how = flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
    if (!made_logs()) return 0;
    return RAW6(SYS_statx, dir, path, how | (flags & AT_EMPTY_PATH), STATX_INO, &st, 0) ? 0 : st.stx_ino;
}

// What gives a name and returns no descriptor.
long sys_make(struct call *c) {
    long dir = AT_FDCWD, path;
    uint64_t ino = 0;
    switch (c->nr) {
    case SYS_mkdir:
    case SYS_mknod:
        path = c->a[0];
        break;
    case SYS_symlink:
        path = c->a[1];
        break;
    case SYS_mkdirat:
    case SYS_mknodat:
        dir = c->a[0], path = c->a[1];
        break;
    case SYS_symlinkat:
        dir = c->a[1], path = c->a[2];
        break;
    case SYS_link:
        path = c->a[1], ino = linked(AT_FDCWD, c->a[0], 0);
        break;
    default:
        dir = c->a[2], path = c->a[3], ino = linked(c->a[0], c->a[1], c->a[4]); // linkat
    }
    bool begins = made_begins(dir, path, ino);
    long r = raw6(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
    if (r != 0 || !begins) return r;
    long fd = RAW4(SYS_openat, dir, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0) return r;
    made_note((int)fd);
    RAW1(SYS_close, fd);
    return r;
}
