// SPDX-License-Identifier: Apache-2.0
//
// front.h: the application's MPI.
//
// A front has the SONAME, symbols and constants of one MPI ABI (mpich_abi.h, openmpi_abi.h; one of
// them is chosen with -DFRONT_ABI=...), and runs in the upper half.  A front answers what it can from
// the tables and from its own memory, and sends the rest through the gate.  It includes no mpi.h.
//
// All memory of a front is upper-half memory: an image holds that memory as it is, and a restart has
// nothing to make again here.
//
//   abi.h      types and constants of the ABI; how an MPI function is declared
//   core.h     init.c, core.c: calls of the MPI below, and what the front keeps beside the tables
//   error.h    error.c: errors and their handlers
//   coll.h     coll.c: operations of the application
//   request.h  request.c, grequest.c
//   objects.h  object/: groups, infos, attributes, hints, communicators, windows
#ifndef CKPT_FRONT_H
#define CKPT_FRONT_H

#include "front/abi.h"
#include "front/coll.h"
#include "front/core.h"
#include "front/error.h"
#include "front/objects.h"
#include "front/request.h"

#endif
