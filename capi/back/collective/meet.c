// SPDX-License-Identifier: Apache-2.0
//
// meet.c: collective calls whose members have no communicator of their own yet: MPI_Comm_create_group
// is called by some members of its parent only, MPI_Intercomm_create by two groups that do not know
// each other.
//
// libckpt finds out by its own network who takes part, and counts the call like any other.  A rank that waits
// for the others is at a gate: it is outside of MPI, and may be held.
#include <stdlib.h>

#include "back/collective/clock.h"
#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/impl/tags.h"
#include "back/object/comm.h"

// MPI checks the tag before anything else: a rank that gives a wrong one meets nobody.
static int sound_tag(long tag) {
    int *most = NULL, flag = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &flag);
    return (int)tag >= 0 && (!flag || (int)tag <= *most);
}

static long meet(ckpt_back_fn *fn, const long *a, uint64_t meeting) {
    if (meeting == 0) return fn(a);
    for (unsigned turn = 0; ckpt_group_call_ready(back.job, meeting) == CKPT_COLL_WAIT; turn++) {
        back_progress();
        back_turn(turn + BACK_SPIN + 1);
    }
    long rc = fn(a);
    ckpt_group_call_end(back.job, meeting);
    return rc;
}

// parent, group, tag, new
long clocked_Comm_create_group(const long *a) {
    ARGS(Comm_create_group) p = (const void *)a;
    static const char name[] = "MPI_Comm_create_group";
    const ckpt_mpi_group *g = p->group;
    uint64_t meeting = 0;
    if (g != NULL && real_comm(p->comm) != MPI_COMM_NULL && sound_tag(p->tag))
        meeting = ckpt_group_call_begin(back.job, p->comm, back_comm_identity(p->comm), p->tag, g->world,
                                        g->size, name);
    return meet(back_Comm_create_group, a, meeting);
}

// local, local leader, peer, remote leader, tag, new
long clocked_Intercomm_create(const long *a) {
    ARGS(Intercomm_create) p = (const void *)a;
    static const char name[] = "MPI_Intercomm_create";
    MPI_Comm local = real_comm(p->local_comm), peer = real_comm(p->bridge_comm);
    int rank = 0, n = 0, m = 0, inter = 0;
    int *world = NULL, *others = NULL;
    uint64_t meeting = 0;
    if (local != MPI_COMM_NULL && sound_tag(p->tag) && MPI_Comm_test_inter(local, &inter) == MPI_SUCCESS &&
        !inter && MPI_Comm_rank(local, &rank) == MPI_SUCCESS)
        world = back_comm_world(local, 0, &n);
    if (world != NULL && p->local_leader >= 0 && p->local_leader < n) { // else MPI refuses the leader
        ckpt_intercomm_call b = {.comm = p->local_comm,
                                 .n = n,
                                 .world = world,
                                 .identity = back_comm_identity(p->local_comm),
                                 .leader = world[p->local_leader],
                                 .remote = -1,
                                 .tag = p->tag};
        if (p->local_leader == rank && peer != MPI_COMM_NULL) {
            MPI_Comm_test_inter(peer, &inter);
            others = back_comm_world(peer, inter, &m);
            b.peer = back_comm_identity(p->bridge_comm);
            if (others != NULL && p->remote_leader >= 0 && p->remote_leader < m)
                b.remote = others[p->remote_leader];
        }
        meeting = ckpt_intercomm_call_begin(back.job, &b, name);
    }
    free(world);
    free(others);
    return meet(back_Intercomm_create, a, meeting);
}
