// SPDX-License-Identifier: Apache-2.0
//
// check.c: ckptrun's own file, and a sample of what it reads.
#include "../../thread_check.c"

#include <string.h>

#include "check.h"

int check_threads(const void *p, size_t bytes, char *why, size_t whybytes) {
    return threads_check(p, bytes, why, whybytes);
}

// A process of two threads, the first of them with a pending signal, and with so many timers.
size_t sample_threads(void *buffer, size_t bytes, unsigned timers, int spent) {
    size_t used = spent ? sizeof(struct spent_image) + 2 * sizeof(struct spent) : 0;
    size_t one = sizeof(struct thread_image) + sizeof(struct kept_signal) + 64;
    size_t two = sizeof(struct thread_image),
           all = sizeof(struct process_image) + timers * sizeof(struct timer_image) + used + one + two;
    if (bytes < all) return 0;
    memset(buffer, 0, all);
    struct process_image *p = buffer;
    p->bytes = sizeof *p;
    p->timers = timers;
    p->version = THREADS_VERSION + (spent ? 2 : timers ? 1 : 0);
    struct timer_image *timer = (struct timer_image *)(p + 1);
    for (unsigned i = 0; i < timers; i++)
        timer[i] = (struct timer_image){.id = (int)i, .notify = SIGEV_SIGNAL, .signo = SIGALRM, .left = 1000};
    struct spent_image *time = (struct spent_image *)(timer + timers);
    if (spent) {
        *time = (struct spent_image){.process = {3000, 2000}, .children = {500, 500}, .threads = 2};
        struct spent *by = (struct spent *)(time + 1);
        by[0] = by[1] = (struct spent){1500, 1000};
    }
    struct thread_image *im = (struct thread_image *)((char *)time + used);
    *im =
        (struct thread_image){.bytes = (uint32_t)one, .kind = 1, .main = 1, .pending = 1, .xsave_bytes = 64};
    ((struct kept_signal *)(im + 1))->info.si_signo = SIGUSR1;
    im = (struct thread_image *)((char *)im + one);
    *im = (struct thread_image){.bytes = (uint32_t)two, .kind = 2};
    return all;
}
