/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c: windows: making and freeing them, their predefined attributes and names; and the hints of
 * windows and communicators.
 */
#include <stdlib.h>
#include <string.h>

#include "window.h"

MPI_Win front_window_made(ckpt_vid v, const struct front_window *w, MPI_Info info) {
    struct front_side *s = front_side(FRONT_WIN, v);
    const char *hints = in_info(info);
    s->window = memcpy(front_alloc(sizeof *w), w, sizeof *w);
    if (hints != NULL)
        s->info = memcpy(front_alloc(front_info_bytes(hints)), hints, front_info_bytes(hints));
    return out_win(v);
}

static MPI_Win made(ckpt_vid v, void *base, MPI_Aint bytes, int unit, int flavor, void *allocated,
                    MPI_Info info) {
    const struct front_window w = {base, bytes, unit, flavor, MPI_WIN_UNIFIED, allocated,
                                   NULL, 0,     0,    NULL,   NULL};
    return front_window_made(v, &w, info);
}

int front_win_attr(ckpt_vid win, int keyval, void *value) {
    struct front_window *w = front_side(FRONT_WIN, win)->window;
    void *const at[] = {NULL, w->base, &w->bytes, &w->unit, &w->flavor, &w->model};
    int attr = in_win_attr(keyval);
    if (attr != 0)
        *(void **)value = at[attr];
    return attr;
}

static int comm_error(MPI_Comm comm, unsigned fn, long rc) {
    return front_error(FRONT_COMM, in_comm(comm), fn, rc);
}

static long create(void *base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
                   ckpt_vid *v) {
    long a[] = {(long)base, size, disp_unit, (long)in_info(info), in_comm(comm), (long)v};
    return front_call(CKPT_FN_MPI_WIN_CREATE, a);
}

FRONT(int, Win_create,
      (void *base, MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, MPI_Win *win)) {
    ckpt_vid v = VID_WIN_NULL;
    long rc = create(base, size, disp_unit, info, comm, &v);
    if (rc != 0)
        return comm_error(comm, CKPT_FN_MPI_WIN_CREATE, rc);
    *win = made(v, base, size, disp_unit, CREATE, NULL, info);
    return MPI_SUCCESS;
}

/* The memory is the application's, so it must be upper-half memory: ours, with a window on it.  Open
 * MPI has none on memory of others for one rank with MPI_THREAD_MULTIPLE, but shared ones. */
FRONT(int, Win_allocate,
      (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win)) {
    ckpt_vid v = VID_WIN_NULL;
    void *base = NULL, *allocated;
    if (size > 0 && posix_memalign(&base, 4096, (size_t)size) != 0)
        return comm_error(comm, CKPT_FN_MPI_WIN_ALLOCATE, CANON_ERRCLASS_ERR_NO_MEM);
    allocated = base;
    long rc = create(base, size, disp_unit, info, comm, &v);
    if (rc != 0) {
        free(allocated);
        allocated = NULL;
        if (front_window_below(size, disp_unit, info, comm, &base, &v) != 0)
            return comm_error(comm, CKPT_FN_MPI_WIN_ALLOCATE, rc);
    }
    *(void **)baseptr = base;
    *win = made(v, base, size, disp_unit, ALLOCATE, allocated, info);
    return MPI_SUCCESS;
}

FRONT(int, Win_create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win *win)) {
    ckpt_vid v = VID_WIN_NULL;
    long a[] = {(long)in_info(info), in_comm(comm), (long)&v};
    long rc = front_call(CKPT_FN_MPI_WIN_CREATE_DYNAMIC, a);
    if (rc != 0)
        return comm_error(comm, CKPT_FN_MPI_WIN_CREATE_DYNAMIC, rc);
    *win = made(v, NULL, 0, 1, DYNAMIC, NULL, info);
    return MPI_SUCCESS;
}

