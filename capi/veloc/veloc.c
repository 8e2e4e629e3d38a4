// SPDX-License-Identifier: Apache-2.0
//
// veloc.c: libckpt_veloc.so, VeloC's functions for memory over those of mpix_checkpoint.h.  It is compiled for each MPI,
// since VELOC_Init takes a communicator of that MPI.
//
// A checkpoint of VeloC is an epoch, in the directory "persistent".  Its name and version are one more piece of it.
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fti/config.h"
#include "mpix_checkpoint.h"
#include "veloc/veloc.h"

#define EXPORT __attribute__((visibility("default")))

enum { LABEL_ID = INT_MAX, LOCAL = 1, CODED = 3, SHARED = 4 };

struct region {
    int id;
    void *base;
    size_t bytes;
    bool chosen; // for the checkpoint that is being put together
};

// The piece LABEL_ID.
struct label {
    int32_t version;
    char name[VELOC_MAX_NAME];
};

// When checkpoints go to a level: every so many seconds, 0: each; below 0: none.
struct interval {
    int level;
    long seconds;
    double last;
};

static struct {
    bool begun;
    int rank;
    MPI_Comm comm;
    bool async, local;
    struct interval coded, shared;
    struct region *list;
    size_t regions;
    enum { IDLE, SAVING, LOADING } doing;
    struct label label;
    struct label
        saved; // of the checkpoint that can be loaded; version 0: there is none, or nobody has looked
    bool chosen, failed;
    int raising; // the level that the last checkpoint is on its way to; 0: none
} veloc = {.coded = {.level = CODED}, .shared = {.level = SHARED}};

static const char *why(void) {
    static char text[1000];
    MPIX_Checkpoint_reason(text, sizeof text);
    return text;
}

__attribute__((format(printf, 1, 2))) static int fail(const char *format, ...) {
    va_list args;
    char text[1300];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "libckpt_veloc: rank %d: %s\n", veloc.rank, text);
    return VELOC_FAILURE;
}

#define BEGUN                                                          \
    do {                                                               \
        if (!veloc.begun) return fail("VELOC_Init comes before this"); \
    } while (0)

static bool agree(bool mine) {
    int one = mine, all;
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_MIN, veloc.comm);
    return all != 0;
}

// ---- begin and end -------------------------------------------------------------------------------

// All ranks have what rank 0 reads; NULL on all when it cannot.
static char *read_config(const char *path) {
    char *text = NULL;
    long n = -1;
    if (veloc.rank == 0) {
        FILE *f = path != NULL ? fopen(path, "r") : NULL;
        size_t room = 0;
        if (f != NULL && getdelim(&text, &room, 0, f) >= 0)
            n = (long)strlen(text) + 1;
        else
            fail("the configuration %s: %s", path ? path : "(NULL)", f ? "it is empty" : strerror(errno));
        if (f != NULL) fclose(f);
    }
    MPI_Bcast(&n, 1, MPI_LONG, 0, veloc.comm);
    if (n > 0 && n < INT_MAX && text == NULL) text = malloc((size_t)n);
    if (!agree(n > 0 && n < INT_MAX && text != NULL)) return free(text), NULL;
    MPI_Bcast(text, (int)n, MPI_CHAR, 0, veloc.comm);
    return text;
}

static bool set(const char *name, const char *value) {
    return setenv(name, value, 1) == 0 || fail("no memory") == VELOC_SUCCESS;
}

static bool make(const char *dir) {
    if (mkdir(dir, 0777) == 0 || errno == EEXIST) return true;
    return fail("%s: %s", dir, strerror(errno)) == VELOC_SUCCESS;
}

static bool take_config(const char *text, const char *path) {
    char dir[PATH_MAX], mode[16];
    const char *value = config_get(text, "", "mode", "", mode, sizeof mode);
    veloc.async = strcmp(value, "async") == 0;
    if (!veloc.async && strcmp(value, "sync") != 0)
        return fail("%s says mode = \"%s\": want sync or async", path, value) == VELOC_SUCCESS;
    value = config_get(text, "", "persistent", NULL, dir, sizeof dir);
    if (value == NULL)
        return fail("%s does not say persistent, the directory of the checkpoints", path) == VELOC_SUCCESS;
    if (veloc.rank == 0 && !make(value)) return false;
    if (!set("CKPT_DIR", value)) return false;
    value = config_get(text, "", "scratch", NULL, dir, sizeof dir);
    veloc.local = value != NULL;
    if (veloc.local && (!make(value) || !set("CKPT_LOCAL", value))) return false;
    value = config_get(text, "", "max_versions", "0", mode, sizeof mode);
    if (strcmp(value, "0") != 0 && !set("CKPT_KEEP", value)) return false;
    veloc.coded.seconds = config_number(text, "", "ec_interval", 0);
    veloc.shared.seconds = config_number(text, "", "persistent_interval", 0);
    return true;
}

