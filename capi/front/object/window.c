// SPDX-License-Identifier: Apache-2.0
//
// window.c: making and freeing windows, their predefined attributes and names.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "front/object/window.h"

MPI_Win front_window_made(ckpt_vid v, const struct front_window *w, MPI_Info info) {
    struct front_side *s = front_side(FRONT_WIN, v);
    s->window = memcpy(front_alloc(sizeof *w), w, sizeof *w);
    front_hints_made(FRONT_WIN, v, in_info(info));
    return out_win(v);
}

static MPI_Win made(ckpt_vid v, void *base, MPI_Aint bytes, int unit, int flavor, MPI_Info info) {
    const struct front_window w = {
        .base = base, .bytes = bytes, .unit = unit, .flavor = flavor, .model = MPI_WIN_UNIFIED};
    return front_window_made(v, &w, info);
}

int front_win_attr(ckpt_vid win, int keyval, void *value) {
    struct front_window *w = front_side(FRONT_WIN, win)->window;
    static const int flavors[] = {0, FLAVOR_BASE + CREATE, FLAVOR_BASE + ALLOCATE, FLAVOR_BASE + DYNAMIC,
                                  FLAVOR_BASE + SHARED};
    void *const at[] = {NULL, w->base, &w->bytes, &w->unit, (void *)&flavors[w->flavor], &w->model};
    int attr = in_win_attr(keyval);
    if (attr != 0) *(void **)value = at[attr];
    return attr;
}

static int comm_error(MPI_Comm comm, unsigned fn, long rc) {
    return front_error(FRONT_COMM, in_comm(comm), fn, rc);
}

FRONT(int, Win_create,
      (void *base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_WIN_CREATE, win != NULL);
    ckpt_vid v = VID_WIN_NULL;
    const struct Win_create_words a = {.base = base,
                                       .size = size,
                                       .disp_unit = disp_unit,
                                       .info = in_info(info),
                                       .comm = in_comm(comm),
                                       .win = &v};
    long rc = front_call(CKPT_FN_MPI_WIN_CREATE, &a);
    if (rc != 0) return comm_error(comm, CKPT_FN_MPI_WIN_CREATE, rc);
    *win = made(v, base, size, disp_unit, CREATE, info);
    return MPI_SUCCESS;
}

// The application uses the memory, so this must be upper-half memory: either ours, with a window on it, or
// pages of the real MPI that the back maps there; the memory may begin anywhere in a page.  With
// MPI_THREAD_MULTIPLE and one rank, Open MPI can make only shared windows, not windows on given memory.
FRONT(int, Win_allocate,
      (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win)) {
    ckpt_vid v = VID_WIN_NULL;
    struct front_window w = {.bytes = size, .unit = disp_unit, .flavor = ALLOCATE, .model = MPI_WIN_UNIFIED};
    if (size > 0) {
        w.area_bytes = (size_t)size + 2 * 4096 - 1;
        w.area_bytes -= w.area_bytes % 4096;
        w.area = front_window_area(w.area_bytes, PROT_READ | PROT_WRITE);
        if (w.area == NULL) return comm_error(comm, CKPT_FN_MPI_WIN_ALLOCATE, CANON_ERRCLASS_ERR_NO_MEM);
    }
    const struct Win_allocate_words a = {.area = w.area,
                                         .size = size,
                                         .disp_unit = disp_unit,
                                         .info = in_info(info),
                                         .comm = in_comm(comm),
                                         .win = &v,
                                         .base = &w.base};
    long rc = front_call(CKPT_FN_MPI_WIN_ALLOCATE, &a);
    if (rc != 0) {
        front_window_unshare(&w);
        if (front_window_below(size, disp_unit, info, comm, &w.base, &v) != 0)
            return comm_error(comm, CKPT_FN_MPI_WIN_ALLOCATE, rc);
    }
    *(void **)baseptr = w.base;
    *win = front_window_made(v, &w, info);
    return MPI_SUCCESS;
}

