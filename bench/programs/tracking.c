// SPDX-License-Identifier: Apache-2.0
//
// tracking: what does it cost a process that its writes are followed, while nothing is saved?
//
//     tracking BATCHES MIB small|huge busy|calm [DIR]
//
// The process fills MIB of memory.  With DIR it is saved there three times, and waits until the last epoch is committed;
// busy memory is written to between two of them, calm memory is not.  It writes to its memory in some ways and prints what each
// takes, before all that and after it: how quickly it can differs from process to process, by where its pages are.
#include <sys/mman.h>
#include <unistd.h>

#include "measure.h"
#include "mpix_checkpoint.h"

enum { PAGE = 4096, WORDS = PAGE / 8, PIECE = 1 << 20, SAVES = 3 };
#define PATIENCE 30000000000 // ns

static void save(const char *dir, int epoch) {
    MPIX_CR_state_t state;
    char path[PAGE], reason[512] = "";
    if (MPIX_Checkpoint(&state) != 0 || state != MPIX_CR_STATE_CHECKPOINT) {
        MPIX_Checkpoint_reason(reason, sizeof reason);
        fprintf(stderr, "no checkpoint was made: %s\n", reason);
        exit(1);
    }
    snprintf(path, sizeof path, "%s/epoch-%06d/manifest.json", dir, epoch);
    while (access(path, F_OK)) usleep(10000);
    usleep(100000); // until all that comes after a commit is over, too
}

// The questions; before is what their names begin with.
static void ask(struct measure *m, const char *before, volatile uint64_t *words, size_t n) {
    char name[200];
    size_t i = 0;
    uint64_t at = 1;
    const size_t pages = n / WORDS;
    snprintf(name, sizeof name, "%sa word of each page", before);
    MEASURE(m, name, (int)pages, words[i]++, i = i + WORDS < n ? i + WORDS : 0);
    snprintf(name, sizeof name, "%seach word", before);
    MEASURE(m, name, (int)n, words[i]++, i = i + 1 < n ? i + 1 : 0);
    snprintf(name, sizeof name, "%swords here and there", before);
    MEASURE(m, name, (int)pages, at = at * 6364136223846793005u + 1442695040888963407u,
            words[(at >> 20) % n]++);
    snprintf(name, sizeof name, "%sa page that is mapped, written and given back", before);
    MEASURE(m, name, 256, {
        volatile char *q = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        DEMAND(q != MAP_FAILED);
        q[0] = 1;
        DEMAND(munmap((void *)q, PIECE) == 0);
    });
}

static long huge_kib(void) {
    char line[200];
    long kib = -1;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    DEMAND(f != NULL);
    while (kib < 0 && fgets(line, sizeof line, f)) sscanf(line, "AnonHugePages: %ld", &kib);
    DEMAND(fclose(f) == 0 && kib >= 0);
    return kib;
}

int main(int argc, char **argv) {
    struct measure m = measure_begin(argc, argv);
    DEMAND(argc == 5 || argc == 6);
    int busy = strcmp(argv[4], "busy") == 0;
    DEMAND(busy || strcmp(argv[4], "calm") == 0);
    size_t bytes = (size_t)atoi(argv[2]) << 20, pages = bytes / PAGE;
    const size_t huge = 2 << 20;
    char *p = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    DEMAND(bytes > 0 && p != MAP_FAILED);
    p += -(uintptr_t)p & (huge - 1);
    DEMAND(madvise(p, bytes, strcmp(argv[3], "huge") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0);
    volatile uint64_t *words = (uint64_t *)p;
    const size_t n = bytes / sizeof *words;
    for (size_t i = 0; i < n; i++) words[i] = i;
    ask(&m, "before: ", words, n);
    for (int epoch = 1; argc == 6 && epoch <= SAVES; epoch++) {
        for (size_t i = 0; busy && i < pages; i++) words[i * WORDS]++;
        save(argv[5], epoch);
    }

    long huge_before = huge_kib();
    uint64_t from = ticks();
    for (size_t i = 0; i < pages; i++) words[i * WORDS]++;
    uint64_t to = ticks();
    printf("took\ta page for the first time\t%.3f\n", measure_rate(&m) * (double)(to - from) / (double)pages);
    int64_t began = clock_ns();
    while (huge_kib() < huge_before && clock_ns() - began < PATIENCE) usleep(50000);
    printf("took\tuntil pages are huge again\t%.6f\n", (double)(clock_ns() - began) * 1e-9);

    ask(&m, "", words, n);
    return 0;
}
