// SPDX-License-Identifier: Apache-2.0
//
// file.c: MPI files: opening, views, closing; how they are described and opened again.
//
// A file has a communicator of its own here, made when the file is opened.  The clock of that communicator
// counts the calls that all members make.  A restart makes this communicator again, also when the application
// has freed the one that it opened the file on.
//
// The real MPI never opens a file as sequential, since it would not tell where the pointer of such a file
// stands; nor as one to be deleted on close, since a job that ends after a checkpoint must leave the file
// behind.  The back does both itself (file_calls.c refuses what a sequential file does not allow).
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "back/collective/clock.h"
#include "back/collective/twophase.h"
#include "back/file/file.h"
#include "back/impl/error.h"
#include "back/impl/slots.h"
#include "back/impl/status.h"
#include "back/object/comm.h"
#include "back/object/describe.h"
#include "back/object/fresh.h"
#include "back/object/type.h"

// The real MPI's modes: images have the canonical ones.
static int real_amode(int a) {
    return (a & CANON_FILE_CREATE ? MPI_MODE_CREATE : 0) | (a & CANON_FILE_RDONLY ? MPI_MODE_RDONLY : 0) |
           (a & CANON_FILE_WRONLY ? MPI_MODE_WRONLY : 0) | (a & CANON_FILE_RDWR ? MPI_MODE_RDWR : 0) |
           (a & CANON_FILE_DELETE_ON_CLOSE ? MPI_MODE_DELETE_ON_CLOSE : 0) |
           (a & CANON_FILE_UNIQUE_OPEN ? MPI_MODE_UNIQUE_OPEN : 0) |
           (a & CANON_FILE_EXCL ? MPI_MODE_EXCL : 0) | (a & CANON_FILE_APPEND ? MPI_MODE_APPEND : 0) |
           (a & CANON_FILE_SEQUENTIAL ? MPI_MODE_SEQUENTIAL : 0);
}

enum { NO_POSITION = -1 };

struct file *back_file_of(long vid) {
    const ckpt_slot *s = back_slot(CKPT_KIND_FILE, vid);
    return s->generation & 1 && CKPT_VID_INDEX((ckpt_vid)vid) >= CKPT_VID_PREDEFINED
               ? (struct file *)(uintptr_t)s->extra
               : NULL;
}

void file_free(struct file *f) {
    if (f == NULL) return;
    file_unordered(f);
    free(f->path);
    free(f->info);
    free(f->datarep);
    free(f->view_info);
    free(f);
}

// ---- names and hints ----

static char *copy_content(const char *content) {
    size_t n = info_bytes(content);
    char *copy = content ? malloc(n) : NULL;
    return copy ? memcpy(copy, content, n) : NULL;
}

// The absolute name of the file, without "ufs:" and the like.  Such a prefix tells ROMIO on what file system
// the file is; another MPI does not understand it, and after a restart the file system may be another one.
static char *absolute(const char *name) {
    static const char *const systems[] = {
        "ufs:", "nfs:", "xfs:", "lustre:", "gpfs:", "panfs:", "pvfs2:", "testfs:", "file:"};
    char here[PATH_MAX];
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        if (strncmp(name, systems[i], strlen(systems[i])) == 0) {
            name += strlen(systems[i]);
            break;
        }
    if (name[0] == '/') return strdup(name);
    if (getcwd(here, sizeof here) == NULL) return NULL;
    size_t n = strlen(here) + 1 + strlen(name) + 1;
    char *path = malloc(n);
    if (path != NULL) snprintf(path, n, "%s/%s", here, name);
    return path;
}

// ---- describing ----

static int describe(struct writer *w, const struct file *f, MPI_File file, ckpt_vid comm) {
    MPI_Offset position = NO_POSITION, shared = NO_POSITION;
    int atomic = 0, rc = f->untold ? MPI_SUCCESS : MPI_File_get_position(file, &position);
    if (rc == MPI_SUCCESS && f->shared) rc = MPI_File_get_position_shared(file, &shared);
    if (rc == MPI_SUCCESS) rc = MPI_File_get_atomicity(file, &atomic);
    put(w, DESCRIBE_VERSION);
    put(w, (int32_t)comm);
    put(w, f->amode);
    put(w, atomic != 0);
    put64(w, (uint64_t)position);
    put64(w, (uint64_t)shared);
    put64(w, (uint64_t)f->disp);
    put(w, (int32_t)f->etype);
    put(w, (int32_t)f->filetype);
    put(w, f->split);
    put(w, f->split_status.source);
    put(w, f->split_status.tag);
    put(w, f->split_status.cancelled);
    put64(w, (uint64_t)f->split_status.bytes);
    put_bytes(w, f->path, strlen(f->path) + 1);
    put_bytes(w, f->datarep, strlen(f->datarep) + 1);
    put_bytes(w, f->info, info_bytes(f->info));
    put_bytes(w, f->view_info, info_bytes(f->view_info));
    return w->failed ? MPI_ERR_NO_MEM : rc;
}