EXPORT int VELOC_Init(MPI_Comm comm, const char *cfg_file) {
    int same;
    if (veloc.begun) return fail("VELOC_Init was called before");
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &same);
    MPI_Comm_rank(MPI_COMM_WORLD, &veloc.rank);
    if (same != MPI_IDENT && same != MPI_CONGRUENT)
        return fail(
            "VELOC_Init was given a communicator that has not the ranks of MPI_COMM_WORLD in their order");
    MPI_Comm_dup(comm, &veloc.comm);
    char *text = read_config(cfg_file);
    bool good = text != NULL && agree(take_config(text, cfg_file));
    free(text);
    if (!good) {
        MPI_Comm_free(&veloc.comm);
        return VELOC_FAILURE;
    }
    veloc.begun = true;
    return VELOC_SUCCESS;
}

EXPORT int VELOC_Finalize(int drain) {
    BEGUN;
    int r = drain ? VELOC_Checkpoint_wait() : VELOC_SUCCESS;
    veloc.begun = false;
    VELOC_Mem_clear();
    MPI_Comm_free(&veloc.comm);
    return r;
}

// ---- regions -------------------------------------------------------------------------------------

static struct region *find(int id) {
    for (size_t i = 0; i < veloc.regions; i++)
        if (veloc.list[i].id == id) return &veloc.list[i];
    return NULL;
}

EXPORT int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size) {
    size_t bytes;
    BEGUN;
    if (id == LABEL_ID) return fail("region %d: this number is libckpt's own", id);
    if (__builtin_mul_overflow(count, base_size, &bytes))
        return fail("region %d: %zu elements of %zu bytes", id, count, base_size);
    struct region *r = find(id);
    if (r == NULL) {
        struct region *more = realloc(veloc.list, (veloc.regions + 1) * sizeof *more);
        if (more == NULL) return fail("no memory");
        veloc.list = more;
        r = &veloc.list[veloc.regions];
    }
    if (MPIX_Checkpoint_protect(id, ptr, bytes) != 0) return fail("%s", why());
    if (r == &veloc.list[veloc.regions]) veloc.regions++;
    *r = (struct region){.id = id, .base = ptr, .bytes = bytes};
    return VELOC_SUCCESS;
}

EXPORT int VELOC_Mem_unprotect(int id) {
    BEGUN;
    struct region *r = find(id);
    if (r == NULL) return fail("region %d is not protected", id);
    MPIX_Checkpoint_unprotect(id);
    *r = veloc.list[--veloc.regions];
    return VELOC_SUCCESS;
}

EXPORT int VELOC_Mem_clear(void) {
    for (size_t i = 0; i < veloc.regions; i++) MPIX_Checkpoint_unprotect(veloc.list[i].id);
    free(veloc.list);
    veloc.list = NULL, veloc.regions = 0;
    return VELOC_SUCCESS;
}

// Whether mode and ids mean a region.
static bool means(int mode, const int *ids, int count, int id) {
    bool there = false;
    for (int i = 0; i < count; i++) there = there || ids[i] == id;
    return mode == VELOC_CKPT_ALL || there == (mode == VELOC_CKPT_SOME);
}

static int check_ids(int mode, const int *ids, int count) {
    if (mode < VELOC_CKPT_ALL || mode > VELOC_CKPT_REST ||
        (mode != VELOC_CKPT_ALL && count > 0 && ids == NULL))
        return fail("mode %d with %d regions", mode, count);
    for (int i = 0; mode != VELOC_CKPT_ALL && i < count; i++)
        if (find(ids[i]) == NULL) return fail("region %d is not protected", ids[i]);
    return VELOC_SUCCESS;
}

