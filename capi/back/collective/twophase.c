// SPDX-License-Identifier: Apache-2.0
//
// twophase.c: the two-phase commit of the first MANA, as the baseline of --safe-state 2pc.
//
// Phase 1: a barrier in front of every blocking collective call, on a duplicate of the communicator that
// nobody else uses, tested in a loop.  A rank in the barrier has done nothing yet: it may be held and saved
// there, and a restart issues its call again, with the barrier.  Phase 2: the real call, which is counted as
// without 2pc (clock.c), so that a checkpoint waits for the ranks inside.  A rank that leaves the barrier
// while a checkpoint is pending asks before it goes on, as without 2pc.
//
// The first MANA has no answer for non-blocking collectives, whose start must not wait: they are made as
// without 2pc.  So are calls on a communicator of MPI_Comm_idup: it cannot have a duplicate while it is being
// made, and gets one only when a restart makes it again.
#include <stdlib.h>

#include "back/collective/twophase.h"
#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/request/wait.h"

struct phase {
    MPI_Comm barrier; // the duplicate; MPI_COMM_NULL: no barrier
    int paid;         // the barrier was made for a call that MPI then refused: the next call uses it
};
static struct phase *pages[CKPT_PAGES]; // by index of the communicator

static struct phase *phase_of(long comm) {
    uint32_t i = CKPT_VID_INDEX((ckpt_vid)comm);
    struct phase *page = pages[i / CKPT_PAGE_SLOTS];
    return page ? &page[i % CKPT_PAGE_SLOTS] : NULL;
}

static int new_page(uint32_t at) {
    struct phase *fresh = malloc(CKPT_PAGE_SLOTS * sizeof *fresh), *none = NULL;
    if (fresh == NULL) return MPI_ERR_NO_MEM;
    for (uint32_t i = 0; i < CKPT_PAGE_SLOTS; i++) fresh[i] = (struct phase){.barrier = MPI_COMM_NULL};
    if (!__atomic_compare_exchange_n(&pages[at], &none, fresh, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        free(fresh);
    return MPI_SUCCESS;
}

int back_two_phase_made(ckpt_vid comm, MPI_Comm real) {
    int size = 0, inter = 0, rc = MPI_SUCCESS;
    if (!back.host->two_phase || real == MPI_COMM_NULL) return MPI_SUCCESS;
    MPI_Comm_size(real, &size);
    MPI_Comm_test_inter(real, &inter);
    if (size == 1 && !inter) return MPI_SUCCESS; // nobody to wait for
    if (phase_of(comm) == NULL) rc = new_page(CKPT_VID_INDEX(comm) / CKPT_PAGE_SLOTS);
    if (rc != MPI_SUCCESS) return rc;
    phase_of(comm)->paid = 0;
    return MPI_Comm_dup(real, &phase_of(comm)->barrier);
}

void back_two_phase_freed(ckpt_vid comm) {
    struct phase *p = phase_of(comm);
    if (p != NULL && p->barrier != MPI_COMM_NULL) MPI_Comm_free(&p->barrier);
}

void back_two_phase(long comm, const char *call) {
    struct phase *p = phase_of(comm);
    struct back_waiting w;
    MPI_Request r;
    unsigned turn = 0;
    int flag = 0;
    if (p != NULL && p->paid) {
        p->paid = 0;
        return;
    }
    if (p == NULL || p->barrier == MPI_COMM_NULL || MPI_Ibarrier(p->barrier, &r) != MPI_SUCCESS)
        return; // the real call says what is wrong
    for (;; turn = back_next(turn)) {
        if (MPI_Test(&r, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || flag) break;
        back_slow(turn, &w, CKPT_WAIT_COLLECTIVE, call, comm, CANON_PROC_NULL, CANON_ANY_TAG);
        back_turn(turn);
    }
    back_over(turn, &w);
}

long back_two_phase_done(long comm, long rc) {
    struct phase *p = phase_of(comm);
    if (rc != 0 && p != NULL && back_refused(rc)) p->paid = 1;
    return rc;
}
