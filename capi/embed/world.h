// SPDX-License-Identifier: Apache-2.0
//
// world.h: the MPI of the program, which this library is not linked with.
#ifndef EMBED_WORLD_H
#define EMBED_WORLD_H

#include <stdbool.h>

#include "ckpt/private/named.h"

enum embed_mpi {
    EMBED_MPI_NONE,  // the process has no MPI
    EMBED_MPI_EARLY, // it has one, and MPI_Init was not called
    EMBED_MPI_RUNS,
    EMBED_MPI_LATE // MPI_Finalize was called
};
enum embed_mpi embed_mpi_state(void);

// While it runs: the world, by a communicator of our own.  Collective when it is called first.  NULL: error says why.
const ckpt_world *embed_world(ckpt_error *error);
// Calls f once, in MPI_Finalize, before anything of the MPI ends.
int embed_at_finalize(void (*f)(void));
// All ranks learn whether some says yes.  Collective; embed_world has succeeded.  -1: MPI failed.
int embed_any(bool yes);

#endif
