// SPDX-License-Identifier: Apache-2.0
//
// window_shared.c: MPI_Win_allocate_shared and MPI_Win_shared_query.
//
// The program keeps pointers into the memory of all ranks, so this memory is in the upper half, at
// addresses that each process chooses for itself.  The front reserves the addresses, and the back maps
// them to files that the ranks share; after a restart it maps them to new files.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "front/object/window.h"

enum { PAGE = 4096 };

static MPI_Aint whole_pages(MPI_Aint bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

// Whether the hints allow gaps between parts.
static int apart(const char *info) {
    const char *value = info_value(info, "alloc_shared_noncontig");
    return value != NULL && strcmp(value, "true") == 0;
}

static void forget(struct front_window *w) {
    front_window_unshare(w);
    free(w->parts);
    free(w->starts);
    w->parts = NULL;
    w->starts = NULL;
}

// When the area is NULL and there are no starts, the window is on memory of the real MPI, whose address is
// then in base.
static long allocate(const struct front_window *w, MPI_Info info, MPI_Comm comm, int *rank, void *base,
                     ckpt_vid *v) {
    const struct Win_allocate_shared_words a = {.area = w->area,
                                                .starts = w->starts,
                                                .size = w->bytes,
                                                .disp_unit = w->unit,
                                                .info = in_info(info),
                                                .comm = in_comm(comm),
                                                .win = v,
                                                .rank = rank,
                                                .base = base};
    return front_call(CKPT_FN_MPI_WIN_ALLOCATE_SHARED, &a);
}

long front_window_below(MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void *base, ckpt_vid *v) {
    const struct front_window w = {.bytes = size, .unit = disp_unit};
    int rank;
    return allocate(&w, info, comm, &rank, base, v);
}

char *front_window_area(size_t bytes, int protection) {
    void *area = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return area == MAP_FAILED ? NULL : area;
}

void front_window_unshare(struct front_window *w) {
    if (w->area != NULL) munmap(w->area, w->area_bytes);
    w->area = NULL;
}

// Asks all ranks for their parts and reserves addresses for them.
static int lay_out(struct front_window *w, MPI_Info info, MPI_Comm comm) {
    struct front_part mine = {w->bytes, w->unit};
    int rc = PMPI_Comm_size(comm, &w->ranks);
    w->gaps = apart(in_info(info));
    if (rc != MPI_SUCCESS) return rc;
    w->parts = front_alloc((size_t)w->ranks * sizeof *w->parts);
    w->starts = front_alloc(((size_t)w->ranks + 1) * sizeof *w->starts);
    MPI_Datatype byte = out_type(CKPT_VID(CKPT_KIND_DATATYPE, CANON_DATATYPE_BYTE));
    rc = PMPI_Allgather(&mine, sizeof mine, byte, w->parts, sizeof mine, byte, comm);
    if (rc != MPI_SUCCESS) return rc;
    for (int i = 0; i < w->ranks; i++)
        w->starts[i + 1] = w->starts[i] + (w->gaps ? whole_pages(w->parts[i].bytes) : w->parts[i].bytes);
    w->area_bytes = (size_t)whole_pages(w->starts[w->ranks]);
    if (w->area_bytes == 0) return MPI_SUCCESS;
    w->area = front_window_area(w->area_bytes, PROT_NONE); // when it is NULL, the back tells all ranks
    return MPI_SUCCESS;
}

// Where a rank's part begins.  An empty part has no address with MPICH, and none with Open MPI where gaps
// between parts are allowed.
static void *part(const struct front_window *w, int rank) {
    int nowhere = w->parts[rank].bytes == 0 && (FRONT_ABI != 2 || w->gaps);
    return w->area == NULL || nowhere ? NULL : w->area + w->starts[rank];
}

FRONT(int, Win_allocate_shared,
      (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win)) {
    struct front_window w = {.bytes = size, .unit = disp_unit, .flavor = SHARED, .model = MPI_WIN_UNIFIED};
    ckpt_vid v = VID_WIN_NULL;
    int rank = 0, rc = size < 0 || disp_unit <= 0 ? -1 : lay_out(&w, info, comm);
    if (rc == -1)
        return front_error(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_WIN_ALLOCATE_SHARED,
                           size < 0 ? CANON_ERRCLASS_ERR_SIZE : CANON_ERRCLASS_ERR_DISP);
    if (rc != MPI_SUCCESS) {
        forget(&w);
        return rc;
    }
    long below = allocate(&w, info, comm, &rank, &w.base, &v);
    if (below == 0)
        w.base = part(&w, rank);
    else { // all ranks of comm get here, with the same error
        forget(&w);
        if (front_window_below(size, disp_unit, info, comm, &w.base, &v) != 0)
            return front_error(FRONT_COMM, in_comm(comm), CKPT_FN_MPI_WIN_ALLOCATE_SHARED, below);
    }
    *(void **)baseptr = w.base;
    *win = front_window_made(v, &w, info);
    return MPI_SUCCESS;
}

static int query_below(ckpt_vid v, int rank, MPI_Aint *size, int *disp_unit, void *baseptr) {
    const struct Win_shared_query_words a = {
        .win = v, .rank = in_rank(rank), .size = size, .disp_unit = disp_unit, .baseptr = baseptr};
    long rc = front_call(CKPT_FN_MPI_WIN_SHARED_QUERY, &a);
    return rc == 0 ? MPI_SUCCESS : front_error(FRONT_WIN, v, CKPT_FN_MPI_WIN_SHARED_QUERY, rc);
}

// MPI_PROC_NULL asks for the first rank that has memory.
FRONT(int, Win_shared_query, (MPI_Win win, int rank, MPI_Aint *size, int *disp_unit, void *baseptr)) {
    ckpt_vid v = in_win(win);
    if (front_is_null(CKPT_KIND_WIN, front_slot(CKPT_FN_MPI_WIN_SHARED_QUERY, CKPT_KIND_WIN, v)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_SHARED_QUERY, WIN);
    const struct front_window *w = front_side(FRONT_WIN, v)->window;
    int r = rank;
    if (w->flavor != SHARED)
        return front_error(FRONT_WIN, v, CKPT_FN_MPI_WIN_SHARED_QUERY, CANON_ERRCLASS_ERR_RMA_FLAVOR);
    if (w->parts == NULL) return query_below(v, rank, size, disp_unit, baseptr);
    if (in_rank(rank) == CANON_PROC_NULL)
        for (r = 0; r < w->ranks && w->parts[r].bytes == 0; r++)
            ;
    else if (rank < 0 || rank >= w->ranks)
        return front_error(FRONT_WIN, v, CKPT_FN_MPI_WIN_SHARED_QUERY, CANON_ERRCLASS_ERR_RANK);
    int none = r == w->ranks || w->area == NULL;
    *size = none ? 0 : w->parts[r].bytes;
    *disp_unit = none ? 1 : (int)w->parts[r].unit;
    *(void **)baseptr = none ? NULL : part(w, r);
    return MPI_SUCCESS;
}
