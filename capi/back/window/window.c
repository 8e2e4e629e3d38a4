// SPDX-License-Identifier: Apache-2.0
//
// window.c: windows: making, describing, making again.  Epochs are in epoch.c.
//
// A window is made again on the same memory: upper-half memory at the same addresses.  So displacements in
// dynamic windows stay valid.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "back/collective/clock.h"
#include "back/collective/twophase.h"
#include "back/impl/error.h"
#include "back/impl/lock.h"
#include "back/impl/slots.h"
#include "back/impl/special.h"
#include "back/object/comm.h"
#include "back/object/describe.h"
#include "back/window/window.h"

// ---- what is kept ----

static void window_free(struct window *w) {
    free(w->attached);
    free(w->starts);
    free(w->info);
    free(w);
}

static struct window *window_new(int flavor, void *base, int64_t bytes, int unit, const char *info) {
    struct window *w = calloc(1, sizeof *w);
    size_t n = info_bytes(info);
    if (w == NULL) return NULL;
    w->flavor = flavor;
    w->base = base;
    w->bytes = bytes;
    w->unit = unit;
    if (n > 0) {
        w->info = malloc(n);
        if (w->info == NULL) {
            free(w);
            return NULL;
        }
        memcpy(w->info, info, n);
    }
    return w;
}

// ---- describing ----

static void describe(struct writer *d, const struct window *w) {
    put(d, DESCRIBE_VERSION);
    put(d, w->flavor);
    put(d, w->comm);
    put64(d, (uint64_t)(uintptr_t)w->base);
    put64(d, (uint64_t)w->bytes);
    put(d, w->unit);
    put(d, w->fenced);
    put(d, w->locked_all);
    put_bytes(d, w->name, strlen(w->name) + 1);
    put_bytes(d, w->info, info_bytes(w->info));
    put(d, w->nattached);
    for (int i = 0; i < w->nattached; i++) {
        put64(d, (uint64_t)(uintptr_t)w->attached[i].base);
        put64(d, (uint64_t)w->attached[i].bytes);
    }
    put64(d, (uint64_t)(uintptr_t)w->area);
    put(d, w->rank);
    put(d, w->ranks);
    for (int i = 0; w->ranks > 0 && i <= w->ranks; i++) put64(d, (uint64_t)w->starts[i]);
}

int window_describe(ckpt_vid vid, const struct window *w) {
    struct writer d = {0};
    describe(&d, w);
    int rc = d.failed ? CKPT_E_SYSTEM : ckpt_vid_describe(back.job, vid, d.word, 4 * d.n, &w->comm, 1);
    free(d.word);
    return rc;
}

// ---- making ----

int window_above_openmpi(void) {
    static int is = -1;
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    if (is < 0)
        is = MPI_Get_library_version(version, &length) == MPI_SUCCESS && strncmp(version, "Open MPI", 8) == 0;
    return is;
}

