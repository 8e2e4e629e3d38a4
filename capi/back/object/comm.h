// SPDX-License-Identifier: Apache-2.0
//
// comm.h: communicators; groups and infos of the front.
#ifndef CKPT_BACK_COMM_H
#define CKPT_BACK_COMM_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Registers a communicator that the parent's members have just made, or VID_COMM_NULL when like is
// MPI_COMM_NULL.  Its descriptor is that of `like`: the communicator itself; or, with real MPI_COMM_NULL, the
// parent whose duplicate it will be.  identity 0: the identity follows from the parent's.
long back_new_comm(MPI_Comm real, MPI_Comm like, ckpt_vid parent, uint64_t identity, ckpt_vid *vid);
// The same for a duplicate that a persistent request has for itself.
long back_new_own_comm(MPI_Comm real, ckpt_vid parent, ckpt_vid *vid);
int back_is_own_comm(ckpt_vid vid);
// Reads the descriptor of such a duplicate: returns its identity and, in *members, its size.  0: the
// descriptor is of another kind, or damaged.
uint64_t back_own_comm_members(const void *descriptor, size_t bytes, int *members);
// Makes such a duplicate again; collective over its members.
int back_own_comm_again(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
// MPI_Comm_idup in two steps, with canonical errors.  First: the id of a duplicate that the parent's members
// will make; libckpt is told its identity and no more.
long back_promise_comm(ckpt_vid parent, ckpt_vid *vid);
long back_keep_promise(ckpt_vid parent, ckpt_vid vid);
// Takes a child back that the real MPI was not asked for, or has refused; VID_COMM_NULL: it has no id.
void back_comm_unborn(ckpt_vid parent, ckpt_vid child);
// Second: begins the call for a duplicate whose id was given out, and tells libckpt the rest.
long back_idup_promised(const long *a);
// An identity from rank 0 of comm, for communicators whose members have not counted the same number of
// siblings. Collective over comm.
uint64_t back_agree_identity(MPI_Comm comm);

int back_bind_comms(ckpt_job *job);
int back_rebuild_comm(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);

// Tells libckpt, once the job is open, who takes part in the calls on MPI_COMM_WORLD.
int back_clock_world(void);

// World ranks of a communicator's members, -1 for those of other jobs.  The caller frees the array.  NULL
// when MPI does not tell.
int *back_comm_world(MPI_Comm comm, int remote, int *n);

// The identity of a communicator: equal on all members, and no other communicator's.
uint64_t back_comm_identity(ckpt_vid comm);

// The members of a communicator, window or file: size out, ckpt_mpi_group out (NULL: only the size).
long back_group_out(MPI_Group group, int is_member, int *size, ckpt_mpi_group *out);

// Infos and groups of the front, for the length of one call.
MPI_Info back_info(const char *content);
void back_info_done(MPI_Info *info);
MPI_Group back_group(const ckpt_mpi_group *g);
void back_group_done(MPI_Group *group);

#pragma GCC visibility pop

#endif
