// SPDX-License-Identifier: Apache-2.0
//
// fds.c: the application's descriptors have the numbers that they would have without ckptrun.
//
// Numbers below fd_fence are the application's.  Those that it does not use hold a placeholder, so that
// whatever the lower half opens gets a number above.  So a call that makes a descriptor returns a high
// number, and the descriptor is moved down to the lowest free number (docs/split-process.md P16).  All other
// calls on descriptors need no translation and are not trapped.
#include "host.h"
#include "emulation.h"
#include "fds.h"
#include "lower.h"
#include "thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/nsfs.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// limit is how many the application may have: the kernel's limit is ckptrun's.  The application may lower its own,
// and raise it again.  Not saved: a continued program has that of its new ckptrun.
struct fd_table {
    bool used[FD_MOST];
    struct rlimit limit;
    rlim_t for_exec; // the soft limit of programs that this process becomes
};

int fd_fence = FD_FEW;
static struct fd_table table = {.limit = {FD_FEW, FD_FEW}};
static rlim_t soft_at_start = FD_FEW;
static int placeholder = -1; // high-numbered; O_PATH, so that reads and writes give EBADF
static int originals[3] = {-1, -1, -1};

static rlim_t at_most(rlim_t n) { return n < (rlim_t)fd_fence ? n : (rlim_t)fd_fence; }

// The descriptor table of t: a vfork child has one of its own, in its parent's memory.
struct fd_table *fds_of(struct thread *t) {
    return t && t->vfork_fds && borrowed() ? t->vfork_fds : &table;
}

void fds_vfork_begin(struct thread *t) {
    static const size_t bytes = sizeof(struct fd_table);
    t->vfork_fds = (struct fd_table *)RAW6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((long)t->vfork_fds < 0)
        t->vfork_fds = NULL;
    else
        memcpy(t->vfork_fds, &table, bytes);
}

void fds_vfork_end(struct thread *t) {
    if (t->vfork_fds) RAW2(SYS_munmap, t->vfork_fds, sizeof(struct fd_table));
    t->vfork_fds = NULL;
}

// ---- start -------------------------------------------------------------------------------------

// Launchers name inherited descriptors in the environment.  The lower half reads these variables.  So do
// programs that the program starts, as long as the program is not the MPI program itself.
static struct {
    const char *name;
    int from, to; // number that the program knows, number that it has; -1: none
} launcher[] = {{"PMI_FD", -1, -1}, {"HYDI_CONTROL_FD", -1, -1}, {"PMIX_FD", -1, -1}};
enum { LAUNCHERS = sizeof launcher / sizeof *launcher };

static void know_launcher(void) {
    for (int i = 0; i < LAUNCHERS; i++) {
        const char *v = getenv(launcher[i].name);
        if (v && fcntl(atoi(v), F_GETFD) >= 0) launcher[i].from = launcher[i].to = atoi(v);
    }
}

static bool is_launcher(int fd) {
    for (int i = 0; i < LAUNCHERS; i++)
        if (launcher[i].from == fd) return true;
    return false;
}

static void launcher_moved(int from, int to) {
    for (int i = 0; i < LAUNCHERS; i++) {
        char text[16];
        if (launcher[i].from != from) continue;
        launcher[i].to = to;
        snprintf(text, sizeof text, "%d", to);
        setenv(launcher[i].name, text, 1);
    }
}

// A runtime in the program's half talks to the launcher itself, under the numbers that its environment names.
void fds_give_back(void) {
    for (int i = 0; i < LAUNCHERS; i++) {
        int from = launcher[i].from, to = launcher[i].to;
        if (from < 0 || from >= fd_fence || to < fd_fence) continue;
        if (dup3(to, from, 0) >= 0) table.used[from] = true;
    }
}

