// SPDX-License-Identifier: Apache-2.0
//
// ports.h: ports that the program opened, and what they are called by the MPI below.
#ifndef CKPT_BACK_PORTS_H
#define CKPT_BACK_PORTS_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Names of ports are shorter, in any MPI.
enum { PORT_BYTES = 4096 };

// Opens a port of the saved job again.  Where the MPI below opens none, the port is lost, and nothing fails.
int back_rebuild_port(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
// Tells all ranks what the ports of the saved job are called now.  Collective, after all objects have been made.
// *lost is how many of this rank's could not be opened; why names the first of them, and the reason.
int back_ports_open(int *lost, char *why, size_t bytes);

// What the MPI below calls a port that the program names; NULL: it has the port no more.
const char *back_port_now(const char *said);
// What the MPI below called it when the job was saved.
const char *back_port_before(const char *said);
// What the program calls a port of which the MPI below has spoken.
const char *back_port_said(const char *now);

// For a collective call that needs a port, whose name counts on the root alone: *now is what the MPI below calls it.
// Returns 0, or on all members the error of a port that is lost.
long back_port_meet(const char *said, int root, MPI_Comm comm, const char **now);
// The error of a port that is lost.
long back_port_error(const char *said);

#pragma GCC visibility pop

#endif
