// SPDX-License-Identifier: Apache-2.0
//
// signals.c: signals wait in the core until the runtime looks (ckpt_poll).  Then they are taken into the runtime's
// memory, which is saved, and their handlers are called.
#include <stdlib.h>
#include <string.h>

#include "embed/embed.h"
#include "embed/functions.h"
#include "embed/lock.h"

#define EXPORT __attribute__((visibility("default")))

static void lock(struct embed_signals *s) { embed_lock(&s->lock); }
static void unlock(struct embed_signals *s) { embed_unlock(&s->lock); }

static bool handled(struct embed_job *job, unsigned kind, struct embed_handler *out) {
    struct embed_signals *s = &job->signals;
    bool found = false;
    lock(s);
    for (const struct embed_handler *h = s->handlers; h; h = h->next)
        if (h->kind == kind && h->f) *out = *h, found = true;
    unlock(s);
    return found;
}

static void put(struct embed_signals *s, struct embed_signal *one) {
    one->next = NULL;
    lock(s);
    if (!s->last) s->last = &s->first;
    *s->last = one;
    s->last = &one->next;
    unlock(s);
}

// The first waiting signal of which want says yes; NULL: none.
static struct embed_signal *get(struct embed_job *job, unsigned kind, bool any_handled) {
    struct embed_signals *s = &job->signals;
    lock(s);
    struct embed_signal *one = NULL;
    for (struct embed_signal **at = &s->first; *at; at = &(*at)->next) {
        bool fits = (*at)->kind == kind;
        for (const struct embed_handler *h = s->handlers; any_handled && h; h = h->next)
            fits = fits || (h->kind == (*at)->kind && h->f);
        if (!fits) continue;
        one = *at;
        *at = one->next;
        if (s->last == &one->next) s->last = at;
        break;
    }
    unlock(s);
    return one;
}

// A task may be in a handler when another one comes here: signals of one kind stay in order only as far as their
// handler does not switch.
void embed_signals_take(struct embed_job *job) {
    for (;;) {
        unsigned kind = 0;
        int from = -1;
        size_t n = SIZE_MAX;
        int r = ckpt_core_signal_next(&job->seen, &kind, &from, NULL, &n);
        if (r == 0 || n == SIZE_MAX) break; // none, or nobody to ask
        struct embed_signal *one = malloc(sizeof *one + n + 1);
        if (!one) break; // it stays where it is, and is tried again
        if (r < 0 && ckpt_core_signal_next(&job->seen, &kind, &from, one->bytes, &n) != 1) {
            free(one); // another thread was faster
            continue;
        }
        one->kind = kind, one->from = from, one->n = n;
        put(&job->signals, one);
    }
    for (struct embed_signal *one; (one = get(job, 0, true)) != NULL; free(one)) {
        struct embed_handler h = {0};
        if (handled(job, one->kind, &h)) h.f(h.ctx, one->from, one->bytes, one->n);
    }
}

EXPORT int ckpt_attend(ckpt_job *job) {
    if (job == NULL) return CKPT_E_ARG;
    struct embed_job *j = embed_of(job);
    uint32_t bits = __atomic_load_n(&job->tables->attention, __ATOMIC_RELAXED);
    if (bits & CKPT_ATTEND_SIGNAL) embed_signals_take(j);
    if (!(bits & CKPT_ATTEND_CHECKPOINT)) return CKPT_POLL_NOTHING;
    __atomic_store_n(&j->asked, true, __ATOMIC_RELAXED);
    return embed_tasks_answer(j) ? CKPT_POLL_NOTHING : CKPT_POLL_CHECKPOINT;
}

EXPORT int ckpt_signal_handle(ckpt_job *job, unsigned kind,
                              void (*f)(void *ctx, int from, const void *bytes, size_t n), void *ctx) {
    if (job == NULL || kind < CKPT_SIGNAL_FIRST || kind > CKPT_SIGNAL_LAST) return CKPT_E_ARG;
    struct embed_signals *s = &embed_of(job)->signals;
    struct embed_handler *new = malloc(sizeof *new), *h;
    lock(s);
    for (h = s->handlers; h && h->kind != kind; h = h->next) continue;
    if (!h && new) {
        h = new, new = NULL;
        h->kind = kind, h->next = s->handlers;
        s->handlers = h;
    }
    if (h) h->f = f, h->ctx = ctx;
    unlock(s);
    free(new);
    return h ? CKPT_OK : CKPT_E_SYSTEM;
}

EXPORT int ckpt_signal_recv(ckpt_job *job, unsigned kind, int *from, void *bytes, size_t *n,
                            ckpt_error *error) {
    if (job == NULL || n == NULL || (bytes == NULL && *n != 0)) {
        embed_say(error, CKPT_E_ARG, "ckpt_signal_recv was given no job, or no room");
        return CKPT_E_ARG;
    }
    struct embed_job *j = embed_of(job);
    if (__atomic_load_n(&job->tables->attention, __ATOMIC_RELAXED) & CKPT_ATTEND_SIGNAL)
        embed_signals_take(j);
    struct embed_signal *one = get(j, kind, false);
    if (!one) return 0;
    if (one->n > *n) {
        struct embed_signals *s = &j->signals;
        *n = one->n;
        lock(s); // back to the front, where it was the first of its kind
        one->next = s->first;
        if (!s->last || s->last == &s->first) s->last = &one->next;
        s->first = one;
        unlock(s);
        embed_say(error, CKPT_E_ARG, "the signal is longer than the room for it");
        return CKPT_E_ARG;
    }
    if (from) *from = one->from;
    *n = one->n;
    if (one->n) memcpy(bytes, one->bytes, one->n);
    free(one);
    return 1;
}
