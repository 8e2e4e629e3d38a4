// SPDX-License-Identifier: Apache-2.0
//
// window.h: what the front keeps of a window.
#ifndef CKPT_FRONT_WINDOW_H
#define CKPT_FRONT_WINDOW_H

#include "front/front.h"

enum { CREATE = 1, ALLOCATE = 2, DYNAMIC = 3, SHARED = 4 }; // flavors; in all ABIs in this order

// One rank's part of a shared window.
struct front_part {
    MPI_Aint bytes;
    long unit;
};

// Attributes point into this record.
struct front_window {
    void *base;
    MPI_Aint bytes;
    int unit, flavor, model;
    // For MPI_Win_allocate, this rank's memory, mapped.  For MPI_Win_allocate_shared, the memory of all
    // ranks, and the part of each.
    char *area;
    size_t area_bytes;
    int ranks;
    struct front_part *parts;
    MPI_Aint *starts; // offsets in area, one more than ranks
    int gaps;         // there may be gaps between parts
};

// The handle of a window that was made below.
MPI_Win front_window_made(ckpt_vid v, const struct front_window *w, MPI_Info info);
// Makes a shared window on memory of the real MPI.  The memory exists as long as the window, and the window
// holds a checkpoint back.
long front_window_below(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void *base, ckpt_vid *v);
// Reserves addresses for bytes, PROT_READ and so on; NULL: there are none.
char *front_window_area(size_t bytes, int protection);
// Gives the memory back.
void front_window_unshare(struct front_window *w);

#endif
