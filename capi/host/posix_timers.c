// SPDX-License-Identifier: Apache-2.0
//
// posix_timers.c: the timers of timer_create.
//
// A timer keeps its id over a restart: the id is in the program's memory, and the kernel puts it into each signal
// that it sends.  So this table only says what the timers are, and all calls but those below go to the kernel as
// they are.
//
// The timers run while the process is stopped; what expires then is delivered when it goes on.  An image has each
// expiry exactly once: as a signal that was pending, or as time that is left.
//
// While the signal of a timer with an interval is pending, the kernel sends no second one, but counts what it would have
// been (timer_getoverrun).  It knows its own signal from one that is put into a queue.  So such a signal is not put back
// when the process goes on, or is continued: the timer is armed for when it first expired, which is past, and the kernel
// sends its signal at once and counts from then.
#include "host.h"
#include "crossing.h"
#include "emulation.h"
#include "thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#ifndef PR_TIMER_CREATE_RESTORE_IDS // since Linux 6.15
#define PR_TIMER_CREATE_RESTORE_IDS 77
#endif

#define SECOND 1000000000ll

// Guarded by host.lock; the times are of the last timers_look.
struct timer {
    struct timer_image is; // left is negative if it expired that long ago, and its signal was pending
    uint64_t expired;      // how often, by its signals that were taken
};
static struct timer *table;
static uint32_t count, room;

static int64_t nanoseconds(const struct timespec *t) {
    // What is farther away than 200 years does not come.
    return t->tv_sec > INT64_MAX / SECOND / 2 ? INT64_MAX / 2 : t->tv_sec * SECOND + t->tv_nsec;
}

static struct timespec spec(int64_t ns) { return (struct timespec){ns / SECOND, ns % SECOND}; }

