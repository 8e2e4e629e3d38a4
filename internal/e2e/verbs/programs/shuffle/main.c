// SPDX-License-Identifier: Apache-2.0
//
// main.c: shuffle DIR SEED STEPS [PACE [LAZY]]
//
// The ranks are CKPT_RANK and CKPT_SIZE, and meet by files in DIR. PACE is what each waits in a round, in us;
// with LAZY only one of so many receives is posted again at once.
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shuffle.h"

void wrong(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("shuffle: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(1);
}

static int number(const char *name) {
    const char *v = getenv(name);
    if (v == NULL) wrong("%s is not set", name);
    return atoi(v);
}

static void path_of(char *path, size_t size, const char *dir, const char *what, int rank) {
    if (snprintf(path, size, "%s/%s-%d", dir, what, rank) >= (int)size) wrong("%s is too long", dir);
}

static void publish(const char *dir, const char *what, int rank, const void *bytes, size_t n) {
    char path[4096], fresh[4110];
    path_of(path, sizeof path, dir, what, rank);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *f = fopen(fresh, "w");
    if (f == NULL || fwrite(bytes, n, 1, f) != 1 || fclose(f) != 0 || rename(fresh, path) != 0)
        wrong("%s cannot be written", path);
}

static void await(const char *dir, const char *what, int rank, void *bytes, size_t n) {
    char path[4096];
    FILE *f;
    path_of(path, sizeof path, dir, what, rank);
    while ((f = fopen(path, "r")) == NULL) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    if (fread(bytes, n, 1, f) != 1) wrong("%s is too short", path);
    fclose(f);
}

int main(int argc, char **argv) {
    static struct fabric f;
    if (argc < 4) wrong("usage: shuffle DIR SEED STEPS [PACE [LAZY]]");
    const char *dir = argv[1];
    uint64_t seed = strtoull(argv[2], NULL, 0);
    f.rank = number("CKPT_RANK"), f.ranks = number("CKPT_SIZE");
    if (f.ranks < 1 || f.ranks > RANKS) wrong("at most %d ranks", RANKS);
    // Each kind of rank is there when there are four.
    f.events = (seed + (uint64_t)f.rank) % 2, f.shared = (seed / 2 + (uint64_t)f.rank) / 2 % 2;
    fabric_open(&f);
    for (int p = 0; p < f.ranks; p++) fill(f.memory->of[p].read, LONGEST, plan_of(0, f.rank, p, 0).key, 0);
    publish(dir, "card", f.rank, &f.mine, sizeof f.mine);
    for (int p = 0; p < f.ranks; p++) await(dir, "card", p, &f.card[p], sizeof f.card[p]);
    fabric_connect(&f);
    char ready = 1;
    publish(dir, "ready", f.rank, &ready, 1);
    for (int p = 0; p < f.ranks; p++) await(dir, "ready", p, &ready, 1);
    printf("rank %d begins\n", f.rank);
    fflush(stdout);
    work(&f, seed, (uint32_t)atoi(argv[3]), argc > 4 ? (unsigned)atoi(argv[4]) : 0,
         argc > 5 ? (unsigned)atoi(argv[5]) : 0);
    // Where answers are late the last ones must have time to go out.
    const char *linger = getenv("SHUFFLE_LINGER_MS");
    if (linger != NULL) usleep((unsigned)atoi(linger) * 1000);
    fabric_close(&f);
    return 0;
}
