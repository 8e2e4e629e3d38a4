// SPDX-License-Identifier: Apache-2.0
//
// hidden.c: hidden GO
//
// Memory that is hidden from forks, as libraries do with what an adapter writes to: of one part a child has nothing, another
// it finds empty. Waits for the file GO, and looks whether both are here, and hidden from a child.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };

static unsigned char *part(int advice, int fill) {
    unsigned char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || madvise(p, BYTES, advice)) {
        perror("hidden");
        exit(1);
    }
    memset(p, fill, BYTES);
    return p;
}

static int is(const unsigned char *p, int fill) {
    for (int i = 0; i < BYTES; i++)
        if (p[i] != fill) return 0;
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: hidden GO\n"), 2;
    unsigned char *gone = part(MADV_DONTFORK, 7), *wiped = part(MADV_WIPEONFORK, 9), in[BYTES >> 12];
    printf("ready\n");
    fflush(stdout);
    while (access(argv[1], F_OK)) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    printf("here: %d %d\n", is(gone, 7), is(wiped, 9));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(!(mincore(gone, BYTES, in) && errno == ENOMEM) + 2 * !is(wiped, 0));
    int status = 0;
    if (waitpid(child, &status, 0) != child) return 1;
    printf("in a child: %d\n", status);
    return 0;
}
