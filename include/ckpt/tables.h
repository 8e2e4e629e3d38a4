/* SPDX-License-Identifier: Apache-2.0
 *
 * tables.h: the tables that the hot path reads.
 *
 * Go maps them once and keeps them; C only loads, and counts with plain adds (docs/hot-path.md).  Go asserts
 * the same layout in vid/layout_test.go.  All addresses are process addresses; in split mode the
 * tables lie at a fixed place of the arena, are never part of an image, and are filled afresh on
 * restart.
 */
#ifndef CKPT_TABLES_H
#define CKPT_TABLES_H

#include <stddef.h>
#include <stdint.h>

/* A virtual id: kind in the upper 4 bits, index in the lower 28.  Index 0 is the kind's null handle,
 * indices below CKPT_VID_PREDEFINED are predefined objects. */
typedef uint32_t ckpt_vid;
#define CKPT_VID_NONE UINT32_MAX
#define CKPT_VID_PREDEFINED 256u
#define CKPT_VID_KIND(v) ((v) >> 28)
#define CKPT_VID_INDEX(v) ((v)&0x0fffffffu)
#define CKPT_VID(kind, index) (((uint32_t)(kind) << 28) | (uint32_t)(index))

/* Kinds.  The numbers are part of images and never reused.  No kind's ids equal a constant of that
 * kind in the MPICH ABI (whose handles begin with 0x0, 0x1, 0x2, 0x4, 0x5, 0x6 or 0x8). */
typedef enum ckpt_kind {
    CKPT_KIND_COMM = 1,
    CKPT_KIND_GROUP = 2,
    CKPT_KIND_DATATYPE = 3,
    CKPT_KIND_OP = 4,
    CKPT_KIND_REQUEST = 7,
    CKPT_KIND_MESSAGE = 5,
    CKPT_KIND_ERRHANDLER = 6,
    CKPT_KIND_INFO = 8,
    CKPT_KIND_WIN = 9,
    CKPT_KIND_FILE = 10,
    CKPT_KIND_KEYVAL = 11,
    CKPT_KIND_SESSION = 12,
    CKPT_KIND_PORT = 13 /* of MPI_Open_port: the application has a string, and no handle */
} ckpt_kind;

/* One object.  32 bytes, so two share a cache line. */
typedef struct ckpt_slot {
    uint64_t real;       /* the runtime's handle; not saved */
    uint32_t generation; /* odd while live; grows by one at each new and free */
    uint32_t clock;      /* communicators: index of the collective clock; others: the runtime's */
    union {
        int32_t rank;  /* communicators: mine */
        int32_t bytes; /* datatypes: size, -1 when more than int holds */
        int32_t a;     /* others: the runtime's */
    };
    union {
        int32_t size; /* communicators: of the local group */
        int32_t b;    /* others, and datatypes: the runtime's */
    };
    union {
        uint64_t counters; /* communicators: address of their ckpt_comm_counters; 0: it has none */
        uint64_t next;     /* free slots of the kinds in ckpt_tables.free: index of the next */
        uint64_t extra;    /* others: the runtime's */
    };
} ckpt_slot;

/* Messages per peer of one communicator: what draining compares (docs/architecture.md). */
typedef struct ckpt_bookmark {
    uint64_t sent, received;
} ckpt_bookmark;

/* Collective calls of one communicator (ckpt/clock.h).  Counted from 0 after a restart. */
typedef struct ckpt_clock {
    uint64_t call;    /* made so far; written by the calling thread */
    uint64_t ret;     /* how many of them have returned (non-blocking ones: were started) */
    const char *name; /* function of the last one, a constant, for those who ask; may be NULL */
} ckpt_clock;

/* What a communicator counts.  Saved with every image. */
typedef struct ckpt_comm_counters {
    uint64_t children; /* communicators made from this one so far */
    ckpt_clock clock;
    ckpt_bookmark peer[]; /* by the rank that messages are sent to (remote group of an
                             intercommunicator) */
} ckpt_comm_counters;

#define CKPT_PAGE_SLOTS 4096u /* slots of one page */
#define CKPT_PAGES 65536u     /* pages of one kind */
#define CKPT_KINDS 16u

typedef struct ckpt_tables {
    uint64_t magic;                /* CKPT_TABLES_MAGIC */
    uint32_t version, bytes;       /* CKPT_TABLES_VERSION, sizeof(ckpt_tables) */
    uint32_t pending;              /* CKPT_PENDING_* while a checkpoint is asked for (plain load) */
    uint32_t attention;            /* CKPT_ATTEND_*: what ckpt_poll looks at (plain load) */
    ckpt_slot **pages[CKPT_KINDS]; /* pages[kind][index / CKPT_PAGE_SLOTS], NULL: no such page */
    uint64_t free[CKPT_KINDS];     /* requests and messages, whose ids C gives out itself
                                      (ckpt/vid.h): a stack of free slots, index of the first in the
                                      low 28 bits (0: empty), a change count above them */
} ckpt_tables;

#define CKPT_PENDING_CLOCK 1u /* collective calls ask before they go on (ckpt_coll_call) */
#define CKPT_PENDING_STOP 2u  /* and calls that wait are to hold (struct ckpt_back_host) */

#define CKPT_ATTEND_CHECKPOINT 1u /* somebody asks for a checkpoint */
#define CKPT_ATTEND_SIGNAL 2u     /* signals have come */

#define CKPT_TABLES_MAGIC 0x31424154544b5043ull /* "CPKTTAB1" */
#define CKPT_TABLES_VERSION 1u

/* What C may know of a job. */
typedef struct ckpt_job {
    ckpt_tables *tables;
    const struct ckpt_routes *routes; /* ckpt/rail.h; NULL before the first rail */
} ckpt_job;

#endif
