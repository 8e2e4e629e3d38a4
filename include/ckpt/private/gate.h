/* SPDX-License-Identifier: Apache-2.0
 *
 * gate.h: how upper-half code (the fronts, the MPIX stub) calls into the lower half (split mode).
 *
 * The first page of the arena is written by ckptrun, at start and again at restart, and is read-only
 * for everybody else.  It is the only place where the upper half finds an address of the lower one.
 */
#ifndef CKPT_GATE_H
#define CKPT_GATE_H

#include <stdint.h>

struct ckpt_tables;

#define CKPT_ARENA_BASE 0x100000000000ull
#define CKPT_ARENA_END 0x10c000000000ull
/* Below this lie programs with fixed addresses and mappings with MAP_32BIT, and nothing of the lower half. */
#define CKPT_LOW_END (1ull << 31)

#define CKPT_GATE_MAGIC 0x3145544147504b43ull /* "CKPGATE1" */
#define CKPT_GATE_VERSION 1u

typedef struct ckpt_gate_page {
    uint64_t magic;          /* CKPT_GATE_MAGIC */
    uint32_t version, bytes; /* CKPT_GATE_VERSION, sizeof(ckpt_gate_page) */
    /* Calls lower-half function fn with args (8 bytes an argument, on the caller's stack) and returns
     * its result.  Callable by any thread of the upper half, not from a signal handler that
     * interrupted a call through the gate. */
    long (*gate)(unsigned fn, const void *args);
    struct ckpt_tables *tables; /* the job's tables; NULL until a runtime opened a job */
    /* The functions behind our vDSO: clock_gettime, gettimeofday, time, clock_getres, getcpu. */
    void *vdso[5];
    /* What is added to the kernel's time for the application, {seconds, nanoseconds >= 0}: of the
     * monotonic clocks, of those that count from boot.  Not zero after a restart on another machine. */
    int64_t clocks[2][2];
    /* Not 0 after a restart: clocks of processor time are asked of ckptrun, by the system call. */
    uint64_t spent;
} ckpt_gate_page;

#define CKPT_GATE ((const ckpt_gate_page *)CKPT_ARENA_BASE)

/* Results that no function returns by itself. */
#define CKPT_GATE_RETRY (INT64_MIN + 1)   /* make the same call again */
#define CKPT_GATE_RESTART (INT64_MIN + 2) /* the process was continued from an image inside this call */
#define CKPT_GATE_REFUSED (INT64_MIN + 3) /* CKPT_FN_API: the function cannot be called in this process */

/* Functions of the host; those of MPI follow from CKPT_FN_MPI on. */
enum {
    CKPT_FN_LOAD_BACK = 1,   /* const char *abi: load the real MPI; ends the process when it cannot */
    CKPT_FN_CHECKPOINT = 2,  /* int *state: MPIX_Checkpoint of a process */
    CKPT_FN_REASON = 3,      /* char *text, size_t bytes: MPIX_Checkpoint_reason */
    CKPT_FN_UPCALL_DONE = 4, /* private: end of a callback of the lower half into the upper */
    CKPT_FN_API = 5,         /* a function of ckpt.h by its number (embed/functions.h), then its arguments */
    CKPT_FN_TALK = 6,        /* ckpt_talk *: a function of ckpt.h that calls the runtime back (talk.h) */
    CKPT_FN_LOAD_VERBS = 7,  /* struct v_root *: load what is below libibverbs; an error number */
    CKPT_FN_MPI = 64,
    CKPT_FN_VERBS = 704 /* capi/verbs/objects.h */
};

#endif
