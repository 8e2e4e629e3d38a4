// SPDX-License-Identifier: Apache-2.0
//
// check.h: how the programs of this folder end at the first thing that is not as it must be: they say
// which, where and on which rank, and end the whole job.
#ifndef CKPT_TEST_CHECK_H
#define CKPT_TEST_CHECK_H

#include <mpi.h>
#include <stdio.h>

static int rank; // in MPI_COMM_WORLD; each program sets it after MPI_Init

#define CHECK(what)                                                                   \
    do {                                                                              \
        if (!(what)) {                                                                \
            fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #what); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                             \
        }                                                                             \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

// MPICH 5 returns no error for which a handler of the program was called; under ckptrun it is returned.
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 50000000
#define REFUSED(call) ((void)(call), 1)
#else
#define REFUSED(call) ((call) != MPI_SUCCESS)
#endif

#endif
