// SPDX-License-Identifier: Apache-2.0
//
// thread_check.c: checks whether bytes are what threads_save writes, before anything else uses them.  It
// reads nothing but these bytes, so that a fuzz test can run it by itself.
#include "host.h"
#include "thread.h"
#include "xstate.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>

static int damaged(char *why, size_t whybytes, size_t offset, const char *what) {
    snprintf(why, whybytes, "section \"threads\" of the image is damaged at offset %zu: %s", offset, what);
    return -EINVAL;
}

// With processor time, or of an earlier release: with timers and without.
static bool version_fits(const struct process_image *p) {
    return p->version == THREADS_VERSION + 2 || p->version == THREADS_VERSION + (p->timers ? 1 : 0);
}

const struct spent_image *threads_spent(const struct process_image *p) {
    return p->version < THREADS_VERSION + 2 ? NULL
                                            : (const void *)((const struct timer_image *)(p + 1) + p->timers);
}

size_t threads_begin(const struct process_image *p) {
    const struct spent_image *spent = threads_spent(p);
    return sizeof *p + p->timers * sizeof(struct timer_image) +
           (spent ? sizeof *spent + spent->threads * sizeof(struct spent) : 0);
}

int threads_check(const void *buffer, size_t bytes, char *why, size_t whybytes) {
    const struct process_image *p = buffer;
    if (bytes < sizeof *p || p->bytes != sizeof *p || !version_fits(p)) {
        snprintf(why, whybytes, "the image was written by another version of ckptrun");
        return -EINVAL;
    }
    const struct timer_image *timers = (const struct timer_image *)(p + 1);
    if (p->timers > (bytes - sizeof *p) / sizeof *timers)
        return damaged(why, whybytes, offsetof(struct process_image, timers), "there are not so many timers");
    for (uint32_t i = 0; i < p->timers; i++) {
        const struct timer_image *m = timers + i;
        if (m->id < 0 || m->signo < 0 || m->signo >= NSIGNALS || m->interval < 0 ||
            (m->left < 0 && !m->interval) || m->when < 0)
            return damaged(why, whybytes, (size_t)((const char *)m - (const char *)p),
                           "a timer that cannot be");
    }
    const struct spent_image *spent = threads_spent(p);
    size_t from = sizeof *p + p->timers * sizeof *timers;
    if (spent && (sizeof *spent > bytes - from ||
                  spent->threads > (bytes - from - sizeof *spent) / sizeof(struct spent)))
        return damaged(why, whybytes, from, "the processor time of its threads is cut short");
    unsigned mains = 0, count = 0;
    for (size_t at = threads_begin(p); at < bytes; count++) {
        if (bytes - at < sizeof(struct thread_image))
            return damaged(why, whybytes, at, "a thread is cut short");
        const struct thread_image *im = (const void *)((const char *)buffer + at);
        if (im->kind < 1 || im->kind > 3) return damaged(why, whybytes, at, "a thread of no kind");
        if (im->xsave_bytes > XSTATE_MOST)
            return damaged(why, whybytes, at, "a thread with more state than any processor has");
        size_t need = sizeof *im + im->pending * sizeof(struct kept_signal) + im->xsave_bytes;
        if (im->bytes != ((need + 7) & ~7ul) || im->bytes > bytes - at)
            return damaged(why, whybytes, at, "the length of a thread is wrong");
        if (im->main && ++mains > 1) return damaged(why, whybytes, at, "two main threads");
        const struct kept_signal *k = (const struct kept_signal *)(im + 1);
        for (uint32_t i = 0; i < im->pending; i++)
            if (k[i].info.si_signo < 1 || k[i].info.si_signo >= NSIGNALS)
                return damaged(why, whybytes, at, "a signal of no number");
        at += im->bytes;
    }
    if (spent && spent->threads != count)
        return damaged(why, whybytes, from,
                       "there is processor time of more or fewer threads than there are");
    return 0;
}
