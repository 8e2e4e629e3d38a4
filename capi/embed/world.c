// SPDX-License-Identifier: Apache-2.0
//
// world.c: finds the MPI that the program was linked with, or has loaded, and calls it.  Handles are integers with
// MPICH and the standard ABI and pointers with Open MPI; each is one register, so one prototype serves all.
#define _GNU_SOURCE // dladdr, RTLD_DEFAULT
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embed/embed.h"
#include "embed/world.h"

typedef uintptr_t handle;

static struct {
    int (*initialized)(int *);
    int (*finalized)(int *);
    int (*comm_dup)(handle, handle *);
    int (*comm_rank)(handle, int *);
    int (*comm_size)(handle, int *);
    int (*comm_set_errhandler)(handle, handle);
    int (*type_size)(handle, int *);
    int (*allgather)(const void *, int, handle, void *, int, handle, handle);
    int (*iprobe)(int, int, handle, int *, void *);
    int (*comm_create_keyval)(void *, void *, int *, void *);
    int (*comm_set_attr)(handle, int, void *);
    int (*get_library_version)(char *, int *);
    handle world, self, byte, errors_return;
    const char *name;
} mpi;

static handle own; // a duplicate of the world
static ckpt_world world;

enum { MOST_LIBRARIES = 64 };
struct libraries {
    char *name[MOST_LIBRARIES];
    int n;
};

static int note_library(struct dl_phdr_info *info, size_t size, void *p) {
    struct libraries *all = p;
    const char *slash = strrchr(info->dlpi_name, '/'), *base = slash ? slash + 1 : info->dlpi_name;
    (void)size;
    if (strncmp(base, "libmpi", 6) == 0 && all->n < MOST_LIBRARIES)
        all->name[all->n++] = strdup(info->dlpi_name);
    return 0;
}

// A module of Python has its MPI for itself alone (RTLD_LOCAL).
static void *find_library(void) {
    struct libraries all = {.n = 0};
    void *found = NULL;
    if (dlsym(RTLD_DEFAULT, "PMPI_Initialized") != NULL) return RTLD_DEFAULT;
    dl_iterate_phdr(note_library, &all);
    for (int i = 0; i < all.n; i++) {
        void *lib = all.name[i] && found == NULL ? dlopen(all.name[i], RTLD_LAZY | RTLD_NOLOAD) : NULL;
        if (lib != NULL && dlsym(lib, "PMPI_Initialized") != NULL)
            found = lib; // it stays open: the MPI is not unloaded under us
        else if (lib != NULL)
            dlclose(lib);
        free(all.name[i]);
    }
    return found;
}

static void constants(void *lib) {
    Dl_info of;
    const char *file = dladdr((void *)mpi.initialized, &of) != 0 && of.dli_fname ? of.dli_fname : "";
    const char *slash = strrchr(file, '/');
    if (dlsym(lib, "ompi_mpi_comm_world") != NULL) {
        mpi.name = "openmpi";
        mpi.world = (handle)dlsym(lib, "ompi_mpi_comm_world");
        mpi.self = (handle)dlsym(lib, "ompi_mpi_comm_self");
        mpi.byte = (handle)dlsym(lib, "ompi_mpi_byte");
        mpi.errors_return = (handle)dlsym(lib, "ompi_mpi_errors_return");
    } else if (strstr(slash ? slash : file, "mpi_abi") != NULL) {
        mpi.name = "mpi"; // those of the standard, chapter "ABI" of MPI 5.0
        mpi.world = 0x101, mpi.self = 0x102, mpi.byte = 0x247, mpi.errors_return = 0x143;
    } else {
        mpi.name = "mpich";
        mpi.world = 0x44000000, mpi.self = 0x44000001, mpi.byte = 0x4c00010d, mpi.errors_return = 0x54000001;
    }
}

