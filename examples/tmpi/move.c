// SPDX-License-Identifier: Apache-2.0
//
// move.c: ranks that are saved apart from their processes, and go on in others (tmpirun --slots).  The second page for
// implementers: all that libckpt's regions mode asks of a runtime.
//
// A rank is its slot (slots.c): stack, task, heap, messages that wait for it.  A checkpoint saves slots, and a restart
// takes them one by one, in any number of processes.  So a rank that is saved must stand in code of this program, and
// nowhere in libckpt, whose frames know the process.  It waits here (move_wait), and when all ranks of the process do, a
// worker calls ckpt_checkpoint on its own stack, for the process:
//
//     rank                                  worker, on a stack of the process
//     move_wait: meeting = true, parks      move_meet: all wait
//                                             ckpt_checkpoint ──► quiesce(1): no rank runs; rails are closed; slots are
//                                                                 written; rails are open; quiesce(0)
//     goes on  <────────────────────────      meeting = false, unpark
//
// After a restart nobody is in ckpt_checkpoint: move_in finds ranks with meeting = true and lets them go on.
#include <stdio.h>
#include <stdlib.h>

#include "inside.h"

static struct {
    int waiting; // tasks in move_wait; atomic
    int left;    // tasks that have ended; atomic
    bool busy;   // a worker is in move_meet; atomic
} move;

void move_register(struct task *t) {
    ckpt_error error = {.size = sizeof error};
    if (ckpt_task_region(tmpi.job, t->rank, slot_base(t->rank), slot_bytes(), CKPT_REGION_CODE, &error) != 0)
        tmpi_die("rank %d cannot be saved: %s", t->rank, error.message);
}

void move_leave(struct task *t) {
    (void)t;
    __atomic_fetch_add(&move.left, 1, __ATOMIC_SEQ_CST);
}

// ---- a checkpoint -------------------------------------------------------------------------------

void move_wait(struct task *t) {
    __atomic_store_n(&t->meeting, true, __ATOMIC_RELAXED);
    __atomic_fetch_add(&move.waiting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&t->meeting, __ATOMIC_ACQUIRE)) task_park();
}

static bool all_wait(void) {
    int waiting = __atomic_load_n(&move.waiting, __ATOMIC_SEQ_CST);
    return waiting > 0 && waiting + __atomic_load_n(&move.left, __ATOMIC_SEQ_CST) == tmpi.local;
}

void move_meet(void) {
    bool nobody = false;
    if (!all_wait() ||
        !__atomic_compare_exchange_n(&move.busy, &nobody, true, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return;
    if (all_wait()) { // another worker may have been faster
        ckpt_error error = {.size = sizeof error};
        ckpt_state state = CKPT_STATE_ERROR;
        if (ckpt_checkpoint(tmpi.job, 0, &state, &error) != 0)
            fprintf(stderr, "tmpi: process %d: checkpoint: %s\n", tmpi.process, error.message);
        embed_met(state);
        __atomic_store_n(&move.waiting, 0, __ATOMIC_SEQ_CST); // before anybody comes again
        for (int i = 0; i < tmpi.local; i++) {
            struct task *t = tmpi.tasks[i];
            if (!__atomic_load_n(&t->meeting, __ATOMIC_RELAXED)) continue; // it has ended
            __atomic_store_n(&t->meeting, false, __ATOMIC_RELEASE);
            task_unpark(t);
        }
    }
    __atomic_store_n(&move.busy, false, __ATOMIC_SEQ_CST);
}

// ---- a restart ----------------------------------------------------------------------------------

static struct task *take_in(int rank, const ckpt_saved *saved) {
    ckpt_error error = {.size = sizeof error};
    void *base;
    if (ckpt_task_load(tmpi.job, rank, &base, &error) != 0) tmpi_die("%s", error.message);
    struct task *t = slot_task(rank);
    if (base != slot_base(rank) || t->rank != rank)
        tmpi_die("what is saved of rank %d is no slot of tmpi", rank);
    t->index = rank - tmpi.first;
    t->next = NULL, t->fiber = NULL;
    t->token = 0; // it is made ready, as if it were unparked; it looks whether meeting is over
    t->meeting = false;
    t->state = CKPT_STATE_RESTART;
    if (saved->called) t->called = false; // this is the answer; else it waits on for its own
    match_continue(t);
    if (t->ended) move.left++;
    return t;
}

bool move_in(void) {
    ckpt_error error = {.size = sizeof error};
    ckpt_saved saved = {.size = sizeof saved};
    int rc = ckpt_tasks_saved(tmpi.job, &saved, &error), called = 0;
    if (rc < 0) tmpi_die("%s", error.message);
    if (rc == 0) return false;
    if (saved.ranks < tmpi.processes)
        tmpi_die("%d ranks are too few for %d processes", saved.ranks, tmpi.processes);
    tmpi.size = saved.ranks;
    tmpi.first = first_of(tmpi.process);
    tmpi.local = first_of(tmpi.process + 1) - tmpi.first;
    tmpi.tasks = tmpi_must(calloc((size_t)tmpi.local, sizeof(struct task *)));
    for (int i = 0; i < tmpi.local; i++) {
        tmpi.tasks[i] = take_in(tmpi.first + i, &saved);
        called += tmpi.tasks[i]->called;
    }
    embed_moved(called);
    return true;
}
