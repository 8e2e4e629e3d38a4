// SPDX-License-Identifier: Apache-2.0
//
// A large table that is mapped to be read, as those of models and sequences are, and then closed: it is the file's memory, in each life.
// usage: table ROUNDS DIR
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 80 << 8, OTHERS = 100 };

static uint64_t value(uint64_t n) { return (n + 1) * 0x9e3779b97f4a7c15u; }

// line is what the kernel says of the mapping.
static int line(const void *p, const char *flags, const char *path) {
    char text[512], start[32];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    snprintf(start, sizeof start, "%lx-", (unsigned long)p);
    while (f && fgets(text, sizeof text, f))
        if (!strncmp(text, start, strlen(start))) found = strstr(text, flags) && strstr(text, path);
    if (f) fclose(f);
    return found;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100, wrong = 0;
    char path[4096];
    uint64_t page[PAGE / 8] = {0}, sum = 0;
    snprintf(path, sizeof path, "%s/table.dat", argc > 2 ? argv[2] : ".");
    FILE *f = fopen(path, "w");
    for (uint64_t n = 0; f && n < PAGES; n++) {
        page[n % 512] = value(n);
        fwrite(page, PAGE, 1, f);
    }
    if (!f || fclose(f)) return perror(path), 1;
    // It ends within the last page, and the mapping begins and ends elsewhere.
    if (truncate(path, (long)PAGES * PAGE - 100)) return perror(path), 1;
    int fd = open(path, O_RDONLY);
    const char *p = mmap(NULL, (size_t)(PAGES + OTHERS) * PAGE, PROT_READ, MAP_SHARED, fd, 3 * PAGE);
    const char *small = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || small == MAP_FAILED) return perror("mmap"), 1;
    close(fd);
    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < 20; i++) {
            uint64_t n = value((uint64_t)round * 20 + (uint64_t)i) % (PAGES - 4), word;
            memcpy(&word, p + n * PAGE + (n + 3) % 512 * 8, 8);
            wrong += word != value(n + 3);
            sum = sum * 31 + word;
        }
        wrong += *(const uint64_t *)small != value(0);
        if (round % 20 == 0) wrong += !line(p, " r--s 00003000 ", path);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        if (round % 50 == 49) printf("%ld %016llx\n", round, (unsigned long long)sum);
    }
    printf(wrong ? "table: %ld wrong\n" : "table: good\n", wrong);
    return wrong != 0;
}