static bool valid(const char *name, int version) {
    if (name == NULL || name[0] == 0 || strlen(name) >= VELOC_MAX_NAME)
        return fail("a checkpoint has a name of 1 to %d characters", VELOC_MAX_NAME - 1) == VELOC_SUCCESS;
    if (version < 0) return fail("version %d of %s: want 0 or more", version, name) == VELOC_SUCCESS;
    return true;
}

static struct label label(const char *name, int version) {
    struct label l = {.version = version};
    memcpy(l.name, name, strlen(name) + 1);
    return l;
}

// ---- checkpoints ---------------------------------------------------------------------------------

EXPORT int VELOC_Checkpoint_begin(const char *name, int version) {
    BEGUN;
    if (veloc.doing != IDLE) return fail("a checkpoint or a restart was begun, and not ended");
    if (!valid(name, version)) return VELOC_FAILURE;
    veloc.label = label(name, version);
    veloc.doing = SAVING;
    veloc.chosen = veloc.failed = false;
    return VELOC_SUCCESS;
}

EXPORT int VELOC_Checkpoint_selective(int mode, int *ids, int id_count) {
    BEGUN;
    if (veloc.doing != SAVING) return fail("VELOC_Checkpoint_begin comes before this");
    if (check_ids(mode, ids, id_count) != VELOC_SUCCESS) {
        veloc.failed = true;
        return VELOC_FAILURE;
    }
    for (size_t i = 0; i < veloc.regions; i++)
        veloc.list[i].chosen = means(mode, ids, id_count, veloc.list[i].id);
    veloc.chosen = true;
    return VELOC_SUCCESS;
}

EXPORT int VELOC_Checkpoint_mem(void) { return VELOC_Checkpoint_selective(VELOC_CKPT_ALL, NULL, 0); }

static bool due(struct interval *i, double now) {
    if (i->seconds < 0 || (i->last > 0 && now < i->last + (double)i->seconds)) return false;
    i->last = now;
    return true;
}

// The level of the next checkpoint; rank 0's clock counts.
static int next_level(void) {
    int level = LOCAL;
    double now = MPI_Wtime();
    if (!veloc.local) return SHARED;
    if (veloc.rank == 0 && due(&veloc.coded, now)) level = CODED;
    if (veloc.rank == 0 && due(&veloc.shared, now)) level = SHARED;
    MPI_Bcast(&level, 1, MPI_INT, 0, veloc.comm);
    return level;
}

static int save(void) {
    MPIX_CR_state_t state = MPIX_CR_STATE_ERROR;
    int level = next_level();
    if (MPIX_Checkpoint_level(level) != 0) return fail("%s", why());
    for (size_t i = 0; i < veloc.regions; i++)
        if (!veloc.list[i].chosen) MPIX_Checkpoint_unprotect(veloc.list[i].id);
    int r = MPIX_Checkpoint_protect(LABEL_ID, &veloc.label, sizeof veloc.label);
    if (agree(r == 0)) r = MPIX_Checkpoint(&state);
    if (r != 0 || state != MPIX_CR_STATE_CHECKPOINT)
        r = fail("version %d of %s is not saved: %s", veloc.label.version, veloc.label.name, why());
    MPIX_Checkpoint_unprotect(LABEL_ID);
    for (size_t i = 0; i < veloc.regions; i++)
        if (!veloc.list[i].chosen)
            MPIX_Checkpoint_protect(veloc.list[i].id, veloc.list[i].base, veloc.list[i].bytes);
    if (r != 0) return VELOC_FAILURE;
    veloc.raising = level;
    return veloc.async ? VELOC_SUCCESS : VELOC_Checkpoint_wait();
}

EXPORT int VELOC_Checkpoint_end(int success) {
    BEGUN;
    if (veloc.doing != SAVING) return fail("VELOC_Checkpoint_begin comes before this");
    veloc.doing = IDLE;
    bool mine = success == 1 && veloc.chosen && !veloc.failed;
    if (!agree(mine)) {
        if (!mine)
            fail("version %d of %s is given up: this rank has not all of it", veloc.label.version,
                 veloc.label.name);
        return VELOC_FAILURE;
    }
    return save();
}

EXPORT int VELOC_Checkpoint_wait(void) {
    BEGUN;
    if (veloc.doing == SAVING) return fail("VELOC_Checkpoint_end comes before this");
    int level = veloc.raising;
    veloc.raising = 0;
    if (level <= LOCAL || MPIX_Checkpoint_raise(level) == 0) return VELOC_SUCCESS;
    return fail("%s", why());
}

