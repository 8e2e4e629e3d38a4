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

// Whether the call began before it was cut.  What is remembered of a cut call serves once.
static bool again(struct call *c) {
    struct cut_wait *w = &c->t->cut;
    const greg_t *r = c->uc->uc_mcontext.gregs;
    bool is = w->ip == (uint64_t)r[REG_RIP] && w->sp == (uint64_t)r[REG_RSP];
    w->ip = 0;
    return is;
}

static int64_t after(int64_t now, int64_t timeout) {
    return timeout > INT64_MAX - now ? INT64_MAX : now + timeout;
}

// The deadline of a wait of timeout nanoseconds, which begins now or began before it was cut.
static int64_t deadline(struct call *c, int64_t timeout) {
    return again(c) && !c->t->cut.processor ? c->t->cut.deadline : after(now_ns(), timeout);
}

void wait_remember(struct call *c, long result, int64_t when) {
    if (result != CUT) return;
    const greg_t *r = c->uc->uc_mcontext.gregs;
    // The trap will find this wait again by its address: after the instruction, as now.
    c->t->cut = (struct cut_wait){(uint64_t)r[REG_RIP], (uint64_t)r[REG_RSP], when, false};
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
static long relative_sleep(struct call *c, uint64_t request, uint64_t remaining) {
    struct timespec req, left;
    if (!copy_in(&req, request, sizeof req)) return -EFAULT;
    if (!valid(&req)) return -EINVAL;
    int64_t when = deadline(c, to_ns(&req));
    struct timespec abs = {when / SECOND, when % SECOND};
    long a[6] = {CLOCK_MONOTONIC, TIMER_ABSTIME, (long)&abs, 0};
    long r = blocking(c, SYS_clock_nanosleep, a);
    if (r == -EINTR && remaining) {
        left = wait_left(when);
        if (!copy_out(remaining, &left, sizeof left)) return -EFAULT;
    }
    wait_remember(c, r, when);
    return r;
}

long sys_nanosleep(struct call *c) { return relative_sleep(c, (uint64_t)c->a[0], (uint64_t)c->a[1]); }

static int64_t processor_time(clockid_t clock) {
    struct timespec now = {0, 0};
    RAW2(SYS_clock_gettime, clock, &now); // of a process that has ended: 0, and the sleep has its error
    return to_ns(&now);
}

// The same on a clock of processor time: else one that is longer than checkpoints are apart would never end.  What is left
// counts, not the time at which it ends: after a restart the kernel's clocks begin anew (spent.c).
static long processor_sleep(struct call *c, clockid_t clock, uint64_t request, uint64_t remaining) {
    struct timespec req;
    if (!copy_in(&req, request, sizeof req)) return -EFAULT;
    if (!valid(&req)) return -EINVAL;
    int64_t left = again(c) && c->t->cut.processor ? c->t->cut.deadline : to_ns(&req);
    int64_t when = after(processor_time(clock), left);
    struct timespec abs = {when / SECOND, when % SECOND};
    long a[6] = {clock, TIMER_ABSTIME, (long)&abs, 0};
    long r = blocking(c, SYS_clock_nanosleep, a);
    if (r != -EINTR && r != CUT) return r;
    left = when - processor_time(clock);
    if (left < 0) left = 0;
    req = (struct timespec){left / SECOND, left % SECOND};
    if (r == -EINTR && remaining && !copy_out(remaining, &req, sizeof req)) return -EFAULT;
    wait_remember(c, r, left);
    c->t->cut.processor = true;
    return r;
}

// Of the process, of a thread, or of another process; what is neither is a file (include/linux/posix-timers.h).
static bool of_processor(clockid_t clock) {
    return clock == CLOCK_PROCESS_CPUTIME_ID || (clock < 0 && (clock & 7) != 3);
}

long sys_clock_nanosleep(struct call *c) {
    bool relative = !(c->a[1] & TIMER_ABSTIME);
    if (relative && (c->a[0] == CLOCK_MONOTONIC || c->a[0] == CLOCK_REALTIME || c->a[0] == CLOCK_BOOTTIME ||
                     c->a[0] == CLOCK_TAI))
        return relative_sleep(c, (uint64_t)c->a[2], (uint64_t)c->a[3]);
    clockid_t of = clock_of_kernel((clockid_t)c->a[0]);
    struct timespec is;
    if (relative && of_processor(of) && RAW2(SYS_clock_gettime, of, &is) == 0) // else the kernel refuses it
        return processor_sleep(c, of, (uint64_t)c->a[2], (uint64_t)c->a[3]);
    long a[6] = {clock_of_kernel((clockid_t)c->a[0]), c->a[1], c->a[2], c->a[3]};
    struct timespec when, to;
    if (!relative && a[2] &&
        copy_in(&when, (uint64_t)a[2], sizeof when)) // else the kernel refuses the address
        a[2] = (long)clock_to_kernel((clockid_t)c->a[0], &when, &to);
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
// blocks them.  false: set is no address.
static bool own_mask(struct call *c, uint64_t set, kmask *mask) {
    *mask = uc_mask(c->uc);
    if (!set) return true;
    if (!copy_in(mask, set, sizeof *mask)) return false;
    *mask &= ~(KBIT(SIGKILL) | KBIT(SIGSTOP) | OURS);
    c->t->suspended = true;
    c->t->suspend_mask = *mask;
    return true;
}

// The timeout of a call, of which 0 is none; 0, or the error that the kernel gives.
static long timeout_in(uint64_t at, struct timespec *ts) {
    if (!at) return 0;
    if (!copy_in(ts, at, sizeof *ts)) return -EFAULT;
    return valid(ts) ? 0 : -EINVAL;
}

static long own_mask_done(struct call *c, long r) {
    if (r != -EINTR) c->t->suspended = false;
    return r;
}

long sys_ppoll(struct call *c) {
    struct timespec ts;
    kmask mask;
    bool forever = c->a[2] == 0;
    long r = timeout_in((uint64_t)c->a[2], &ts);
    if (r == 0 && !own_mask(c, (uint64_t)c->a[3], &mask)) r = -EFAULT;
    if (r != 0) return r;
    int64_t when = forever ? 0 : deadline(c, to_ns(&ts));
    r = own_mask_done(c, poll_until(c, c->a[0], c->a[1], forever, when, mask));
    if (!forever) wait_remember(c, r, when);
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
    struct timeval tv;
    bool forever = c->a[4] == 0;
    if (!forever && !copy_in(&tv, (uint64_t)c->a[4], sizeof tv)) return -EFAULT;
    if (!forever && (tv.tv_sec < 0 || tv.tv_usec < 0)) return -EINVAL;
    if (!fds_select(c)) return -EBADF;
    int64_t when = 0;
    if (!forever) {
        struct timespec ts = {tv.tv_sec + tv.tv_usec / 1000000, tv.tv_usec % 1000000 * 1000};
        when = deadline(c, to_ns(&ts));
    }
    long r = select_until(c, forever, when, uc_mask(c->uc));
    if (!forever) {
        wait_remember(c, r, when);
        if (r != CUT) { // Linux tells how much time is left, if it can
            struct timespec left = wait_left(when);
            tv = (struct timeval){left.tv_sec, left.tv_nsec / 1000};
            copy_out((uint64_t)c->a[4], &tv, sizeof tv);
        }
    }
    return r;
}

long sys_pselect6(struct call *c) {
    struct timespec ts;
    uint64_t sig[2] = {0, 0}; // mask, bytes
    bool forever = c->a[4] == 0;
    kmask mask;
    if (c->a[5] && !copy_in(sig, (uint64_t)c->a[5], sizeof sig)) return -EFAULT;
    long r = timeout_in((uint64_t)c->a[4], &ts);
    if (r != 0) return r;
    if (!fds_select(c)) return -EBADF;
    if (!own_mask(c, sig[0], &mask)) return -EFAULT;
    int64_t when = forever ? 0 : deadline(c, to_ns(&ts));
    r = own_mask_done(c, select_until(c, forever, when, mask));
    if (!forever) {
        wait_remember(c, r, when);
        if (r != CUT) {
            ts = wait_left(when);
            copy_out((uint64_t)c->a[4], &ts, sizeof ts);
        }
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
    kmask mask;
    if (!own_mask(c, c->nr == SYS_epoll_pwait ? (uint64_t)c->a[4] : 0, &mask)) return -EFAULT;
    long r = own_mask_done(c, epoll_until(c, ms < 0, when, mask));
    if (ms > 0) wait_remember(c, r, when);
    return r;
}

long sys_epoll_pwait2(struct call *c) {
    struct timespec ts;
    kmask mask;
    bool forever = c->a[3] == 0;
    long r = timeout_in((uint64_t)c->a[3], &ts);
    if (r == 0 && !own_mask(c, (uint64_t)c->a[4], &mask)) r = -EFAULT;
    if (r != 0) return r;
    int64_t when = forever ? now_ns() : deadline(c, to_ns(&ts));
    r = own_mask_done(c, epoll_until(c, forever, when, mask));
    if (!forever) wait_remember(c, r, when);
    return r;
}

long sys_futex(struct call *c) {
    if (inherits(c->a[1])) return inherit(c);
    int op = (int)c->a[1] & FUTEX_CMD_MASK;
    bool until = op == FUTEX_WAIT_BITSET && !(c->a[1] & FUTEX_CLOCK_REALTIME); // a time of its clock
    if (!c->a[3] || (op != FUTEX_WAIT && !until)) return blocking(c, SYS_futex, c->a);
    struct timespec ts, to;
    if (!copy_in(&ts, (uint64_t)c->a[3], sizeof ts)) return -EFAULT;
    if (until) {
        long a[6] = {c->a[0], c->a[1], c->a[2], 0, c->a[4], c->a[5]};
        a[3] = (long)clock_to_kernel(CLOCK_MONOTONIC, &ts, &to);
        return blocking(c, SYS_futex, a);
    }
    if (!valid(&ts)) return -EINVAL;
    int64_t when = deadline(c, to_ns(&ts));
    struct timespec abs = {when / SECOND, when % SECOND};
    // FUTEX_WAIT waits for a while, FUTEX_WAIT_BITSET until a time; both on the monotonic clock.
    long a[6] = {c->a[0], FUTEX_WAIT_BITSET | (c->a[1] & FUTEX_PRIVATE_FLAG),
                 c->a[2], (long)&abs,
                 0,       FUTEX_BITSET_MATCH_ANY};
    long r = blocking(c, SYS_futex, a);
    wait_remember(c, r, when);
    return r;
}