// Writes a new descriptor of an open file.
static int describe_again(ckpt_vid vid) {
    const ckpt_slot *s = back_slot(CKPT_KIND_FILE, vid);
    const struct file *f = back_file_of(vid);
    const ckpt_vid needs[] = {f->etype, f->filetype, s->clock};
    struct writer w = {0};
    int rc = describe(&w, f, (MPI_File)(uintptr_t)s->real, s->clock);
    if (rc == MPI_SUCCESS && fresh_tell() != 0) rc = MPI_ERR_INTERN;
    if (rc == MPI_SUCCESS && ckpt_vid_describe(back.job, vid, w.word, 4 * w.n, needs, 3) != 0)
        rc = MPI_ERR_NO_MEM;
    free(w.word);
    return rc;
}

// Of a view whose file type begins behind its first byte (MPI_Type_create_resized), ROMIO says from the start that the
// pointer stands before the view, and afterwards the same of several places.  So the pointer can be put back only
// where the view begins.
static void view_tells(struct file *f, MPI_File file) {
    MPI_Offset begin = 0;
    f->untold = MPI_File_get_position(file, &begin) != MPI_SUCCESS || begin != 0;
    f->moved = 0;
}

int files_hold(char *why, size_t bytes) {
    uint32_t i = 0;
    for (const ckpt_slot *s; (s = back_next_slot(CKPT_KIND_FILE, &i)) != NULL;) {
        const struct file *f = (const struct file *)(uintptr_t)s->extra;
        if (f == NULL || !f->untold || !f->moved) continue;
        snprintf(
            why, bytes,
            "the view of the MPI file %.200s has a type that begins behind its data, and MPI does not tell where "
            "the file's pointer stands in it",
            f->path);
        return 1;
    }
    return 0;
}

int files_describe(void) {
    uint32_t i = 0;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_FILE, &i)) != NULL;) {
        ckpt_vid vid = CKPT_VID(CKPT_KIND_FILE, i - 1);
        int rc = describe_again(vid);
        if (rc != MPI_SUCCESS) {
            back_fail(rc, "asking for the file pointers of the MPI file %s", back_file_of(vid)->path);
            return CKPT_E_SYSTEM;
        }
    }
    return 0;
}

long back_files(void *ctx, char *buffer, size_t bytes) {
    (void)ctx;
    size_t n = 0;
    uint32_t i = 0;
    for (ckpt_slot *s; (s = back_next_slot(CKPT_KIND_FILE, &i)) != NULL;) {
        const struct file *f = (const struct file *)(uintptr_t)s->extra;
        char flags[4];
        int k = 0;
        if (!(f->amode & CANON_FILE_RDONLY)) flags[k++] = 'w';
        if (f->amode & CANON_FILE_DELETE_ON_CLOSE) flags[k++] = 'd';
        if (back_slot(CKPT_KIND_COMM, s->clock)->rank == 0) flags[k++] = 'o';
        flags[k] = 0;
        size_t need = (size_t)k + 1 + strlen(f->path) + 1;
        if (n + need <= bytes) {
            memcpy(buffer + n, flags, (size_t)k + 1);
            strcpy(buffer + n + k + 1, f->path);
        }
        n += need;
    }
    return (long)n;
}

// ---- opening ----

