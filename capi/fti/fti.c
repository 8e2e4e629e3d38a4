// SPDX-License-Identifier: Apache-2.0
//
// fti.c: libckpt_fti.so, FTI's functions over those of mpix_checkpoint.h.  It is compiled for each MPI, since
// FTI_COMM_WORLD is of a type of that MPI's.
//
// An execution has a folder of its own, GLBL_DIR/EXEC_ID.  The configuration file says which one is to be continued
// (restart: failure, exec_id), and is written back: at the first checkpoint, and in FTI_Finalize.
#include <errno.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include "mpix_checkpoint.h"
#include "config.h"
#include "state.h"

// In the order of their numbers.  The last ones are of Fortran: complex ones, which have no names in C.
static size_t type_bytes[256] = {sizeof(char),
                                 sizeof(short),
                                 sizeof(int),
                                 sizeof(long),
                                 sizeof(char),
                                 sizeof(short),
                                 sizeof(int),
                                 sizeof(long),
                                 sizeof(float),
                                 sizeof(double),
                                 sizeof(long double),
                                 2 * sizeof(float),
                                 2 * sizeof(double),
                                 2 * sizeof(long double),
                                 16,
                                 4};
static int types = 16;
EXPORT fti_id_t FTI_CHAR = 0, FTI_SHRT = 1, FTI_INTG = 2, FTI_LONG = 3, FTI_UCHR = 4, FTI_USHT = 5,
                FTI_UINT = 6, FTI_ULNG = 7, FTI_SFLT = 8, FTI_DBLE = 9, FTI_LDBE = 10;
EXPORT MPI_Comm FTI_COMM_WORLD;
struct state fti;

const char *fti_why(void) {
    static char text[1000];
    MPIX_Checkpoint_reason(text, sizeof text);
    return text;
}

int fti_fail(int code, const char *format, ...) {
    va_list args;
    char text[1300];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "libckpt_fti: rank %d: %s\n", fti.rank, text);
    return code;
}

int fti_agree(int mine) {
    int all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, FTI_COMM_WORLD);
    return all;
}

// ---- the configuration ---------------------------------------------------------------------------

static char *read_file(const char *path) {
    FILE *f = fopen(path, "r");
    char *text = NULL;
    size_t n = 0;
    if (f == NULL) return NULL;
    if (getdelim(&text, &n, 0, f) < 0) {
        free(text);
        text = ferror(f) ? NULL : strdup("");
    }
    fclose(f);
    return text;
}

// Rank 0: says in the file what the next start is to do.
static int mark(int failure) {
    char number[16], temporary[PATH_MAX + 8];
    snprintf(number, sizeof number, "%d", failure);
    char *text = read_file(fti.config), *one = text ? config_set(text, "restart", "failure", number) : NULL;
    char *two = one ? config_set(one, "restart", "exec_id", fti.id) : NULL;
    int e = two ? 0 : -1;
    if (e == 0) {
        snprintf(temporary, sizeof temporary, "%s.new", fti.config);
        FILE *f = fopen(temporary, "w");
        e = f == NULL || fputs(two, f) < 0 || fflush(f) != 0 || fsync(fileno(f)) != 0 ? -1 : 0;
        if (f != NULL && fclose(f) != 0) e = -1;
        if (e == 0) e = rename(temporary, fti.config);
        if (e != 0) unlink(temporary);
    }
    if (e != 0) fti_fail(FTI_NSCS, "%s cannot be written back: %s", fti.config, strerror(errno));
    free(text), free(one), free(two);
    return e;
}

// All ranks have what rank 0 read.  NULL on all of them when it could not.
static char *read_config(const char *path) {
    char *text = NULL;
    long n = -1;
    if (fti.rank == 0) {
        if (path != NULL) text = read_file(path);
        if (text != NULL)
            n = (long)strlen(text) + 1;
        else
            fti_fail(FTI_NSCS, "the configuration %s: %s", path ? path : "(NULL)", strerror(errno));
    }
    MPI_Bcast(&n, 1, MPI_LONG, 0, FTI_COMM_WORLD);
    if (n < 0 || n > INT_MAX) return free(text), NULL;
    if (text == NULL) text = malloc((size_t)n);
    if (text != NULL) MPI_Bcast(text, (int)n, MPI_CHAR, 0, FTI_COMM_WORLD);
    return text;
}

