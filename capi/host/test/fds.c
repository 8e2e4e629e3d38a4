// SPDX-License-Identifier: Apache-2.0
//
// Descriptor numbers: random calls of fds.c, against a table of which numbers a process without ckptrun would
// have.  Each new descriptor gets the lowest free number, each number names the file that it names there, and
// a number that is free is a closed one, though a placeholder is behind it.
#include "../fds.c"

#include "test.h"

struct host host;

_Noreturn void die(int status, const char *format, ...) {
    printf("die: %s\n", format);
    exit(status ? status : 1);
}
long blocking(struct call *c, long nr, const long a[6]) {
    (void)c;
    return raw6(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}
long sys_by_tid(struct call *c) { return RAW4(c->nr, c->a[0], c->a[1], c->a[2], c->a[3]); }
bool copy_in(void *to, uint64_t from, size_t bytes) { return memcpy(to, (const void *)from, bytes); }
bool copy_out(uint64_t to, const void *from, size_t bytes) { return memcpy((void *)to, from, bytes); }
bool copy_string(char *to, size_t bytes, uint64_t from) {
    return snprintf(to, bytes, "%s", (const char *)from) < (int)bytes;
}
// The ids are the program's own, as before a restart.
bool real_path(char *path, size_t bytes) {
    (void)path, (void)bytes;
    return false;
}
void closed_note(int fd) { (void)fd; }
bool made_begins(long dir, long path, uint64_t ino) {
    (void)dir, (void)path, (void)ino;
    return false;
}
void made_note(int fd) { (void)fd; }
void appended_opens(int fd, long flags) { (void)fd, (void)flags; }
void appended_closes(int fd) { (void)fd; }
void spoilt_content(struct call *c, long dir, long path, long flags) {
    (void)c, (void)dir, (void)path, (void)flags;
}
void spoilt_openat2(struct call *c) { (void)c; }
int made_file(void) { return -1; }
int spoilt_folder(void) { return -1; }
void locks_forked(void) {}
void locks_taken(void) {}
void locks_close(int high) { RAW1(SYS_close, high); }
void locks_closed(void) {}
void visitors_closed(void) {}
long visitors_accept(struct call *c) { return blocking(c, c->nr, c->a); }
pid_t to_real(pid_t virtual) { return virtual; }
pid_t to_virtual(pid_t real) { return real; }

static struct thread me;

static long call(long (*fn)(struct call *), long nr, long a, long b, long c, long d) {
    struct call call = {.t = &me, .nr = nr, .a = {a, b, c, d}};
    return fn(&call);
}

// The model: what each number names; 0: it is free.
static ino_t model[FD_MOST];

static int lowest(int from) {
    while (from < fd_fence && model[from]) from++;
    return from;
}

static ino_t inode(int fd) {
    struct stat st;
    if (call(sys_fstat, SYS_fstat, fd, (long)&st, 0, 0)) return 0;
    return st.st_ino;
}

static void compare(void) {
    for (int fd = 0; fd < fd_fence; fd++) SAME(inode(fd), model[fd]);
    int list[FD_MOST], n = fds_used(list, fd_fence);
    for (int i = 0, fd = 0; i < n; i++, fd++) {
        while (!model[fd]) fd++;
        SAME(list[i], fd);
    }
}

static void made(long fd, int want) {
    if (want == fd_fence) {
        SAME(fd, -EMFILE);
        return;
    }
    SAME(fd, want);
    model[fd] = inode((int)fd);
    CHECK(model[fd]);
}

static void step(void) {
    int fd = (int)below(below(4) ? 40 : fd_fence), to = (int)below(40), pair[2];
    bool is = model[fd] != 0;
    long r;
    switch (below(10)) {
    case 0:
    case 1:
        made(call(sys_openat, SYS_openat, AT_FDCWD, (long)"/dev", O_RDONLY | O_CLOEXEC, 0), lowest(0));
        break;
    case 2:
        made(call(sys_newfd, SYS_eventfd2, 0, 0, 0, 0), lowest(0));
        break;
    case 3:
        r = call(sys_pipe, SYS_pipe2, (long)pair, 0, 0, 0);
        if (lowest(0) == fd_fence || lowest(lowest(0) + 1) == fd_fence) {
            SAME(r, -EMFILE);
            break;
        }
        SAME(r, 0);
        made(pair[0], lowest(0));
        made(pair[1], lowest(0));
        SAME(write(pair[1], "x", 1), 1); // they are the two ends
        SAME(read(pair[0], &(char){0}, 1), 1);
        break;
    case 4:
        r = call(sys_dup, SYS_dup, fd, 0, 0, 0);
        if (is)
            made(r, lowest(0));
        else
            SAME(r, -EBADF);
        break;
    case 5:
        r = call(sys_dup2, SYS_dup2, fd, to, 0, 0);
        SAME(r, is ? to : -EBADF);
        if (is) model[to] = model[fd];
        break;
    case 6:
        r = call(sys_fcntl, SYS_fcntl, fd, F_DUPFD_CLOEXEC, to, 0);
        if (is) {
            made(r, lowest(to));
            if (r >= 0) SAME(call(sys_fcntl, SYS_fcntl, r, F_GETFD, 0, 0), FD_CLOEXEC);
        } else
            SAME(r, -EBADF);
        break;
    case 7:
        to = fd + (int)below(3);
        r = call(sys_close_range, SYS_close_range, fd, to, 0, 0);
        SAME(r, 0);
        for (int i = fd; i <= to && i < fd_fence; i++) model[i] = 0;
        SAME(call(sys_close_range, SYS_close_range, to + 1, to, 0, 0), -EINVAL);
        break;
    default:
        SAME(call(sys_close, SYS_close, fd, 0, 0, 0), is ? 0 : -EBADF);
        model[fd] = 0;
        break;
    }
}

// An image's descriptors at their places; nothing of the lower half's lies there meanwhile.
static void place(void) {
    int high = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, fd_fence);
    CHECK(high >= fd_fence);
    SAME(fds_place(200, high, true), 0);
    model[200] = inode(high) ? inode(high) : inode(200);
    CHECK(fcntl(200, F_GETFD) == FD_CLOEXEC);
    SAME(fds_place(200, 200, false), 0);
    compare();
    SAME(fds_place(200, -1, false), 0);
    model[200] = 0;
    SAME(fds_place(fd_fence, high, false), -EBADF);
    SAME(fds_place(-1, high, false), -EBADF);
    compare();
    close(high);
}

int main(void) {
    enum { STEPS = 20000 };
    // What the program was started with, and nothing else.
    RAW3(SYS_close_range, 3, ~0u, 0);
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);
    host.pid = getpid();
    host.libdir = "/nowhere";
    char *const none[] = {NULL};
    fds_isolate(false, none);
    for (int fd = 0; fd < 3; fd++) model[fd] = inode(fd);
    compare();
    CHECK(open("/dev/null", O_RDONLY | O_CLOEXEC) >= fd_fence); // of the lower half
    place();
    // Standard output stays; all other numbers come and go.
    for (int i = 0; i < STEPS; i++) {
        ino_t out = model[1];
        step();
        if (model[1] != out) { // the test writes to it at the end
            CHECK(fds_place(1, fds_original(1), false) == 0);
            model[1] = inode(1);
        }
        if (i % 50 == 0) compare();
    }
    compare();
    // Up to the last number, and one more.
    while (lowest(0) < fd_fence) made(call(sys_newfd, SYS_eventfd2, 0, 0, 0, 0), lowest(0));
    made(call(sys_newfd, SYS_eventfd2, 0, 0, 0, 0), fd_fence);
    compare();
    printf("fds: %d random calls\n", STEPS);
    return 0;
}