EXPORT int VELOC_Checkpoint(const char *name, int version) {
    BEGUN;
    bool good = VELOC_Checkpoint_wait() == VELOC_SUCCESS;
    if (VELOC_Checkpoint_begin(name, version) != VELOC_SUCCESS) return VELOC_FAILURE;
    return VELOC_Checkpoint_end(VELOC_Checkpoint_mem() == VELOC_SUCCESS && good);
}

// ---- restart -------------------------------------------------------------------------------------

// Reads the label of the checkpoint that can be loaded.
static bool look(void) {
    struct label l = {0};
    size_t bytes = 0;
    int r = MPIX_Checkpoint_recover(NULL);
    if (r != 0) return r != MPIX_CR_ERR_NONE && fail("%s", why()) == VELOC_SUCCESS;
    if (MPIX_Checkpoint_saved(LABEL_ID, &bytes) != 0 || bytes != sizeof l) {
        fail("the last checkpoint was not made by VELOC_Checkpoint");
        return false;
    }
    r = MPIX_Checkpoint_protect(LABEL_ID, &l, sizeof l);
    if (r == 0) r = MPIX_Checkpoint_recover_one(LABEL_ID);
    if (r != 0) fail("%s", why());
    MPIX_Checkpoint_unprotect(LABEL_ID);
    if (r != 0 || memchr(l.name, 0, sizeof l.name) == NULL) return false;
    veloc.saved = l;
    return true;
}

EXPORT int VELOC_Restart_test(const char *name, int version) {
    BEGUN;
    bool there = agree(valid(name, version)) && agree(look());
    if (!there || strcmp(veloc.saved.name, name) != 0) return VELOC_FAILURE;
    return version == 0 || veloc.saved.version < version ? veloc.saved.version : VELOC_FAILURE;
}

EXPORT int VELOC_Restart_begin(const char *name, int version) {
    BEGUN;
    if (veloc.doing != IDLE) return fail("a checkpoint or a restart was begun, and not ended");
    if (!agree(valid(name, version)) || !agree(look())) return VELOC_FAILURE;
    if (strcmp(veloc.saved.name, name) != 0 || veloc.saved.version != version)
        return fail("version %d of %s cannot be loaded: what there is is version %d of %s", version, name,
                    veloc.saved.version, veloc.saved.name);
    veloc.doing = LOADING;
    veloc.failed = false;
    return VELOC_SUCCESS;
}

EXPORT int VELOC_Recover_selective(int mode, int *ids, int id_count) {
    BEGUN;
    if (veloc.doing != LOADING) return fail("VELOC_Restart_begin comes before this");
    bool good = check_ids(mode, ids, id_count) == VELOC_SUCCESS;
    for (size_t i = 0; good && i < veloc.regions; i++)
        if (means(mode, ids, id_count, veloc.list[i].id) &&
            MPIX_Checkpoint_recover_one(veloc.list[i].id) != 0) {
            fail("region %d: %s", veloc.list[i].id, why());
            good = false;
        }
    veloc.failed = veloc.failed || !good;
    return good ? VELOC_SUCCESS : VELOC_FAILURE;
}

EXPORT int VELOC_Recover_mem(void) { return VELOC_Recover_selective(VELOC_RECOVER_ALL, NULL, 0); }

EXPORT int VELOC_Recover_size(int id) {
    size_t bytes;
    BEGUN;
    if (veloc.doing != LOADING) return fail("VELOC_Restart_begin comes before this");
    return MPIX_Checkpoint_saved(id, &bytes) == 0 && bytes <= INT_MAX ? (int)bytes : -1;
}

EXPORT int VELOC_Restart_end(int success) {
    BEGUN;
    if (veloc.doing != LOADING) return fail("VELOC_Restart_begin comes before this");
    veloc.doing = IDLE;
    return agree(success == 1 && !veloc.failed) ? VELOC_SUCCESS : VELOC_FAILURE;
}

EXPORT int VELOC_Restart(const char *name, int version) {
    if (VELOC_Restart_begin(name, version) != VELOC_SUCCESS) return VELOC_FAILURE;
    return VELOC_Restart_end(VELOC_Recover_mem() == VELOC_SUCCESS);
}
