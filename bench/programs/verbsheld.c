// SPDX-License-Identifier: Apache-2.0
//
// verbsheld: what a program that holds objects of InfiniBand pays when it is saved and when it is continued.
//
//     verbsheld memory DIR MIB plain|registered   saved into DIR a few times: how long MPIX_Checkpoint takes
//     verbsheld pairs N                           saved once; continued, it says the moment of its first instruction
//     verbsheld clock COMMAND...                  says the moment, and becomes the command
#include <sys/mman.h>
#include <unistd.h>

#include "mpix_checkpoint.h"
#include "verbs.h"

enum { TIMES = 5 };

static void say_moment(const char *name) {
    printf("moment\t%s\t%lld\n", name, (long long)clock_ns());
    fflush(stdout);
}

// A call that comes while the former image is written waits for it: that wait is not the stop.
static void wait_until_committed(const char *dir, int epoch) {
    char name[4096];
    snprintf(name, sizeof name, "%s/epoch-%06d/manifest.json", dir, epoch);
    while (access(name, F_OK) != 0) usleep(10000);
    usleep(50000); // the job takes note of it
}

static int order(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void memory(const char *dir, size_t mib, int registered) {
    size_t bytes = mib << 20;
    open_device(64);
    if (mib > 0) {
        char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        DEMAND(p != MAP_FAILED && madvise(p, bytes, MADV_NOHUGEPAGE) == 0);
        for (size_t i = 0; i < bytes; i += 4096) memset(p + i, (int)(1 + i / 4096 % 251), 4096);
        DEMAND(!registered || ibv_reg_mr(pd, p, bytes, REACH) != NULL);
    }
    int64_t took[TIMES];
    for (int i = 0; i < TIMES; i++) {
        MPIX_CR_state_t state;
        int64_t before = clock_ns();
        DEMAND(MPIX_Checkpoint(&state) == 0 && state == MPIX_CR_STATE_CHECKPOINT);
        took[i] = clock_ns() - before;
        wait_until_committed(dir, i + 1);
    }
    qsort(took, TIMES, sizeof *took, order);
    printf("ns\tMPIX_Checkpoint\t%lld\t%lld\t%lld\n", (long long)took[TIMES / 2], (long long)took[0],
           (long long)took[TIMES - 1]);
}

// One is connected with itself, others two by two.
static void pairs(int n) {
    open_device(64);
    struct ibv_qp *former = NULL;
    for (int i = 0; i < n; i++) {
        struct ibv_qp *qp = make(4);
        ready(qp);
        if (n == 1) connect_to(qp, qp->qp_num);
        if (i % 2) connect_to(qp, former->qp_num), connect_to(former, qp->qp_num);
        former = qp;
    }
    MPIX_CR_state_t state;
    DEMAND(MPIX_Checkpoint(&state) == 0);
    if (state == MPIX_CR_STATE_RESTART) {
        say_moment("first instruction");
        _exit(0);
    }
    printf("took\tsaved\t1\n");
}

int main(int argc, char **argv) {
    DEMAND(argc > 2);
    if (strcmp(argv[1], "clock") == 0) {
        say_moment("start");
        execvp(argv[2], argv + 2);
        DEMAND(!"execvp");
    }
    if (strcmp(argv[1], "pairs") == 0) {
        pairs(atoi(argv[2]));
    } else {
        DEMAND(argc == 5 && strcmp(argv[1], "memory") == 0);
        memory(argv[2], (size_t)atol(argv[3]), strcmp(argv[4], "registered") == 0);
    }
    return 0;
}
