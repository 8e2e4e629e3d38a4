// SPDX-License-Identifier: Apache-2.0
//
// sys_wait.c: calls that wait with a timeout.
//
// The kernel ends such calls with EINTR when a handler ran, also with SA_RESTART.  The application must not
// notice parking, so a call that parking cut short is issued again, for the time that was left
// (docs/split-process.md P9).  The thread record remembers the deadline, and the address of the call.
#include "host.h"
#include "emulation.h"
#include "fds.h"
#include "thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>

#define SECOND 1000000000ll

int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * SECOND + ts.tv_nsec;
}

// The deadline of a wait of timeout nanoseconds, which begins now or began before it was cut.
static int64_t deadline(struct call *c, int64_t timeout) {
    struct cut_wait *w = &c->t->cut;
    const greg_t *r = c->uc->uc_mcontext.gregs;
    if (w->ip == (uint64_t)r[REG_RIP] && w->sp == (uint64_t)r[REG_RSP]) {
        w->ip = 0;
        return w->deadline;
    }
    w->ip = 0;
    int64_t now = now_ns();
    return timeout > INT64_MAX - now ? INT64_MAX : now + timeout;
}

void wait_remember(struct call *c, long result, int64_t when) {
    if (result != CUT) return;
    const greg_t *r = c->uc->uc_mcontext.gregs;
    // The trap will find this wait again by its address: after the instruction, as now.
    c->t->cut = (struct cut_wait){(uint64_t)r[REG_RIP], (uint64_t)r[REG_RSP], when};
}

struct timespec wait_left(int64_t when) {
    int64_t n = when - now_ns();
    if (n < 0) n = 0;
    return (struct timespec){n / SECOND, n % SECOND};
}

static bool valid(const struct timespec *ts) {
    return ts->tv_sec >= 0 && ts->tv_nsec >= 0 && ts->tv_nsec < SECOND;
}

static int64_t to_ns(const struct timespec *ts) {
    return ts->tv_sec > INT64_MAX / SECOND - 1 ? INT64_MAX : ts->tv_sec * SECOND + ts->tv_nsec;
}

// Relative sleeps become absolute ones on the monotonic clock, so that cutting loses nothing.
static long relative_sleep(struct call *c, const struct timespec *req, struct timespec *rem) {
    if (!valid(req)) return -EINVAL;
    int64_t when = deadline(c, to_ns(req));
    struct timespec abs = {when / SECOND, when % SECOND};
    long a[6] = {CLOCK_MONOTONIC, TIMER_ABSTIME, (long)&abs, 0};
    long r = blocking(c, SYS_clock_nanosleep, a);
    if (r == -EINTR && rem) *rem = wait_left(when);
    wait_remember(c, r, when);
    return r;
}

long sys_nanosleep(struct call *c) {
    return relative_sleep(c, (const struct timespec *)c->a[0], (struct timespec *)c->a[1]);
}

long sys_clock_nanosleep(struct call *c) {
    bool relative = !(c->a[1] & TIMER_ABSTIME);
    // Only for clocks that run with real time; a sleep on a clock of CPU time is left to the kernel.
    if (relative && (c->a[0] == CLOCK_MONOTONIC || c->a[0] == CLOCK_REALTIME || c->a[0] == CLOCK_BOOTTIME ||
                     c->a[0] == CLOCK_TAI))
        return relative_sleep(c, (const struct timespec *)c->a[2], (struct timespec *)c->a[3]);
    long a[6] = {c->a[0], c->a[1], c->a[2], c->a[3]};
    struct timespec to;
    if (!relative && a[2]) a[2] = (long)clock_to_kernel((clockid_t)a[0], (const struct timespec *)a[2], &to);
    return blocking(c, SYS_clock_nanosleep, a);
}

int64_t wait_deadline(struct call *c, const struct timespec *timeout) { return deadline(c, to_ns(timeout)); }

// The kernel's ppoll sets the application's mask atomically.  Here the mask is set before the call, and the
// attention word closes the gap.
static long poll_until(struct call *c, long fds, long nfds, bool forever, int64_t when, kmask mask) {
    struct timespec ts = {0, 0};
    if (!forever) ts = wait_left(when);
    long a[6] = {fds, nfds, forever ? 0 : (long)&ts, 0, 8};
    return blocking_masked(c, SYS_ppoll, a, mask);
}

long sys_poll(struct call *c) {
    int ms = (int)c->a[2];
    int64_t when = ms > 0 ? deadline(c, ms * 1000000ll) : 0;
    long r = poll_until(c, c->a[0], (long)(unsigned)c->a[1], ms < 0, when, uc_mask(c->uc));
    if (ms > 0) wait_remember(c, r, when);
    return r;
}

// The mask of a call that has one of its own: signals that the call lets in are delivered although the thread
// blocks them.
static kmask own_mask(struct call *c, uint64_t set) {
    if (!set) return uc_mask(c->uc);
    kmask m = *(const kmask *)set & ~(KBIT(SIGKILL) | KBIT(SIGSTOP) | OURS);
    c->t->suspended = true;
    c->t->suspend_mask = m;
    return m;
}

static long own_mask_done(struct call *c, long r) {
    if (r != -EINTR) c->t->suspended = false;
    return r;
}

