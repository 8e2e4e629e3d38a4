// SPDX-License-Identifier: Apache-2.0
//
// Timers of timer_create: each that is to expire once does so once, with its value and its id, and those with an interval
// go on, whichever way they tell (a signal to the process, to a thread, a thread of their own, not at all), on clocks that are
// absolute, relative, or count the time of a processor.
// usage: timers ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000l
#define TICK (SIGRTMIN + 1) // of the process, with a handler
#define ONCE (SIGRTMIN + 2) // of the process, waited for
#define MINE (SIGRTMIN + 3) // of one thread
#define PILE SIGCONT        // of the process, blocked from the first round to the last

static _Atomic int ticks, mine, called, last_called, burnt, wrong, over;
static timer_t tick, once, beat, left, burn, pile;

#define CHECK(good)                                                            \
    do {                                                                       \
        if (!(good) && wrong++ < 10) printf("line %d: %s\n", __LINE__, #good); \
    } while (0)

static int id_of(timer_t t) { return (int)(intptr_t)t; }

static void on_tick(int sig, siginfo_t *si, void *context) {
    (void)context;
    CHECK(sig == TICK && si->si_code == SI_TIMER && si->si_value.sival_int == 77 &&
          si->si_timerid == id_of(tick));
    ticks += 1 + timer_getoverrun(tick);
}

static void on_burnt(int sig) {
    (void)sig;
    burnt++;
}

static void on_call(union sigval v) {
    last_called = v.sival_int;
    called++;
}

static timer_t make(clockid_t clock, int notify, int signo, int value) {
    struct sigevent ev;
    memset(&ev, 0, sizeof ev);
    ev.sigev_notify = notify;
    ev.sigev_signo = signo;
    ev.sigev_value.sival_int = value;
    if (notify == SIGEV_THREAD) ev.sigev_notify_function = on_call;
    if (notify == SIGEV_THREAD_ID) ev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t t;
    if (timer_create(clock, &ev, &t) != 0) {
        perror("timer_create");
        exit(1);
    }
    return t;
}

static void arm(timer_t t, clockid_t absolute, long ns, long interval) {
    struct itimerspec s = {.it_value = {ns / 1000000000, ns % 1000000000}, .it_interval = {0, interval}};
    if (absolute >= 0) {
        clock_gettime(absolute, &s.it_value);
        s.it_value.tv_sec += (s.it_value.tv_nsec + ns) / 1000000000;
        s.it_value.tv_nsec = (s.it_value.tv_nsec + ns) % 1000000000;
    }
    CHECK(timer_settime(t, absolute >= 0 ? TIMER_ABSTIME : 0, &s, NULL) == 0);
}

// What the kernel says of all timers, and of the signals of each thread.
static void tell(void) {
    fflush(stdout);
    if (system("cd /proc/$PPID; cat timers; grep -H -E '^(Name|Sig|Shd)' task/*/status") != 0)
        printf("no word of the kernel\n");
}

// Waits until *count is more than it was; far longer than anything here takes.
static void await(_Atomic int *count, int was, const char *what) {
    for (int i = 0; *count <= was; i++) {
        nanosleep(&(struct timespec){0, MS / 4}, NULL);
        if (i == 100000) {
            printf(
                "%s did not expire: %d of the process, %d of a thread, %d called, %d of a processor's time, %d wrong\n",
                what, ticks, mine, called, burnt, wrong);
            tell();
            exit(1);
        }
    }
}

static void *listener(void *unused) {
    (void)unused;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, MINE);
    beat = make(CLOCK_BOOTTIME, SIGEV_THREAD_ID, MINE, 5);
    arm(beat, -1, 3 * MS, 3 * MS);
    for (;;) {
        siginfo_t si;
        if (sigwaitinfo(&set, &si) == MINE) {
            CHECK(si.si_value.sival_int == 5 && si.si_timerid == id_of(beat));
            mine++;
        }
    }
    return NULL;
}

