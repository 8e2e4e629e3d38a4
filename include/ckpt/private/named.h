/* SPDX-License-Identifier: Apache-2.0
 *
 * ckpt/private/named.h: what libckpt.so and its core say to each other for programs that name their state
 * (mpix_checkpoint.h).  libckpt.so keeps the list, and gives all of it with each call. */
#ifndef CKPT_PRIVATE_NAMED_H
#define CKPT_PRIVATE_NAMED_H

#include <stddef.h>
#include <stdint.h>

#include "ckpt.h"

enum { CKPT_NAMED_DIMS = 8, CKPT_NAMED_OWN = -1 };

/* A piece of the state of this rank. */
typedef struct ckpt_named {
    void *base;
    size_t bytes;
    int id;
    int dims; /* CKPT_NAMED_OWN: it is not distributed */
    uint64_t whole[CKPT_NAMED_DIMS], first[CKPT_NAMED_DIMS], count[CKPT_NAMED_DIMS];
    uint64_t element;
} ckpt_named;

/* The program's MPI.  Its functions are called on the thread that is inside a call of the core. */
typedef struct ckpt_world {
    int rank, ranks;
    const char *name; /* "mpich", "openmpi", "mpi" */
    char version[256];
    int (*allgather)(const void *mine, void *all, size_t bytes); /* 0, or MPI's error */
    void (*progress)(void);
} ckpt_world;

/* Answers of the functions below: 0, CKPT_NAMED_NONE, or a negative CKPT_E code. */
enum { CKPT_NAMED_NONE = 1 };

#ifndef CKPT_TYPES_ONLY
/* Opens the job, once.  world NULL: the ranks are those of the launcher.  Collective. */
int ckpt_named_open(const ckpt_world *world, ckpt_error *error);
int ckpt_named_close(ckpt_error *error);
/* Whether the level can be had. */
int ckpt_named_level(int level, ckpt_error *error);
/* Collective.  level 0: the default.  *state is a ckpt_state. */
int ckpt_named_save(const ckpt_named *list, size_t n, int level, int *state, ckpt_error *error);
/* Finds the epoch that is loaded.  Collective when it is called first.  With 0, error may say what was lost. */
int ckpt_named_look(ckpt_error *error);
/* Loads all.  Collective. */
int ckpt_named_load(const ckpt_named *list, size_t n, ckpt_error *error);
int ckpt_named_load_one(const ckpt_named *one, ckpt_error *error);
int ckpt_named_bytes(int id, size_t *bytes, ckpt_error *error);
/* Brings the last checkpoint to a level too, and waits for that.  Collective. */
int ckpt_named_raise(int level, ckpt_error *error);
#endif

#endif