// Without stdlib's malloc: a held thread may have interrupted anything.
static bool add(const struct timer_image *one) {
    if (count == room) {
        uint32_t more = room ? 2 * room : 64;
        void *m = (void *)RAW6(SYS_mmap, 0, more * sizeof *table, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if ((long)m < 0 && (long)m > -4096) return false;
        if (count) {
            memcpy(m, table, count * sizeof *table);
            RAW2(SYS_munmap, table, room * sizeof *table);
        }
        table = m;
        room = more;
    }
    table[count++] = (struct timer){.is = *one};
    return true;
}

static struct timer *find(int id) {
    for (uint32_t i = 0; i < count; i++)
        if (table[i].is.id == id) return &table[i];
    return NULL;
}

void timers_forked(void) { count = 0; } // a child has none of its parent's

// What a clock of the calling thread's processor time is called by other threads, and by the one that makes its timer again;
// others are as they are. glibc calls it by thread 0, and not CLOCK_THREAD_CPUTIME_ID.
static clockid_t named_clock(const struct thread *t, clockid_t clock) {
    enum { OF_THREAD = 4, SCHEDULED = 2, KIND = 3 };
    bool own = clock < 0 && clock >> 3 == -1 && (clock & OF_THREAD) && (clock & KIND) != KIND;
    if (clock == CLOCK_THREAD_CPUTIME_ID)
        clock = OF_THREAD | SCHEDULED;
    else if (!own)
        return clock;
    return (clockid_t)(~(uint32_t)t->vtid << 3) | (clock & 7);
}

static long make(clockid_t clock, const struct sigevent *ev, int *id) {
    return RAW3(SYS_timer_create, clock, ev, id);
}

long sys_timer_create(struct call *c) {
    clockid_t clock = (clockid_t)c->a[0];
    // What the kernel does without one.
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    if (c->a[1] && !copy_in(&ev, (uint64_t)c->a[1], sizeof ev)) return -EFAULT;
    struct timer_image one = {.clock = named_clock(c->t, clock),
                              .notify = ev.sigev_notify,
                              .signo = ev.sigev_signo,
                              .value = (uint64_t)ev.sigev_value.sival_ptr};
    if (ev.sigev_notify == SIGEV_THREAD_ID) {
        one.tid = ev._sigev_un._tid;
        ev._sigev_un._tid = real_tid(one.tid);
    }
    long r = make(clock_of_kernel(clock), &ev, &one.id);
    if (r < 0) return r;
    if (!c->a[1]) one.value = (uint64_t)one.id;
    lock();
    bool there = add(&one);
    unlock();
    if (there && copy_out((uint64_t)c->a[2], &one.id, sizeof one.id)) return 0;
    c->a[0] = one.id;
    sys_timer_delete(c);
    return there ? -EFAULT : -EAGAIN;
}

long sys_timer_delete(struct call *c) {
    lock();
    long r = RAW1(SYS_timer_delete, c->a[0]);
    struct timer *one = r == 0 ? find((int)c->a[0]) : NULL;
    if (one) *one = table[--count];
    unlock();
    return r;
}

long sys_timer_settime(struct call *c) {
    const struct itimerspec *new = (const struct itimerspec *)c->a[2];
    struct itimerspec given;
    struct timespec to;
    bool at = c->a[1] & TIMER_ABSTIME;
    lock();
    struct timer *one = find((int)c->a[0]);
    clockid_t clock = one ? one->is.clock : CLOCK_REALTIME;
    unlock();
    if (at && new &&copy_in(&given, (uint64_t) new, sizeof given)) {
        bool arms = given.it_value.tv_sec || given.it_value.tv_nsec;
        if (arms) given.it_value = *clock_to_kernel(clock, &given.it_value, &to);
        // Long past; 0 would disarm the timer.
        if (arms && !given.it_value.tv_sec && !given.it_value.tv_nsec) given.it_value.tv_nsec = 1;
        new = &given;
    }
    lock();
    one = find((int)c->a[0]);
    long r = RAW4(SYS_timer_settime, c->a[0], c->a[1], new, c->a[3]);
    if (one && r == 0) {
        one->is.flags = at ? TIMER_AT : 0;
        one->is.left = 0; // what is to be started is this
    }
    unlock();
    return r;
}

// As the application has it.
static int64_t clock_now(clockid_t clock) {
    struct timespec now = {0, 0};
    RAW2(SYS_clock_gettime, clock_of_kernel(clock), &now);
    return nanoseconds(&now) + clock_shift(clock);
}

// Asks the kernel for all timers.  Tells whether one has expired since the time before.
static bool look(void) {
    bool expired = false;
    for (uint32_t i = 0; i < count; i++) {
        struct timer_image *m = &table[i].is;
        struct itimerspec is;
        if (RAW2(SYS_timer_gettime, m->id, &is)) continue; // not there: a timer that was just made or deleted
        int64_t before = m->left;
        m->interval = nanoseconds(&is.it_interval);
        m->left = nanoseconds(&is.it_value);
        m->when = clock_now(m->clock) + m->left;
        if (m->when < 0) m->when = 0;
        if (before && (m->left == 0 || m->left > before)) expired = true;
    }
    return expired;
}

// The timer with an interval that has sent this signal.
static struct timer *sender(const siginfo_t *si) {
    struct timer *m = si->si_code == SI_TIMER ? find(si->si_timerid) : NULL;
    return m && m->is.interval && m->is.signo == si->si_signo &&
                   m->is.value == (uint64_t)si->si_value.sival_ptr
               ? m
               : NULL;
}

// Counts the signals of such timers that were taken, instead of keeping them.
static void count_expired(void) {
    kmask old = block_all();
    lock();
    for (struct thread *t = host.threads; t; t = t->next) {
        uint32_t kept = 0;
        for (uint32_t i = 0; i < t->kept.count; i++) {
            struct timer *m = sender(&t->kept.at[i].info);
            if (m)
                m->expired += 1 + (uint64_t)t->kept.at[i].info.si_overrun;
            else
                t->kept.at[kept++] = t->kept.at[i];
        }
        t->kept.count = kept;
    }
    unlock();
    set_kernel_mask(old);
}

// What is left until a timer expires next, and how often it did: so it is known when it first did.
static void find_first(struct timer *m) {
    int64_t ago = 0, left = m->is.left;
    if (!m->expired) return;
    if (__builtin_mul_overflow((int64_t)m->expired, m->is.interval, &ago) || ago <= left) ago = left + 1;
    m->is.left = left - ago;
    m->is.when = m->is.when > ago ? m->is.when - ago : 1;
}

void timers_look(void (*collect)(void)) {
    // A timer that expires more often than it can be asked has its count wrong by what it missed meanwhile.
    enum { TRIES = 100 };
    if (!count) return;
    for (uint32_t i = 0; i < count; i++) {
        table[i].is.left = 0;
        table[i].expired = 0;
    }
    look();
    // Of what has expired before a look that found nothing new, all signals were collected.
    for (int i = 0; i < TRIES; i++) {
        collect();
        count_expired();
        if (!look()) break;
    }
    for (uint32_t i = 0; i < count; i++) find_first(&table[i]);
}

// Arms a timer for a time of its clock.
static long arm_at(const struct timer_image *m, int64_t when) {
    struct timespec to, at = spec(when);
    struct itimerspec is = {.it_interval = spec(m->interval),
                            .it_value = *clock_to_kernel(m->clock, &at, &to)};
    if (!is.it_value.tv_sec && !is.it_value.tv_nsec) is.it_value.tv_nsec = 1; // 0 would disarm it
    return RAW4(SYS_timer_settime, m->id, TIMER_ABSTIME, &is, NULL);
}

void timers_start(void) {
    if (!count) return;
    lock();
    for (uint32_t i = 0; i < count; i++) {
        if (table[i].is.left < 0) arm_at(&table[i].is, table[i].is.when);
        table[i].is.left = 0;
    }
    unlock();
}

uint32_t timers_count(void) { return count; }

// What is left counts from now, as that of waits does (thread_image.c): a program may compare them.
void timers_save(struct timer_image *to) {
    for (uint32_t i = 0; i < count; i++) {
        struct timer_image *m = &to[i];
        *m = table[i].is;
        if (!m->left) continue;
        int64_t left = m->when - clock_now(m->clock);
        m->left = m->left > 0 && left < 1 ? 1 : left;
    }
}

// Makes a timer of this id.
static long make_again(const struct timer_image *m, const struct sigevent *ev) {
    clockid_t clock = clock_of_kernel(m->clock);
    int id = m->id;
    if (RAW6(SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0, 0) == 0) {
        long r = make(clock, ev, &id);
        RAW6(SYS_prctl, PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0, 0);
        return r;
    }
    // Before Linux 6.15 ids were given out in order.
    for (;;) {
        long r = make(clock, ev, &id);
        if (r < 0 || id == m->id) return r;
        RAW1(SYS_timer_delete, id);
        if (id > m->id) return -EEXIST;
    }
}

// Arms a timer of an image as it was, unless its signal was pending: that is for timers_start. What was left is from passed
// nanoseconds ago; processor time has not passed since.
static long arm_again(struct timer_image *m, int64_t passed) {
    bool cpu = m->clock < 0 || m->clock == CLOCK_PROCESS_CPUTIME_ID, when = (m->flags & TIMER_AT) && !cpu;
    if (!cpu && m->left) m->left = m->left > 0 && m->left <= passed ? 1 : m->left - passed;
    if (m->left > 0) {
        struct itimerspec is = {.it_interval = spec(m->interval), .it_value = spec(m->left)};
        return when ? arm_at(m, m->when) : RAW4(SYS_timer_settime, m->id, 0, &is, NULL);
    }
    if (m->left < 0 && !when) {
        m->when = clock_now(m->clock) + m->left;
        if (m->when < 1) m->when = 1;
    }
    return 0;
}

int timers_load(const struct timer_image *from, uint32_t n, int64_t since, char *why, size_t whybytes) {
    // Only upward, for kernels that give out ids in order.
    int done = -1;
    for (uint32_t i = 0; i < n; i++) {
        const struct timer_image *m = NULL;
        for (uint32_t k = 0; k < n; k++)
            if (from[k].id > done && (!m || from[k].id < m->id)) m = &from[k];
        if (!m) break;
        done = m->id;
        struct sigevent ev = {.sigev_notify = m->notify, .sigev_signo = m->signo};
        ev.sigev_value.sival_ptr = (void *)m->value;
        if (m->notify == SIGEV_THREAD_ID) ev._sigev_un._tid = real_tid(m->tid);
        long r = make_again(m, &ev);
        struct timer_image loaded = *m;
        if (r == 0) r = arm_again(&loaded, now_ns() - since);
        kmask old = block_all();
        lock();
        if (r == 0 && !add(&loaded)) r = -ENOMEM;
        unlock();
        set_kernel_mask(old);
        if (r < 0) {
            snprintf(why, whybytes,
                     "the program's timer %d (timer_create, clock %d) cannot be made again: %s", m->id,
                     m->clock, strerror((int)-r));
            return (int)r;
        }
    }
    return 0;
}