static int take_config(void) {
    char buffer[64], level[] = "ckpt_l1";
    if (config_number(fti.text, "basic", "head", 0) != 0)
        return fti_fail(FTI_NSCS, "head is not 0: no rank is kept for FTI here, set it to 0");
    fti.status = (int)config_number(fti.text, "restart", "failure", 0);
    fti.keep_last = config_number(fti.text, "basic", "keep_last_ckpt", 0) != 0;
    fti.fast = config_number(fti.text, "advanced", "fast_forward", 1);
    if (fti.fast < 1) fti.fast = 1;
    for (int i = 1; i <= LEVELS; i++) {
        level[6] = (char)('0' + i);
        fti.every[i] = config_number(fti.text, "basic", level, -1);
        fti.taken[i] = 0;
    }
    if (fti.status < 0 || fti.status > 3)
        return fti_fail(FTI_NSCS, "%s says failure = %d: want 0 to 3", fti.config, fti.status);
    if (fti.status == 0) {
        time_t now = time(NULL);
        struct tm t;
        size_t n = strftime(fti.id, sizeof fti.id, "%Y-%m-%d_%H-%M-%S", localtime_r(&now, &t));
        snprintf(fti.id + n, sizeof fti.id - n, "_%ld", (long)getpid());
        MPI_Bcast(fti.id, sizeof fti.id, MPI_CHAR, 0, FTI_COMM_WORLD);
        return FTI_SCES;
    }
    const char *id = config_get(fti.text, "restart", "exec_id", NULL, buffer, sizeof buffer);
    if (id == NULL || strchr(id, '/') != NULL || strcmp(id, "..") == 0 || strcmp(id, ".") == 0)
        return fti_fail(FTI_NSCS, "%s says failure = %d, and no exec_id that could be continued", fti.config,
                        fti.status);
    snprintf(fti.id, sizeof fti.id, "%s", id);
    return FTI_SCES;
}

// ---- begin and end -------------------------------------------------------------------------------

// MPI_Finalize deletes attributes in the reverse of the order in which they were set: that of libckpt, which gives the
// folder back, was set after this one.
static int at_finalize(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    if (fti.unwanted) layout_remove();
    return MPI_SUCCESS;
}

// Takes back what a beginning has taken that came to nothing.
static int not_begun(int code) {
    layout_end();
    strings_end();
    free(fti.text);
    fti.text = NULL;
    fti.begun = fti.marked = false;
    fti.status = 0;
    return code;
}

static int begin(const char *path) {
    int key;
    fti.text = read_config(path);
    if (fti.text == NULL) return FTI_NSCS;
    if (fti_agree(take_config()) != FTI_SCES) return FTI_NSCS;
    if (layout_begin() != FTI_SCES) return FTI_NSCS;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    fti.begun = fti.marked = fti.status != 0;
    if (fti.status != 0) {
        layout_forget();
        if (MPIX_Checkpoint_recover(NULL) != 0)
            return fti_fail(FTI_NREC, "%s cannot be continued: %s", fti.at.dir, fti_why());
        layout_name(0, 0);
        strings_load();
    }
    fti.begun = true;
    fti.start = MPI_Wtime();
    return FTI_SCES;
}

EXPORT int FTI_Init(const char *configFile, MPI_Comm comm) {
    int same;
    if (fti.begun) return fti_fail(FTI_NSCS, "FTI_Init was called before");
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &same);
    MPI_Comm_rank(MPI_COMM_WORLD, &fti.rank);
    if (same != MPI_IDENT && same != MPI_CONGRUENT)
        return fti_fail(
            FTI_NSCS,
            "FTI_Init was given a communicator that has not the ranks of MPI_COMM_WORLD in their order");
    MPI_Comm_dup(comm, &FTI_COMM_WORLD);
    MPI_Comm_size(FTI_COMM_WORLD, &fti.ranks);
    snprintf(fti.config, sizeof fti.config, "%s", configFile ? configFile : "");
    int r = begin(configFile);
    return r == FTI_SCES ? r : not_begun(r);
}

