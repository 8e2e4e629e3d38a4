// SPDX-License-Identifier: Apache-2.0
//
// Calls that wait, with addresses at which nothing is, or where nothing may be written: each is refused as the kernel
// refuses it. Prints a line for each.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static void say(const char *what, long r) { printf("%s: %ld %d\n", what, r, r < 0 ? errno : 0); }
#define TRY(...) say(#__VA_ARGS__, syscall(__VA_ARGS__))

int main(void) {
    long page = sysconf(_SC_PAGESIZE), bad = 16, mask = 0, word = 0;
    char *end = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int queue = epoll_create1(0);
    struct epoll_event event;
    struct timespec brief = {0, 1000}, *readable;
    struct timeval *left;
    if (end == MAP_FAILED || mprotect(end + page, (size_t)page, PROT_NONE) != 0) return 1;
    end += page - 8; // a time would reach into the page where nothing is
    TRY(SYS_nanosleep, bad, 0L);
    TRY(SYS_nanosleep, end, 0L);
    TRY(SYS_nanosleep, 0L, 0L);
    TRY(SYS_nanosleep, &brief, bad);
    TRY(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, bad, 0L);
    TRY(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, bad, 0L);
    TRY(SYS_clock_nanosleep, CLOCK_REALTIME, TIMER_ABSTIME, 0L, 0L);
    TRY(SYS_poll, bad, 1L, 0L);
    TRY(SYS_poll, bad, 0L, 0L);
    TRY(SYS_ppoll, 0L, 0L, bad, 0L, 8L);
    TRY(SYS_ppoll, 0L, 0L, &brief, bad, 8L);
    TRY(SYS_ppoll, 0L, 0L, end, &mask, 8L);
    TRY(SYS_select, 0L, 0L, 0L, 0L, bad);
    TRY(SYS_select, 3L, bad, 0L, 0L, 0L);
    TRY(SYS_pselect6, 0L, 0L, 0L, 0L, bad, 0L);
    TRY(SYS_pselect6, 0L, 0L, 0L, 0L, &brief, bad);
    long pack[2] = {bad, 8};
    TRY(SYS_pselect6, 0L, 0L, 0L, 0L, &brief, pack);
    TRY(SYS_epoll_wait, queue, bad, 1L, 0L);
    TRY(SYS_epoll_pwait, queue, &event, 1L, 0L, bad, 8L);
    TRY(SYS_epoll_pwait2, queue, &event, 1L, bad, 0L, 8L);
    TRY(SYS_epoll_pwait2, queue, &event, 1L, &brief, bad, 8L);
    TRY(SYS_futex, &word, FUTEX_WAIT, 0L, bad, 0L, 0L);
    TRY(SYS_futex, bad, FUTEX_WAIT, 0L, &brief, 0L, 0L);
    TRY(SYS_futex, &word, FUTEX_WAIT_BITSET, 0L, bad, 0L, -1L);
    TRY(SYS_rt_sigtimedwait, bad, 0L, 0L, 8L);
    TRY(SYS_rt_sigtimedwait, &mask, 0L, bad, 8L);
    TRY(SYS_rt_sigsuspend, bad, 8L);
    TRY(SYS_clock_gettime, CLOCK_MONOTONIC, bad);
    TRY(SYS_rt_sigaction, SIGUSR1, -1L, 0L, 8L);
    TRY(SYS_rt_sigaction, SIGUSR1, end, 0L, 8L);
    TRY(SYS_rt_sigaction, SIGUSR1, 0L, end, 8L);
    TRY(SYS_rt_sigaction, SIGKILL, 0L, bad, 8L);
    TRY(SYS_rt_sigaction, 99L, bad, 0L, 8L);
    TRY(SYS_rt_sigprocmask, SIG_BLOCK, -1L, 0L, 8L);
    TRY(SYS_rt_sigprocmask, SIG_BLOCK, 0L, bad, 8L);
    TRY(SYS_sigaltstack, end, 0L);
    TRY(SYS_sigaltstack, 0L, -1L);
    stack_t wrong = {.ss_sp = end, .ss_size = 9000, .ss_flags = 99};
    TRY(SYS_sigaltstack, &wrong, 0L);
    TRY(SYS_pipe, end + 4);
    TRY(SYS_pipe2, -1L, 0L);
    TRY(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0L, bad);
    TRY(SYS_semop, 0L, bad, 1L);
    TRY(SYS_semtimedop, 0L, end, 1L, bad);
    TRY(SYS_openat, 99L, "here", O_RDONLY);
    TRY(SYS_openat, 99L, "/dev/null/there", O_RDONLY);
    say("next descriptor", dup(0));
    // Where the time that is left cannot be written, that is no error.
    readable = mmap(NULL, (size_t)page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    left = (struct timeval *)readable;
    TRY(SYS_select, 0L, 0L, 0L, 0L, left);
    TRY(SYS_pselect6, 0L, 0L, 0L, 0L, readable, 0L);
    return 0;
}
