// SPDX-License-Identifier: Apache-2.0
//
// Waits in one system call after the other, each time until a signal ends the call.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t signals;

static void on_signal(int sig) {
    (void)sig;
    signals++;
}

int main(void) {
    // Enough memory that writing it takes a while.
    size_t words = 4u << 20;
    uint64_t *memory = malloc(words * sizeof *memory), v = 1;
    if (!memory) return 1;
    for (size_t i = 0; i < words; i++) memory[i] = v = v * 6364136223846793005u + 1442695040888963407u;
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_signal; // without SA_RESTART
    sigaction(SIGUSR1, &a, NULL);
    int p[2], set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    sem_t semaphore;
    if (pipe(p) != 0 || set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, p[0], &event) != 0 ||
        sem_init(&semaphore, 0, 0) != 0)
        return 1;
    sigset_t none, other;
    sigemptyset(&none);
    sigemptyset(&other);
    sigaddset(&other, SIGUSR2);
    static const char *const names[] = {"pause",        "nanosleep",    "poll", "select",
                                        "sigsuspend",   "epoll_wait",   "read", "sem_wait",
                                        "sigtimedwait", "sem_timedwait"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        struct timespec hour = {3600, 0}, at;
        struct timeval limit = {3600, 0};
        struct pollfd fd = {p[0], POLLIN, 0};
        fd_set fds;
        FD_ZERO(&fds);
        FD_SET(p[0], &fds);
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_sec += 3600;
        printf("wait %d\n", i);
        fflush(stdout);
        int r = 0;
        char c;
        errno = 0;
        switch (i) {
        case 0:
            r = pause();
            break;
        case 1:
            r = nanosleep(&hour, NULL);
            break;
        case 2:
            r = poll(&fd, 1, -1);
            break;
        case 3:
            r = select(p[0] + 1, &fds, NULL, NULL, &limit);
            break;
        case 4:
            r = sigsuspend(&none);
            break;
        case 5:
            r = epoll_wait(set, &event, 1, -1);
            break;
        case 6:
            r = (int)read(p[0], &c, 1);
            break;
        case 7:
            r = sem_wait(&semaphore);
            break;
        case 8:
            r = sigtimedwait(&other, NULL, &hour);
            break;
        case 9:
            r = sem_timedwait(&semaphore, &at);
            break;
        }
        printf("done %d %s %d %s signals %d\n", i, names[i], r, errno == EINTR ? "EINTR" : strerror(errno),
               (int)signals);
        fflush(stdout);
    }
    printf("memory %016lx\n", (unsigned long)memory[words - 1]);
    return 0;
}