// Whether it is one of these, and not another file under its number.  It is neither saved nor in the way of a
// checkpoint, and reads as closed in a continued program: the launcher is another one then.
static bool given_back(int fd) {
    struct stat mine, theirs;
    for (int i = 0; host.whole && i < LAUNCHERS; i++)
        if (launcher[i].from == fd && launcher[i].to >= fd_fence && fstat(fd, &mine) == 0 &&
            fstat(launcher[i].to, &theirs) == 0)
            return mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
    return false;
}

int fds_launcher(struct call *c, const char *entry) {
    for (int i = 0; i < LAUNCHERS; i++) {
        size_t n = strlen(launcher[i].name);
        if (strncmp(entry, launcher[i].name, n) || entry[n] != '=') continue;
        int fd = atoi(entry + n + 1);
        // If the program has a descriptor of its own at that number, the program is a launcher itself.
        bool own = fd >= 0 && fd < fd_fence && fds_of(c->t)->used[fd];
        return fd == launcher[i].from && !own ? launcher[i].to : -1;
    }
    return -1;
}

// Hydra, MPICH's launcher, does not act when a rank ends before MPI_Init: the other ranks would wait in
// MPI_Init for ever.  So this tells Hydra to end them, as MPI_Abort does.  Other launchers end the job
// themselves, and may speak another protocol on their PMI_FD.  Hydra must have read what this rank printed
// before: it does not read on after this message.
void fds_abort_job(int status) {
    const char *fd = getenv("PMI_FD");
    if (!fd || !getenv("HYDI_CONTROL_FD")) return;
    struct stat st;
    int left;
    if (fstat(2, &st) == 0 && S_ISFIFO(st.st_mode))
        for (int i = 0; i < 1000 && ioctl(2, FIONREAD, &left) == 0 && left > 0; i++) usleep(5000);
    dprintf(atoi(fd), "cmd=abort exitcode=%d\n", status);
}

// What a child of the program may still need: it makes and changes files, too.
static bool kept_for_children(int fd) {
    if (fd == made_file() || fd == spoilt_folder()) return true;
    for (int i = 0; i < LAUNCHERS && !host.mpi; i++)
        if (launcher[i].to == fd) return true;
    return false;
}

// The descriptor that a path stands for; -1: none.
static int in_path(const char *path) {
    static const char *const before[] = {"/dev/fd/", "/proc/self/fd/"};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(before[i]);
        char *end;
        if (strncmp(path, before[i], n) || path[n] < '0' || path[n] > '9') continue;
        long fd = strtol(path + n, &end, 10);
        if (*end == 0 && fd < fd_fence) return (int)fd;
    }
    return -1;
}

// Whether an argument of the program names this descriptor, as a shell's <(command) does.
static bool named(char *const *argv, int fd) {
    for (; *argv; argv++)
        if (in_path(*argv) == fd) return true;
    return false;
}

// Which numbers below the fence are in use.  To ask for each one takes longer than to read the list.
static void find_open(bool open[FD_MOST]) {
    memset(open, 0, FD_MOST * sizeof *open);
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        int fd = e->d_name[0] == '.' ? -1 : atoi(e->d_name);
        if (fd >= 0 && fd < fd_fence && fd != dirfd(d)) open[fd] = true;
    }
    for (int fd = 0; !d && fd < fd_fence; fd++) open[fd] = fcntl(fd, F_GETFD) >= 0;
    if (d) closedir(d);
}