// Gives an open file its id.
static long register_file(MPI_File file, struct file *f, ckpt_vid comm, ckpt_vid *vid) {
    const ckpt_vid needs[] = {f->etype, f->filetype, comm};
    struct writer w = {0};
    int rc = describe(&w, f, file, comm);
    ckpt_vid v = rc != MPI_SUCCESS ? CKPT_VID_NONE
                                   : ckpt_vid_new(back.job, CKPT_KIND_FILE, TO_REAL(file), w.word, 4 * w.n,
                                                  needs, 3, back_comm_identity(comm));
    free(w.word);
    if (v == CKPT_VID_NONE) return rc != MPI_SUCCESS ? back_error(rc) : CANON_ERR(NO_MEM);
    ckpt_slot *s = back_slot(CKPT_KIND_FILE, v);
    s->clock = comm;
    s->extra = (uint64_t)(uintptr_t)f;
    *vid = v;
    return 0;
}

static struct file *new_file(const char *name, int amode, const char *info) {
    const ckpt_vid byte = CKPT_VID(CKPT_KIND_DATATYPE, CANON_DATATYPE_BYTE);
    struct file *f = calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    f->amode = amode;
    f->etype = f->filetype = byte;
    f->path = absolute(name);
    f->datarep = strdup("native");
    f->info = copy_content(info);
    if (f->path == NULL || f->datarep == NULL || (info != NULL && f->info == NULL)) {
        file_free(f);
        return NULL;
    }
    return f;
}

// Opens a file on comm.
static int open_file(MPI_Comm comm, const char *name, int amode, const char *content, MPI_File *file) {
    MPI_Info info = back_info(content);
    int rc = MPI_File_open(comm, name, real_amode(amode), info, file);
    back_info_done(&info);
    return rc == MPI_SUCCESS ? MPI_File_set_errhandler(*file, MPI_ERRORS_RETURN) : rc;
}

// Finds wrong arguments before the members make the file's communicator together: the real MPI finds them
// before it opens anything, so the other members may not come here.
static int may_open(MPI_Comm comm, int amode) {
    int inter = 0, access = amode & (CANON_FILE_RDONLY | CANON_FILE_WRONLY | CANON_FILE_RDWR);
    MPI_Comm_test_inter(comm, &inter);
    if (inter) return MPI_ERR_COMM;
    if ((access & (access - 1)) != 0 || access == 0 ||
        (amode & CANON_FILE_RDONLY && amode & (CANON_FILE_CREATE | CANON_FILE_EXCL)) ||
        (amode & CANON_FILE_SEQUENTIAL && amode & CANON_FILE_RDWR))
        return MPI_ERR_AMODE;
    return MPI_SUCCESS;
}

// comm, name, mode, info, id out
long back_File_open(const long *a) {
    ARGS(File_open) p = (const void *)a;
    const char *name = p->filename;
    int amode = p->amode;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_File file = MPI_FILE_NULL;
    ckpt_vid vid = VID_COMM_NULL;
    int rc = may_open(real_comm(p->comm), amode);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_dup(real_comm(p->comm), &comm);
    if (rc != MPI_SUCCESS) return back_error(rc);
    rc = open_file(comm, name, amode & ~(CANON_FILE_SEQUENTIAL | CANON_FILE_DELETE_ON_CLOSE), p->info, &file);
    // All members count the new communicator as a child of theirs, whatever came of the opening.
    long canon = back_new_comm(comm, rc == MPI_SUCCESS ? comm : MPI_COMM_NULL, p->comm, 0, &vid);
    struct file *f = rc == MPI_SUCCESS && canon == 0 ? new_file(name, amode, p->info) : NULL;
    if (rc != MPI_SUCCESS)
        canon = back_error(rc);
    else if (canon == 0)
        canon = f == NULL ? CANON_ERR(NO_MEM) : register_file(file, f, vid, p->fh);
    if (canon == 0) {
        ckpt_vid_set_name(back.job, vid, f->path);
        return 0;
    }
    file_free(f);
    if (file != MPI_FILE_NULL) MPI_File_close(&file);
    if (vid != VID_COMM_NULL) {
        back_two_phase_freed(vid);
        ckpt_vid_free(back.job, vid);
    }
    MPI_Comm_free(&comm);
    return canon;
}

static void delete_closed(const struct file *f, MPI_Comm comm) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Barrier(comm); // all have closed it
    if (rank == 0) MPI_File_delete(f->path, MPI_INFO_NULL);
    MPI_Barrier(comm);
}

