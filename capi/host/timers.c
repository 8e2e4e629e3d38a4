// SPDX-License-Identifier: Apache-2.0
//
// timers.c: the interval timers of a stopped process.
//
// The timers are disarmed when all threads are stopped, before pending signals are taken.  Otherwise a timer
// could expire after that and before the image: its SIGALRM would be in no queue that is saved.  And the
// kernel reports no time left for a timer whose SIGALRM is pending, so a restart would not arm the timer
// again.
#include "host.h"
#include "emulation.h"

#include <sys/syscall.h>
#include <sys/time.h>

#define SECOND 1000000ull // in microseconds

_Static_assert(ITIMER_REAL == 0 && ITIMER_VIRTUAL == 1 && ITIMER_PROF == 2, "order in an image");

void itimers_stop(void) {
    static const struct itimerval none;
    for (int i = 0; i < 3; i++) RAW3(SYS_setitimer, i, &none, host.itimer[i]);
    host.itimer_stopped = now_ns();
}

void itimers_save(uint64_t to[3][4]) {
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) to[i][k] = host.itimer[i][k];
}

// passed: microseconds that have passed for the timer of real time.
static void arm(const uint64_t timers[3][4], uint64_t passed) {
    for (int i = 0; i < 3; i++) {
        uint64_t t[4] = {timers[i][0], timers[i][1], timers[i][2], timers[i][3]};
        if (!(t[0] | t[1] | t[2] | t[3])) continue;
        if (!(t[2] | t[3])) { // the timer had expired, and its signal is among those kept
            t[2] = t[0];
            t[3] = t[1];
        } else if (i == ITIMER_REAL) {
            uint64_t left = t[2] * SECOND + t[3];
            left = left > passed ? left - passed : 1; // 0 would disarm it
            t[2] = left / SECOND;
            t[3] = left % SECOND;
        }
        RAW3(SYS_setitimer, i, t, NULL);
    }
}

void itimers_start(void) {
    if (!host.itimer_stopped) return;
    arm(host.itimer, (uint64_t)(now_ns() - host.itimer_stopped) / 1000);
    host.itimer_stopped = 0;
}

void itimers_load(const uint64_t from[3][4]) { arm(from, 0); }