FRONT(int, Win_create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win *win)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_WIN_CREATE_DYNAMIC, win != NULL);
    ckpt_vid v = VID_WIN_NULL;
    const struct Win_create_dynamic_words a = {.info = in_info(info), .comm = in_comm(comm), .win = &v};
    long rc = front_call(CKPT_FN_MPI_WIN_CREATE_DYNAMIC, &a);
    if (rc != 0) return comm_error(comm, CKPT_FN_MPI_WIN_CREATE_DYNAMIC, rc);
    *win = made(v, NULL, 0, 1, DYNAMIC, info);
    return MPI_SUCCESS;
}

FRONT(int, Win_free, (MPI_Win * win)) {
    FRONT_NEEDS(FRONT_COMM, VID_COMM_WORLD, CKPT_FN_MPI_WIN_FREE, win != NULL);
    ckpt_vid v = in_win(*win), id = v;
    if (front_is_null(CKPT_KIND_WIN, front_slot(CKPT_FN_MPI_WIN_FREE, CKPT_KIND_WIN, v)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_FREE, WIN);
    int rc = front_attrs_delete(CKPT_FN_MPI_WIN_FREE, FRONT_WIN, v);
    if (rc != MPI_SUCCESS) return rc;
    const struct Win_free_words a = {.win = &id};
    long below = front_call(CKPT_FN_MPI_WIN_FREE, &a);
    if (below != 0) return front_error(FRONT_WIN, v, CKPT_FN_MPI_WIN_FREE, below);
    struct front_window *w = front_side(FRONT_WIN, v)->window;
    front_window_unshare(w);
    free(w->parts);
    free(w->starts);
    front_side_drop(FRONT_WIN, v);
    *win = MPI_WIN_NULL;
    return MPI_SUCCESS;
}

FRONT(int, Win_get_group, (MPI_Win win, MPI_Group *group)) {
    FRONT_NEEDS(FRONT_WIN, in_win(win), CKPT_FN_MPI_WIN_GET_GROUP, group != NULL);
    return front_group_of(FRONT_WIN, CKPT_FN_MPI_WIN_GET_GROUP, in_win(win), group);
}

// ---- names ----

FRONT(int, Win_set_name, (MPI_Win win, const char *win_name)) {
    ckpt_vid v = in_win(win);
    if (front_is_null(CKPT_KIND_WIN, front_slot(CKPT_FN_MPI_WIN_SET_NAME, CKPT_KIND_WIN, v)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_SET_NAME, WIN);
    struct front_side *s = front_side(FRONT_WIN, v);
    free(s->name);
    s->name = front_strdup(win_name, MPI_MAX_OBJECT_NAME - 1);
    const struct Win_set_name_words a = {.win = v, .win_name = s->name};
    long rc = front_call(CKPT_FN_MPI_WIN_SET_NAME, &a);
    return rc == 0 ? MPI_SUCCESS : front_error(FRONT_WIN, v, CKPT_FN_MPI_WIN_SET_NAME, rc);
}

FRONT(int, Win_get_name, (MPI_Win win, char *win_name, int *resultlen)) {
    FRONT_NEEDS(FRONT_WIN, in_win(win), CKPT_FN_MPI_WIN_GET_NAME, win_name != NULL);
    FRONT_NEEDS(FRONT_WIN, in_win(win), CKPT_FN_MPI_WIN_GET_NAME, resultlen != NULL);
    ckpt_vid v = in_win(win);
    if (front_is_null(CKPT_KIND_WIN, front_slot(CKPT_FN_MPI_WIN_GET_NAME, CKPT_KIND_WIN, v)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_GET_NAME, WIN);
    const char *name = front_side(FRONT_WIN, v)->name;
    *resultlen = (int)strlen(strcpy(win_name, name ? name : ""));
    return MPI_SUCCESS;
}