// Open MPI 4.1 keeps the state of a window in a file on its node, and names the file after the number of the
// communicator.  Communicators of two groups on one node can have the same number, so only one group at a
// time may make a window.  All members are here when the lock is asked for, so whoever has the lock gives it
// back. Returns the descriptor of the lock, for end_alone; -1: there is none.
static int begin_alone(MPI_Comm comm) {
    int size, rank, fd = -1;
    MPI_Comm node;
    MPI_Comm_size(comm, &size);
    if (!window_above_openmpi() || size == 1 || size == back.size ||
        MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS)
        return -1;
    MPI_Comm_rank(node, &rank);
    if (rank == 0 && (fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0)
        while (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) sched_yield();
    MPI_Barrier(comm);
    MPI_Comm_free(&node);
    return fd;
}

static void end_alone(MPI_Comm comm, int fd) {
    int size;
    MPI_Comm_size(comm, &size);
    if (window_above_openmpi() && size > 1 && size < back.size) MPI_Barrier(comm);
    if (fd >= 0) close(fd);
}

// The hints for the real window.  Open MPI has windows of several kinds.  Its kind for
// MPI_Win_allocate_shared ignores "no_locks"; the kind that it has on our memory would refuse locks, so the
// hint is left out.
static MPI_Info hints(const struct window *w) {
    MPI_Info info = back_info(w->info);
    int length, given = 0;
    if (window_above_openmpi() && w->flavor == WINDOW_SHARED && info != MPI_INFO_NULL)
        MPI_Info_get_valuelen(info, "no_locks", &length, &given);
    if (given) MPI_Info_delete(info, "no_locks");
    return info;
}

// Makes the real window on comm; again: for a window of an image.
static int make(struct window *w, MPI_Comm comm, int again, MPI_Win *win) {
    MPI_Info info = hints(w);
    int alone = begin_alone(comm), rc = MPI_SUCCESS;
    if (w->flavor == WINDOW_ALLOCATE && !again) w->base = w->area;
    if (w->flavor == WINDOW_ALLOCATE && window_alias(w, comm, info, again, win)) goto made;
    rc = w->flavor == WINDOW_DYNAMIC ? MPI_Win_create_dynamic(info, comm, win)
         : w->flavor == WINDOW_SHARED && w->starts == NULL
             ? MPI_Win_allocate_shared((MPI_Aint)w->bytes, w->unit, info, comm, &w->base, win)
             : MPI_Win_create(w->base, (MPI_Aint)w->bytes, w->unit, info, comm, win);
made:
    end_alone(comm, alone);
    back_info_done(&info);
    if (rc == MPI_SUCCESS) rc = MPI_Win_set_errhandler(*win, MPI_ERRORS_RETURN);
    return rc;
}

// Gives the duplicate of parent that the window needs an id and its clock.
static long duplicate(struct window *w, long parent) {
    MPI_Comm comm = MPI_COMM_NULL;
    char name[MPI_MAX_OBJECT_NAME] = "";
    int n = 0, rc = MPI_Comm_dup(real_comm(parent), &comm);
    if (rc != MPI_SUCCESS) return back_error(rc);
    long canon = back_new_comm(comm, comm, (ckpt_vid)parent, 0, &w->comm);
    if (canon != 0) {
        MPI_Comm_free(&comm);
        return canon;
    }
    w->identity = back_comm_identity(w->comm);
    MPI_Comm_get_name(real_comm(parent), name, &n);
    snprintf(w->name, sizeof w->name, "on %.*s", (int)sizeof w->name - 4, name);
    ckpt_vid_set_name(back.job, w->comm, w->name);
    return 0;
}

static void duplicate_free(ckpt_vid vid) {
    MPI_Comm comm = real_comm(vid);
    MPI_Comm_free(&comm);
    ckpt_vid_free(back.job, vid);
}

static long register_window(struct window *w, MPI_Win win, ckpt_vid *vid) {
    struct writer d = {0};
    describe(&d, w);
    ckpt_vid v = d.failed ? CKPT_VID_NONE
                          : ckpt_vid_new(back.job, CKPT_KIND_WIN, TO_REAL(win), d.word, 4 * d.n, &w->comm, 1,
                                         w->identity);
    free(d.word);
    if (v == CKPT_VID_NONE) return CANON_ERR(NO_MEM);
    ckpt_slot *s = back_slot(CKPT_KIND_WIN, v);
    s->clock = w->comm;
    s->extra = (uint64_t)(uintptr_t)w;
    *vid = v;
    return 0;
}

// Where the front put the memory of a shared window; empty when the real MPI is to provide the memory.
struct layout {
    char *area;
    const int64_t *starts;
};

static int share(struct window *w, const struct layout *from) {
    MPI_Comm comm = real_comm(w->comm);
    MPI_Comm_size(comm, &w->ranks);
    MPI_Comm_rank(comm, &w->rank);
    size_t n = ((size_t)w->ranks + 1) * sizeof *w->starts;
    w->starts = malloc(n);
    if (w->starts == NULL) return MPI_ERR_NO_MEM;
    memcpy(w->starts, from->starts, n);
    w->area = from->area;
    w->base = w->area == NULL ? NULL : w->area + from->starts[w->rank];
    return window_share(w, comm, 0);
}

// Finds wrong arguments before the members make the window's communicator together: the real MPI finds them
// before it makes anything, so the other members may not come here.
static int may_make(const struct window *w, MPI_Comm parent) {
    int inter = 0;
    MPI_Comm_test_inter(parent, &inter);
    return inter ? MPI_ERR_COMM : w->bytes < 0 ? MPI_ERR_SIZE : w->unit <= 0 ? MPI_ERR_DISP : MPI_SUCCESS;
}

// Makes a window on a communicator of the application.  Owns w from here on.
static long new_window(struct window *w, long parent, const struct layout *from, ckpt_vid *vid) {
    MPI_Win win = MPI_WIN_NULL;
    if (w == NULL) return CANON_ERR(NO_MEM);
    if (real_comm(parent) == MPI_COMM_NULL) {
        window_free(w);
        return CANON_ERR(COMM);
    }
    int refused = may_make(w, real_comm(parent));
    long canon = refused != MPI_SUCCESS ? back_error(refused) : duplicate(w, parent);
    if (canon != 0) {
        window_free(w);
        return canon;
    }
    if (from != NULL && from->starts != NULL) canon = back_error(share(w, from));
    if (canon == 0) canon = back_error(make(w, real_comm(w->comm), 0, &win));
    if (canon == 0) canon = register_window(w, win, vid);
    if (canon != 0) {
        if (win != MPI_WIN_NULL) MPI_Win_free(&win);
        duplicate_free(w->comm);
        window_free(w);
    }
    return canon;
}

long back_Win_create(const long *a) {
    ARGS(Win_create) p = (const void *)a;
    return new_window(window_new(WINDOW_CREATE, p->base, p->size, p->disp_unit, p->info), p->comm, NULL,
                      p->win);
}

// Area, size, unit, info, comm; out: window, base.
long back_Win_allocate(const long *a) {
    ARGS(Win_allocate) p = (const void *)a;
    struct window *w = window_new(WINDOW_ALLOCATE, NULL, p->size, p->disp_unit, p->info);
    if (w != NULL) w->area = (char *)p->area;
    long canon = new_window(w, p->comm, NULL, p->win);
    if (canon == 0) *p->base = back_window_of(*p->win)->base;
    return canon;
}

long back_Win_create_dynamic(const long *a) {
    ARGS(Win_create_dynamic) p = (const void *)a;
    return new_window(window_new(WINDOW_DYNAMIC, NULL, 0, 1, p->info), p->comm, NULL, p->win);
}

// Area, starts, size, unit, info, comm; out: window, rank, base.
long back_Win_allocate_shared(const long *a) {
    ARGS(Win_allocate_shared) p = (const void *)a;
    const struct layout from = {(char *)p->area, p->starts};
    long canon =
        new_window(window_new(WINDOW_SHARED, NULL, p->size, p->disp_unit, p->info), p->comm, &from, p->win);
    if (canon == 0) {
        const struct window *w = back_window_of(*p->win);
        *p->rank = w->rank;
        *p->base = w->base;
    }
    return canon;
}

// Returns when all members have come here, so that all know the same windows.
long back_Win_free(const long *a) {
    ARGS(Win_free) p = (const void *)a;
    ckpt_vid v = *p->win;
    struct window *w = back_window_of(v);
    MPI_Win win = real_win(v);
    int rc = MPI_Win_free(&win);
    if (rc != MPI_SUCCESS || w == NULL) return back_error(rc);
    rc = MPI_Barrier(real_comm(w->comm));
    ckpt_vid_free(back.job, v);
    window_free(w);
    return back_error(rc);
}

// ---- dynamic windows ----

long back_Win_attach(const long *a) {
    ARGS(Win_attach) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    int rc = MPI_Win_attach(real_win(p->win), p->base, p->size);
    if (rc != MPI_SUCCESS || w == NULL) return back_error(rc);
    back_lock(LOCK_WINDOWS);
    struct attached *grown = realloc(w->attached, (size_t)(w->nattached + 1) * sizeof *w->attached);
    if (grown != NULL) {
        w->attached = grown;
        w->attached[w->nattached++] = (struct attached){p->base, p->size};
    }
    back_unlock(LOCK_WINDOWS);
    if (grown == NULL) MPI_Win_detach(real_win(p->win), p->base);
    return grown ? 0 : CANON_ERR(NO_MEM);
}

long back_Win_detach(const long *a) {
    ARGS(Win_detach) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    int rc = MPI_Win_detach(real_win(p->win), p->base);
    if (rc != MPI_SUCCESS || w == NULL) return back_error(rc);
    back_lock(LOCK_WINDOWS);
    for (int i = 0; i < w->nattached; i++)
        if (w->attached[i].base == p->base) {
            w->attached[i] = w->attached[--w->nattached];
            break;
        }
    back_unlock(LOCK_WINDOWS);
    return 0;
}

// ---- questions ----

// Called only for memory of the real MPI; the front knows the rest.
long back_Win_shared_query(const long *a) {
    ARGS(Win_shared_query) p = (const void *)a;
    return back_error(
        MPI_Win_shared_query(real_win(p->win), real_rank(p->rank), p->size, p->disp_unit, p->baseptr));
}

long back_Win_get_group(const long *a) {
    ARGS(Win_get_group) p = (const void *)a;
    MPI_Group group;
    int rc = MPI_Win_get_group(real_win(p->win), &group);
    if (rc != MPI_SUCCESS) return back_error(rc);
    long canon = back_group_out(group, 1, p->size, p->members);
    MPI_Group_free(&group);
    return canon;
}

// For messages about the window; the application's copy of the name is in the front.
long back_Win_set_name(const long *a) {
    ARGS(Win_set_name) p = (const void *)a;
    struct window *w = back_window_of(p->win);
    if (w == NULL) return CANON_ERR(WIN);
    snprintf(w->name, sizeof w->name, "%.*s", (int)sizeof w->name - 1, p->win_name);
    return ckpt_vid_set_name(back.job, w->comm, w->name) == 0 ? 0 : CANON_ERR(INTERN);
}

// ---- making again ----

static void read_attached(struct reader *r, struct window *w) {
    int n = get(r);
    if (r->failed || n < 0 || (size_t)n > r->n) {
        r->failed = 1;
        return;
    }
    w->attached = n > 0 ? calloc((size_t)n, sizeof *w->attached) : NULL;
    r->failed = r->short_of_memory = n > 0 && w->attached == NULL;
    for (; w->nattached < n && !r->failed; w->nattached++) {
        w->attached[w->nattached].base = (void *)(uintptr_t)get64(r);
        w->attached[w->nattached].bytes = (int64_t)get64(r);
    }
}

static void read_layout(struct reader *r, struct window *w) {
    w->area = (char *)(uintptr_t)get64(r);
    w->rank = get(r);
    int n = get(r);
    if (r->failed || n < 0 || (size_t)n > r->n || w->rank < 0 || w->rank > n) r->failed = 1;
    if (r->failed || n == 0) return;
    w->starts = calloc((size_t)n + 1, sizeof *w->starts);
    r->failed = r->short_of_memory = w->starts == NULL;
    for (int i = 0; i <= n && !r->failed; i++) w->starts[i] = (int64_t)get64(r);
    w->ranks = n;
}

static struct window *read_descriptor(struct reader *r) {
    size_t n;
    struct window *w = calloc(1, sizeof *w);
    r->short_of_memory = w == NULL;
    if (w == NULL) return NULL;
    w->flavor = get(r);
    w->comm = (ckpt_vid)get(r);
    w->base = (void *)(uintptr_t)get64(r);
    w->bytes = (int64_t)get64(r);
    w->unit = get(r);
    w->fenced = get(r);
    w->locked_all = get(r);
    char *name = get_string(r);
    if (name != NULL) snprintf(w->name, sizeof w->name, "%.*s", (int)sizeof w->name - 1, name);
    free(name);
    w->info = get_bytes(r, &n);
    read_attached(r, w);
    read_layout(r, w);
    if (!r->failed) return w;
    window_free(w);
    return NULL;
}

int back_rebuild_window(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real) {
    struct reader r = reader_of(descriptor, bytes);
    struct window *w = read_descriptor(&r);
    MPI_Win win = MPI_WIN_NULL;
    if (r.short_of_memory) {
        back_fail(MPI_ERR_NO_MEM, "a window");
        return CKPT_E_SYSTEM;
    }
    if (w == NULL || real_comm(w->comm) == MPI_COMM_NULL) return CKPT_E_CORRUPT;
    w->identity = back_comm_identity(w->comm);
    int rc = w->ranks > 0 ? window_share(w, real_comm(w->comm), 1) : MPI_SUCCESS;
    if (rc == MPI_SUCCESS) rc = make(w, real_comm(w->comm), 1, &win);
    for (int i = 0; i < w->nattached && rc == MPI_SUCCESS; i++)
        rc = MPI_Win_attach(win, w->attached[i].base, (MPI_Aint)w->attached[i].bytes);
    if (rc == MPI_SUCCESS) rc = window_reopen(w, win);
    if (rc == MPI_ERR_RMA_SHARED)
        back_fail(MPI_SUCCESS,
                  "the memory of window \"%s\" (MPI_Win_allocate_shared) is shared by %d ranks that "
                  "are on several nodes now; start them on one node",
                  w->name, w->ranks);
    else if (rc != MPI_SUCCESS)
        back_fail(rc, "making window \"%s\" again", w->name);
    if (rc != MPI_SUCCESS) return CKPT_E_SYSTEM;
    ckpt_slot *s = back_slot(CKPT_KIND_WIN, vid);
    s->clock = w->comm;
    s->extra = (uint64_t)(uintptr_t)w;
    *real = TO_REAL(win);
    return 0;
}

// ---- counted ----

// Collective calls on a window are counted on a communicator that the window has for itself.  That
// communicator outlives the window: it is freed when MPI_Win_free has been counted.
static ckpt_vid clock_of(long vid) {
    const struct window *w = back_window_of(vid);
    return w == NULL ? VID_COMM_NULL : w->comm;
}

static long on_window(ckpt_back_fn *fn, const char *name, const long *a, ckpt_vid comm) {
    ckpt_coll call;
    back_gate(comm, name, CKPT_COLL_BLOCKING, &call);
    long rc = fn(a);
    back_gate_return(&call, rc);
    return rc;
}
long clocked_Win_fence(const long *a) {
    ARGS(Win_fence) p = (const void *)a;
    return on_window(back_Win_fence, "MPI_Win_fence", a, clock_of(p->win));
}
long clocked_Win_free(const long *a) {
    ARGS(Win_free) p = (const void *)a;
    ckpt_vid comm = clock_of(*p->win);
    long rc = on_window(back_Win_free, "MPI_Win_free", a, comm);
    if (rc == 0) duplicate_free(comm);
    return rc;
}
