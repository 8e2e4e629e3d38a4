// SPDX-License-Identifier: Apache-2.0
//
// named.c: mpix_checkpoint.h for a program that was not started by ckptrun, which names its state.  The list of what is
// named is kept here; the core is loaded by the first collective call of a job some rank of which has named something.
//
// One thread at a time calls these functions, as the header says; a lock keeps the others out all the same.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "embed/embed.h"
#include "embed/world.h"
#include "mpix_checkpoint.h"

#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t calling = PTHREAD_MUTEX_INITIALIZER; // held for the length of a call
static ckpt_named *list;                                    // by id
static size_t named, room;
static int level; // 0: nobody has said
static enum { NOT_YET, OPEN, CLOSED } job;
static pid_t opener; // of the process that has the job

static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;
static char reason[1000];

static void say(const char *why) {
    pthread_mutex_lock(&saying);
    snprintf(reason, sizeof reason, "%s", why);
    pthread_mutex_unlock(&saying);
}

static int fail(int code, const char *why) {
    say(why);
    return code;
}

// What the core answers, as these functions do.
static int answer(int code, const ckpt_error *e) {
    if (code == 0) return 0;
    say(e->message);
    if (code == CKPT_NAMED_NONE) return MPIX_CR_ERR_NONE;
    return code == CKPT_E_ARG ? MPIX_CR_ERR_ARG : MPIX_CR_ERR_OTHER;
}

