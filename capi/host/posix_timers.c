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
static struct timer_image *table;
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
    table[count++] = *one;
    return true;
}

static struct timer_image *find(int id) {
    for (uint32_t i = 0; i < count; i++)
        if (table[i].id == id) return &table[i];
    return NULL;
}

void timers_forked(void) { count = 0; } // a child has none of its parent's

// A clock of a thread of the program's that can be named from another thread.
static clockid_t own_clock(const struct thread *t) { return (clockid_t)(~(uint32_t)t->vtid << 3) | 6; }

static long make(clockid_t clock, const struct sigevent *ev, int *id) {
    return RAW3(SYS_timer_create, clock, ev, id);
}

long sys_timer_create(struct call *c) {
    clockid_t clock = (clockid_t)c->a[0];
    // What the kernel does without one.
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    if (c->a[1] && !copy_in(&ev, (uint64_t)c->a[1], sizeof ev)) return -EFAULT;
    struct timer_image one = {.clock = clock == CLOCK_THREAD_CPUTIME_ID ? own_clock(c->t) : clock,
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
    struct timer_image *one = r == 0 ? find((int)c->a[0]) : NULL;
    if (one) *one = table[--count];
    unlock();
    return r;
}

long sys_timer_settime(struct call *c) {
    const struct itimerspec *new = (const struct itimerspec *)c->a[2];
    struct itimerspec given;
    struct timespec to;
    lock();
    struct timer_image *one = find((int)c->a[0]);
    bool at = c->a[1] & TIMER_ABSTIME;
    if (one && at && new &&copy_in(&given, (uint64_t) new, sizeof given)) {
        bool arms = given.it_value.tv_sec || given.it_value.tv_nsec;
        if (arms) given.it_value = *clock_to_kernel(one->clock, &given.it_value, &to);
        // Long past; 0 would disarm the timer.
        if (arms && !given.it_value.tv_sec && !given.it_value.tv_nsec) given.it_value.tv_nsec = 1;
        new = &given;
    }
    long r = RAW4(SYS_timer_settime, c->a[0], c->a[1], new, c->a[3]);
    if (one && r == 0) one->flags = at ? TIMER_AT : 0;
    unlock();
    return r;
}

// Asks the kernel for all timers.  Tells whether one has expired since the time before.
static bool look(void) {
    bool expired = false;
    for (uint32_t i = 0; i < count; i++) {
        struct timer_image *m = &table[i];
        struct itimerspec is;
        struct timespec now = {0, 0};
        if (RAW2(SYS_timer_gettime, m->id, &is)) continue; // not there: a timer that was just made or deleted
        RAW2(SYS_clock_gettime, clock_of_kernel(m->clock), &now);
        int64_t before = m->left;
        m->interval = nanoseconds(&is.it_interval);
        m->left = nanoseconds(&is.it_value);
        m->when = nanoseconds(&now) + clock_shift(m->clock) + m->left;
        if (m->when < 0) m->when = 0;
        if (before && (m->left == 0 || m->left > before)) expired = true;
    }
    return expired;
}

void timers_look(void (*collect)(void)) {
    // A timer that expires more often than it can be asked gives up one signal to the next life.
    enum { TRIES = 100 };
    if (!count) return;
    for (uint32_t i = 0; i < count; i++) table[i].left = 0;
    look();
    // Of what has expired before a look that found nothing new, all signals were collected.
    for (int i = 0; i < TRIES; i++) {
        collect();
        if (!look()) return;
    }
}

uint32_t timers_count(void) { return count; }

void timers_save(struct timer_image *to) {
    if (count) memcpy(to, table, count * sizeof *table);
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

int timers_load(const struct timer_image *from, uint32_t n, char *why, size_t whybytes) {
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
        if (r == 0 && (m->left || m->interval)) {
            struct timespec to, at = spec(m->when);
            // Times of a processor begin anew.
            bool when = (m->flags & TIMER_AT) && m->clock >= 0 && m->clock != CLOCK_PROCESS_CPUTIME_ID;
            struct itimerspec is = {.it_interval = spec(m->interval),
                                    .it_value = when ? *clock_to_kernel(m->clock, &at, &to) : spec(m->left)};
            if (m->left) r = RAW4(SYS_timer_settime, m->id, when ? TIMER_ABSTIME : 0, &is, NULL);
        }
        kmask old = block_all();
        lock();
        if (r == 0 && !add(m)) r = -ENOMEM;
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
