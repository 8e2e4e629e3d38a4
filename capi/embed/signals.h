// SPDX-License-Identifier: Apache-2.0
//
// signals.h: signals that have come to this process (signals.c).
#ifndef EMBED_SIGNALS_H
#define EMBED_SIGNALS_H

#include <stddef.h>

struct embed_job;

struct embed_handler {
    unsigned kind;
    void (*f)(void *ctx, int from, const void *bytes, size_t n);
    void *ctx;
    struct embed_handler *next;
};

struct embed_signal {
    struct embed_signal *next;
    unsigned kind;
    int from;
    size_t n;
    char bytes[];
};

// Signals in the order in which they came.  lock is held for moments, never over a callback.
struct embed_signals {
    unsigned lock;
    struct embed_handler *handlers;
    struct embed_signal *first, **last;
};

// Takes all signals from the core, and calls the handlers of those that have one.
void embed_signals_take(struct embed_job *job);

#endif
