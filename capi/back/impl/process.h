// SPDX-License-Identifier: Apache-2.0
//
// process.h: what a back knows of its process and job, and what all files of a back include.
//
// A back is compiled against one real MPI's mpi.h.  It turns virtual ids and canonical values
// (mpi_canon.h) into that MPI's, calls that MPI, and turns the results back.  It describes every
// object, so that a restart can make the object again in a fresh MPI (describe.h).  It uses libckpt
// through ckpt.h, as any runtime could, and tells of communicators in memory (ckpt/private/news.h).
//
// The folders are layers, and each layer knows the ones before it: impl, request, message, object,
// collective, window and file, image, and the files beside these folders.  A layer calls a later one
// through back_above (above.h).
//
// Errors: the real MPI is told to return them; the front raises them.
#ifndef CKPT_BACK_PROCESS_H
#define CKPT_BACK_PROCESS_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "back/gen/zz_back.h"
#include "canon/gen/zz_args.h"
#include "ckpt/back.h"
#include "ckpt/clock.h"

#if defined(OPEN_MPI)
#define BACK_NAME "openmpi"
#elif defined(MPICH_NAME)
#define BACK_NAME "mpich"
#else
#define BACK_NAME "abi" // any MPI with the standard ABI
#endif

// To measure what counting costs, a back is compiled that does not count; its job cannot be saved.
#ifndef BACK_COUNTS
#define BACK_COUNTS 1
#endif

// The tree for tests has backs that check themselves (make faults).
#ifdef BACK_CHECKS
#include <assert.h>
#define back_assert(truth) assert(truth)
#else
#define back_assert(truth) ((void)0)
#endif

#pragma GCC visibility push(hidden)

// What libckpt keeps for the back over a restart (ckpt_runtime_state).
struct back_state {
    int level;            // thread level the application asked for
    int bsend_bytes;      // attached buffer; 0: none
    void *bsend_buffer;   // upper-half memory
    uint64_t serial;      // identities that this rank has given out
    int provided;         // thread level that the application was told it has
    int tools;            // calls of MPI_T_init_thread without their MPI_T_finalize
    int tools_level;      // thread level of the first of them
    int tag_ub;           // highest tag that the program was told of; 0: that of the MPI it began under
    ckpt_mpi_name *names; // published names, the last one first; upper-half memory
};

// The back of this process.
struct back {
    // Every call reads these fields: one cache line, and the first words of slots.
    ckpt_tables *tables; // the job's; NULL before MPI_Init and after MPI_Finalize
    ckpt_job *job;
    int shared;                   // MPI_THREAD_MULTIPLE: several threads may be here at once
    unsigned drained;             // messages that were received by draining and not by the application yet
    unsigned sync;                // synchronous sends under way, behind which messages are counted (sync.h)
    unsigned awaiting;            // ... whose messages were drained, and whose receivers have not taken them
    ckpt_slot *slots[CKPT_KINDS]; // the first page of each kind, which never moves; NULL: no page
    int rank, size;               // in MPI_COMM_WORLD
    MPI_Comm control;             // libckpt's own; the application never sees it
    MPI_Group world;
    MPI_Group everyone; // world's members, then processes of other jobs that are or were reached
    struct back_state *state;
    const ckpt_back_host *host;
    ckpt_back_fn *const *calls;   // MPI's functions, by number - CKPT_FN_MPI
    ckpt_back_fn *const *counted; // the same, with the collective ones behind the clock (table.c)
    MPI_Comm self;                // libckpt's own, of this process alone: messages to the user's buffers
};
extern struct back back;

static inline unsigned back_pending(void) { return ckpt_pending(back.tables); }

// Stands in the tables for calls that the front answers itself.
long back_missing(const long *a);

#pragma GCC visibility pop

#endif