void fds_isolate(bool again, char *const *argv) {
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
        fd_fence = rl.rlim_max < FD_PLENTY ? FD_FEW : FD_MOST;
        table.limit.rlim_max = (rlim_t)fd_fence;
        table.for_exec = soft_at_start = rl.rlim_cur;
        table.limit.rlim_cur = at_most(rl.rlim_cur);
    }
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < 4096) {
        rl.rlim_cur = rl.rlim_max < 4096 ? rl.rlim_max : 4096;
        setrlimit(RLIMIT_NOFILE, &rl);
    }
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < (rlim_t)fd_fence + FD_OWN)
        die(1,
            "at most %llu descriptors may be open (ulimit -Hn); ckptrun needs %d: %d for the program and "
            "%d for itself and the MPI; raise the hard limit, in /etc/security/limits.conf or in the "
            "batch system",
            (unsigned long long)rl.rlim_cur, fd_fence + FD_OWN, fd_fence, FD_OWN);
    know_launcher();
    bool open[FD_MOST];
    find_open(open);
    for (int fd = 0; fd < fd_fence; fd++) {
        if (!open[fd]) continue;
        if (fd < 3 || again || named(argv, fd)) continue;
        // A program that this one starts would find it under a number that nobody named to it.
        int high = fcntl(fd, is_launcher(fd) ? F_DUPFD : F_DUPFD_CLOEXEC, fd_fence);
        if (high >= 0) launcher_moved(fd, high);
    }
    int path = openat(AT_FDCWD, "/dev/null", O_PATH | O_CLOEXEC);
    placeholder = fcntl(path, F_DUPFD_CLOEXEC, fd_fence);
    if (path < fd_fence) close(path);
    for (int fd = 0; fd < fd_fence; fd++) {
        if (open[fd] && (fd < 3 || again || named(argv, fd))) {
            table.used[fd] = true;
            if (fd < 3) originals[fd] = fcntl(fd, F_DUPFD_CLOEXEC, fd_fence);
        } else {
            dup3(placeholder, fd, O_CLOEXEC);
        }
    }
}

// In a forked child only this code of the lower half is in use.  Sockets that stayed open in the child would
// keep other ranks from noticing that this rank was killed.
void fds_forked(void) {
    int at = fd_fence, last = fd_fence;
    while (kept_for_children(at)) at++;
    RAW3(SYS_dup3, placeholder, at, O_CLOEXEC);
    placeholder = at;
    for (int i = 0; i < LAUNCHERS; i++)
        if (launcher[i].to > last) last = launcher[i].to;
    if (at > last) last = at;
    if (made_file() > last) last = made_file();
    if (spoilt_folder() > last) last = spoilt_folder();
    locks_forked();
    for (int fd = fd_fence; fd <= last; fd++)
        if (fd != at && !kept_for_children(fd)) RAW1(SYS_close, fd);
    RAW3(SYS_close_range, last + 1, ~0u, 0);
}

// ---- for Go ------------------------------------------------------------------------------------

int fds_used(int *list, int max) {
    int n = 0;
    for (int fd = 0; fd < fd_fence; fd++)
        if (table.used[fd] && n < max && !given_back(fd)) list[n++] = fd;
    return n;
}

int fds_place(int number, int from, bool cloexec) {
    locks_taken(); // a saved program may have had some
    if (number < 0 || number >= fd_fence) return -EBADF;
    if (from < 0) { // close it
        dup3(placeholder, number, O_CLOEXEC);
        table.used[number] = false;
        return 0;
    }
    if (from == number) {
        table.used[number] = true;
        return 0;
    }
    if (dup3(from, number, cloexec ? O_CLOEXEC : 0) < 0) return -errno;
    table.used[number] = true;
    return 0;
}

int fds_original(int i) { return i >= 0 && i < 3 ? originals[i] : -1; }

// ---- the calls ---------------------------------------------------------------------------------

long fds_limit(struct fd_table *f, const struct rlimit *new, struct rlimit *old) {
    struct rlimit real, was = f->limit;
    if (new != NULL) {
        if (new->rlim_cur > new->rlim_max) return -EINVAL;
        if (RAW2(SYS_getrlimit, RLIMIT_NOFILE, &real) == 0 && new->rlim_max > real.rlim_max) return -EPERM;
        f->limit = (struct rlimit){at_most(new->rlim_cur), at_most(new->rlim_max)};
        // Who sets what it was told leaves it as it is.
        f->for_exec = new->rlim_cur == (rlim_t)fd_fence &&soft_at_start > (rlim_t)fd_fence ? soft_at_start
                                                                                           : new->rlim_cur;
    }
    if (old != NULL) *old = was;
    return 0;
}

rlim_t fds_soft_for_exec(struct thread *t) { return fds_of(t)->for_exec; }

