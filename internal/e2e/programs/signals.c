// SPDX-License-Identifier: Apache-2.0
//
// Signals to self and between threads: SA_SIGINFO with values, SA_RESTART and without, masks,
// pending signals, also blocked by all, SIGURG, sigsuspend, sigwait, sigtimedwait, interval timers, nested handlers.
// usage: signals ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t usr1, usr2, depth, deepest, alarms;
static volatile uint64_t values;
static volatile int wrong_sender;
static pid_t self;

static void on_value(int sig, siginfo_t *info, void *context) {
    (void)context;
    usr1++;
    if (info->si_signo != sig || info->si_code != SI_QUEUE || info->si_pid != self) wrong_sender++;
    values = values * 31 + (uint64_t)info->si_value.sival_int;
}

static void on_nested(int sig) {
    if (++depth > deepest) deepest = depth;
    usr2++;
    if (depth < 4) raise(sig); // SA_NODEFER: enters again at once
    depth--;
}

// The runtime of Go in ckptrun uses the same signal.
static volatile sig_atomic_t urgent, urgent_codes;

static void on_urgent(int sig, siginfo_t *info, void *context) {
    (void)sig, (void)context;
    urgent++;
    urgent_codes += info->si_code == SI_USER || info->si_code == SI_TKILL;
    if (info->si_pid != self || info->si_value.sival_ptr != NULL) wrong_sender++;
}

// Blocked, it stays pending, whether it is for the process or for the thread; the waiter blocks it as well.
static int urgent_kept(void) {
    sigset_t block, old, pending;
    int kept = 1;
    sigemptyset(&block);
    sigaddset(&block, SIGURG);
    sigprocmask(SIG_BLOCK, &block, &old);
    for (int of_thread = 0; of_thread < 2; of_thread++) {
        int before = urgent;
        if (of_thread)
            raise(SIGURG);
        else
            kill(self, SIGURG);
        // Another thread of the process may have to pass it on.
        for (int i = 0; i < 10000; i++, usleep(100))
            if (sigpending(&pending) != 0 || sigismember(&pending, SIGURG)) break;
        kept &= sigismember(&pending, SIGURG) == 1 && urgent == before;
        sigprocmask(SIG_SETMASK, &old, NULL);
        kept &= urgent == before + 1;
        sigprocmask(SIG_BLOCK, &block, NULL);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    return kept;
}

static void on_alarm(int sig) {
    (void)sig;
    alarms++;
}

static void handle(int sig, void (*f)(int), int flags) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = f;
    a.sa_flags = flags;
    if (sigaction(sig, &a, NULL) != 0) {
        perror("sigaction");
        exit(1);
    }
}

// A blocking read is restarted by the kernel with SA_RESTART and fails with EINTR without.
static volatile int interrupted;

static void *interrupt_main(void *arg) {
    pthread_t target = *(pthread_t *)arg;
    struct timespec pause = {0, 3000000};
    while (!interrupted) {
        nanosleep(&pause, NULL);
        pthread_kill(target, SIGRTMIN + 1);
    }
    return NULL;
}

static int write_end;

static void *interrupt_then_write(void *arg) {
    pthread_t target = *(pthread_t *)arg;
    struct timespec pause = {0, 3000000};
    for (int i = 0; i < 3; i++) {
        nanosleep(&pause, NULL);
        pthread_kill(target, SIGRTMIN + 1);
    }
    if (write(write_end, "x", 1) != 1) abort();
    return NULL;
}

static volatile sig_atomic_t pokes;
static void on_poke(int sig) {
    (void)sig;
    pokes++;
}

static void restartable(void) {
    int p[2];
    if (pipe(p) != 0) abort();
    write_end = p[1];
    pthread_t main_thread = pthread_self(), t;
    handle(SIGRTMIN + 1, on_poke, SA_RESTART);
    pthread_create(&t, NULL, interrupt_then_write, &main_thread);
    char c = 0;
    ssize_t n = read(p[0], &c, 1);
    pthread_join(t, NULL);
    if (n != 1 || c != 'x') printf("restarted read: %zd, errno %d\n", n, errno);

    handle(SIGRTMIN + 1, on_poke, 0);
    interrupted = 0;
    pthread_create(&t, NULL, interrupt_main, &main_thread);
    n = read(p[0], &c, 1);
    int e = errno;
    interrupted = 1;
    pthread_join(t, NULL);
    if (n != -1 || e != EINTR) printf("interrupted read: %zd, errno %d\n", n, e);
    close(p[0]);
    close(p[1]);
}

static void *wait_for_it(void *arg) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    long sum = 0;
    for (;;) {
        siginfo_t info;
        if (sigwaitinfo(&set, &info) < 0) {
            if (errno == EINTR) continue;
            perror("sigwaitinfo");
            exit(1);
        }
        if (info.si_value.sival_int < 0) break;
        sum += info.si_value.sival_int;
    }
    *(long *)arg = sum;
    return NULL;
}

static int comes(int sig) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    struct timespec limit = {30, 0};
    int r;
    while ((r = sigtimedwait(&set, NULL, &limit)) < 0 && errno == EINTR)
        ;
    return r == sig;
}

// A signal that all threads block stays pending until one of them waits for it, whoever else is in the
// process.  One of these would be ignored and the other would end the program.
static int kept_back(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    sigqueue(self, SIGRTMIN, (union sigval){.sival_int = 1});
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
    int ok = comes(SIGRTMIN) && comes(SIGCHLD);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return ok;
}

static volatile sig_atomic_t first, second, inside;

static void on_first(int sig) {
    (void)sig;
    first++;
    inside = second; // has the other one come before this handler began?
}

