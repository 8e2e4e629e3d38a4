// SPDX-License-Identifier: Apache-2.0
//
// coll.h: all-to-all with a datatype for each peer.
#ifndef CKPT_BACK_COLL_H
#define CKPT_BACK_COLL_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// MPI_Ialltoallw and MPI_Ineighbor_alltoallw.  t: memory for the real datatypes; these functions own it
// (coll.c).
long back_start_w(const long *a, MPI_Datatype *t);
long back_start_neighbor_w(const long *a, MPI_Datatype *t);

#pragma GCC visibility pop

#endif
