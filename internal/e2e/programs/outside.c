// SPDX-License-Identifier: Apache-2.0
//
// outside.c: memory by address where nothing is saved, until there is the file argv[1]; runs until there is argv[2].
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    enum { BYTES = 1 << 20 };
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    char *p = mmap((void *)0x200000000000, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (argc < 3 || p == MAP_FAILED) return 1;
    memset(p, 7, BYTES);
    puts("mapped");
    fflush(stdout);
    while (access(argv[1], F_OK)) usleep(1000);
    int value = p[BYTES / 2];
    if (munmap(p, BYTES)) return 1;
    puts("unmapped");
    fflush(stdout);
    while (access(argv[2], F_OK)) usleep(1000);
    printf("%d\n", value);
    return 0;
}