long back_File_close(const long *a) {
    ARGS(File_close) p = (const void *)a;
    ckpt_vid v = *p->fh;
    struct file *f = back_file_of(v);
    MPI_File file = real_file(v);
    if (f == NULL) return back_error(MPI_File_close(&file));
    ckpt_vid own = back_slot(CKPT_KIND_FILE, v)->clock;
    MPI_Comm comm = real_comm(own);
    ckpt_coll made;
    back_gate(own, "MPI_File_close", CKPT_COLL_BLOCKING, &made);
    int rc = MPI_File_close(&file);
    if (rc == MPI_SUCCESS && f->amode & CANON_FILE_DELETE_ON_CLOSE) delete_closed(f, comm);
    long canon = back_error(rc);
    back_gate_return(&made, canon);
    if (canon != 0) return canon;
    back_slot(CKPT_KIND_FILE, v)->extra = 0;
    ckpt_vid_free(back.job, v);
    back_two_phase_freed(own);
    ckpt_vid_free(back.job, own);
    MPI_Comm_free(&comm);
    file_free(f);
    return 0;
}

// ---- opening again ----

// Reads a descriptor.  NULL when it is damaged.
static struct file *parse(struct reader *r, MPI_Offset *position, MPI_Offset *shared, int *atomic,
                          ckpt_vid *comm) {
    struct file *f = calloc(1, sizeof *f);
    r->short_of_memory = f == NULL;
    if (f == NULL) return NULL;
    *comm = (ckpt_vid)get(r);
    f->amode = get(r);
    *atomic = get(r);
    *position = (MPI_Offset)get64(r);
    *shared = (MPI_Offset)get64(r);
    f->disp = (int64_t)get64(r);
    f->etype = (ckpt_vid)get(r);
    f->filetype = (ckpt_vid)get(r);
    f->split = get(r);
    f->split_status.source = get(r);
    f->split_status.tag = get(r);
    f->split_status.cancelled = get(r);
    f->split_status.bytes = (int64_t)get64(r);
    f->path = get_string(r);
    f->datarep = get_string(r);
    f->info = get_content(r);
    f->view_info = get_content(r);
    f->shared = *shared != NO_POSITION;
    if (r->failed || f->path == NULL || f->datarep == NULL || *position < NO_POSITION || f->disp < 0 ||
        *shared < NO_POSITION) {
        file_free(f);
        return NULL;
    }
    return f;
}

// The view, which needs datatypes that the application may have freed.
static int view_again(MPI_File file, const struct file *f) {
    MPI_Datatype etype, filetype;
    int own[2] = {0, 0}, rc = back_type_real(f->etype, &etype, &own[0]);
    if (rc == MPI_SUCCESS) rc = back_type_real(f->filetype, &filetype, &own[1]);
    if (rc == MPI_SUCCESS) {
        MPI_Info info = back_info(f->view_info);
        rc = MPI_File_set_view(file, f->disp, etype, filetype, f->datarep, info);
        back_info_done(&info);
    }
    if (own[0]) MPI_Type_free(&etype);
    if (own[1]) MPI_Type_free(&filetype);
    return rc;
}

// Only ranks that have used the shared pointer know where it was.
static int seek_shared_again(MPI_File file, MPI_Comm comm, MPI_Offset shared) {
    int64_t mine = shared, highest = NO_POSITION;
    int rc = MPI_Allreduce(&mine, &highest, 1, MPI_INT64_T, MPI_MAX, comm);
    return rc == MPI_SUCCESS && highest != NO_POSITION ? MPI_File_seek_shared(file, highest, MPI_SEEK_SET)
                                                       : rc;
}

