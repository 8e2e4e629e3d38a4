// SPDX-License-Identifier: Apache-2.0
//
// What a program has asked the kernel for itself, and the kernel forgets with the process: advice on memory, locked memory, how and
// where threads run, registrations of membarrier, where its robust mutexes are, limits, and settings of the process. Each round looks at all of it, by the ids that
// the program knows.
// usage: settings ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BYTES = 1 << 16, NICE = 7, SIGNALS = 777, KILL_ME = 123 };

static void must(int right, const char *what) {
    if (right) return;
    fprintf(stderr, "settings: %s: %s\n", what, strerror(errno));
    exit(1);
}

// The flags of the mapping that has this address, as /proc/self/smaps writes them: its numbers change, and with them where a line
// stands, so that a text whose first half was read before a restart has a seam.
static int said(const void *at, const char *flag) {
    char line[4400];
    unsigned long start, end;
    int in = 0, found = 0;
    FILE *f = fopen("/proc/self/smaps", "re");
    must(f != NULL, "/proc/self/smaps");
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2 && line[0] != 'V')
            in = (unsigned long)at >= start && (unsigned long)at < end;
        else if (in && !strncmp(line, "VmFlags:", 8) && strstr(line, flag))
            found = 1;
    }
    fclose(f);
    return found;
}

static int has(const void *at, const char *flag) { return said(at, flag) || said(at, flag); }

static pthread_barrier_t barrier;
static pid_t worker;
static cpu_set_t one;
static void *worker_list;

static void *robust_list(pid_t thread) {
    void *head = NULL;
    size_t bytes = 0;
    must(syscall(SYS_get_robust_list, thread, &head, &bytes) == 0 && bytes == 24, "get_robust_list");
    return head;
}

static int kill_me(void) {
    int v = -1;
    FILE *f = fopen("/proc/self/oom_score_adj", "re");
    must(f != NULL && fscanf(f, "%d", &v) == 1, "/proc/self/oom_score_adj");
    fclose(f);
    return v;
}

static struct rlimit signals;

static const struct rlimit few = {100, 200}; // descriptors

