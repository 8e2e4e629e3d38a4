// SPDX-License-Identifier: Apache-2.0
//
// What a program knows of itself must not change: ids of process and threads, its executable, name,
// arguments, environment, working directory, limits, umask, and a library found by $ORIGIN, one
// linked and one loaded at run time.
// usage: identity ROUNDS
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t origin_step(uint64_t v); // from liborigin.so

struct self {
    pid_t pid, tid, parent_group;
    char exe[PATH_MAX], cwd[PATH_MAX], name[17];
    mode_t mask;
    rlim_t stack;
    const char *path;
    unsigned long random;
    void *ends_at; // where the kernel says that this thread has ended
};

static void look(struct self *s) {
    memset(s, 0, sizeof *s);
    s->pid = getpid();
    s->tid = (pid_t)syscall(SYS_gettid);
    ssize_t n = readlink("/proc/self/exe", s->exe, sizeof s->exe - 1);
    s->exe[n < 0 ? 0 : n] = 0;
    if (getcwd(s->cwd, sizeof s->cwd) == NULL) s->cwd[0] = 0;
    pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    if (s->pid == s->tid) { // asking means changing, for all threads
        s->mask = umask(027);
        umask(s->mask);
    }
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    s->stack = limit.rlim_cur;
    s->path = getenv("PATH");
    s->random = getauxval(AT_RANDOM);
    prctl(PR_GET_TID_ADDRESS, &s->ends_at, 0, 0, 0);
    if ((pid_t)syscall(SYS_set_tid_address, s->ends_at) != s->tid) printf("set_tid_address is wrong\n");
}

static void compare(const struct self *a, const struct self *b, const char *who) {
    if (a->pid != b->pid || a->tid != b->tid) printf("%s: ids changed\n", who);
    if (a->ends_at != b->ends_at) printf("%s: the address of its end changed\n", who);
    if (strcmp(a->exe, b->exe) != 0) printf("%s: executable was %s, is %s\n", who, a->exe, b->exe);
    if (strcmp(a->cwd, b->cwd) != 0) printf("%s: directory was %s, is %s\n", who, a->cwd, b->cwd);
    if (strcmp(a->name, b->name) != 0) printf("%s: name was %s, is %s\n", who, a->name, b->name);
    if (a->mask != b->mask || a->stack != b->stack || a->path != b->path || a->random != b->random)
        printf("%s: mask, limit or environment changed\n", who);
}

static int rounds;
static _Atomic int kills;

static void on_usr1(int sig) {
    (void)sig;
    kills++;
}

static void *thread(void *arg) {
    (void)arg;
    pthread_setname_np(pthread_self(), "second");
    struct self before, now;
    look(&before);
    for (int i = 0; i < rounds; i++) {
        look(&now);
        compare(&before, &now, "thread");
        syscall(SYS_tgkill, before.pid, before.tid, SIGUSR1); // by the ids it knows
        usleep(500);
    }
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 1000;
    char path[PATH_MAX];
    umask(022);
    signal(SIGUSR1, on_usr1);
    struct self before, now;
    look(&before);
    pthread_mutex_t mutex; // remembers the thread id of its owner
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&mutex, &attr);
    pthread_mutex_lock(&mutex);
    pthread_t t;
    pthread_create(&t, NULL, thread, NULL);

    void *loaded = NULL;
    uint64_t v = 1;
    for (int i = 0; i < rounds; i++) {
        look(&now);
        compare(&before, &now, "main");
        v = origin_step(v);
        if (i % 20 == 0) {
            if (loaded != NULL) dlclose(loaded);
            snprintf(path, sizeof path, "%.*s/libloaded.so", (int)(strrchr(before.exe, '/') - before.exe),
                     before.exe);
            loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (loaded == NULL) {
                printf("%s\n", dlerror());
                return 1;
            }
        }
        uint64_t (*step)(uint64_t) = (uint64_t(*)(uint64_t))dlsym(loaded, "loaded_step");
        v = step(v);
        usleep(500);
    }
    pthread_join(t, NULL);
    printf("owner unlocks: %s\n", strerror(pthread_mutex_unlock(&mutex)));
    printf("main thread: %s, name %s, arguments %d, signals by id %d\n",
           before.pid == before.tid ? "pid is tid" : "pid is not tid", before.name, argc, kills);
    printf("executable %s, result %016lx\n", strrchr(before.exe, '/') + 1, (unsigned long)v);
    FILE *f = fopen("/proc/self/cmdline", "r");
    char line[100] = "";
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (line[i] == 0) line[i] = ' ';
    char *base = strrchr(line, '/');
    printf("command line ends in %s\n", base ? base + 1 : line);
    return 0;
}