int back_rebuild_file(ckpt_vid vid, const void *descriptor, size_t bytes, uint64_t *real) {
    enum {
        ONCE = CANON_FILE_CREATE | CANON_FILE_EXCL | CANON_FILE_APPEND,
        OURS = CANON_FILE_SEQUENTIAL | CANON_FILE_DELETE_ON_CLOSE
    };
    struct reader r = reader_of(descriptor, bytes);
    MPI_Offset position, shared;
    MPI_File file;
    ckpt_vid own;
    int atomic;
    struct file *f = parse(&r, &position, &shared, &atomic, &own);
    MPI_Comm comm = f == NULL ? MPI_COMM_NULL : real_comm(own);
    if (r.short_of_memory) {
        back_fail(MPI_ERR_NO_MEM, "a file");
        return CKPT_E_SYSTEM;
    }
    if (comm == MPI_COMM_NULL) {
        file_free(f);
        return CKPT_E_CORRUPT;
    }
    const char *what = "MPI_File_open";
    int rc = open_file(comm, f->path, f->amode & ~(ONCE | OURS), f->info, &file);
    if (rc == MPI_SUCCESS && atomic) {
        what = "MPI_File_set_atomicity";
        rc = MPI_File_set_atomicity(file, 1);
    }
    if (rc == MPI_SUCCESS) {
        what = "MPI_File_set_view";
        rc = view_again(file, f);
    }
    if (rc == MPI_SUCCESS) view_tells(f, file);
    if (rc == MPI_SUCCESS && position != NO_POSITION) { // else it stands where the view begins
        what = "MPI_File_seek";
        rc = MPI_File_seek(file, position, MPI_SEEK_SET);
        f->moved = position != 0;
    }
    if (rc == MPI_SUCCESS) {
        what = "MPI_File_seek_shared";
        rc = seek_shared_again(file, comm, shared);
    }
    if (rc != MPI_SUCCESS) {
        back_fail(rc, "%s on %s, which the program had open", what, f->path);
        file_free(f);
        return CKPT_E_SYSTEM;
    }
    ckpt_slot *s = back_slot(CKPT_KIND_FILE, vid);
    s->clock = own;
    s->extra = (uint64_t)(uintptr_t)f;
    *real = TO_REAL(file);
    return 0;
}

// ---- views ----

// The byte at which a sequential file's pointer stands.
static int current(MPI_File file, MPI_Offset *disp) {
    MPI_Offset at;
    int rc = MPI_File_get_position_shared(file, &at);
    return rc == MPI_SUCCESS ? MPI_File_get_byte_offset(file, at, disp) : rc;
}

// file, displacement, element type, file type, representation, info
long back_File_set_view(const long *a) {
    ARGS(File_set_view) p = (const void *)a;
    MPI_File file = real_file(p->fh);
    struct file *f = back_file_of(p->fh);
    MPI_Offset disp = p->disp;
    int rc = MPI_SUCCESS;
    if (f != NULL && f->amode & CANON_FILE_SEQUENTIAL) {
        if (disp != CANON_DISPLACEMENT_CURRENT) return CANON_ERR(ARG);
        rc = current(file, &disp);
    }
    // Memory is taken before the view changes: a call that fails has done nothing.
    char *datarep = strdup(p->datarep), *info = copy_content(p->info);
    if (rc == MPI_SUCCESS && (datarep == NULL || (p->info && info == NULL))) rc = MPI_ERR_NO_MEM;
    if (rc == MPI_SUCCESS) {
        MPI_Info real_info = back_info(p->info);
        rc = MPI_File_set_view(file, disp, real_type(p->etype), real_type(p->filetype), datarep, real_info);
        back_info_done(&real_info);
    }
    if (rc != MPI_SUCCESS || f == NULL) {
        free(datarep);
        free(info);
        return back_error(rc);
    }
    free(f->datarep);
    f->datarep = datarep;
    if (p->info) {
        free(f->view_info);
        f->view_info = info;
    }
    f->disp = disp;
    f->etype = p->etype;
    f->filetype = p->filetype;
    view_tells(f, file);
    // Described now, while the datatypes exist: from here on libckpt keeps them for the file.
    return back_error(describe_again(p->fh));
}

// file, displacement, element type, file type, representation out
long back_File_get_view(const long *a) {
    ARGS(File_get_view) p = (const void *)a;
    const struct file *f = back_file_of(p->fh);
    if (f == NULL) return CANON_ERR(FILE);
    *p->disp = f->disp;
    snprintf(p->datarep, MPI_MAX_DATAREP_STRING, "%s", f->datarep);
    long canon = back_type_again(f->etype, p->etype);
    return canon ? canon : back_type_again(f->filetype, p->filetype);
}

// ---- questions ----

long back_File_get_group(const long *a) {
    ARGS(File_get_group) p = (const void *)a;
    MPI_Group group;
    int rc = MPI_File_get_group(real_file(p->fh), &group);
    if (rc != MPI_SUCCESS) return back_error(rc);
    long canon = back_group_out(group, 1, p->size, p->members);
    MPI_Group_free(&group);
    return canon;
}

long back_File_get_amode(const long *a) {
    ARGS(File_get_amode) p = (const void *)a;
    const struct file *f = back_file_of(p->fh);
    if (f == NULL) return CANON_ERR(FILE);
    *p->amode = f->amode;
    return 0;
}