static void set_process(void) {
    must(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit of descriptors");
    must(getrlimit(RLIMIT_SIGPENDING, &signals) == 0 && signals.rlim_max > SIGNALS, "getrlimit");
    signals.rlim_cur = SIGNALS;
    must(setrlimit(RLIMIT_SIGPENDING, &signals) == 0, "setrlimit");
    must(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, "PR_SET_CHILD_SUBREAPER");
    FILE *f = fopen("/proc/self/oom_score_adj", "we");
    must(f != NULL && fprintf(f, "%d", KILL_ME) > 0 && fclose(f) == 0, "writing oom_score_adj");
}

static void look_process(void) {
    struct rlimit now;
    int subreaper = 0;
    must(getrlimit(RLIMIT_SIGPENDING, &now) == 0 && now.rlim_cur == SIGNALS &&
             now.rlim_max == signals.rlim_max,
         "the limit of signals");
    must(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == few.rlim_cur && now.rlim_max == few.rlim_max,
         "the limit of descriptors");
    must(prctl(PR_GET_CHILD_SUBREAPER, &subreaper, 0, 0, 0) == 0 && subreaper == 1, "PR_GET_CHILD_SUBREAPER");
    must(kill_me() == KILL_ME, "oom_score_adj");
}

#ifndef MADV_GUARD_INSTALL // Linux 6.13
#define MADV_GUARD_INSTALL 102
#endif

static char *guard; // nobody may read here

static void set_guard(void) {
    char *at = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(at != MAP_FAILED, "mmap of the guard");
    memset(at, 1, 2 * BYTES);
    // What a library does that finds no such guards.
    if (madvise(at, BYTES, MADV_GUARD_INSTALL) != 0)
        must(errno == EINVAL && mprotect(at, BYTES, PROT_NONE) == 0, "a guard");
    guard = at;
}

static void look_guard(void) {
    char byte;
    struct iovec here = {&byte, 1}, there = {guard + BYTES - 1, 1};
    must(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == -1 && errno == EFAULT, "the guard");
    there.iov_base = guard + BYTES;
    must(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 && byte == 1, "behind the guard");
}

// It is nicer than the others, and runs on one processor.
static void *work(void *rounds) {
    worker = gettid();
    must(setpriority(PRIO_PROCESS, (id_t)worker, NICE) == 0, "setpriority");
    must(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
    worker_list = robust_list(worker);
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < *(long *)rounds; i++) {
        pthread_barrier_wait(&barrier);
        must(gettid() == worker, "gettid");
        must(robust_list(0) == worker_list, "its robust list");
        must(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) == 0, "membarrier");
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

// What is in /proc by its own ids: the numbers are others after a restart.
static void look_up(void) {
    char path[100], text[100], link[2][400] = {"", ""};
    const char *const places[] = {"/proc/%d/status", "/proc/%d/task/%d/comm", "/proc/self/task/%2$d/stat",
                                  "/proc/%2$d/statm"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, places[i], getpid(), worker);
        FILE *f = fopen(path, "re");
        must(f != NULL && fgets(text, sizeof text, f) != NULL, path);
        fclose(f);
    }
    snprintf(path, sizeof path, "/proc/%d/cwd", getpid());
    must(readlink(path, link[0], sizeof link[0] - 1) > 0 &&
             readlink("/proc/self/cwd", link[1], sizeof link[1] - 1) > 0 && !strcmp(link[0], link[1]),
         path);
    snprintf(path, sizeof path, "/proc/%d/exe", getpid());
    must(readlink(path, text, sizeof text) > 0, path);
}

static void look(char *const *mapping, const char *const *flags, int n, const cpu_set_t *all) {
    cpu_set_t now;
    errno = 0;
    look_process();
    look_guard();
    look_up();
    for (int i = 0; i < n; i++) must(has(mapping[i], flags[i]), flags[i]);
    must(getpriority(PRIO_PROCESS, (id_t)worker) == NICE, "the thread's niceness");
    must(getpriority(PRIO_PROCESS, (id_t)getpid()) == getpriority(PRIO_PROCESS, 0), "the process's niceness");
    must(sched_getaffinity(worker, sizeof now, &now) == 0 && CPU_EQUAL(&now, &one), "the thread's processor");
    must(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, all), "the process's processors");
    must(robust_list(worker) == worker_list, "the thread's robust list");
    char here[] = "same one", there[sizeof here];
    struct iovec from = {here, sizeof here}, to = {there, sizeof there};
    must(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof here && !memcmp(here, there, sizeof here),
         "process_vm_readv");
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10;
    static const struct {
        const char *flag;
        int advice;
    } what[] = {{" hg", MADV_HUGEPAGE},  {" nh", MADV_NOHUGEPAGE}, {" dd", MADV_DONTDUMP},
                {" mg", MADV_MERGEABLE}, {" sr", MADV_SEQUENTIAL}, {" rr", MADV_RANDOM},
                {" dc", MADV_DONTFORK},  {" wf", MADV_WIPEONFORK}, {" lo", 0}};
    enum { MOST = sizeof what / sizeof *what };
    char *mapping[MOST];
    const char *flags[MOST];
    int n = 0;
    for (int i = 0; i < MOST; i++) {
        char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(at != MAP_FAILED, "mmap");
        if (what[i].advice ? madvise(at, BYTES, what[i].advice) : mlock(at, BYTES))
            continue; // this kernel has it not
        mapping[n] = at, flags[n++] = what[i].flag;
        memset(at, i, BYTES);
    }
    must(n >= 4, "advice");
    cpu_set_t all;
    must(sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    must(syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) == 0, "register");
    set_process();
    set_guard();
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    must(pthread_create(&thread, NULL, work, &rounds) == 0, "pthread_create");
    pthread_barrier_wait(&barrier);
    for (long round = 0; round < rounds; round++) {
        pthread_barrier_wait(&barrier);
        look(mapping, flags, n, &all);
        pthread_barrier_wait(&barrier);
    }
    pthread_join(thread, NULL);
    printf("%ld rounds, %d sorts of memory\n", rounds, n);
    return 0;
}