// A signal that is pending while its timer expires again and again comes once, and timer_getoverrun has the rest. How often that
// is tells the time that is left of another timer: both stand still while there is no process.
static void count_pile(long every) {
    struct itimerspec now;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, PILE);
    int signals = 0;
    long expired = 0;
    while (sigtimedwait(&set, NULL, &(struct timespec){0, 0}) == PILE) {
        signals++;
        expired += 1 + timer_getoverrun(pile);
    }
    timer_gettime(left, &now);
    long passed = 4000 * 1000 * MS - (now.it_value.tv_sec * 1000 * MS + now.it_value.tv_nsec);
    CHECK(signals > 0 && signals <= 3); // it may expire while they are counted
    // Each time that it is continued the two are armed one after the other.
    long should = passed / every, allowed = 20 + should / 50;
    if (expired < should - allowed || expired > should + allowed) {
        printf("%d signals of a timer that expired %ld times and not %ld\n", signals, expired, should);
        wrong++;
    }
}

static void *burner(void *unused) {
    (void)unused;
    burn = make(CLOCK_THREAD_CPUTIME_ID, SIGEV_SIGNAL, SIGUSR1, 0);
    for (volatile unsigned n = 0; !over; n++) {
        struct timespec pause = {0, MS / 2};
        if (n % 4000000 == 0) nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, ONCE);
    sigaddset(&set, MINE);
    sigaddset(&set, PILE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_tick;
    a.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(TICK, &a, NULL);
    a.sa_handler = on_burnt;
    a.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &a, NULL);

    timer_delete(make(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0)); // ids are not those of a new process
    tick = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, TICK, 77);
    arm(tick, -1, 2 * MS, 2 * MS);
    left = make(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0);
    arm(left, -1, 4000 * 1000 * MS, 0);
    pile = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, PILE, 0);
    arm(pile, -1, MS, MS);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, listener, NULL);
    pthread_create(&threads[1], NULL, burner, NULL);
    while (!burn) nanosleep(&(struct timespec){0, MS}, NULL);
    clockid_t burns;
    CHECK(pthread_getcpuclockid(threads[1], &burns) == 0);

    int got = 0;
    struct itimerspec before, now;
    timer_gettime(left, &before);
    for (int i = 0; i < rounds; i++) {
        int t = ticks, m = mine, c = called, b = burnt;
        struct timespec cpu[2];
        CHECK(clock_gettime(burns, &cpu[0]) == 0);
        once = make(i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC, SIGEV_SIGNAL, ONCE, i);
        arm(once, i % 3 == 1 ? i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC : -1, MS, 0);
        timer_t call = make(CLOCK_MONOTONIC, SIGEV_THREAD, 0, i);
        arm(call, i % 3 == 2 ? CLOCK_MONOTONIC : -1, MS, 0);
        int burns_now = i % 4 == 0; // the kernel looks at these at its ticks alone
        long burns_for = i % 64 == 8 ? 20 * MS : MS / 4;
        if (burns_now) arm(burn, -1, burns_for, 0);

        siginfo_t si;
        struct timespec patience = {100, 0};
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, ONCE);
        int sig;
        while ((sig = sigtimedwait(&only, &si, &patience)) < 0 && errno == EINTR) {}
        CHECK(sig == ONCE && si.si_value.sival_int == i && si.si_timerid == id_of(once));
        got += sig == ONCE;
        await(&called, c, "the one with a thread");
        CHECK(last_called == i && called == c + 1);
        if (burns_now) await(&burnt, b, "the one of a processor's time");
        await(&ticks, t, "the one of the process");
        await(&mine, m, "the one of a thread");
        // It has expired, and not again.
        timer_gettime(once, &now);
        CHECK(now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0);
        CHECK(timer_delete(once) == 0 && timer_delete(call) == 0);
        CHECK(sigtimedwait(&only, &si, &(struct timespec){0, 0}) < 0);
        timer_gettime(left, &now);
        CHECK(now.it_value.tv_sec > 0 && now.it_value.tv_sec <= before.it_value.tv_sec);
        before = now;
        CHECK(clock_gettime(burns, &cpu[1]) == 0);
        // Of the thread's time, and not of that of another one, which sleeps: that would be ten seconds of this thread's.
        if (burns_now) CHECK(cpu[1].tv_sec - cpu[0].tv_sec < 3);
    }
    CHECK(burnt == (rounds + 3) / 4);
    count_pile(MS);
    over = 1;
    pthread_join(threads[1], NULL);
    printf("timers: %d rounds, %d expired once, %d called, %d of processor's time, %d wrong\n", rounds, got,
           called, burnt, wrong);
    return wrong != 0;
}