// Finds the functions; an MPI may be loaded later than the first call.
static bool find_mpi(void) {
    if (mpi.initialized != NULL) return true;
    void *lib = find_library();
    if (lib == NULL && dlsym(RTLD_DEFAULT, "PMPI_Initialized") == NULL) return false;
#define FIND(member, name) (mpi.member = (__typeof__(mpi.member))dlsym(lib, "PMPI_" name)) != NULL
    bool all = FIND(finalized, "Finalized") && FIND(comm_dup, "Comm_dup") && FIND(comm_rank, "Comm_rank") &&
               FIND(comm_size, "Comm_size") && FIND(comm_set_errhandler, "Comm_set_errhandler") &&
               FIND(type_size, "Type_size") && FIND(allgather, "Allgather") && FIND(iprobe, "Iprobe") &&
               FIND(comm_create_keyval, "Comm_create_keyval") && FIND(comm_set_attr, "Comm_set_attr") &&
               FIND(get_library_version, "Get_library_version") && FIND(initialized, "Initialized");
    if (!all) {
        mpi.initialized = NULL;
        return false;
    }
    constants(lib);
    return true;
}

enum embed_mpi embed_mpi_state(void) {
    int flag = 0;
    if (!find_mpi()) return EMBED_MPI_NONE;
    if (mpi.finalized(&flag) == 0 && flag) return EMBED_MPI_LATE;
    if (mpi.initialized(&flag) == 0 && flag) return EMBED_MPI_RUNS;
    return EMBED_MPI_EARLY;
}

static int gather(const void *mine, void *all, size_t bytes) {
    if (bytes > INT_MAX) return -1;
    return mpi.allgather(mine, (int)bytes, mpi.byte, all, (int)bytes, mpi.byte, own);
}

// Peers may need this rank's progress, to end a call that they made before the checkpoint.
static void progress(void) {
    uint64_t status[64]; // more than any MPI's
    int flag;
    mpi.iprobe(0, 0, own, &flag, status);
}

const ckpt_world *embed_world(ckpt_error *error) {
    static char version[8192 + 1]; // MPICH's longest
    int size = 0, n = 0;
    if (own != 0) return &world;
    if (mpi.type_size(mpi.byte, &size) != 0 || size != 1) {
        embed_say(error, CKPT_E_NOTSUP,
                  "the program's MPI is neither MPICH nor Open MPI, nor has it the standard's ABI");
        return NULL;
    }
    if (mpi.comm_dup(mpi.world, &own) != 0 || mpi.comm_rank(own, &world.rank) != 0 ||
        mpi.comm_size(own, &world.ranks) != 0) {
        own = 0;
        embed_say(error, CKPT_E_SYSTEM, "the program's MPI makes no communicator (MPI_Comm_dup)");
        return NULL;
    }
    mpi.comm_set_errhandler(own, mpi.errors_return);
    world.name = mpi.name;
    if (mpi.get_library_version(version, &n) == 0) {
        version[strcspn(version, "\n")] = 0;
        snprintf(world.version, sizeof world.version, "%.255s", version);
    }
    world.allgather = gather;
    world.progress = progress;
    return &world;
}

int embed_any(bool yes) {
    int mine = yes, any = 0, *all = calloc((size_t)world.ranks, sizeof *all);
    if (all == NULL || gather(&mine, all, sizeof mine) != 0) any = -1;
    for (int i = 0; any == 0 && i < world.ranks; i++) any = all[i] != 0;
    free(all);
    return any;
}

// ---- the end -------------------------------------------------------------------------------------

// MPI_Finalize deletes the attributes of MPI_COMM_SELF before anything else.
static void (*at_finalize)(void);

static int forget_attribute(handle comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    void (*f)(void) = at_finalize;
    at_finalize = NULL;
    if (f != NULL) f();
    return 0;
}

static int no_copy(handle comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)key, (void)extra, (void)in, (void)out;
    *flag = 0;
    return 0;
}

int embed_at_finalize(void (*f)(void)) {
    int key;
    if (mpi.comm_create_keyval((void *)no_copy, (void *)forget_attribute, &key, NULL) != 0) return -1;
    at_finalize = f;
    return mpi.comm_set_attr(mpi.self, key, NULL);
}
