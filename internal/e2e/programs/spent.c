// SPDX-License-Identifier: Apache-2.0
//
// Processor time never goes back, in any of the ways to ask for it: of the process, of its threads and of its children.  What
// all say fits together, and what waits for such a time does so until then.
// usage: spent ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ll
#define MS 1000000ll
#define TICK 10000000ll
// More than this thread uses between two looks; what a restart uses itself is not to be counted either.
#define FAR (2 * SECOND)
// The kernel wakes who waits for processor time when it looks next, in a thread that uses some: on a machine with more to do
// than processors, natively too, seconds of the other thread's time later.
#define LATE (60 * SECOND)

// How long this thread was kept waiting for a processor since it began, or since the last restart, in ns: whether it came late
// for that, or for something else.
static long long kept_waiting(void) {
    long long ran = 0, waited = -1;
    FILE *f = fopen("/proc/thread-self/schedstat", "re");
    if (f) {
        if (fscanf(f, "%lld %lld", &ran, &waited) != 2) waited = -1;
        fclose(f);
    }
    return waited;
}

static int64_t looked; // when, by the clock on the wall
static int64_t wall(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static int wrong;
static void check(int good, const char *clock, const char *what, int64_t ns) {
    if (good || wrong++ > 10) return;
    printf("%s %s: %lld ns, %lld ns after the look before; this thread has waited %lld ns for a processor\n",
           clock, what, (long long)ns, (long long)(wall() - looked), kept_waiting());
}

static int64_t now(clockid_t id) {
    struct timespec t;
    if (clock_gettime(id, &t) != 0) check(0, "clock_gettime", "failed", errno);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static int64_t asked(clockid_t id) { // not through the vDSO
    struct timespec t;
    syscall(SYS_clock_gettime, id, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static int64_t of(struct timeval t) { return t.tv_sec * SECOND + t.tv_usec * 1000; }

// The ways to ask.
enum {
    PROCESS,
    THREAD,
    OTHER,
    ASKED,
    CLOCK,
    SELF_USER,
    SELF_SYSTEM,
    BY_THREAD,
    CHILDREN,
    TIMES_USER,
    TIMES_SYSTEM,
    TIMES_CHILDREN,
    TIMES_NOW,
    WAYS
};
static const char *const names[WAYS] = {"process",         "thread",    "other thread", "by system call",
                                        "clock()",         "ru_utime",  "ru_stime",     "RUSAGE_THREAD",
                                        "RUSAGE_CHILDREN", "tms_utime", "tms_stime",    "tms_cutime",
                                        "times()"};
static int64_t last[WAYS];
static clockid_t other;

static int64_t usage(int who, int64_t *user, int64_t *system) {
    struct rusage u;
    if (getrusage(who, &u) != 0) check(0, "getrusage", "failed", errno);
    if (user) *user = of(u.ru_utime), *system = of(u.ru_stime);
    return of(u.ru_utime) + of(u.ru_stime);
}

static void look(void) {
    int64_t t[WAYS];
    struct tms tms;
    t[TIMES_NOW] = times(&tms) * TICK;
    t[TIMES_USER] = tms.tms_utime * TICK;
    t[TIMES_SYSTEM] = tms.tms_stime * TICK;
    t[TIMES_CHILDREN] = (tms.tms_cutime + tms.tms_cstime) * TICK;
    usage(RUSAGE_SELF, &t[SELF_USER], &t[SELF_SYSTEM]);
    t[CHILDREN] = usage(RUSAGE_CHILDREN, NULL, NULL);
    t[BY_THREAD] = usage(RUSAGE_THREAD, NULL, NULL);
    t[THREAD] = now(CLOCK_THREAD_CPUTIME_ID);
    t[OTHER] = now(other);
    t[PROCESS] = now(CLOCK_PROCESS_CPUTIME_ID);
    t[ASKED] = asked(CLOCK_PROCESS_CPUTIME_ID);
    t[CLOCK] = clock() * (SECOND / CLOCKS_PER_SEC);
    // All but the thread's own ways count what the other one has used, and that no more than has passed.
    int64_t passed = wall() - looked, others = t[OTHER] - last[OTHER];
    for (int i = 0; i < WAYS; i++) {
        check(t[i] >= last[i], names[i], "went back", t[i] - last[i]);
        // The children's are not exact, and times() goes on while nothing of this does.
        if (i != CHILDREN && i != TIMES_CHILDREN && i != TIMES_NOW)
            check(t[i] - last[i] < FAR + (i == OTHER                      ? passed
                                          : i == THREAD || i == BY_THREAD ? 0
                                                                          : others),
                  names[i], "jumped", t[i] - last[i]);
        last[i] = t[i];
    }
    looked = wall();
    int64_t sum = t[SELF_USER] + t[SELF_SYSTEM];
    check(t[PROCESS] >= sum, "getrusage", "is ahead of the clock", sum - t[PROCESS]);
    check(t[PROCESS] - sum < FAR, "getrusage", "is behind the clock", t[PROCESS] - sum);
    check(t[THREAD] >= t[BY_THREAD], "RUSAGE_THREAD", "is ahead of the clock", t[BY_THREAD] - t[THREAD]);
    check(t[THREAD] - t[BY_THREAD] < FAR, "RUSAGE_THREAD", "is behind the clock", t[THREAD] - t[BY_THREAD]);
    check(t[THREAD] + t[OTHER] <= t[PROCESS], "threads", "have used more than the process",
          t[THREAD] + t[OTHER] - t[PROCESS]);
    check(t[ASKED] >= t[PROCESS], names[ASKED], "is behind", t[PROCESS] - t[ASKED]);
    check(t[ASKED] - t[PROCESS] < FAR, names[ASKED], "is ahead", t[ASKED] - t[PROCESS]);
    check(t[CLOCK] - t[PROCESS] < FAR, names[CLOCK], "is ahead", t[CLOCK] - t[PROCESS]);
    check(t[TIMES_CHILDREN] <= t[CHILDREN] + 2 * TICK && t[CHILDREN] <= t[TIMES_CHILDREN] + 2 * TICK,
          names[TIMES_CHILDREN], "is not that of getrusage", t[TIMES_CHILDREN] - t[CHILDREN]);
}

static void use(int64_t ns) { // of this thread
    int64_t until = now(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (now(CLOCK_THREAD_CPUTIME_ID) < until)
        for (volatile int n = 0; n < 2000; n++) {}
}

static _Atomic int over;
static void *user(void *unused) {
    (void)unused;
    while (!over) use(MS);
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, user, NULL);
    pthread_getcpuclockid(thread, &other);
    struct sigevent ev;
    memset(&ev, 0, sizeof ev);
    ev.sigev_notify = SIGEV_SIGNAL;
    ev.sigev_signo = SIGUSR1;
    timer_t timer;
    check(timer_create(CLOCK_PROCESS_CPUTIME_ID, &ev, &timer) == 0, "timer_create", "failed", errno);
    int64_t used = 0, children = 0;
    for (int round = 0; round < rounds; round++) {
        look();
        use(2 * MS);
        used += 2 * MS;
        look();
        // A time of a clock of processor time: the other thread uses it meanwhile.  The kernel looks at its ticks alone.
        if (round % 8) continue;
        int64_t until = now(CLOCK_PROCESS_CPUTIME_ID) + MS;
        struct timespec at = {until / SECOND, until % SECOND};
        int error;
        do error = clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &at, NULL);
        while (error == EINTR);
        int64_t late = now(CLOCK_PROCESS_CPUTIME_ID) - until;
        check(error == 0 && late >= 0, "clock_nanosleep", "ended early", late);
        check(late < LATE, "clock_nanosleep", "ended late", late);
        until = now(other) + MS;
        at = (struct timespec){until / SECOND, until % SECOND};
        do error = clock_nanosleep(other, TIMER_ABSTIME, &at, NULL);
        while (error == EINTR);
        late = now(other) - until;
        check(error == 0 && late >= 0, "clock_nanosleep of a thread", "ended early", late);
        check(late < LATE, "clock_nanosleep of a thread", "ended late", late);
        if (round % 16 == 0) {
            until = now(CLOCK_PROCESS_CPUTIME_ID) + MS;
            struct itimerspec when = {.it_value = {until / SECOND, until % SECOND}};
            check(timer_settime(timer, TIMER_ABSTIME, &when, NULL) == 0, "timer_settime", "failed", errno);
            int sig;
            while ((sig = sigwaitinfo(&set, NULL)) < 0 && errno == EINTR) {}
            late = now(CLOCK_PROCESS_CPUTIME_ID) - until;
            check(late >= 0, "timer", "expired early", late);
            check(late < LATE, "timer", "expired late", late);
        }
        if (round % 16 == 8) {
            pid_t child = fork();
            if (child == 0) {
                // It has used nothing yet.
                int64_t own = now(CLOCK_PROCESS_CPUTIME_ID), all = usage(RUSAGE_SELF, NULL, NULL);
                use(20 * MS);
                _exit(own < 15 * MS && all < 15 * MS && usage(RUSAGE_CHILDREN, NULL, NULL) == 0 ? 0 : 1);
            }
            int status = -1;
            while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
            check(status == 0, "a child", "has used time before it began", status);
            children += 20 * MS;
        }
    }
    look();
    over = 1;
    pthread_join(thread, NULL);
    check(last[THREAD] >= used && last[PROCESS] >= used, "the clocks", "lack some of what was used",
          last[THREAD] - used);
    check(last[CHILDREN] >= children * 3 / 4, "RUSAGE_CHILDREN", "lacks some of what was used",
          last[CHILDREN] - children);
    printf("spent: %d rounds, %d wrong\n", rounds, wrong);
    return wrong != 0;
}
