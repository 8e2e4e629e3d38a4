// SPDX-License-Identifier: Apache-2.0
//
// Signals that are pending: lists of them, and those that a stopped thread takes from the kernel and gives back.
#include "../signal_queue.c"

#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

struct host host;
void signal_virtual(siginfo_t *si) { (void)si; }
static int timers_started;
void timers_start(void) { timers_started++; }

// A list keeps all in order, and what a reader has seen of it stays where it is when it grows.
static void lists(void) {
    struct signal_list l = {0};
    const struct kept_signal *before = NULL;
    for (int i = 0; i < 1000; i++) {
        CHECK(signal_room(&l));
        signal_add(&l, &(siginfo_t){.si_signo = 1 + i % 64, .si_code = i}, i & 1);
        if (i == 0) before = l.at;
    }
    SAME(l.count, 1000);
    for (int i = 0; i < 1000; i++) {
        SAME(l.at[i].info.si_code, i);
        SAME(l.at[i].shared, i & 1);
    }
    CHECK(l.at != before);
    SAME(before[0].info.si_code, 0);
    SAME(before[63].info.si_code, 63);
}

static void send(bool to_process, int sig, int value) {
    siginfo_t si = {.si_signo = sig, .si_code = SI_QUEUE};
    si.si_value.sival_int = value;
    SAME(to_process ? RAW3(SYS_rt_sigqueueinfo, getpid(), sig, &si)
                    : RAW4(SYS_rt_tgsigqueueinfo, getpid(), RAW0(SYS_gettid), sig, &si),
         0);
}

// The queue as the kernel has it: real-time signals, each as often as it was sent.
static void expect(int sig, int value) {
    siginfo_t si;
    static const struct timespec now;
    kmask set = KBIT(sig);
    SAME(RAW4(SYS_rt_sigtimedwait, &set, &si, &now, 8), value < 0 ? -EAGAIN : sig);
    if (value >= 0) SAME(si.si_value.sival_int, value);
}

static void collect(void) {
    struct thread t = {.tid = (pid_t)RAW0(SYS_gettid)};
    host.pid = getpid();
    for (int i = 0; i < 100; i++) send(false, 40, i);
    send(false, SIGUSR1, 7);
    send(true, 41, 8);
    send(true, 41, 9);
    send(false, SIG_PARK, 1); // ours: it stays

    signals_collect(&t, false);
    SAME(t.kept.count, 101); // its own
    signals_collect(&t, true);
    SAME(t.kept.count, 103);
    expect(40, -1);
    expect(41, -1);
    expect(SIGUSR1, -1);
    for (uint32_t i = 0; i < t.kept.count; i++) SAME(t.kept.at[i].shared, t.kept.at[i].info.si_signo == 41);

    signals_requeue(&t);
    SAME(t.kept.count, 0);
    for (int i = 0; i < 100; i++) expect(40, i);
    expect(40, -1);
    expect(SIGUSR1, 7);
    expect(41, 8);
    expect(41, 9);
    expect(SIG_PARK, 1);

    // By another thread: those of the process alone, and none of a number that the taker itself has.
    send(true, 42, 3);
    send(true, SIG_PARK, 4);
    send(false, 43, 5);
    send(true, 43, 6);
    signals_collect_shared(&t);
    SAME(t.kept.count, 1);
    SAME(t.kept.at[0].shared, 1);
    signals_requeue(&t);
    expect(42, 3);
    expect(43, 5);
    expect(43, 6);
    expect(SIG_PARK, 4);

    // Timers are the main thread's, or anybody's when that has ended.
    SAME(timers_started, 0);
    t.main = true;
    signals_requeue(&t);
    SAME(timers_started, 1);
    t.main = false;
    host.main_gone = true;
    signals_requeue(&t);
    SAME(timers_started, 2);
    host.main_gone = false;
}

static void *requeue(void *t) {
    ((struct thread *)t)->tid = (pid_t)RAW0(SYS_gettid);
    signals_requeue(t);
    return NULL;
}

// A thread other than the main one gives signals back that the kernel lets only the main thread send: one of kill, of
// a child, of a timer.  They come without their details, and once each, as signals of these numbers do.
static void other_thread(void) {
    static const int sig[] = {SIGUSR2, SIGCHLD, SIGALRM}, code[] = {SI_USER, CLD_EXITED, SI_KERNEL};
    struct thread t = {0};
    pthread_t other;
    for (int i = 0; i < 3; i++) {
        CHECK(signal_room(&t.kept));
        signal_add(&t.kept, &(siginfo_t){.si_signo = sig[i], .si_code = code[i]}, true);
    }
    CHECK(signal_room(&t.kept));
    siginfo_t with_value = {.si_signo = 44, .si_code = SI_QUEUE};
    with_value.si_value.sival_int = 12;
    signal_add(&t.kept, &with_value, true);
    SAME(pthread_create(&other, NULL, requeue, &t), 0);
    SAME(pthread_join(other, NULL), 0);
    SAME(t.kept.count, 0);
    for (int i = 0; i < 3; i++) {
        siginfo_t si;
        static const struct timespec now;
        kmask set = KBIT(sig[i]);
        SAME(RAW4(SYS_rt_sigtimedwait, &set, &si, &now, 8), sig[i]);
        SAME(RAW4(SYS_rt_sigtimedwait, &set, &si, &now, 8), -EAGAIN);
    }
    expect(44, 12);
}

int main(void) {
    block_all();
    lists();
    collect();
    other_thread();
    printf("signals: good\n");
    return 0;
}