static void on_second(int sig) {
    (void)sig;
    second++;
}

// Sends both to the thread, which waits for the first one, so that the second is pending by then.  The result is whether it was.
static void *send_both(void *thread) {
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
    pthread_kill(*(pthread_t *)thread, SIGRTMIN + 5);
    nanosleep(&pause, NULL);
    int early = second; // it did not wait yet
    pthread_kill(*(pthread_t *)thread, SIGRTMIN + 4);
    return early ? NULL : thread;
}

// Of two signals that are pending when sigsuspend returns, of which it lets in one and the program's mask the other, the handler of the
// first runs with the mask of sigsuspend, so the other one comes after it. One that comes when the thread does not wait yet is let in, so
// it takes more than one try now and then.
static int in_turn(void) {
    handle(SIGRTMIN + 4, on_first, 0);
    handle(SIGRTMIN + 5, on_second, 0);
    sigset_t mask, old, open;
    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN + 4);
    pthread_sigmask(SIG_BLOCK, &mask, &old);
    sigfillset(&open); // no other signal ends it
    sigdelset(&open, SIGRTMIN + 4);
    pthread_t me = pthread_self(), sender;
    void *waited;
    int tries = 0;
    do {
        first = second = 0;
        pthread_create(&sender, NULL, send_both, &me);
        while (!first) sigsuspend(&open);
        pthread_join(sender, &waited);
    } while ((!waited || inside) && ++tries < 100);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return first == 1 && second == 1 && inside == 0;
}

// Opening a device that does not wait is not ended by a signal, however many come: a profiler's, say.
static int opened(void) {
    static const char *const devices[] = {"/dev/null", "/dev/urandom", "/dev/ptmx"};
    int n = 0;
    handle(SIGPROF, on_poke, 0);
    struct sigevent ev;
    memset(&ev, 0, sizeof ev);
    ev.sigev_notify = SIGEV_SIGNAL;
    ev.sigev_signo = SIGPROF;
    timer_t timer;
    struct itimerspec often = {{0, 100000}, {0, 100000}};
    if (timer_create(CLOCK_MONOTONIC, &ev, &timer) != 0) return -1;
    timer_settime(timer, 0, &often, NULL);
    for (int i = 0; i < 3000; i++) {
        int fd = open(devices[i % 3], O_RDWR | O_NOCTTY);
        n += fd >= 0;
        if (fd >= 0) close(fd);
    }
    timer_delete(timer);
    return n;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    self = getpid();
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_value;
    a.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGUSR1, &a, NULL);
    handle(SIGUSR2, on_nested, SA_NODEFER);
    handle(SIGALRM, on_alarm, SA_RESTART);
    a.sa_sigaction = on_urgent;
    sigaction(SIGURG, &a, NULL);

    // The waiter blocks everything, so that signals to the process come to this thread.
    sigset_t all, waited;
    sigfillset(&all);
    sigemptyset(&waited);
    sigaddset(&waited, SIGRTMIN + 2);
    sigaddset(&waited, SIGRTMIN);
    sigaddset(&waited, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    long sum = 0;
    pthread_t waiter;
    pthread_create(&waiter, NULL, wait_for_it, &sum);
    pthread_sigmask(SIG_SETMASK, &waited, NULL);

    struct itimerval every = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &every, NULL);
    int urgents = 0, pending_ok = 0, suspended = 0, timed = 0, kept = 0, turns = 0;
    for (int i = 0; i < rounds; i++) {
        sigqueue(self, SIGUSR1, (union sigval){.sival_int = i});
        raise(SIGUSR2);

        // Blocked, it stays pending; sigsuspend lets it in.
        sigset_t block, old, pending;
        sigemptyset(&block);
        sigaddset(&block, SIGUSR1);
        sigprocmask(SIG_BLOCK, &block, &old);
        int before = usr1;
        sigqueue(self, SIGUSR1, (union sigval){.sival_int = -i});
        sigpending(&pending);
        pending_ok += sigismember(&pending, SIGUSR1) == 1 && usr1 == before;
        while (usr1 == before) {
            sigset_t open = old;
            sigdelset(&open, SIGUSR1);
            sigsuspend(&open);
        }
        suspended += usr1 == before + 1;
        sigprocmask(SIG_SETMASK, &old, NULL);

        urgents += urgent_kept();

        sigqueue(self, SIGRTMIN + 2, (union sigval){.sival_int = i});

        struct timespec soon = {0, 1000000};
        sigset_t never;
        sigemptyset(&never);
        sigaddset(&never, SIGRTMIN + 3);
        pthread_sigmask(SIG_BLOCK, &never, NULL);
        int r;
        while ((r = sigtimedwait(&never, NULL, &soon)) < 0 && errno == EINTR)
            ;
        timed += r < 0 && errno == EAGAIN;
        if (i % 10 == 0) {
            restartable();
            kept += kept_back();
            turns += in_turn();
        }
    }
    // The timer still runs, whatever happened to the process.
    for (int seen = alarms; alarms < seen + 10;) pause();
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    sigqueue(self, SIGRTMIN + 2, (union sigval){.sival_int = -1});
    pthread_join(waiter, NULL);
    printf("values %016lx received %d wrong sender %d\n", (unsigned long)values, (int)usr1, wrong_sender);
    printf("nested %d deepest %d pending %d suspended %d timed %d kept %d in turn %d waited %ld\n", (int)usr2,
           (int)deepest, pending_ok, suspended, timed, kept, turns, sum);
    printf("urgent %d kept %d of a code that is right %d\n", (int)urgent, urgents, (int)urgent_codes);
    printf("opened %d\n", opened());
    printf("pid %s\n", self == getpid() ? "same" : "changed");
    return 0;
}
