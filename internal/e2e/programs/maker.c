// SPDX-License-Identifier: Apache-2.0
//
// Makes files, folders, links, pipes and memory that must not be there yet: who is killed and continued makes those again that were
// made after the checkpoint.
// usage: maker ROUNDS DIR
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static long wrong;

static void check(int good, const char *what, long round) {
    if (good || wrong++ > 10) return;
    printf("round %ld: %s: %s\n", round, what, strerror(errno));
}

static const char *name(char to[4200], const char *dir, const char *what, long n) {
    snprintf(to, 4200, "%s/made-%s-%ld", dir, what, n);
    return to;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    const char *dir = argc > 2 ? argv[2] : ".";
    char a[4200], b[4200], shm[64];
    snprintf(shm, sizeof shm, "/libckpt-maker-%d", getpid());
    for (long n = 0; n < rounds; n++) {
        int fd = open(name(a, dir, "file", n), O_CREAT | O_EXCL | O_RDWR, 0600);
        check(fd >= 0 && write(fd, &n, sizeof n) == sizeof n && close(fd) == 0, "a file", n);
        check(link(a, name(b, dir, "link", n)) == 0, "a link", n);
        check(symlink(a, name(b, dir, "symlink", n)) == 0, "a symbolic link", n);
        check(mkdir(name(b, dir, "folder", n), 0700) == 0, "a folder", n);
        check(mkfifo(name(b, dir, "pipe", n), 0600) == 0, "a pipe", n);
        snprintf(b, sizeof b, "%s/made-folder-%ld/in", dir, n);
        check((fd = open(b, O_CREAT | O_EXCL | O_WRONLY, 0600)) >= 0 && close(fd) == 0,
              "a file in the folder", n);
        check((fd = shm_open(shm, O_CREAT | O_EXCL | O_RDWR, 0600)) >= 0 && close(fd) == 0, "memory", n);
        // A journal: what is there is taken for what was not brought to its end.
        check(access(name(b, dir, "journal", 0), F_OK) == -1 && errno == ENOENT, "there is a journal", n);
        check((fd = open(b, O_CREAT | O_RDWR, 0600)) >= 0 && close(fd) == 0, "a journal", n);
        nanosleep(&(struct timespec){0, 3000000}, NULL);
        unlink(b),
            shm_unlink(shm); // a file that is closed at a checkpoint and taken away later does not come back
        if (n % 50 == 49) printf("%ld\n", n);
    }
    printf(wrong ? "maker: %ld wrong\n" : "maker: good\n", wrong);
    return wrong != 0;
}