// Calls a function of the core that returns int and takes its ckpt_error last.
#define CORE(name, ...)                                                            \
    ({                                                                             \
        __typeof__(&name) core_f = (__typeof__(&name))embed_find(#name, &error);   \
        int core_r = core_f == NULL ? CKPT_E_NOTSUP : core_f(__VA_ARGS__ & error); \
        answer(core_r, &error);                                                    \
    })
#define NEW_ERROR \
    (ckpt_error) { .size = sizeof(ckpt_error) }

#define ENTER pthread_mutex_lock(&calling), say("")
#define LEAVE(r)                        \
    do {                                \
        int leave_r = (r);              \
        pthread_mutex_unlock(&calling); \
        return leave_r;                 \
    } while (0)

// ---- the job -------------------------------------------------------------------------------------

static void end(void) {
    ckpt_error error = NEW_ERROR;
    pthread_mutex_lock(&calling);
    if (job == OPEN && opener == getpid()) CORE(ckpt_named_close, );
    job = CLOSED;
    pthread_mutex_unlock(&calling);
}

// Without MPI the program's end is that of the job.  One that fails has others to wait for it no more.
static void at_exit(int status, void *arg) {
    (void)arg;
    if (status == 0) end();
}

static int open_with(const ckpt_world *world) {
    ckpt_error error = NEW_ERROR;
    int r = CORE(ckpt_named_open, world, );
    if (r != 0) return r;
    job = OPEN;
    opener = getpid();
    if (world != NULL ? embed_at_finalize(end) != 0 : on_exit(at_exit, NULL) != 0)
        say("the end of the job will not be noticed: its directory is free when the process has ended");
    return 0;
}

// Comes before each collective call.  1: there is a job.  0: no rank has anything named, and needed is false.
// Else -MPIX_CR_ERR_*.
static int begin(bool needed) {
    ckpt_error error = NEW_ERROR;
    if (job == CLOSED)
        return -fail(MPIX_CR_ERR_OTHER,
                     "the job is closed: the program has called MPI_Finalize, or has ended");
    enum embed_mpi state = embed_mpi_state();
    if (job == OPEN) {
        if (state == EMBED_MPI_LATE)
            return -fail(MPIX_CR_ERR_OTHER, "MPI_Finalize was called: call this before it");
        return 1;
    }
    needed = needed || named > 0;
    switch (state) {
    case EMBED_MPI_NONE:
        if (!needed) return 0;
        return open_with(NULL) == 0 ? 1 : -MPIX_CR_ERR_OTHER;
    case EMBED_MPI_RUNS: {
        const ckpt_world *world = embed_world(&error);
        if (world == NULL) return -answer(CKPT_E_SYSTEM, &error);
        int any = embed_any(needed);
        if (any < 0) return -fail(MPIX_CR_ERR_OTHER, "the all-gather of the program's MPI failed");
        if (!any) return 0;
        return open_with(world) == 0 ? 1 : -MPIX_CR_ERR_OTHER;
    }
    case EMBED_MPI_EARLY:
        return needed ? -fail(MPIX_CR_ERR_OTHER, "MPI_Init was not called yet: call this after it") : 0;
    default:
        return needed ? -fail(MPIX_CR_ERR_OTHER, "MPI_Finalize was called: call this before it") : 0;
    }
}

// ---- what is named -------------------------------------------------------------------------------

// The place of id, or where it belongs.
static size_t place(int id) {
    size_t i = 0;
    while (i < named && list[i].id < id) i++;
    return i;
}

static ckpt_named *find(int id) {
    size_t i = place(id);
    return i < named && list[i].id == id ? &list[i] : NULL;
}

static int unknown(int id) {
    char why[100];
    snprintf(why, sizeof why, "region %d is not protected", id);
    return fail(MPIX_CR_ERR_ARG, why);
}

static int protect(int id, void *base, size_t bytes) {
    char why[200];
    if (id < 0) return fail(MPIX_CR_ERR_ARG, "the number of a region is 0 or more");
    if (base == NULL && bytes > 0) return fail(MPIX_CR_ERR_ARG, "the address of the region is NULL");
    if (bytes > (size_t)1 << 40) return fail(MPIX_CR_ERR_ARG, "the region has more than 2^40 bytes");
    const char *from = base, *to = from + bytes;
    for (size_t i = 0; bytes > 0 && i < named; i++) {
        const char *other = list[i].base;
        if (list[i].id == id || list[i].bytes == 0 || from >= other + list[i].bytes || other >= to) continue;
        snprintf(why, sizeof why, "region %d (%p, %zu bytes) overlaps region %d (%p, %zu bytes)", id, base,
                 bytes, list[i].id, list[i].base, list[i].bytes);
        return fail(MPIX_CR_ERR_ARG, why);
    }
    size_t i = place(id);
    if (i == named || list[i].id != id) {
        if (named == room) {
            size_t more = room == 0 ? 16 : 2 * room;
            ckpt_named *grown = realloc(list, more * sizeof *list);
            if (grown == NULL) return fail(MPIX_CR_ERR_OTHER, "no memory for the list of regions");
            list = grown, room = more;
        }
        memmove(&list[i + 1], &list[i], (named - i) * sizeof *list);
        named++;
    }
    list[i] = (ckpt_named){.id = id, .base = base, .bytes = bytes, .dims = CKPT_NAMED_OWN};
    return 0;
}

EXPORT int MPIX_Checkpoint_protect(int id, void *base, size_t bytes) {
    ENTER;
    LEAVE(protect(id, base, bytes));
}

static int unprotect(int id) {
    ckpt_named *one = find(id);
    if (one == NULL) return unknown(id);
    named--;
    memmove(one, one + 1, (size_t)(list + named - one) * sizeof *one);
    return 0;
}

EXPORT int MPIX_Checkpoint_unprotect(int id) {
    ENTER;
    LEAVE(unprotect(id));
}

static int distribute(int id, int dims, const size_t *whole, const size_t *first, const size_t *count,
                      size_t element) {
    char why[300];
    ckpt_named *one = find(id);
    if (one == NULL) return unknown(id);
    if (dims < 0 || dims > CKPT_NAMED_DIMS)
        return fail(MPIX_CR_ERR_ARG, "a region is distributed in 0 to 8 dimensions");
    if (dims > 0 && (whole == NULL || first == NULL || count == NULL))
        return fail(MPIX_CR_ERR_ARG, "whole, first or count is NULL");
    if (dims > 0 && element == 0) return fail(MPIX_CR_ERR_ARG, "an element has 0 bytes");
    unsigned __int128 bytes = element, all = element;
    for (int d = 0; d < dims; d++) {
        if (first[d] > whole[d] || count[d] > whole[d] - first[d]) {
            snprintf(why, sizeof why,
                     "region %d, dimension %d: %zu elements from element %zu on are not in an array of %zu",
                     id, d, count[d], first[d], whole[d]);
            return fail(MPIX_CR_ERR_ARG, why);
        }
        all *= whole[d], bytes *= count[d];
        if (all > INT64_MAX) return fail(MPIX_CR_ERR_ARG, "the array has more than 2^63 bytes");
    }
    if (dims > 0 && bytes != one->bytes) {
        snprintf(why, sizeof why, "region %d has %zu bytes, and the block that it is said to be has %zu", id,
                 one->bytes, (size_t)bytes);
        return fail(MPIX_CR_ERR_ARG, why);
    }
    one->dims = dims;
    one->element = element;
    for (int d = 0; d < dims; d++)
        one->whole[d] = whole[d], one->first[d] = first[d], one->count[d] = count[d];
    return 0;
}

EXPORT int MPIX_Checkpoint_distribute(int id, int dims, const size_t *whole, const size_t *first,
                                      const size_t *count, size_t element) {
    ENTER;
    LEAVE(distribute(id, dims, whole, first, count, element));
}

EXPORT int MPIX_Checkpoint_level(int wanted) {
    ckpt_error error = NEW_ERROR;
    ENTER;
    int r = CORE(ckpt_named_level, wanted, );
    if (r == 0) level = wanted;
    LEAVE(r);
}

EXPORT int MPIX_Checkpoint_raise(int wanted) {
    ckpt_error error = NEW_ERROR;
    ENTER;
    if (job != OPEN)
        LEAVE(fail(MPIX_CR_ERR_OTHER,
                   job == CLOSED ? "the job is closed: the program has called MPI_Finalize, or has ended"
                                 : "there is no checkpoint of this start that could be raised"));
    LEAVE(CORE(ckpt_named_raise, wanted, ));
}

// ---- collective calls ----------------------------------------------------------------------------

static const char nothing[] =
    "the program was not started by ckptrun, and names no state that could be saved (MPIX_Checkpoint_protect)";

EXPORT int MPIX_Checkpoint(MPIX_CR_state_t *state) {
    ckpt_error error = NEW_ERROR;
    int s = CKPT_STATE_IGNORE;
    ENTER;
    if (state == NULL) LEAVE(fail(MPIX_CR_ERR_ARG, "state is NULL"));
    int there = begin(false);
    if (there == 0) {
        say(nothing);
    } else {
        s = CKPT_STATE_ERROR;
        // A checkpoint that fails is no error of the call.
        if (there > 0) (void)CORE(ckpt_named_save, list, named, level, &s, );
    }
    *state = (MPIX_CR_state_t)s;
    LEAVE(0);
}

static int recover(MPIX_CR_state_t *state) {
    ckpt_error error = NEW_ERROR;
    if (state != NULL) *state = MPIX_CR_STATE_ERROR;
    int there = begin(state == NULL);
    if (there < 0) return -there;
    if (there == 0) {
        *state = MPIX_CR_STATE_IGNORE;
        return fail(0, nothing);
    }
    int r = CORE(ckpt_named_look, );
    if (r == 0) say(error.message); // what was lost
    if (state == NULL) return r;
    if (r == MPIX_CR_ERR_NONE) {
        *state = MPIX_CR_STATE_IGNORE;
        return 0;
    }
    if (r == 0) r = CORE(ckpt_named_load, list, named, );
    if (r == 0) *state = MPIX_CR_STATE_RESTART;
    return r;
}

EXPORT int MPIX_Checkpoint_recover(MPIX_CR_state_t *state) {
    ENTER;
    LEAVE(recover(state));
}

static int no_job(void) {
    if (job == OPEN) return 0;
    return fail(
        MPIX_CR_ERR_OTHER,
        job == CLOSED
            ? "the job is closed: the program has called MPI_Finalize, or has ended"
            : "nobody has looked what is saved: call MPIX_Checkpoint_recover(NULL) before, on all ranks");
}

EXPORT int MPIX_Checkpoint_saved(int id, size_t *bytes) {
    ckpt_error error = NEW_ERROR;
    ENTER;
    if (bytes == NULL) LEAVE(fail(MPIX_CR_ERR_ARG, "bytes is NULL"));
    *bytes = 0;
    int r = no_job();
    if (r == 0) r = CORE(ckpt_named_bytes, id, bytes, );
    LEAVE(r);
}

EXPORT int MPIX_Checkpoint_recover_one(int id) {
    ckpt_error error = NEW_ERROR;
    ENTER;
    int r = no_job();
    const ckpt_named *one = find(id);
    if (r == 0 && one == NULL) r = unknown(id);
    if (r == 0) r = CORE(ckpt_named_load_one, one, );
    LEAVE(r);
}

EXPORT int MPIX_Checkpoint_reason(char *text, size_t bytes) {
    if (text == NULL || bytes == 0) return MPIX_CR_ERR_ARG;
    pthread_mutex_lock(&saying);
    snprintf(text, bytes, "%s", reason);
    pthread_mutex_unlock(&saying);
    return 0;
}
