// SPDX-License-Identifier: Apache-2.0
//
// signal_queue.c: signals that are pending in the kernel when the process is stopped.
//
// Such signals would be lost with the process: a pthread_cancel that was sent and not yet seen, an alarm.  So
// each stopped thread takes its own signals out of the kernel's queue, and one thread also takes those of the
// process. Each puts them back when it goes on, here or after a restart, but for those of timers (posix_timers.c).
#include "host.h"
#include "emulation.h"
#include "thread.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

// SigPnd and ShdPnd of the calling thread.  This does not use stdio: a held thread may have interrupted
// anything.
static bool pending_masks(kmask *own, kmask *shared) {
    char b[4096];
    long fd = RAW3(SYS_open, "/proc/thread-self/status", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    long n = RAW3(SYS_read, fd, b, sizeof b - 1);
    RAW1(SYS_close, fd);
    if (n <= 0) return false;
    b[n] = 0;
    const char *p = strstr(b, "SigPnd:"), *q = strstr(b, "ShdPnd:");
    if (!p || !q) return false;
    *own = strtoull(p + 7, NULL, 16);
    *shared = strtoull(q + 7, NULL, 16);
    return true;
}

bool signal_room(struct signal_list *l) {
    if (l->count < l->room) return true;
    uint32_t room = l->room ? 2 * l->room : 64;
    struct kept_signal *at = (struct kept_signal *)RAW6(
        SYS_mmap, 0, room * sizeof *at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if ((long)at < 0 && (long)at > -4096) return false;
    if (l->count) memcpy(at, l->at, l->count * sizeof *at);
    __atomic_store_n(&l->at, at, __ATOMIC_RELEASE);
    l->room = room;
    return true;
}

void signal_add(struct signal_list *l, const siginfo_t *si, bool shared) {
    l->at[l->count] = (struct kept_signal){*si, shared};
    __atomic_store_n(&l->count, l->count + 1, __ATOMIC_RELEASE);
}

static void take(struct thread *t, kmask set, bool shared) {
    // A timer may expire again as soon as its signal is taken.  What is left of it stays with the kernel.
    enum { OF_TIMERS = 1000 };
    static const struct timespec now;
    siginfo_t info;
    for (unsigned of_timers = 0; signal_room(&t->kept);) {
        if (RAW4(SYS_rt_sigtimedwait, &set, &info, &now, 8) <= 0) return;
        signal_virtual(&info); // the process that goes on may have another id
        signal_add(&t->kept, &info, shared);
        if (info.si_code == SI_TIMER && ++of_timers >= OF_TIMERS) set &= ~KBIT(info.si_signo);
    }
    t->more_signals = true;
}

void signals_collect(struct thread *t, bool shared) {
    kmask own, process;
    if (!pending_masks(&own, &process)) return;
    // The kernel serves a thread's own queue first, so what is taken with its mask is its own.  Signals of
    // the same number that are pending for the process become this thread's.
    if (own & ~OURS) take(t, own & ~OURS, false);
    if (shared && (process & ~OURS)) take(t, process & ~OURS, true);
}

void signals_collect_shared(struct thread *t) {
    kmask own, process;
    if (pending_masks(&own, &process) && (process & ~OURS & ~own)) take(t, process & ~OURS & ~own, true);
}

// Sends a signal to the process as it came.  The kernel lets only the main thread send those that are from itself
// (SIGCHLD, timers) or from kill; another thread sends the signal without its details, so that it is not lost.
void signal_process(const siginfo_t *si) {
    if (RAW3(SYS_rt_sigqueueinfo, host.pid, si->si_signo, si) < 0) RAW2(SYS_kill, host.pid, si->si_signo);
}

// A SIGURG of the application's own, for a thread of this process. Go preempts goroutines with such signals, by tgkill; a program
// that is written in Go does the same, and neither may take the other's. So the application's has a mark, and with it the
// code that it had, which no thread but the main one may send as it is.
#define URGENT 0x636b70746f726700ull

long signal_urgent(pid_t tid, const siginfo_t *si) {
    siginfo_t marked = *si;
    marked.si_code = SI_QUEUE;
    marked.si_value.sival_ptr = (void *)(URGENT | (uint8_t)si->si_code);
    return RAW4(SYS_rt_tgsigqueueinfo, host.pid, tid, SIGURG, &marked);
}

// As it was sent, for the application; until then, in an image too, it has its mark.
void signal_unmark(siginfo_t *si) {
    uint64_t value = (uint64_t)si->si_value.sival_ptr;
    if (si->si_signo != SIGURG || si->si_code != SI_QUEUE || (value & ~0xffull) != URGENT) return;
    uint8_t code = (uint8_t)value;
    si->si_code = code == (uint8_t)SI_TKILL ? SI_TKILL : code; // or SI_USER, SI_KERNEL
    si->si_value.sival_ptr = NULL;
}

void signals_requeue(struct thread *t) {
    for (uint32_t i = 0; i < t->kept.count; i++) {
        siginfo_t *si = &t->kept.at[i].info;
        if (t->kept.at[i].shared)
            signal_process(si);
        else
            RAW4(SYS_rt_tgsigqueueinfo, host.pid, t->tid, si->si_signo, si);
    }
    t->kept.count = 0;
    t->more_signals = false;
    // The main thread is the one to which the kernel sends signals of timers. One that is ignored unless it is blocked would be
    // lost if it came while the lower half has the thread.
    if (t->main || host.main_gone) timers_start();
}