EXPORT int FTI_Status(void) { return fti.status; }

EXPORT int FTI_Finalize(void) {
    BEGUN(FTI_NSCS);
    fti.begun = false;
    bool keep = fti.keep_last && fti.marked;
    int e = fti.rank == 0 && (fti.marked || keep) ? mark(keep ? 2 : 0) : 0;
    if (keep && fti.last_level != 0 && fti.at.local[0] != 0) {
        if (MPIX_Checkpoint_raise(LEVELS) == 0)
            layout_name(LEVELS, fti.last_id);
        else
            e = fti_fail(-1, "the last checkpoint is not kept at level 4: %s", fti_why());
    }
    fti.unwanted = !keep;
    MPI_Barrier(FTI_COMM_WORLD);
    return e == 0 ? FTI_SCES : FTI_NSCS;
}

// ---- types ---------------------------------------------------------------------------------------

EXPORT int FTI_InitType(fti_id_t *type, int bytes) {
    if (type == NULL || bytes < 1) return fti_fail(FTI_NSCS, "a type of %d bytes", bytes);
    if (types == (int)(sizeof type_bytes / sizeof *type_bytes)) return fti_fail(FTI_NSCS, "too many types");
    type_bytes[types] = (size_t)bytes;
    *type = types++;
    return FTI_SCES;
}

EXPORT fti_id_t FTI_InitCompositeType(const char *name, size_t bytes, FTIT_H5Group *group) {
    fti_id_t type;
    if (name == NULL || group != NULL || bytes > INT_MAX || FTI_InitType(&type, (int)bytes) != FTI_SCES)
        return FTI_NSCS;
    return type;
}

// Fields say what is in a file of HDF5, and there is none.
static int field(fti_id_t id, const char *name, fti_id_t type, int64_t offset, int64_t count) {
    if (name == NULL || id < 0 || id >= types || type < 0 || type >= types || offset < 0 || count < 1 ||
        (size_t)offset > type_bytes[id] ||
        (size_t)count > (type_bytes[id] - (size_t)offset) / type_bytes[type])
        return fti_fail(FTI_NSCS, "field %s is not in type %d", name ? name : "(NULL)", id);
    return FTI_SCES;
}

EXPORT int FTI_AddScalarField(fti_id_t id, const char *name, fti_id_t type, int64_t offset) {
    return field(id, name, type, offset, 1);
}

EXPORT int FTI_AddVectorField(fti_id_t id, const char *name, fti_id_t type, int64_t offset, int dims,
                              int64_t *sizes) {
    int64_t count = 1;
    for (int i = 0; i < dims; i++)
        if (sizes == NULL || sizes[i] < 1 || __builtin_mul_overflow(count, sizes[i], &count))
            return fti_fail(FTI_NSCS, "field %s has no size", name ? name : "(NULL)");
    return field(id, name, type, offset, count);
}

// ---- what is protected ---------------------------------------------------------------------------

struct piece *fti_find(int id) {
    for (size_t i = 0; i < fti.pieces; i++)
        if (fti.list[i].id == id) return &fti.list[i];
    return NULL;
}

EXPORT int FTI_Protect(int id, void *base, int64_t count, fti_id_t type) {
    size_t bytes;
    BEGUN(FTI_NSCS);
    if (id == STRINGS_ID) return fti_fail(FTI_NSCS, "variable %d: this number is libckpt's own", id);
    if (type < 0 || type >= types) return fti_fail(FTI_NSCS, "variable %d: there is no type %d", id, type);
    if (count < 0 || __builtin_mul_overflow((size_t)count, type_bytes[type], &bytes))
        return fti_fail(FTI_NSCS, "variable %d: %lld elements", id, (long long)count);
    struct piece *p = fti_find(id);
    if (p == NULL) {
        struct piece *more = realloc(fti.list, (fti.pieces + 1) * sizeof *more);
        if (more == NULL) return fti_fail(FTI_NSCS, "no memory");
        fti.list = more;
        p = &fti.list[fti.pieces];
    }
    if (MPIX_Checkpoint_protect(id, base, bytes) != 0) return fti_fail(FTI_NSCS, "%s", fti_why());
    if (p == &fti.list[fti.pieces]) fti.pieces++;
    *p = (struct piece){.id = id, .base = base, .bytes = bytes, .element = type_bytes[type]};
    return FTI_SCES;
}

