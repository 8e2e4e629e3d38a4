// SPDX-License-Identifier: Apache-2.0
//
// spoilt.c: what the application is about to take from files that were there at the checkpoint.
//
// A program that is continued expects its files as they were, also those that it had closed: one that rewrites its
// state in each step, or replaces it by a new file, would read the state of a step that it has not come to yet.  So
// before it opens a file to write, cuts, replaces, renames or removes it, the first time after each checkpoint, its
// content gets another name in the folder beside made.c's log, or is cloned or copied there, and the log says how to
// undo what follows (ckpt/files/spoilt.go).  What was made after the checkpoint is made.c's.
//
// The disk is the program's: what is kept of removed files never takes more than a quarter of what is free.
#include "host.h"
#include "emulation.h"
#include "fds.h"
#include "hostgo.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <time.h>

enum {
    KNOWN = 32768, // what need not be looked at again since the last checkpoint, or rather hashes of it
    PROBES = 8,
    NAME = sizeof((struct made_spoilt *)0)->kept,
    MOST = 200000, // records between two checkpoints; then files stay as they are
};

// Shared with the children that the application forks: what one has kept, the others need not keep.
static struct shared {
    _Atomic uint64_t known[KNOWN];
    _Atomic uint32_t records, numbered;
    _Atomic int64_t room; // bytes that may still be copied
    _Atomic int64_t held; // bytes on the disk that would be free without us
} * shared;
static _Atomic int folder = -1; // of the lower half
static uint64_t begun;          // what names of kept files begin with
static struct timespec since;

void spoilt_again(int fd, uint64_t at, uint64_t bytes) {
    if (!shared && fd >= 0) {
        void *m = (void *)RAW6(SYS_mmap, 0, sizeof *shared, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if ((unsigned long)m > -4096ul)
            fd = -1;
        else
            shared = m;
    }
    if (shared) {
        // Not the coarse clock of file systems: what was made within its last tick was there.
        RAW2(SYS_clock_gettime, CLOCK_REALTIME, &since);
        begun = at;
        for (int i = 0; i < KNOWN; i++)
            if (atomic_load_explicit(&shared->known[i], memory_order_relaxed))
                atomic_store_explicit(&shared->known[i], 0, memory_order_relaxed);
        atomic_store(&shared->records, 0);
        atomic_store(&shared->held, 0);
        atomic_store(&shared->room, bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes);
    }
    atomic_store(&folder, fd);
}

int spoilt_folder(void) { return atomic_load(&folder); }

static bool notes(void) { return made_logs() && atomic_load_explicit(&folder, memory_order_relaxed) >= 0; }

static bool look(long dir, long path, long how, struct statx *st) {
    return RAW6(SYS_statx, dir, path, how | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME, st, 0) == 0;
}

static bool is_same(const struct statx *a, const struct statx *b) {
    return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major &&
           a->stx_dev_minor == b->stx_dev_minor;
}

// ---- what need not be looked at again ----------------------------------------------------------

enum what { IS_KEPT, IS_NEW, IS_NAMED, IS_GROWN };

static uint64_t hash_of(enum what what, const struct statx *st, const char *path) {
    uint64_t h = (uint64_t)what + 1;
    if (path)
        for (; *path; path++) h = (h ^ (uint8_t)*path) * 0x100000001b3u;
    else
        h = (h << 60 ^ (uint64_t)st->stx_dev_major << 32 ^ st->stx_dev_minor) * 0x9e3779b97f4a7c15u ^
            st->stx_ino;
    h *= 0x9e3779b97f4a7c15u;
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9u | 1;
}

static _Atomic uint64_t *slot_of(uint64_t hash, uint64_t i) {
    return &shared->known[((hash >> 40) + i) % KNOWN];
}

static bool is_known(uint64_t hash) {
    for (uint64_t i = 0; i < PROBES; i++)
        if (atomic_load(slot_of(hash, i)) == hash) return true;
    return false;
}

// What finds no place is kept once more, which is slow and right.
static void know(uint64_t hash) {
    for (uint64_t i = 0; i < PROBES; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(slot_of(hash, i), &none, hash) || none == hash) return;
    }
}

void spoilt_made(const struct statx *st) {
    if (notes() && !(st->stx_mask & STATX_BTIME)) know(hash_of(IS_NEW, st, NULL));
}

// Whether it was made after the checkpoint: then it is nothing to go back to.
static bool is_new(const struct statx *st) {
    if (!(st->stx_mask & STATX_BTIME)) return is_known(hash_of(IS_NEW, st, NULL));
    return st->stx_btime.tv_sec > since.tv_sec ||
           (st->stx_btime.tv_sec == since.tv_sec && st->stx_btime.tv_nsec > since.tv_nsec);
}

