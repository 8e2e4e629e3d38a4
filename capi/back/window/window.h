// SPDX-License-Identifier: Apache-2.0
//
// window.h: what a back knows of a window.
#ifndef CKPT_BACK_WINDOW_H
#define CKPT_BACK_WINDOW_H

#include "back/impl/handles.h"

enum { WINDOW_CREATE = 1, WINDOW_ALLOCATE = 2, WINDOW_DYNAMIC = 3, WINDOW_SHARED = 4 };
// An epoch of MPI_Win_lock_all: with locks of the real MPI, or with none (MPI_MODE_NOCHECK).
enum { WINDOW_CHECKED = 1, WINDOW_UNCHECKED = 2 };

struct attached {
    void *base;
    int64_t bytes;
};

// Fields of a window's slot: clock is the id of comm, extra this struct.  The struct is in memory of the
// lower half, so the window is described (describe.h) whenever the job is saved.
struct window {
    int flavor;
    // A duplicate of the communicator that the window was made on, which the application may free.  The
    // duplicate's clock counts the collective calls on the window.
    ckpt_vid comm;
    uint64_t identity; // of comm: equal on all members
    void *base;
    int64_t bytes;
    int unit;
    char *info; // hints, as in mpi_canon.h; NULL: none
    char name[MPI_MAX_OBJECT_NAME];
    // MPI_Win_allocate: addresses that the front reserved for base, a page more than base needs.
    // MPI_Win_allocate_shared: the memory of all ranks; starts has the first byte of each rank's part, and
    // the end.
    char *area;
    int64_t *starts;
    int ranks, rank;
    size_t alias_bytes;        // of the pages at base that are the real MPI's too (window_alias.c); 0: none
    struct attached *attached; // dynamic windows, under LOCK_WINDOWS
    int nattached;

    // Epochs of this rank.  Several threads may be at work, so locks are counted by atomic adds.
    uint64_t fences; // calls of MPI_Win_fence
    int fenced;      // the last one may have opened an epoch
    int locks;       // targets that are locked
    int lock_ranks;  // the sum of the ranks of these: the rank, when one is locked
    int locked_all;  // 0: not open; else WINDOW_CHECKED or WINDOW_UNCHECKED, as images have it
    int started, posted;
    int torn; // members have called MPI_Win_fence a different number of times
};

#pragma GCC visibility push(hidden)
// NULL when there is no such window; the caller then lets the real MPI refuse it in its own words.
static inline struct window *back_window_of(long vid) {
    return (struct window *)(uintptr_t)back_slot(CKPT_KIND_WIN, vid)->extra;
}
// Puts the window's descriptor in order.  Returns 0 or a CKPT_E code.
int window_describe(ckpt_vid vid, const struct window *w);
// Maps the memory of a shared window.  again: after a restart, with what the image had there.  Collective
// over comm; returns the same error of MPI on all members.
int window_share(const struct window *w, MPI_Comm comm, int again);
// Whether the members of comm, ranks of them, are on one node.  Collective.
int window_on_one_node(MPI_Comm comm, int ranks);
// Makes a window of MPI_Win_allocate on memory of the real MPI, and maps that memory at the window's base
// too. again: with what is at base.  Collective; 0: not possible here, make the window on the memory at base.
// Whether Open MPI is below, whose windows need to be known better.  Above the standard ABI only it can tell.
int window_above_openmpi(void);
int window_alias(struct window *w, MPI_Comm comm, MPI_Info info, int again, MPI_Win *win);
// Opens, in a window that was made again, the epochs that were open.  Collective; returns this rank's error.
int window_reopen(const struct window *w, MPI_Win win);
int back_rebuild_window(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real);
// ckpt_runtime_ops.  back_one_sided: whether there are windows.  back_settle: completes, together with all
// ranks, what was begun on them.
int back_one_sided(void *ctx);
int back_settle(void *ctx);
// ckpt_runtime_ops.memory.
long back_window_memory(void *ctx, uint64_t *list, long max);
// What holds a checkpoint back: an epoch that a restart could not open again.
int windows_hold(char *why, size_t bytes);
// Frees all windows; all ranks call it, in a safe state, and end.
void windows_end(void);
#pragma GCC visibility pop

#endif