// ---- checkpoints ---------------------------------------------------------------------------------

// Levels 1 to 3 are kept as 4 where there are no local directories (ckpt_dir).  The answer is the level, 0: none.
static int set_level(int level) {
    if (level < 1 || level > LEVELS) return fti_fail(0, "there is no level %d: levels are 1 to 4", level);
    if (fti.at.local[0] == 0) level = LEVELS;
    return MPIX_Checkpoint_level(level) == 0 ? level : fti_fail(0, "%s", fti_why());
}

static int save(int id, int level) {
    MPIX_CR_state_t state;
    int at = set_level(level);
    if (at == 0) return FTI_NSCS;
    int saved = strings_save() ? MPIX_Checkpoint(&state) : -1;
    strings_saved();
    if (saved != 0 || state != MPIX_CR_STATE_CHECKPOINT)
        return fti_fail(FTI_NSCS, "no checkpoint: %s", saved < 0 ? "no memory" : fti_why());
    // As with FTI's inline_l2 to inline_l4 the call returns when the checkpoint is where it belongs.
    bool raised = at == 1 || MPIX_Checkpoint_raise(at) == 0;
    if (!raised) fti_fail(0, "the checkpoint is at level 1 only: %s", fti_why());
    layout_name(raised ? at : 1, id);
    int marked = fti.marked || fti.rank != 0 || mark(1) == 0;
    if (fti_agree(marked) == 0) return FTI_NSCS;
    fti.marked = true;
    fti.status = 0; // there is nothing to be recovered any more
    fti.last_level = level, fti.last_id = id;
    fti.made[level]++;
    return raised ? FTI_DONE : FTI_NSCS;
}

EXPORT int FTI_Checkpoint(int id, int level) {
    BEGUN(FTI_NSCS);
    if (fti.icp != 0) return fti_fail(FTI_NSCS, "FTI_FinalizeICP comes before this");
    return save(id, level);
}

EXPORT int FTI_InitICP(int id, int level, bool activate) {
    BEGUN(FTI_NSCS);
    if (!activate) return FTI_SCES;
    if (fti.icp != 0) return fti_fail(FTI_NSCS, "FTI_FinalizeICP comes before this");
    if (level < 1 || level > LEVELS)
        return fti_fail(FTI_NSCS, "there is no level %d: levels are 1 to 4", level);
    fti.icp = level, fti.icp_id = id;
    for (size_t i = 0; i < fti.pieces; i++) fti.list[i].chosen = false;
    return FTI_SCES;
}

EXPORT int FTI_AddVarICP(int id) {
    BEGUN(FTI_NSCS);
    struct piece *p = fti_find(id);
    if (fti.icp == 0) return FTI_SCES; // it was not activated
    if (p == NULL) return fti_fail(FTI_NSCS, "variable %d is not protected", id);
    p->chosen = true;
    return FTI_SCES;
}

EXPORT int FTI_FinalizeICP(void) {
    BEGUN(FTI_NSCS);
    if (fti.icp == 0) return FTI_SCES;
    for (size_t i = 0; i < fti.pieces; i++)
        if (!fti.list[i].chosen) MPIX_Checkpoint_unprotect(fti.list[i].id);
    int r = save(fti.icp_id, fti.icp);
    fti.icp = 0;
    for (size_t i = 0; i < fti.pieces; i++)
        if (!fti.list[i].chosen) MPIX_Checkpoint_protect(fti.list[i].id, fti.list[i].base, fti.list[i].bytes);
    return r == FTI_DONE ? FTI_SCES : r;
}

