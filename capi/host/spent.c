// SPDX-License-Identifier: Apache-2.0
//
// spent.c: the processor time of a process and of its threads, which goes on over a restart.
//
// To the kernel a process that is continued has used no time yet, and what a program took as its begin before
// (clock, cpu_time of Fortran, getrusage) lies ahead of it: the difference, which is what programs print, would
// be negative.  So what was used until the image was made is added to what the kernel says, and what the restart
// itself has used is not.  Nothing is added in a process that was never continued, and the filter does not look
// at these calls there.
//
// The kernel divides the time into that of the program and that of the system as it samples, but their sum is
// exact.  So all is the clock, user is what getrusage calls ru_utime, and the rest is ru_stime.
#include "host.h"
#include "crossing.h"
#include "emulation.h"
#include "thread.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/times.h>

#define SECOND 1000000000ll
#define MICROSECOND 1000ll
#define TICK 10000000ll // of times: USER_HZ is 100 on this processor, for ever

// What a clock measures, in the last bits of its number.
enum { SAMPLED = 0, SAMPLED_USER = 1, EXACT = 2, KIND = 3, OF_THREAD = 4 };

static int64_t clock_now(clockid_t clock) {
    struct timespec t = {0, 0};
    RAW2(SYS_clock_gettime, clock, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static int64_t nanoseconds(const struct timeval *t) { return t->tv_sec * SECOND + t->tv_usec * MICROSECOND; }

static struct timeval microseconds(int64_t ns) {
    int64_t us = ns / MICROSECOND;
    return (struct timeval){us / 1000000, us % 1000000};
}

// Of the process, or of its children that were waited for, without what is added.
static struct spent by_usage(int who) {
    struct rusage u = {0};
    RAW2(SYS_getrusage, who, &u);
    int64_t user = nanoseconds(&u.ru_utime);
    return (struct spent){user + nanoseconds(&u.ru_stime), user};
}

// Of another thread, for which there is no getrusage: divided by the samples, as that does.
static struct spent by_clocks(pid_t tid) {
    clockid_t of = (clockid_t)(~(uint32_t)tid << 3) | OF_THREAD;
    int64_t all = clock_now(of | EXACT), sampled = clock_now(of | SAMPLED),
            user = clock_now(of | SAMPLED_USER);
    double part = sampled > 0 && user <= sampled ? (double)user / (double)sampled : 1;
    return (struct spent){all, (int64_t)((double)all * part)};
}

static struct spent sum(struct spent a, struct spent b) {
    return (struct spent){a.all + b.all, a.user + b.user};
}

static struct spent less(struct spent a, struct spent b) {
    return (struct spent){a.all - b.all, a.user - b.user};
}

void spent_save(struct spent_image *im, struct spent *threads) {
    im->threads = im->zero = 0;
    for (struct thread *t = host.threads; t; t = t->next) {
        threads[im->threads] = sum(by_clocks(t->tid), t->spent);
        im->threads++;
    }
    // After them: one of them may run this, and all have used no more than the process.
    struct spent process = by_usage(RUSAGE_SELF);
    process.all = clock_now(CLOCK_PROCESS_CPUTIME_ID); // not cut to microseconds
    im->process = sum(process, host.spent);
    im->children = sum(by_usage(RUSAGE_CHILDREN), host.spent_children);
}

void spent_load(const struct spent_image *im) {
    host.spent = im->process;
    host.spent_children = im->children;
}

// Before any of the threads goes on, which may ask for the time of each. The process comes first: it has used what they
// have; and by getrusage, not by the clock that is microseconds ahead of it: its time of the system would go back by them.
void spent_begin(void) {
    if (!host.restarted) return;
    host.spent = less(host.spent, by_usage(RUSAGE_SELF));
    host.spent_children = less(host.spent_children, by_usage(RUSAGE_CHILDREN));
    for (struct thread *t = host.threads; t; t = t->next) {
        int64_t used = by_clocks(t->tid).all - 2 * MICROSECOND; // getrusage cuts both of its times
        if (used > 0) t->spent.all -= used;
    }
}

// What it asks for itself by getrusage alone tells exactly how much of its time was the program's.
void spent_begin_thread(struct thread *t) { t->spent.user -= by_usage(RUSAGE_THREAD).user; }

void spent_forked(struct thread *t) { t->spent = host.spent = host.spent_children = (struct spent){0, 0}; }

int64_t spent_shift(clockid_t clock) {
    if (!host.restarted) return 0;
    struct spent s = {0, 0};
    pid_t owner = ~(clock >> 3); // 0: the caller
    if (clock == CLOCK_PROCESS_CPUTIME_ID)
        s = host.spent;
    else if (clock >= 0 ? clock == CLOCK_THREAD_CPUTIME_ID : (clock & OF_THREAD) && owner == 0)
        s = self()->spent;
    else if (clock >= 0 || (clock & KIND) > EXACT)
        return 0;
    else if (!(clock & OF_THREAD))
        s = owner == 0 || to_real(owner) == host.pid ? host.spent : s;
    else {
        kmask old = block_all();
        lock();
        const struct thread *t = thread_by_vtid(owner);
        if (t) s = t->spent;
        unlock();
        set_kernel_mask(old);
    }
    return clock < 0 && (clock & KIND) == SAMPLED_USER ? s.user : s.all;
}

static struct spent of(int who, const struct thread *t) {
    switch (who) {
    case RUSAGE_SELF:
        return host.spent;
    case RUSAGE_CHILDREN:
        return host.spent_children;
    }
    return t->spent; // RUSAGE_THREAD
}

long sys_getrusage(struct call *c) {
    struct rusage u;
    long r = RAW2(SYS_getrusage, c->a[0], &u);
    if (r < 0) return r;
    struct spent s = of((int)c->a[0], c->t);
    // Another thread's time was divided by its samples, so one part may be too small; their sum is exact.
    int64_t user = nanoseconds(&u.ru_utime) + s.user,
            all = nanoseconds(&u.ru_stime) + nanoseconds(&u.ru_utime) + s.all;
    if (all < 0) all = 0;
    if (user < 0) user = 0;
    if (user > all) user = all;
    u.ru_utime = microseconds(user);
    u.ru_stime = microseconds(all - user);
    return copy_out((uint64_t)c->a[1], &u, sizeof u) ? 0 : -EFAULT;
}

static clock_t ticks(int64_t ns) { return ns < 0 ? 0 : ns / TICK; }

long sys_times(struct call *c) {
    // What it returns counts from the start of the machine.
    long now = RAW1(SYS_times, NULL) + clock_shift(CLOCK_MONOTONIC) / TICK;
    if (!c->a[0]) return now;
    struct spent own = sum(by_usage(RUSAGE_SELF), host.spent),
                 children = sum(by_usage(RUSAGE_CHILDREN), host.spent_children);
    struct tms t = {.tms_utime = ticks(own.user),
                    .tms_stime = ticks(own.all - own.user),
                    .tms_cutime = ticks(children.user),
                    .tms_cstime = ticks(children.all - children.user)};
    return copy_out((uint64_t)c->a[0], &t, sizeof t) ? now : -EFAULT;
}