// Moves a descriptor that the kernel just made down to the lowest free number from min on.
static long settle_from(struct call *c, long high, int min) {
    if (high < fd_fence) return high; // an error
    struct fd_table *f = fds_of(c->t);
    lock();
    for (int fd = min; fd < (int)f->limit.rlim_cur; fd++) {
        if (f->used[fd]) continue;
        long flags = RAW2(SYS_fcntl, high, F_GETFD);
        long r = RAW3(SYS_dup3, high, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0);
        if (r >= 0) f->used[fd] = true;
        unlock();
        locks_close((int)high);
        return r;
    }
    unlock();
    locks_close((int)high);
    return -EMFILE;
}

static long settle(struct call *c, long high) { return settle_from(c, high, 0); }

// Of an argument that is an int: what the register has above it means nothing.
bool is_used(struct call *c, long argument) {
    int fd = (int)argument;
    return fd >= 0 && fd < fd_fence && fds_of(c->t)->used[fd];
}

bool fds_has(int fd) { return table.used[fd]; }

// Whether the application has no number left.  Calls that do more than to make a descriptor ask first, as the kernel
// does: a file would be created or emptied, or a connection taken, and nobody have it.
static bool none_left(struct call *c) {
    const struct fd_table *f = fds_of(c->t);
    for (int fd = 0; fd < (int)f->limit.rlim_cur; fd++)
        if (!f->used[fd]) return false;
    return true;
}

static long release_fd(struct call *c, int fd) {
    struct fd_table *f = fds_of(c->t);
    if (f == &table && f->used[fd]) appended_closes(fd);
    lock();
    if (!f->used[fd]) {
        unlock();
        return -EBADF;
    }
    if (f == &table) closed_note(fd);
    // dup3 replaces in one step: if the number were free in between, the lower half could get it.
    RAW3(SYS_dup3, placeholder, fd, O_CLOEXEC);
    f->used[fd] = false;
    unlock();
    if (f == &table) locks_closed();
    visitors_closed();
    return 0;
}

// open: what is in /proc by the program's ids. For reading: the fronts stand in for the MPI libraries, and /proc/self/exe is the
// program.
static long open_at(struct call *c, long dir, long path, long flags, long mode) {
    long a[6] = {dir, path, flags, mode};
    char name[4096];
    if (!copy_string(name, sizeof name, (uint64_t)path)) return settle(c, blocking(c, SYS_openat, a));
    if (none_left(c)) return -EMFILE;
    if (real_path(name, sizeof name)) a[1] = (long)name;
    if ((flags & O_ACCMODE) == O_RDONLY) {
        const char *front = front_for(name);
        if (front) a[1] = (long)front;
        if (!strcmp(name, "/proc/self/exe")) a[1] = (long)host.exe;
        int fd = in_path(name); // a placeholder would open as /dev/null
        if (fd >= 0 && !is_used(c, fd)) return -ENOENT;
    }
    bool makes = (flags & O_CREAT) && !(flags & O_PATH) && made_begins(a[0], a[1], 0);
    if (!makes) spoilt_content(c, a[0], a[1], flags);
    long high = blocking(c, SYS_openat, a);
    if (high >= 0) {
        if (makes)
            made_note((int)high);
        else
            appended_opens((int)high, flags);
    }
    return settle(c, high);
}

long sys_open(struct call *c) { return open_at(c, AT_FDCWD, c->a[0], c->a[1], c->a[2]); }
long sys_openat(struct call *c) {
    long r = open_at(c, c->a[0], c->a[1], c->a[2], c->a[3]);
    char first;
    bool closed = r == -ENOTDIR && (int)c->a[0] >= 0 && !is_used(c, (int)c->a[0]) &&
                  copy_in(&first, (uint64_t)c->a[1], 1) && first != '/';
    return closed ? -EBADF : r; // it is a placeholder, which is no directory
}
long sys_creat(struct call *c) {
    return open_at(c, AT_FDCWD, c->a[0], O_CREAT | O_WRONLY | O_TRUNC, c->a[1]);
}