// Files of the kernel and files that are memory are nothing to keep.
static bool is_ordinary(const char *path) {
    return strncmp(path, "/dev/", 5) != 0 && strncmp(path, "/proc/", 6) != 0 &&
           strncmp(path, "/sys/", 5) != 0;
}

// ---- records -----------------------------------------------------------------------------------

static int64_t ns_of(int64_t seconds, uint32_t nanoseconds) { return seconds * 1000000000 + nanoseconds; }

// Writes the record; path is an absolute one, and renamed the other one of MADE_MOVED and MADE_EXCHANGED.
static bool say(uint32_t kind, const struct statx *st, const char *kept, const char *path,
                const char *renamed) {
    uint32_t before = atomic_fetch_add(&shared->records, 1);
    if (before > MOST) return false;
    if (before == MOST) kind = MADE_SPOILT_MORE;
    struct timespec now;
    RAW2(SYS_clock_gettime, CLOCK_REALTIME, &now);
    struct made_name head = {.ino = st->stx_ino,
                             .born_seconds = st->stx_btime.tv_sec,
                             .born_nanoseconds = st->stx_btime.tv_nsec,
                             .born_known = kind | ((st->stx_mask & STATX_BTIME) != 0)};
    struct made_spoilt what = {.size = (int64_t)st->stx_size,
                               .modified = ns_of(st->stx_mtime.tv_sec, st->stx_mtime.tv_nsec),
                               .at = ns_of(now.tv_sec, (uint32_t)now.tv_nsec),
                               .mode = st->stx_mode};
    memcpy(what.kept, kept, strlen(kept));
    return made_spoils(&head, &what, path, renamed) && kind != MADE_SPOILT_MORE;
}

// ---- content -----------------------------------------------------------------------------------

static void new_name(char name[NAME]) {
    struct timespec now; // a process of the last run may have had this number
    RAW2(SYS_clock_gettime, CLOCK_REALTIME_COARSE, &now);
    snprintf(name, NAME, "%llx-%x-%x", (unsigned long long)begun & 0xffffffffffff, (unsigned)RAW0(SYS_getpid),
             (unsigned)now.tv_sec * 1024 + atomic_fetch_add(&shared->numbered, 1));
}

// Takes so many bytes of the disk; false: the program may need them.
static bool hold(int64_t bytes) {
    struct statfs fs;
    if (bytes == 0) return true;
    if (RAW2(SYS_fstatfs, folder, &fs)) return false;
    if (atomic_fetch_add(&shared->held, bytes) + bytes <= (int64_t)fs.f_bavail * fs.f_bsize / 4) return true;
    atomic_fetch_sub(&shared->held, bytes);
    return false;
}

static bool copy(int from, int to, int64_t bytes) {
    if (bytes == 0 || RAW3(SYS_ioctl, to, FICLONE, from) == 0) return true;
    struct rlimit most; // beyond it is a signal
    if (RAW2(SYS_getrlimit, RLIMIT_FSIZE, &most) == 0 && (uint64_t)bytes > most.rlim_cur) return false;
    if (atomic_fetch_sub(&shared->room, bytes) < bytes || !hold(bytes)) {
        atomic_fetch_add(&shared->room, bytes);
        return false;
    }
    // The place of from may be the application's: it does not move.
    bool by_range = true;
    for (loff_t at = 0; at < bytes;) {
        long n = by_range ? RAW6(SYS_copy_file_range, from, &at, to, NULL, bytes - at, 0)
                          : RAW4(SYS_sendfile, to, from, &at, bytes - at);
        if (n > 0) continue;
        if (!by_range || n == 0) return false;
        by_range = false;
    }
    return true;
}