long sys_ppoll(struct call *c) {
    const struct timespec *ts = (const struct timespec *)c->a[2];
    if (ts && !valid(ts)) return -EINVAL;
    int64_t when = ts ? deadline(c, to_ns(ts)) : 0;
    kmask mask = own_mask(c, (uint64_t)c->a[3]);
    long r = own_mask_done(c, poll_until(c, c->a[0], c->a[1], !ts, when, mask));
    if (ts) wait_remember(c, r, when);
    return r;
}

// select changes its sets only when it returns a result, so a select that was cut can be issued again.
static long select_until(struct call *c, bool forever, int64_t when, kmask mask) {
    struct timespec ts = {0, 0};
    if (!forever) ts = wait_left(when);
    long a[6] = {c->a[0], c->a[1], c->a[2], c->a[3], forever ? 0 : (long)&ts, 0};
    return blocking_masked(c, SYS_pselect6, a, mask);
}

long sys_select(struct call *c) {
    struct timeval *tv = (struct timeval *)c->a[4];
    if (tv && (tv->tv_sec < 0 || tv->tv_usec < 0)) return -EINVAL;
    if (!fds_select(c)) return -EBADF;
    int64_t when = 0;
    if (tv) {
        struct timespec ts = {tv->tv_sec + tv->tv_usec / 1000000, tv->tv_usec % 1000000 * 1000};
        when = deadline(c, to_ns(&ts));
    }
    long r = select_until(c, !tv, when, uc_mask(c->uc));
    if (tv) {
        wait_remember(c, r, when);
        if (r != CUT) { // Linux tells how much time is left
            struct timespec left = wait_left(when);
            tv->tv_sec = left.tv_sec;
            tv->tv_usec = left.tv_nsec / 1000;
        }
    }
    return r;
}

long sys_pselect6(struct call *c) {
    struct timespec *ts = (struct timespec *)c->a[4];
    const uint64_t *sig = (const uint64_t *)c->a[5]; // {mask, bytes}
    if (ts && !valid(ts)) return -EINVAL;
    if (!fds_select(c)) return -EBADF;
    int64_t when = ts ? deadline(c, to_ns(ts)) : 0;
    kmask mask = own_mask(c, sig ? sig[0] : 0);
    long r = own_mask_done(c, select_until(c, !ts, when, mask));
    if (ts) {
        wait_remember(c, r, when);
        if (r != CUT) *ts = wait_left(when);
    }
    return r;
}

static long epoll_until(struct call *c, bool forever, int64_t when, kmask mask) {
    // epoll_pwait counts in milliseconds: round up, and wait again when that was too short.
    for (;;) {
        int64_t ms = -1;
        if (!forever) {
            int64_t left = when - now_ns();
            ms = left <= 0 ? 0 : (left + 999999) / 1000000;
            if (ms > INT32_MAX) ms = INT32_MAX;
        }
        long a[6] = {c->a[0], c->a[1], c->a[2], ms, 0, 8};
        long r = blocking_masked(c, SYS_epoll_pwait, a, mask);
        if (r != 0 || ms <= 0 || now_ns() >= when) return r;
    }
}

// epoll_wait and epoll_pwait
long sys_epoll_wait(struct call *c) {
    int ms = (int)c->a[3];
    int64_t when = ms > 0 ? deadline(c, ms * 1000000ll) : now_ns();
    kmask mask = own_mask(c, c->nr == SYS_epoll_pwait ? (uint64_t)c->a[4] : 0);
    long r = own_mask_done(c, epoll_until(c, ms < 0, when, mask));
    if (ms > 0) wait_remember(c, r, when);
    return r;
}

long sys_epoll_pwait2(struct call *c) {
    const struct timespec *ts = (const struct timespec *)c->a[3];
    if (ts && !valid(ts)) return -EINVAL;
    int64_t when = ts ? deadline(c, to_ns(ts)) : now_ns();
    kmask mask = own_mask(c, (uint64_t)c->a[4]);
    long r = own_mask_done(c, epoll_until(c, !ts, when, mask));
    if (ts) wait_remember(c, r, when);
    return r;
}

long sys_futex(struct call *c) {
    int op = (int)c->a[1] & FUTEX_CMD_MASK;
    const struct timespec *ts = (const struct timespec *)c->a[3];
    if (op == FUTEX_WAIT_BITSET && ts && !(c->a[1] & FUTEX_CLOCK_REALTIME)) { // until a time of its clock
        struct timespec to;
        long a[6] = {c->a[0], c->a[1], c->a[2], 0, c->a[4], c->a[5]};
        a[3] = (long)clock_to_kernel(CLOCK_MONOTONIC, ts, &to);
        return blocking(c, SYS_futex, a);
    }
    if (op != FUTEX_WAIT || !ts) return blocking(c, SYS_futex, c->a);
    if (!valid(ts)) return -EINVAL;
    int64_t when = deadline(c, to_ns(ts));
    struct timespec abs = {when / SECOND, when % SECOND};
    // FUTEX_WAIT waits for a while, FUTEX_WAIT_BITSET until a time; both on the monotonic clock.
    long a[6] = {c->a[0], FUTEX_WAIT_BITSET | (c->a[1] & FUTEX_PRIVATE_FLAG),
                 c->a[2], (long)&abs,
                 0,       FUTEX_BITSET_MATCH_ANY};
    long r = blocking(c, SYS_futex, a);
    wait_remember(c, r, when);
    return r;
}