// All other calls that return one new descriptor.
long sys_newfd(struct call *c) {
    // signalfd of an existing descriptor changes that one
    if ((c->nr == SYS_signalfd || c->nr == SYS_signalfd4) && (int)c->a[0] >= 0)
        return raw6(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], 0, 0);
    if ((c->nr == SYS_openat2 || c->nr == SYS_mq_open) && none_left(c)) return -EMFILE;
    if (c->nr == SYS_openat2) spoilt_openat2(c);
    if (c->nr == SYS_pidfd_open) c->a[0] = to_real((pid_t)c->a[0]);
    return settle(c, raw6(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]));
}

// Commands of bpf that make a descriptor; others answer with numbers of another kind.
long sys_bpf(struct call *c) {
    long r = RAW3(SYS_bpf, c->a[0], c->a[1], c->a[2]);
    switch (c->a[0]) {
    case BPF_MAP_CREATE:
    case BPF_PROG_LOAD:
    case BPF_OBJ_GET:
    case BPF_PROG_GET_FD_BY_ID:
    case BPF_MAP_GET_FD_BY_ID:
    case BPF_RAW_TRACEPOINT_OPEN:
    case BPF_BTF_LOAD:
    case BPF_BTF_GET_FD_BY_ID:
    case BPF_LINK_CREATE:
    case BPF_LINK_GET_FD_BY_ID:
    case BPF_ENABLE_STATS:
    case BPF_ITER_CREATE:
        return settle(c, r);
    default:
        return r;
    }
}

long sys_accept(struct call *c) { return none_left(c) ? -EMFILE : settle(c, visitors_accept(c)); }

// Requests that make a descriptor: the other end of a pseudo-terminal, namespaces.
long sys_ioctl(struct call *c) {
    switch ((unsigned)c->a[1]) {
    case TIOCGPTPEER:
    case NS_GET_USERNS:
    case NS_GET_PARENT:
        return settle(c, RAW3(SYS_ioctl, c->a[0], c->a[1], c->a[2]));
    default: // Syscall User Dispatch traps all
        return blocking(c, SYS_ioctl, c->a);
    }
}

// Descriptors that came in a message get numbers of the application's.  When there are none left the rest is lost,
// and the message says so, as the kernel does.
static void settle_message(struct call *c, struct msghdr *m) {
    bool full = false;
    size_t end = 0; // of what is left, when something is lost
    struct cmsghdr *next;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h != NULL; h = next) {
        next = CMSG_NXTHDR(m, h);
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
        int *fds = (int *)CMSG_DATA(h);
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof *fds, kept = 0;
        for (size_t i = 0; i < n; i++) {
            long fd = full ? (RAW1(SYS_close, fds[i]), -EMFILE) : settle(c, fds[i]);
            if (fd >= 0)
                fds[kept++] = (int)fd;
            else
                full = true;
        }
        if (kept == n || end != 0) continue;
        h->cmsg_len = CMSG_LEN(kept * sizeof *fds);
        end = (size_t)((char *)h - (char *)m->msg_control) + CMSG_SPACE(kept * sizeof *fds);
    }
    if (end == 0) return;
    if (end < m->msg_controllen) m->msg_controllen = end;
    m->msg_flags |= MSG_CTRUNC;
}

long sys_recvmsg(struct call *c) {
    long r = blocking(c, SYS_recvmsg, c->a);
    if (r >= 0) settle_message(c, (struct msghdr *)c->a[1]);
    return r;
}

long sys_recvmmsg(struct call *c) {
    long r = blocking(c, SYS_recvmmsg, c->a);
    for (long i = 0; i < r; i++) settle_message(c, &((struct mmsghdr *)c->a[1])[i].msg_hdr);
    return r;
}

long sys_close(struct call *c) {
    int fd = (int)c->a[0];
    return fd < 0 || fd >= fd_fence ? -EBADF : release_fd(c, fd);
}

