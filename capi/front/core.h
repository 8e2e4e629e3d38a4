// SPDX-License-Identifier: Apache-2.0
//
// core.h: whether MPI runs, calls of the MPI below, and what the front keeps beside the tables.
#ifndef CKPT_FRONT_CORE_H
#define CKPT_FRONT_CORE_H

#include <stddef.h>

#include "ckpt/vid.h"
#include "front/abi.h"
#include "front/gen/zz_words.h"

// ---- init.c ------------------------------------------------------------------------------------

extern int front_sessions_only; // MPI_Init was not called, but MPI_Session_init was
// Starts the MPI below; ends the process when that fails.
void front_begin(int required);
int front_thread_level(void); // that the process has: one of CANON_THREAD_

// ---- core.c: calls -----------------------------------------------------------------------------

enum { FRONT_BEFORE, FRONT_RUNNING, FRONT_AFTER };
extern int front_state;

// Says that fn was called outside MPI_Init and MPI_Finalize, and ends the process.
__attribute__((noreturn)) void front_not_running(unsigned fn);

// "MPI_Send"
const char *front_name(unsigned fn);

// Makes a call that is allowed at any time.
long front_call_again(unsigned fn, const void *args) __attribute__((cold));
static inline long front_call_always(unsigned fn, const void *args) {
    long rc = CKPT_GATE->gate(fn, args);
    if (__builtin_expect(rc != 0, 0) && rc == CKPT_GATE_RETRY) rc = front_call_again(fn, args);
    return rc;
}

static inline long front_call(unsigned fn, const void *args) {
    if (__builtin_expect(front_state != FRONT_RUNNING, 0)) front_not_running(fn);
    return front_call_always(fn, args);
}

static inline const ckpt_slot *front_slot(unsigned fn, ckpt_kind kind, ckpt_vid vid) {
    if (__builtin_expect(front_state != FRONT_RUNNING, 0)) front_not_running(fn);
    return ckpt_vid_slot(CKPT_GATE->tables, kind, vid);
}

static inline int front_is_null(ckpt_kind kind, const ckpt_slot *slot) {
    return slot == CKPT_GATE->tables->pages[kind][0];
}

// ---- core.c: memory of the front ---------------------------------------------------------------

void *front_alloc(size_t bytes); // zeroed; never NULL
char *front_strdup(const char *s, size_t max);
void front_lock(void);
void front_unlock(void);

// ---- core.c: what is kept of objects -----------------------------------------------------------

// What an error belongs to, and what a handler is for.
enum { FRONT_COMM, FRONT_TYPE, FRONT_WIN, FRONT_FILE, FRONT_SORTS };

// What the front keeps of a communicator, datatype, window or file.
struct front_side {
    ckpt_vid errhandler;
    struct front_attr *attrs;    // newest first
    char *name;                  // NULL: none was set
    const char *info;            // hints, as in mpi_canon.h; NULL: none
    struct front_window *window; // windows: what their predefined attributes say
    struct front_group *group;   // communicators: their group, once it was asked for
    struct front_contents *made; // datatypes that were made with large counts: how
};

// The record of an object, which is made when there is none.  Never fails: the process ends when memory
// is exhausted, as it would in MPI itself.
struct front_side *front_side(int sort, ckpt_vid vid);
// The record if there is one: an object that was never given anything to keep has none.
struct front_side *front_side_known(int sort, ckpt_vid vid);
// Frees the record of an object that was freed (its attributes have been deleted before).
void front_side_drop(int sort, ckpt_vid vid);

// Objects that only the front has, by virtual id: groups, infos, error handlers, keyvals.
ckpt_vid front_object_new(ckpt_kind kind, void *object);
void *front_object(ckpt_kind kind, ckpt_vid vid); // NULL: no such object
void front_object_drop(ckpt_kind kind, ckpt_vid vid);

#endif
