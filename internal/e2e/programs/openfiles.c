// SPDX-License-Identifier: Apache-2.0
//
// Open files of every kind a program may have to itself: appended, overwritten, read, without a name,
// duplicated with a shared offset, a directory half read, a pipe with data, eventfd, timerfd, epoll,
// signalfd, memfd, a lock, high descriptor numbers. All stay open all the time.
// usage: openfiles ROUNDS DIRECTORY
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int check(int r, const char *what) {
    if (r < 0) fail(what);
    return r;
}

static uint64_t digest_of(int fd) {
    unsigned char b[4096];
    uint64_t d = 14695981039346656037u;
    off_t at = 0;
    for (ssize_t n; (n = pread(fd, b, sizeof b, at)) > 0; at += n)
        for (ssize_t i = 0; i < n; i++) d = (d ^ b[i]) * 1099511628211u;
    return d ^ (uint64_t)at;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    if (chdir(argc > 2 ? argv[2] : ".") != 0) fail("chdir");
    int append = check(open("append", O_WRONLY | O_CREAT | O_APPEND, 0644), "append");
    int update = check(open("update", O_RDWR | O_CREAT, 0600), "update");
    FILE *text = fopen("text", "w+");
    FILE *unnamed = tmpfile();
    int copy = check(dup(fileno(unnamed)), "dup");
    int high = check(fcntl(append, F_DUPFD_CLOEXEC, 200), "F_DUPFD");
    int input = check(open("/proc/self/exe", O_RDONLY), "exe");
    int null = check(open("/dev/null", O_RDWR), "null"),
        random = check(open("/dev/urandom", O_RDONLY), "urandom");
    check(mkdir("many", 0755), "mkdir");
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "many/%d", i);
        close(check(open(name, O_CREAT | O_WRONLY, 0644), name));
    }
    DIR *many = opendir("many");
    int p[2], event = check(eventfd(3, EFD_NONBLOCK), "eventfd");
    check(pipe2(p, O_NONBLOCK), "pipe");
    int timer = check(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd");
    struct itimerspec every = {{0, 1000000}, {0, 1000000}};
    check(timerfd_settime(timer, 0, &every, NULL), "timerfd_settime");
    int set = check(epoll_create1(0), "epoll");
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = 0x123456789abcdefull};
    check(epoll_ctl(set, EPOLL_CTL_ADD, p[0], &e), "epoll_ctl");
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    int signals = check(signalfd(-1, &usr1, 0), "signalfd");
    int memory = check(memfd_create("memory", 0), "memfd");
    check(flock(update, LOCK_EX), "flock");

    int entries = 0, watched = 0;
    uint64_t ticks = 0, counted = 0, caught = 0;
    for (int i = 0; i < rounds; i++) {
        char line[64];
        int n = snprintf(line, sizeof line, "line %d\n", i);
        if (write(i % 2 ? append : high, line, (size_t)n) != n) fail("write");
        if (pwrite(update, line, (size_t)n, i * 37 % 5000) != n) fail("pwrite");
        fprintf(text, "buffered %d, ", i);
        if (write(i % 3 ? copy : fileno(unnamed), line, (size_t)n) != n) fail("write to a copy");
        if (write(memory, line, (size_t)n) != n || write(null, line, (size_t)n) != n) fail("memfd");
        char bytes[8];
        if (read(random, bytes, 8) != 8 || read(input, bytes, 1) != 1) fail("read");
        if (many != NULL && i % 4 == 0) {
            if (readdir(many) != NULL)
                entries++;
            else {
                closedir(many);
                many = NULL;
            }
        }
        // The pipe always keeps some bytes.
        if (write(p[1], line, 8) != 8) fail("pipe");
        struct epoll_event got;
        if (epoll_wait(set, &got, 1, 0) == 1 && got.data.u64 == e.data.u64) watched++;
        if (i >= 10 && read(p[0], bytes, 8) != 8) fail("pipe");
        uint64_t one = 1, v;
        if (write(event, &one, 8) != 8) fail("eventfd");
        if (i % 5 == 0 && read(event, &v, 8) == 8) counted += v;
        raise(SIGUSR1);
        struct signalfd_siginfo info;
        if (read(signals, &info, sizeof info) == sizeof info) caught += info.ssi_signo == SIGUSR1;
        if (read(timer, &v, 8) == 8) // waits up to 1 ms
            ticks += v > 0;
    }
    fflush(text);
    struct stat st;
    fstat(append, &st);
    printf("append %ld bytes, at its end %ld, unnamed at %ld\n", (long)st.st_size,
           (long)lseek(append, 0, SEEK_CUR), (long)lseek(fileno(unnamed), 0, SEEK_CUR));
    printf("update %016lx text %016lx unnamed %016lx memory %016lx\n", (unsigned long)digest_of(update),
           (unsigned long)digest_of(fileno(text)), (unsigned long)digest_of(copy),
           (unsigned long)digest_of(memory));
    uint64_t v = 0;
    if (read(event, &v, 8) == 8) counted += v;
    printf("entries %d watched %d ticks %lu counted %lu caught %lu\n", entries, watched, (unsigned long)ticks,
           (unsigned long)counted, (unsigned long)caught);
    int other = open("update", O_RDWR);
    printf("still locked: %s\n", flock(other, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK ? "yes" : "no");
    printf("close on exec: %d, %d\n", fcntl(high, F_GETFD), fcntl(append, F_GETFD));
    int next = open("/dev/null", O_RDONLY);
    printf("numbers: %d %d %d, next %d\n", append, high, set, next);
    return 0;
}
