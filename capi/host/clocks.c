// SPDX-License-Identifier: Apache-2.0
//
// clocks.c: clocks that count from the start of a machine, for a program that moves to another one.
//
// Such a clock must never go back, and a program takes differences of its values (MPI_Wtime) over a restart.
// So after a restart the application's clock continues as if the machine had never changed: it has advanced
// by the time that passed on the calendar's clock.  The kernel's value is shifted by a constant, in the vDSO
// and in every call that takes or gives an absolute time.  On the same machine nothing is shifted, and all
// ranks on it agree as before.
#include "host.h"
#include "crossing.h"
#include "emulation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define SECOND 1000000000ll

// How far the clocks of one machine may drift from its calendar between two looks.
#define SAME_MACHINE (2 * SECOND)

static const clockid_t shifted[2] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME};

static int group(clockid_t clock) {
    switch (clock) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
        return 0;
    case CLOCK_BOOTTIME:
    case CLOCK_BOOTTIME_ALARM:
        return 1;
    }
    return -1;
}

static int64_t kernel_time(clockid_t clock) {
    struct timespec ts = {0, 0};
    RAW2(SYS_clock_gettime, clock, &ts);
    return ts.tv_sec * SECOND + ts.tv_nsec;
}

int64_t clock_shift(clockid_t clock) {
    int g = group(clock);
    return g < 0 ? spent_shift(clock) : host.clock_shift[g];
}

// Nanoseconds as the kernel has them, normalized: 0 <= tv_nsec < SECOND.
static struct timespec spec(int64_t ns) {
    struct timespec ts = {ns / SECOND, ns % SECOND};
    if (ts.tv_nsec < 0) {
        ts.tv_sec--;
        ts.tv_nsec += SECOND;
    }
    return ts;
}

const struct timespec *clock_to_kernel(clockid_t clock, const struct timespec *when, struct timespec *to) {
    int64_t shift = clock_shift(clock);
    if (!shift || when->tv_sec > INT64_MAX / SECOND / 2 || when->tv_sec < 0 || when->tv_nsec < 0 ||
        when->tv_nsec >= SECOND)
        return when; // nothing to shift: no time, for ever, or a value that the kernel refuses
    int64_t ns = when->tv_sec * SECOND + when->tv_nsec - shift;
    *to = spec(ns < 0 ? 0 : ns);
    return to;
}

void clocks_save(struct clock_image *im) {
    im->real = kernel_time(CLOCK_REALTIME);
    for (int g = 0; g < 2; g++) {
        im->shift[g] = host.clock_shift[g];
        im->now[g] = kernel_time(shifted[g]) + im->shift[g];
    }
}

void clocks_load(const struct clock_image *im) {
    int64_t passed = kernel_time(CLOCK_REALTIME) - im->real;
    if (passed < 0) passed = 0; // the calendar was set back, or differs between the machines
    struct timespec page[2];
    for (int g = 0; g < 2; g++) {
        int64_t shift = im->now[g] + passed - kernel_time(shifted[g]);
        int64_t change = shift - im->shift[g];
        if (change > -SAME_MACHINE && change < SAME_MACHINE) shift = im->shift[g];
        host.clock_shift[g] = shift;
        page[g] = spec(shift);
    }
    gate_page_set_clocks(page);
}

long sys_clock_gettime(struct call *c) {
    struct timespec ts;
    long r = RAW2(SYS_clock_gettime, clock_of_kernel((clockid_t)c->a[0]), &ts);
    int64_t shift = clock_shift((clockid_t)c->a[0]);
    if (r == 0 && shift) ts = spec(ts.tv_sec * SECOND + ts.tv_nsec + shift);
    return r == 0 && !copy_out((uint64_t)c->a[1], &ts, sizeof ts) ? -EFAULT : r;
}

long sys_clock_getres(struct call *c) {
    return RAW2(SYS_clock_getres, clock_of_kernel((clockid_t)c->a[0]), c->a[1]);
}

// The clock of a timerfd, from /proc.
static clockid_t clock_of(long fd) {
    char path[64] = "/proc/self/fdinfo/", text[512], digits[24];
    int n = 0;
    for (long v = fd; n == 0 || v; v /= 10) digits[n++] = (char)('0' + v % 10);
    for (char *to = path + strlen(path); n; *to = 0) *to++ = digits[--n];
    long info = RAW3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0);
    if (info < 0) return CLOCK_REALTIME;
    long bytes = RAW3(SYS_read, info, text, sizeof text - 1);
    RAW1(SYS_close, info);
    text[bytes < 0 ? 0 : bytes] = 0;
    const char *line = strstr(text, "clockid:");
    return line ? (clockid_t)strtol(line + 8, NULL, 10) : CLOCK_REALTIME;
}

long sys_timerfd_settime(struct call *c) {
    long fd = c->a[0], flags = c->a[1];
    const struct itimerspec *new = (const struct itimerspec *)c->a[2];
    struct itimerspec given, moved;
    bool shifts = (flags & TIMER_ABSTIME) && (host.clock_shift[0] || host.clock_shift[1]) && new &&fd >= 0;
    if (shifts && copy_in(&given, (uint64_t) new, sizeof given)) // else the kernel refuses the address
        new = &given;
    else
        shifts = false;
    // A value of 0 disarms the timer, whatever the clock says.
    if (shifts && (new->it_value.tv_sec || new->it_value.tv_nsec)) {
        struct timespec to;
        moved = *new;
        moved.it_value = *clock_to_kernel(clock_of(fd), &new->it_value, &to);
        if (!moved.it_value.tv_sec && !moved.it_value.tv_nsec) moved.it_value.tv_nsec = 1; // long past
        new = &moved;
    }
    return RAW4(SYS_timerfd_settime, fd, flags, new, c->a[3]);
}
