// SPDX-License-Identifier: Apache-2.0
//
// tmpi.c: start and end of a process, and the small calls.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "inside.h"

struct tmpi tmpi;

void tmpi_die(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "tmpi: process %d: ", tmpi.process);
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    _Exit(70);
}

void *tmpi_must(void *memory) {
    if (memory == NULL) tmpi_die("out of memory");
    return memory;
}

// ---- start and end ----

static struct {
    int (*body)(int argc, char **argv);
    int argc;
    char **argv;
    int result; // atomic
} program;

static void run_rank(struct task *t) {
    int result = program.body(program.argc, program.argv);
    // Ranks that have ended take part in nothing.  So none ends before all others are at their ends.
    tmpi_barrier();
    embed_leave(t);
    int old = __atomic_load_n(&program.result, __ATOMIC_RELAXED);
    while (result > old && !__atomic_compare_exchange_n(&program.result, &old, result, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED)) {}
}

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    if (text == NULL) return otherwise;
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end != 0 || n < 0 || n > 1 << 20) tmpi_die("%s=%s is no number", name, text);
    return (int)n;
}

int tmpi_run(int (*body)(int argc, char **argv), int argc, char **argv) {
    tmpi.process = number("CKPT_RANK", 0);
    tmpi.processes = number("CKPT_SIZE", 1);
    tmpi.local = number("TMPI_RANKS", 1);
    tmpi.workers = number("TMPI_WORKERS", 2);
    if (tmpi.process >= tmpi.processes || tmpi.local < 1 || tmpi.workers < 1)
        tmpi_die("process %d of %d, with %d ranks on %d workers", tmpi.process, tmpi.processes, tmpi.local,
                 tmpi.workers);
    tmpi.size = tmpi.processes * tmpi.local;
    program.body = body, program.argc = argc, program.argv = argv;
    sched_start(run_rank);
    for (int i = 0; i < tmpi.local; i++) match_start(&tmpi.tasks[i]);
    embed_open();
    sched_run();
    embed_close();
    return program.result;
}

// ---- small calls ----

int tmpi_rank(void) { return task_self()->rank; }
int tmpi_size(void) { return tmpi.size; }

void tmpi_yield(void) {
    embed_serve(task_self());
    task_yield();
}

void *tmpi_malloc(size_t bytes) { return tmpi_must(calloc(1, bytes > 0 ? bytes : 1)); }
void tmpi_free(void *memory) { free(memory); }