long sys_close_range(struct call *c) {
    unsigned long first = (unsigned)c->a[0], last = (unsigned)c->a[1], flags = (unsigned)c->a[2];
    if (first > last || (flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC))) return -EINVAL;
    for (unsigned long fd = first; fd <= last && fd < (unsigned long)fd_fence; fd++) {
        if (!fds_of(c->t)->used[fd]) continue;
        if (flags & CLOSE_RANGE_CLOEXEC)
            RAW3(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
        else
            release_fd(c, (int)fd);
    }
    return 0;
}

long sys_dup(struct call *c) {
    if (!is_used(c, c->a[0])) return -EBADF;
    return settle(c, RAW3(SYS_fcntl, c->a[0], F_DUPFD, fd_fence));
}

static long dup_to(struct call *c, int from, int to, int flags) {
    if (!is_used(c, from) || to < 0 || to >= (int)fds_of(c->t)->limit.rlim_cur) return -EBADF;
    if (fds_of(c->t) == &table && table.used[to]) appended_closes(to);
    lock();
    if (fds_of(c->t) == &table && table.used[to]) closed_note(to);
    long r = RAW3(SYS_dup3, from, to, flags);
    if (r >= 0) fds_of(c->t)->used[to] = true;
    unlock();
    if (fds_of(c->t) == &table) locks_closed();
    visitors_closed();
    return r;
}

long sys_dup2(struct call *c) {
    int from = (int)c->a[0], to = (int)c->a[1];
    if (from == to) return is_used(c, from) ? from : -EBADF;
    return dup_to(c, from, to, 0);
}

long sys_dup3(struct call *c) {
    int from = (int)c->a[0], to = (int)c->a[1], flags = (int)c->a[2];
    if (from == to || flags & ~O_CLOEXEC) return -EINVAL;
    return dup_to(c, from, to, flags);
}

long sys_fcntl(struct call *c) {
    if (!is_used(c, c->a[0])) return -EBADF;
    if ((unsigned)c->a[1] == F_SETLK || (unsigned)c->a[1] == F_SETLKW) locks_taken();
    if ((unsigned)c->a[1] != F_DUPFD && (unsigned)c->a[1] != F_DUPFD_CLOEXEC)
        return blocking(c, SYS_fcntl, c->a);
    if ((int)c->a[2] < 0 || (int)c->a[2] >= (int)fds_of(c->t)->limit.rlim_cur) return -EINVAL;
    return settle_from(c, RAW3(SYS_fcntl, c->a[0], c->a[1], fd_fence), (int)c->a[2]);
}

// These would succeed on a placeholder, or fail in another way; the application must see a closed descriptor.
long sys_on_fd(struct call *c) {
    if (!is_used(c, c->a[0])) return -EBADF;
    return raw6(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);
}

// select passes over a placeholder.  True: all descriptors that these sets name are the application's.
bool fds_select(struct call *c) {
    int n = (int)c->a[0]; // the kernel refuses one below 0
    for (int set = 1; set <= 3; set++)
        for (long at = 0; c->a[set] != 0 && at < n; at += 64) {
            uint64_t word;
            struct iovec local = {&word, sizeof word},
                         remote = {(uint64_t *)c->a[set] + at / 64, sizeof word};
            if (RAW6(SYS_process_vm_readv, RAW0(SYS_getpid), &local, 1, &remote, 1, 0) != sizeof word) break;
            for (long bit = 0; bit < 64 && at + bit < n; bit++)
                if (word >> bit & 1 && !is_used(c, at + bit)) return false;
        }
    return true;
}

// fstat would succeed on a placeholder, too.
long sys_fstat(struct call *c) {
    if (!is_used(c, c->a[0])) return -EBADF;
    return RAW2(SYS_fstat, c->a[0], c->a[1]);
}

// Whether a call with AT_EMPTY_PATH looks at a descriptor that the application does not have.
static bool of_nothing(struct call *c, long flags) {
    char first;
    return (flags & AT_EMPTY_PATH) && (int)c->a[0] != AT_FDCWD && !is_used(c, c->a[0]) &&
           copy_string(&first, 1, (uint64_t)c->a[1]) && !first;
}

