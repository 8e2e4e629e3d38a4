// SPDX-License-Identifier: Apache-2.0
//
// back.h: what ckptrun and a back (the part of libckpt that is compiled against a real MPI) say to
// each other.
//
// ckptrun dlopens the back in the lower half and calls its one exported function.  The fronts know
// nothing of this: they call through the gate by number (gate.h), and ckptrun hands the call on.
#ifndef CKPT_BACK_H
#define CKPT_BACK_H

#include <stddef.h>

#include "ckpt.h"

// One MPI function.  args holds its C arguments in order, 8 bytes each (see mpi_canon.h for what is
// translated).  Returns a canonical error code, or a value of CKPT_GATE_*.
typedef long ckpt_back_fn(const long *args);

// What ckptrun gives.  Lives as long as the process.
typedef struct ckpt_back_host {
    size_t size;
    // Blocking collective calls are preceded by a barrier (--safe-state 2pc).
    int two_phase;
    // Where the back says why it cannot be used.
    char *why;
    size_t why_bytes;
} ckpt_back_host;

typedef struct ckpt_back {
    size_t size;
    const char *name;        // "mpich", "openmpi"
    unsigned nfn;            // length of fn
    ckpt_back_fn *const *fn; // by number - CKPT_FN_MPI; none is NULL
    // In a fresh process that will be continued from an image: starts the real MPI and opens the
    // job; opening restores the objects.  Returns 0 or a CKPT_E code with the reason in error.
    int (*restart)(ckpt_error *error);
    // MPIX_Checkpoint of an MPI program.  Returns 0 or a CKPT_E code with the reason in error;
    // before MPI_Init and after MPI_Finalize CKPT_E_STATE.
    int (*checkpoint)(int *state, ckpt_error *error);
    // Called before checkpoint, by a thread that is not held yet: waits until no other checkpoint is being
    // made.
    void (*enter)(void);
    // The job between MPI_Init and MPI_Finalize, else NULL.
    ckpt_job *(*job)(void);
    // Whether callbacks of ckpt_runtime_ops may call functions of the application's now. By any thread,
    // from a signal handler.
    int (*calls_up)(void);
} ckpt_back;

// The one symbol of a back.  Returns NULL when host is too old for this back, or for another reason, which is in
// host->why.
const ckpt_back *ckpt_back_entry(const ckpt_back_host *host);
typedef const ckpt_back *ckpt_back_entry_fn(const ckpt_back_host *host);

#endif