// Keeps the content of an open file under a name; false: nothing has that name.
static bool keep_copy(int from, const struct statx *st, const char *name) {
    long to = RAW4(SYS_openat, folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (to < 0) return false;
    // Another thread may have closed the application's descriptor meanwhile, and opened something else.
    struct statx is;
    bool good = copy(from, (int)to, (int64_t)st->stx_size) && look(from, (long)"", AT_EMPTY_PATH, &is) &&
                is_same(&is, st);
    struct stat owner;
    if (good && RAW2(SYS_fstat, from, &owner) == 0) (void)RAW3(SYS_fchown, to, owner.st_uid, owner.st_gid);
    RAW1(SYS_close, to);
    if (!good) RAW3(SYS_unlinkat, folder, name, 0);
    return good;
}

// A descriptor to read that file.  A new one must not be closed where the application has it open: that would end its record locks
// (fcntl(2)).  So one of those is taken then, if it reads.
static long reader(struct call *c, long dir, long path, long how, const struct statx *st, bool *own) {
    struct statx is;
    *own = false;
    long best = -EACCES;
    bool open = false;
    for (int fd = 0; fd < fd_fence; fd++) {
        if (!is_used(c, fd) || !look(fd, (long)"", AT_EMPTY_PATH, &is) || !is_same(&is, st)) continue;
        long flags = RAW2(SYS_fcntl, fd, F_GETFL);
        if (flags < 0 || flags & O_PATH) continue;
        open = true;
        if ((flags & O_ACCMODE) != O_WRONLY) best = fd;
    }
    if (open) return best;
    long fd = RAW4(SYS_openat, dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | how, 0);
    if (fd < 0) return fd;
    *own = true;
    if (look(fd, (long)"", AT_EMPTY_PATH, &is) && is_same(&is, st)) return fd;
    RAW1(SYS_close, fd);
    return -ENOENT;
}

// Where the file is that is about to be opened: its own path, or what the application calls it.
static bool path_of(long dir, long path, long how, char absolute[2 * 4096]) {
    long fd = RAW4(SYS_openat, dir, path, O_PATH | O_CLOEXEC | how, 0);
    long n = fd >= 0 ? fd_path((int)fd, absolute, 4095) : made_path(dir, path, absolute);
    if (fd >= 0) RAW1(SYS_close, fd);
    absolute[n > 0 ? n : 0] = 0;
    return n > 0 && absolute[0] == '/' && is_ordinary(absolute);
}

void spoilt_content(struct call *c, long dir, long path, long flags) {
    bool empties = flags & O_TRUNC;
    if (!notes() || (flags & O_PATH) || (!empties && ((flags & O_ACCMODE) == O_RDONLY || (flags & O_APPEND))))
        return;
    struct statx st;
    long follow = flags & O_NOFOLLOW;
    if (!look(dir, path, follow ? AT_SYMLINK_NOFOLLOW : 0, &st) || !S_ISREG(st.stx_mode) || is_new(&st))
        return;
    uint64_t hash = hash_of(IS_KEPT, &st, NULL);
    char absolute[2 * 4096], name[NAME] = "";
    if (is_known(hash) || !path_of(dir, path, follow, absolute)) return;
    if (st.stx_size > 0) {
        bool own;
        long fd = reader(c, dir, path, follow, &st, &own);
        new_name(name);
        if (fd < 0 || !keep_copy((int)fd, &st, name)) name[0] = 0;
        if (fd >= 0 && own) RAW1(SYS_close, fd);
    }
    if (say(MADE_SPOILT, &st, name, absolute, NULL)) know(hash);
}

// What is appended can be cut off (appended.c), unless the content was changed later: then what is kept of it is too long.
void spoilt_grows(int fd) {
    struct statx st;
    if (!notes() || !look(fd, (long)"", AT_EMPTY_PATH, &st) || !S_ISREG(st.stx_mode) || is_new(&st)) return;
    uint64_t hash = hash_of(IS_GROWN, &st, NULL);
    char absolute[4096];
    long n = is_known(hash) ? 0 : fd_path(fd, absolute, sizeof absolute - 1);
    if (n <= 0 || absolute[0] != '/') return;
    absolute[n] = 0;
    if (is_ordinary(absolute) && say(MADE_GROWS, &st, "", absolute, NULL)) know(hash);
}

void spoilt_openat2(struct call *c) {
    struct open_how how;
    if (notes() && (size_t)c->a[3] >= sizeof how && copy_in(&how, (uint64_t)c->a[2], sizeof how))
        spoilt_content(c, c->a[0], c->a[1], (long)how.flags);
}

long sys_truncate(struct call *c) {
    spoilt_content(c, AT_FDCWD, c->a[0], O_WRONLY);
    return raw6(c->nr, c->a[0], c->a[1], 0, 0, 0, 0);
}

// ---- names -------------------------------------------------------------------------------------

static bool keep_link(struct call *c, long dir, long path, const struct statx *st, const char *name) {
    char target[4096];
    bool file = S_ISREG(st->stx_mode), own;
    if ((!file || hold((int64_t)st->stx_size)) && RAW6(SYS_linkat, dir, path, folder, name, 0, 0) == 0)
        return true;
    if (file) {
        long fd = reader(c, dir, path, O_NOFOLLOW, st, &own);
        bool good = fd >= 0 && keep_copy((int)fd, st, name);
        if (fd >= 0 && own) RAW1(SYS_close, fd);
        return good;
    }
    long n = RAW4(SYS_readlinkat, dir, path, target, sizeof target - 1);
    if (n <= 0) return false;
    target[n] = 0;
    return RAW3(SYS_symlinkat, target, folder, name) == 0;
}

// Before a name is taken from a file, a symbolic link or an empty folder; name is what it is kept under, or empty.
static void gone(struct call *c, long dir, long path, const struct statx *st, char name[NAME]) {
    char absolute[2 * 4096];
    bool folder_itself = S_ISDIR(st->stx_mode);
    name[0] = 0;
    if (!(S_ISREG(st->stx_mode) || S_ISLNK(st->stx_mode) || folder_itself) || is_new(st)) return;
    if (made_path(dir, path, absolute) <= 0 || !is_ordinary(absolute)) return;
    if (!folder_itself) {
        new_name(name);
        if (!keep_link(c, dir, path, st, name)) name[0] = 0;
    }
    say(MADE_GONE, st, name, absolute, NULL);
}

// The call has failed: a program that tries again and again fills no disk.
static void not_gone(const struct statx *st, const char name[NAME]) {
    if (name[0] == 0 || RAW3(SYS_unlinkat, folder, name, 0) || !S_ISREG(st->stx_mode)) return;
    atomic_fetch_sub(&shared->held, (int64_t)st->stx_size);
}

long sys_remove(struct call *c) {
    bool at = c->nr == SYS_unlinkat, folders = c->nr == SYS_rmdir || (at && c->a[2] & AT_REMOVEDIR);
    long dir = at ? c->a[0] : AT_FDCWD, path = at ? c->a[1] : c->a[0];
    struct statx st;
    char name[NAME] = "";
    if (notes() && look(dir, path, AT_SYMLINK_NOFOLLOW, &st) && !S_ISDIR(st.stx_mode) == !folders)
        gone(c, dir, path, &st, name);
    long r = raw6(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
    if (r != 0) not_gone(&st, name);
    return r;
}

// Before what was made after the checkpoint gets that name, perhaps as one of many that replace each other.
static void named(const struct statx *st, const char *path) {
    uint64_t hash = hash_of(IS_NAMED, st, path);
    struct statx with = *st;
    with.stx_mtime = (struct statx_timestamp){.tv_sec = since.tv_sec, .tv_nsec = (uint32_t)since.tv_nsec};
    if (!is_known(hash) && say(MADE_NAMED, &with, "", path, NULL) && st->stx_mask & STATX_BTIME) know(hash);
}

// was is the file that loses the name, which is kept under replaced.
static void renames(struct call *c, long from, long old, long to, long new, long flags, struct statx *was,
                    char replaced[NAME]) {
    struct statx is;
    char old_path[2 * 4096], new_path[2 * 4096];
    if (!look(from, old, AT_SYMLINK_NOFOLLOW, &is)) return;
    bool there = look(to, new, AT_SYMLINK_NOFOLLOW, was), swaps = flags & RENAME_EXCHANGE;
    if (there ? flags & RENAME_NOREPLACE || is_same(&is, was) : swaps) return; // nothing comes of it
    if (made_path(from, old, old_path) <= 0 || made_path(to, new, new_path) <= 0 || !is_ordinary(new_path))
        return;
    bool new_is = is_new(&is), new_was = there && is_new(was);
    if (swaps && !new_is && !new_was) {
        say(MADE_EXCHANGED, &is, "", old_path, new_path);
        return;
    }
    if (there && !swaps) gone(c, to, new, was, replaced);
    if (new_is)
        named(&is, new_path);
    else
        say(MADE_MOVED, &is, "", old_path, new_path);
    if (swaps && new_was)
        named(was, old_path);
    else if (swaps)
        say(MADE_MOVED, was, "", new_path, old_path);
}

long sys_rename(struct call *c) {
    struct statx was;
    char replaced[NAME] = "";
    if (notes()) {
        if (c->nr == SYS_rename)
            renames(c, AT_FDCWD, c->a[0], AT_FDCWD, c->a[1], 0, &was, replaced);
        else
            renames(c, c->a[0], c->a[1], c->a[2], c->a[3], c->nr == SYS_renameat2 ? c->a[4] : 0, &was,
                    replaced);
    }
    long r = raw6(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
    if (r != 0) not_gone(&was, replaced);
    return r;
}