long sys_newfstatat(struct call *c) {
    if (of_nothing(c, c->a[3])) return -EBADF;
    return RAW4(SYS_newfstatat, c->a[0], c->a[1], c->a[2], c->a[3]);
}

long sys_statx(struct call *c) {
    if (of_nothing(c, c->a[2])) return -EBADF;
    return raw6(SYS_statx, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], 0);
}

static long settle_pair(struct call *c, long r, int *pair, long out) {
    if (r < 0) return r;
    long one = settle(c, pair[0]);
    if (one < 0) {
        RAW1(SYS_close, pair[1]);
        return one;
    }
    long two = settle(c, pair[1]);
    if (two < 0) {
        release_fd(c, (int)one);
        return two;
    }
    int numbers[2] = {(int)one, (int)two};
    if (copy_out((uint64_t)out, numbers, sizeof numbers)) return 0;
    release_fd(c, (int)one);
    release_fd(c, (int)two);
    return -EFAULT;
}

long sys_pipe(struct call *c) {
    int pair[2];
    long r = RAW2(SYS_pipe2, pair, c->nr == SYS_pipe2 ? c->a[1] : 0);
    return settle_pair(c, r, pair, c->a[0]);
}

long sys_socketpair(struct call *c) {
    int pair[2];
    long r = RAW4(SYS_socketpair, c->a[0], c->a[1], c->a[2], pair);
    return settle_pair(c, r, pair, c->a[3]);
}

// ---- names -------------------------------------------------------------------------------------

static long read_exe(long buffer, long bytes) {
    if (bytes <= 0) return -EINVAL;
    long n = (long)strlen(host.exe);
    if (n > bytes) n = bytes;
    memcpy((void *)buffer, host.exe, (size_t)n);
    return n;
}

static bool names_exe(const char *name) {
    char own[40];
    snprintf(own, sizeof own, "/proc/%d/exe", host.pid);
    return !strcmp(name, "/proc/self/exe") || !strcmp(name, own);
}

static long read_link(long dir, long path, long buffer, long bytes) {
    char name[4096];
    if (!copy_string(name, sizeof name, (uint64_t)path))
        return RAW4(SYS_readlinkat, dir, path, buffer, bytes);
    if (real_path(name, sizeof name)) path = (long)name;
    return names_exe(name) ? read_exe(buffer, bytes) : RAW4(SYS_readlinkat, dir, path, buffer, bytes);
}

long sys_readlink(struct call *c) { return read_link(AT_FDCWD, c->a[0], c->a[1], c->a[2]); }
long sys_readlinkat(struct call *c) { return read_link(c->a[0], c->a[1], c->a[2], c->a[3]); }

static struct { char *name, *path; } fronts[64];
static int nfronts;

void fronts_scan(void) {
    char dir[4200], path[4500];
    snprintf(dir, sizeof dir, "%s/ckpt/front", host.libdir);
    DIR *d = opendir(dir);
    if (!d) return;
    const char *manager = getenv("CKPT_RDMACM"); // who is to connect peers that are outside of the job
    bool kernel = manager && !strcmp(manager, "kernel");
    for (struct dirent *e; (e = readdir(d)) && nfronts < 64;) {
        if (!strstr(e->d_name, ".so")) continue;
        if (host.whole && strncmp(e->d_name, "libckpt", 7)) continue; // its MPI is the program's own
        if (kernel && !strncmp(e->d_name, "librdmacm.", 10)) continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        fronts[nfronts].name = strdup(e->d_name);
        fronts[nfronts++].path = strdup(path);
    }
    closedir(d);
}

const char *front_for(const char *path) {
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (strncmp(base, "lib", 3)) return NULL;
    for (int i = 0; i < nfronts; i++)
        if (!strcmp(base, fronts[i].name)) return fronts[i].path;
    return NULL;
}