FRONT(int, Win_free, (MPI_Win * win)) {
    ckpt_vid v = in_win(*win), id = v;
    if (front_is_null(CKPT_KIND_WIN, front_slot(CKPT_FN_MPI_WIN_FREE, CKPT_KIND_WIN, v)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_FREE, WIN);
    int rc = front_attrs_delete(FRONT_WIN, v);
    if (rc != MPI_SUCCESS)
        return rc;
    long a[] = {(long)&id};
    long below = front_call(CKPT_FN_MPI_WIN_FREE, a);
    if (below != 0)
        return front_error(FRONT_WIN, v, CKPT_FN_MPI_WIN_FREE, below);
    struct front_window *w = front_side(FRONT_WIN, v)->window;
    free(w->allocated);
    front_window_unshare(w);
    free(w->parts);
    free(w->starts);
    front_side_drop(FRONT_WIN, v);
    *win = MPI_WIN_NULL;
    return MPI_SUCCESS;
}

FRONT(int, Win_get_group, (MPI_Win win, MPI_Group *group)) {
    return front_group_of(FRONT_WIN, CKPT_FN_MPI_WIN_GET_GROUP, in_win(win), group);
}

/* ---- names and hints ---- */

FRONT(int, Win_set_name, (MPI_Win win, const char *win_name)) {
    ckpt_vid v = in_win(win);
    if (front_is_null(CKPT_KIND_WIN, front_slot(CKPT_FN_MPI_WIN_SET_NAME, CKPT_KIND_WIN, v)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_SET_NAME, WIN);
    struct front_side *s = front_side(FRONT_WIN, v);
    free(s->name);
    s->name = front_strdup(win_name, MPI_MAX_OBJECT_NAME - 1);
    long a[] = {v, (long)s->name};
    long rc = front_call(CKPT_FN_MPI_WIN_SET_NAME, a);
    return rc == 0 ? MPI_SUCCESS : front_error(FRONT_WIN, v, CKPT_FN_MPI_WIN_SET_NAME, rc);
}

FRONT(int, Win_get_name, (MPI_Win win, char *win_name, int *resultlen)) {
    ckpt_vid v = in_win(win);
    if (front_is_null(CKPT_KIND_WIN, front_slot(CKPT_FN_MPI_WIN_GET_NAME, CKPT_KIND_WIN, v)))
        return FRONT_ERR(CKPT_FN_MPI_WIN_GET_NAME, WIN);
    const char *name = front_side(FRONT_WIN, v)->name;
    *resultlen = (int)strlen(strcpy(win_name, name ? name : ""));
    return MPI_SUCCESS;
}

/* Hints given after an object was made are kept and told, and change nothing (those of files: file.c). */

static int set_info(int sort, ckpt_kind kind, ckpt_vid v, unsigned fn, int class, MPI_Info info) {
    if (front_is_null(kind, front_slot(fn, kind, v)))
        return front_error(sort, v, fn, class);
    struct front_side *s = front_side(sort, v);
    const char *content = in_info(info);
    free((void *)s->info);
    s->info = NULL;
    if (content != NULL) {
        size_t n = front_info_bytes(content);
        s->info = memcpy(front_alloc(n), content, n);
    }
    return MPI_SUCCESS;
}

static int get_info(int sort, ckpt_kind kind, ckpt_vid v, unsigned fn, int class, MPI_Info *info) {
    if (front_is_null(kind, front_slot(fn, kind, v)))
        return front_error(sort, v, fn, class);
    const char *content = front_side(sort, v)->info;
    *info = front_info_new(content ? content : "");
    return MPI_SUCCESS;
}

#define INFOS(name, type, SORT, in, ERR)                                                           \
    FRONT(int, name##_set_info, (type object, MPI_Info info)) {                                    \
        return set_info(FRONT_##SORT, CKPT_KIND_##SORT, in(object), CKPT_FN_MPI_##SORT##_SET_INFO, \
                        CANON_ERRCLASS_ERR_##ERR, info);                                           \
    }                                                                                              \
    FRONT(int, name##_get_info, (type object, MPI_Info * info)) {                                  \
        return get_info(FRONT_##SORT, CKPT_KIND_##SORT, in(object), CKPT_FN_MPI_##SORT##_GET_INFO, \
                        CANON_ERRCLASS_ERR_##ERR, info);                                           \
    }

INFOS(Comm, MPI_Comm, COMM, in_comm, COMM)
INFOS(Win, MPI_Win, WIN, in_win, WIN)
