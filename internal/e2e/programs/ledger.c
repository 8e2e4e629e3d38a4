// SPDX-License-Identifier: Apache-2.0
//
// A program whose result is in its files: a log that grows, a table that is written over in place, a mapped
// file, and a scratch file that is deleted, renamed and made again. None is ever synced. What it reads comes
// into the result. With "log" it only keeps the log, so no file is written over.
// usage: ledger STEPS FOLDER [log]
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORDS = 32, MAPPED = 1 << 14 };

static int check(int r, const char *what) {
    if (r < 0) {
        perror(what);
        exit(1);
    }
    return r;
}

static int make(const char *path) { return check(open(path, O_RDWR | O_CREAT | O_TRUNC, 0644), path); }

static uint64_t mix(uint64_t a, uint64_t b) { return (a ^ b) * 1099511628211u + 1; }

static uint64_t update(int fd, int word, uint64_t add) {
    uint64_t x = 0;
    check((int)pread(fd, &x, 8, 8 * word), "pread");
    x = mix(x, add);
    check(pwrite(fd, &x, 8, 8 * word) == 8 ? 0 : -1, "pwrite");
    return x;
}

static uint64_t digest(int fd) {
    unsigned char b[4096];
    uint64_t d = 1;
    off_t at = 0;
    for (ssize_t n; (n = pread(fd, b, sizeof b, at)) > 0; at += n)
        for (ssize_t i = 0; i < n; i++) d = mix(d, b[i]);
    return mix(d, (uint64_t)at);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    int only = argc > 3;
    uint64_t sum = 1;
    check(chdir(argc > 2 ? argv[2] : "."), "chdir");
    check(mkdir("out", 0755), "out");
    check(mkdir("out/deep", 0755), "out/deep");
    int log = check(open("out/deep/log", O_WRONLY | O_CREAT | O_APPEND, 0644), "log");
    int table = make("out/table"), map = make("mapped"), scratch = make("scratch");
    check(ftruncate(map, MAPPED), "ftruncate");
    volatile uint64_t *page = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
    check(page == MAP_FAILED ? -1 : 0, "mmap");
    for (int s = 0; s < steps; s++) {
        char line[64];
        int n = snprintf(line, sizeof line, "%06d %016lx\n", s, (unsigned long)sum);
        check(write(log, line, (size_t)n) == n ? 0 : -1, "write");
        usleep(300);
        sum = mix(sum, (uint64_t)s);
        if (only) continue;
        sum = mix(sum, update(table, s % WORDS, (uint64_t)s));
        sum = mix(sum, update(scratch, s * 7 % WORDS, sum));
        page[s * 97 % (MAPPED / 8)] += sum;
        sum = mix(sum, page[s * 31 % (MAPPED / 8)]);
        if (s % 40 == 39) {
            check(s % 80 == 39 ? unlink("scratch") : rename("scratch", "scratch.old"), "scratch");
            close(scratch);
            scratch = make("scratch");
        }
    }
    struct stat st;
    check(fstat(log, &st), "fstat");
    int again = check(open("out/deep/log", O_RDONLY), "log");
    printf("sum %016lx log %ld bytes %016lx table %016lx mapped %016lx scratch %016lx\n", (unsigned long)sum,
           (long)st.st_size, (unsigned long)digest(again), (unsigned long)digest(table),
           (unsigned long)digest(map), (unsigned long)digest(scratch));
    return 0;
}