// Whether all that is protected can be loaded; *there is how much of it the checkpoint has.  An incomplete one may not
// have all of it, and what it has not stays as it is.
static bool loadable(size_t *there) {
    size_t bytes;
    *there = 0;
    for (size_t i = 0; i < fti.pieces; i++) {
        struct piece *p = &fti.list[i];
        p->chosen = MPIX_Checkpoint_saved(p->id, &bytes) == 0;
        if (!p->chosen) continue;
        ++*there;
        if (bytes != p->bytes) {
            fti_fail(0, "variable %d has %zu bytes, and %zu are stored", p->id, p->bytes, bytes);
            return false;
        }
    }
    return true;
}

EXPORT int FTI_Recover(void) {
    size_t there;
    BEGUN(FTI_NSCS);
    if (fti_agree(MPIX_Checkpoint_recover(NULL) == 0) == 0)
        return fti_fail(FTI_NREC, "nothing is recovered: %s", fti_why());
    bool good = loadable(&there);
    if (good && there == 0 && fti.pieces > 0) {
        fti_fail(0, "nothing that is protected is stored");
        good = false;
    }
    if (fti_agree(good) == 0) return FTI_NREC; // nothing was loaded on any rank
    for (size_t i = 0; good && i < fti.pieces; i++)
        if (fti.list[i].chosen && MPIX_Checkpoint_recover_one(fti.list[i].id) != 0) {
            fti_fail(0, "variable %d: %s", fti.list[i].id, fti_why());
            good = false;
        }
    if (fti_agree(good) == 0) return FTI_NREC;
    fti.status = 0;
    return FTI_SCES;
}

// The highest level one of whose intervals has passed; rank 0's clock counts.
static int due(void) {
    int level = 0;
    double minutes = (MPI_Wtime() - fti.start) / 60 * (double)fti.fast;
    for (int i = 1; fti.rank == 0 && i <= LEVELS; i++)
        if (fti.every[i] > 0 && minutes >= (double)((fti.taken[i] + 1) * fti.every[i])) {
            fti.taken[i] = (long)(minutes / (double)fti.every[i]);
            level = i;
        }
    MPI_Bcast(&level, 1, MPI_INT, 0, FTI_COMM_WORLD);
    return level;
}

EXPORT int FTI_Snapshot(void) {
    BEGUN(FTI_NSCS);
    if (fti.status != 0) return FTI_Recover();
    int level = due();
    return level == 0 ? FTI_SCES : FTI_Checkpoint(++fti.snapshots, level);
}

// ---- one by one ----------------------------------------------------------------------------------

EXPORT int64_t FTI_GetStoredSize(int id) {
    size_t bytes;
    BEGUN(0);
    if (MPIX_Checkpoint_saved(id, &bytes) != 0) return fti_fail(0, "%s", fti_why());
    return (int64_t)bytes;
}

EXPORT void *FTI_Realloc(int id, void *base) {
    BEGUN(base);
    struct piece *p = fti_find(id);
    int64_t bytes = p && fti.status != 0 ? FTI_GetStoredSize(id) : 0;
    if (bytes == 0)
        return fti_fail(0, "variable %d: nothing is stored that it could be as large as", id), base;
    void *now = realloc(base, (size_t)bytes);
    if (now == NULL || MPIX_Checkpoint_protect(id, now, (size_t)bytes) != 0) {
        fti_fail(0, "variable %d: %s", id, now ? fti_why() : "no memory");
        return now ? now : base;
    }
    p->base = now, p->bytes = (size_t)bytes;
    return now;
}

EXPORT int FTI_RecoverVarInit(void) {
    BEGUN(FTI_NSCS);
    return fti.status != 0 ? FTI_SCES : fti_fail(FTI_NREC, "there is nothing to be recovered");
}

EXPORT int FTI_RecoverVar(int id) {
    BEGUN(FTI_NSCS);
    if (MPIX_Checkpoint_recover_one(id) != 0) return fti_fail(FTI_NREC, "variable %d: %s", id, fti_why());
    return FTI_SCES;
}

EXPORT int FTI_RecoverVarFinalize(void) {
    BEGUN(FTI_NSCS);
    fti.status = 0;
    return FTI_SCES;
}
