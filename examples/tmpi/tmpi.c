// SPDX-License-Identifier: Apache-2.0
//
// tmpi.c: start and end of a process, and the small calls.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
} program;

// The process's own would be left behind by a rank that goes on in another one.
static char **arguments(void) {
    char **argv = tmpi_malloc((size_t)(program.argc + 1) * sizeof *argv);
    for (int i = 0; i < program.argc; i++)
        argv[i] = strcpy(tmpi_malloc(strlen(program.argv[i]) + 1), program.argv[i]);
    return argv;
}

static void run_rank(struct task *t) {
    t->result = program.body(program.argc, tmpi.slots ? arguments() : program.argv);
    // Ranks that have ended take part in nothing.  So none ends before all others are at their ends.
    tmpi_barrier();
    t->ended = true;
    embed_leave(t);
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
    tmpi.first = first_of(tmpi.process);
    tmpi.slots = number("TMPI_SLOTS", 0) != 0;
    program.body = body, program.argc = argc, program.argv = argv;
    embed_open();
    bool continued = tmpi.slots && move_in();
    sched_start(run_rank);
    for (int i = 0; i < tmpi.local; i++) {
        if (!continued) match_start(tmpi.tasks[i]);
        if (tmpi.slots && !continued) move_register(tmpi.tasks[i]);
    }
    embed_rails();
    sched_run();
    embed_close();
    int result = 0;
    for (int i = 0; i < tmpi.local; i++)
        if (tmpi.tasks[i]->result > result) result = tmpi.tasks[i]->result;
    return result;
}

// ---- small calls ----

int tmpi_rank(void) { return task_self()->rank; }
int tmpi_size(void) { return tmpi.size; }

void tmpi_yield(void) {
    embed_serve(task_self());
    task_yield();
}

void *tmpi_malloc(size_t bytes) {
    if (bytes == 0) bytes = 1;
    return memset(tmpi_must(task_room(task_self(), bytes)), 0, bytes);
}

void tmpi_free(void *memory) {
    if (memory != NULL) task_free(task_self(), memory);
}
