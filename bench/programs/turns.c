// SPDX-License-Identifier: Apache-2.0
//
// turns: runs a command whose processes poll for each other, and are more than processors.
//
//     turns US COMMAND...
//
// A process that polls keeps its processor until the kernel's next tick, some milliseconds, though the one that it waits for
// could go on; each step of ten ranks then takes that long.  The command's processes are given slices of US microseconds
// (Linux 6.12; 100 and more), and on each processor a thread of real-time priority wakes as often, so that the kernel looks whose turn
// it is.  As root.  Ends as the command does.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// The kernel's struct sched_attr, as far as Linux 3.14 has it.
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; // ns
};

static struct timespec pause_of;

static int fail(const char *what, int error) {
    fprintf(stderr, "turns: %s: %s\n", what, strerror(error));
    return 125;
}

static void *wake(void *processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    struct sched_param first = {.sched_priority = 1};
    int error = pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    if (error == 0) error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &first);
    if (error != 0) exit(fail("a thread of real-time priority (as root?)", error));
    for (;;) nanosleep(&pause_of, NULL);
}

int main(int argc, char **argv) {
    char *end = NULL;
    long us = argc > 2 ? strtol(argv[1], &end, 10) : 0;
    if (argc < 3 || *end != '\0' || us < 100 || us > 100000) {
        fprintf(stderr, "usage: turns US COMMAND..., US from 100 to 100000\n");
        return 125;
    }
    pause_of.tv_nsec = us * 1000;
    pid_t child = fork();
    if (child < 0) return fail("fork", errno);
    if (child == 0) {
        struct attributes a = {.size = sizeof a, .policy = SCHED_OTHER, .runtime = (uint64_t)us * 1000};
        if (syscall(SYS_sched_setattr, 0, &a, 0) != 0) _exit(fail("sched_setattr", errno));
        execvp(argv[2], argv + 2);
        _exit(fail(argv[2], errno));
    }
    cpu_set_t all;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return fail("sched_getaffinity", errno);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        pthread_t thread;
        int error = CPU_ISSET(i, &all) ? pthread_create(&thread, NULL, wake, (void *)i) : 0;
        if (error != 0) return fail("a thread", error);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return fail("waitpid", errno);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
