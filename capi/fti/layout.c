// SPDX-License-Identifier: Apache-2.0
//
// layout.c: where the files of an execution are, and FTI's names of them.
//
//	GLBL_DIR/EXEC_ID/                              the checkpoint directory: epochs, with images at level 4
//	GLBL_DIR/EXEC_ID/l4/Ckpt<id>-Rank<r>.fti       names of images at level 4
//	CKPT_DIR/node<n>/EXEC_ID/                      the local directory of a node: epochs at levels 1 to 3
//	CKPT_DIR/node<n>/EXEC_ID/l<k>/Ckpt<id>-Rank<r>.fti, -Pcof<r>.fti, -RSed<r>.fti
//	                                               names of images, copies and parities
//	GLBL_DIR/EXEC_ID/names                         which epoch has names, at which level, with which number
//
// A name is a hard link.  A file whose name the user has removed is removed by the next start; one that is damaged by its
// name is damaged.  The last checkpoint alone has names, as with FTI; older epochs are there as libckpt keeps them.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mpix_checkpoint.h"
#include "config.h"
#include "state.h"

enum { HOST = 256 };

// The epoch that has names.
struct named {
    int epoch, level, id; // epoch 0: none has
};

static const char *file_of(char *path, size_t n, const char *dir, const char *name) {
    return (size_t)snprintf(path, n, "%s/%s", dir, name) < n ? path : NULL;
}

// ---- begin ---------------------------------------------------------------------------------------

// Numbers the nodes in the order of their first ranks.
static int find_nodes(void) {
    struct layout *l = &fti.at;
    char mine[HOST] = "", *all = malloc((size_t)fti.ranks * HOST);
    l->node_of = calloc((size_t)fti.ranks, sizeof *l->node_of);
    if (fti_agree(all != NULL && l->node_of != NULL) == 0) {
        free(all);
        return fti_fail(FTI_NSCS, "no memory");
    }
    if (l->node_size > 0)
        snprintf(mine, sizeof mine, "%d", fti.rank / l->node_size);
    else
        gethostname(mine, sizeof mine - 1);
    MPI_Allgather(mine, HOST, MPI_CHAR, all, HOST, MPI_CHAR, FTI_COMM_WORLD);
    l->nodes = 0;
    for (int r = 0; r < fti.ranks; r++) {
        int first = 0;
        while (strcmp(all + first * HOST, all + r * HOST) != 0) first++;
        l->node_of[r] = first < r ? l->node_of[first] : l->nodes++;
        if (r == fti.rank) l->leader = first == r;
    }
    free(all);
    return FTI_SCES;
}

static int set(const char *name, const char *value) {
    return setenv(name, value, 1) == 0 ? 0 : fti_fail(FTI_NSCS, "no memory");
}

static int make(const char *dir) {
    if (mkdir(dir, 0777) == 0 || errno == EEXIST) return 0;
    return fti_fail(FTI_NSCS, "%s: %s", dir, strerror(errno));
}

// An absolute path, since the program may change its directory.
static const char *absolute(const char *path, char *out, size_t n) {
    char here[PATH_MAX];
    if (path[0] == '/') return (size_t)snprintf(out, n, "%s", path) < n ? out : NULL;
    return getcwd(here, sizeof here) != NULL ? file_of(out, n, here, path) : NULL;
}

static int begin(void) {
    struct layout *l = &fti.at;
    char buffer[PATH_MAX], global[PATH_MAX], path[PATH_MAX];
    const char *dir = config_get(fti.text, "basic", "glbl_dir", NULL, buffer, sizeof buffer);
    if (dir == NULL || absolute(dir, global, sizeof global - 200) == NULL)
        return fti_fail(FTI_NSCS, "%s does not say glbl_dir, or it is too long", fti.config);
    if (fti.rank == 0 && make(global) != 0) return FTI_NSCS;
    if (file_of(l->dir, sizeof l->dir, global, fti.id) == NULL || set("CKPT_DIR", l->dir) != 0)
        return FTI_NSCS;

    dir = config_get(fti.text, "basic", "ckpt_dir", NULL, buffer, sizeof buffer);
    if (dir == NULL) return FTI_SCES; // checkpoints of all levels are in glbl_dir
    bool one_machine = config_number(fti.text, "advanced", "local_test", 0) != 0;
    long size = config_number(fti.text, "basic", "node_size", one_machine ? 0 : 1),
         group = config_number(fti.text, "basic", "group_size", 4);
    if (size < 1 || size > INT_MAX || group < 2 || group > INT_MAX)
        return fti_fail(FTI_NSCS,
                        "%s says node_size = %ld and group_size = %ld: want 1 or more, and 2 or more",
                        fti.config, size, group);
    l->node_size = one_machine ? (int)size : 0;
    l->group = (int)group;
    if (absolute(dir, path, sizeof path - 200) == NULL)
        return fti_fail(FTI_NSCS, "ckpt_dir %s is too long", dir);
    snprintf(l->local, sizeof l->local, "%s", path);
    return FTI_SCES;
}

// The local directories of the nodes.
static int begin_local(void) {
    struct layout *l = &fti.at;
    char number[16], *at = l->names;
    if (l->local[0] == 0) return FTI_SCES;
    if (make(l->local) != 0) return FTI_NSCS;
    size_t n = (size_t)snprintf(at, sizeof l->names, "%s/node%d", l->local, l->node_of[fti.rank]);
    if (n >= sizeof l->names - 100 || make(at) != 0) return FTI_NSCS;
    snprintf(at + n, sizeof l->names - n, "/%s", fti.id);
    if (make(at) != 0) return FTI_NSCS;
    snprintf(l->local, sizeof l->local, "%s", at);
    if (set("CKPT_LOCAL", l->local) != 0) return FTI_NSCS;
    snprintf(number, sizeof number, "%d", l->group);
    if (set("CKPT_GROUP", number) != 0) return FTI_NSCS;
    if (l->node_size == 0) return FTI_SCES;
    snprintf(number, sizeof number, "%d", l->node_size);
    return set("CKPT_NODE_SIZE", number);
}

int layout_begin(void) {
    if (fti_agree(begin()) != FTI_SCES) return FTI_NSCS;
    if (find_nodes() != FTI_SCES) return FTI_NSCS;
    return fti_agree(begin_local());
}

// ---- the epoch that has names --------------------------------------------------------------------

// Rank 0: the last epoch that was committed.
static int last_epoch(void) {
    char path[PATH_MAX + NAME_MAX + 64];
    struct dirent *e;
    int last = 0, n;
    DIR *d = opendir(fti.at.dir);
    while (d != NULL && (e = readdir(d)) != NULL) {
        if (sscanf(e->d_name, "epoch-%d", &n) != 1 || n <= last) continue;
        snprintf(path, sizeof path, "%s/%s/manifest.json", fti.at.dir, e->d_name);
        if (access(path, F_OK) == 0) last = n;
    }
    if (d != NULL) closedir(d);
    return last;
}

static struct named share(struct named one) {
    int all[3] = {one.epoch, one.level, one.id};
    MPI_Bcast(all, 3, MPI_INT, 0, FTI_COMM_WORLD);
    return (struct named){all[0], all[1], all[2]};
}

static struct named read_named(void) {
    char path[PATH_MAX];
    struct named one = {0};
    if (fti.rank == 0 && file_of(path, sizeof path, fti.at.dir, "names") != NULL) {
        FILE *f = fopen(path, "r");
        if (f != NULL && (fscanf(f, "epoch %d level %d id %d", &one.epoch, &one.level, &one.id) != 3 ||
                          one.level < 1 || one.level > LEVELS))
            one.epoch = 0;
        if (f != NULL) fclose(f);
    }
    return share(one);
}

// Rank 0.  Without it files of which the user removes the names are kept, so nothing is lost when it cannot be written.
static void write_named(struct named one) {
    char path[PATH_MAX], new[PATH_MAX];
    if (file_of(path, sizeof path, fti.at.dir, "names") == NULL ||
        file_of(new, sizeof new, fti.at.dir, "names.new") == NULL)
        return;
    FILE *f = fopen(new, "w");
    bool good = f != NULL && fprintf(f, "epoch %d level %d id %d\n", one.epoch, one.level, one.id) > 0;
    if (f != NULL && fclose(f) != 0) good = false;
    if (!good || rename(new, path) != 0) unlink(new);
}

// ---- names ---------------------------------------------------------------------------------------

// The node whose files a node has copies of, -1: it is alone.  As libckpt makes groups: in order, the last one takes
// the rest, and a single node that is left joins the group before it.
static int node_before(int node) {
    int g = fti.at.group, nodes = fti.at.nodes, group = node / g, groups = (nodes + g - 1) / g;
    if (groups > 1 && nodes % g == 1) groups--;
    if (group >= groups) group = groups - 1;
    int first = group * g, n = group == groups - 1 ? nodes - first : g;
    return n < 2 ? -1 : first + (node - first + n - 1) % n;
}

// The rank at the same place of another node, or rank where that has fewer.
static int same_place(int rank, int node) {
    int place = 0, n = 0;
    for (int r = 0; r < rank; r++) place += fti.at.node_of[r] == fti.at.node_of[rank];
    for (int r = 0; r < fti.ranks; r++)
        if (fti.at.node_of[r] == node && n++ == place) return r;
    return rank;
}

// FTI's name of a file that is on this node; false: it has none.  As with FTI, -Pcof<r> is the copy that rank r's node
// has for another rank, and -RSed<r> the parity on the node of rank r.
static bool name_of(const char *file, const struct named *one, char *name, size_t n) {
    int rank, end = 0, node = fti.at.node_of[fti.rank];
    if (sscanf(file, "rank-%d.ckpt%n", &rank, &end) == 1 && end > 0 && file[end] == 0 && rank >= 0 &&
        rank < fti.ranks) {
        int from = fti.at.node_of[rank];
        if (from == node || one->level == LEVELS)
            snprintf(name, n, "Ckpt%d-Rank%d.fti", one->id, rank);
        else if (from == node_before(node) && one->level > 1)
            snprintf(name, n, "Ckpt%d-Pcof%d.fti", one->id, same_place(rank, node));
        else
            return false;
        return true;
    }
    if (sscanf(file, "parity-%*d-%*d.rs%n", &end) == 0 && end > 0 && file[end] == 0) {
        snprintf(name, n, "Ckpt%d-RSed%d.fti", one->id, fti.rank);
        return true;
    }
    return false;
}

// Calls f with each folder in which the local directory of this node has files of an epoch.
static void each_local(int epoch, void (*f)(int dir, const struct named *), const struct named *one) {
    const char *form[] = {"%s", "%s/node%d"};
    for (int i = 0; i < 2 && fti.at.leader && fti.at.local[0] != 0; i++) {
        char base[PATH_MAX + 32], path[PATH_MAX + 512];
        struct dirent *e;
        if (i == 0)
            snprintf(base, sizeof base, form[i], fti.at.local);
        else
            snprintf(base, sizeof base, form[i], fti.at.local, fti.at.node_of[fti.rank]);
        DIR *d = opendir(base);
        while (d != NULL && (e = readdir(d)) != NULL) {
            if (strncmp(e->d_name, "set-", 4) != 0) continue;
            snprintf(path, sizeof path, "%s/%s/epoch-%06d", base, e->d_name, epoch);
            int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (fd >= 0) f(fd, one), close(fd);
        }
        if (d != NULL) closedir(d);
    }
}

static void each_global(int epoch, void (*f)(int dir, const struct named *), const struct named *one) {
    char path[PATH_MAX + 32];
    if (fti.rank != 0 || one->level != LEVELS) return;
    snprintf(path, sizeof path, "%s/epoch-%06d", fti.at.dir, epoch);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) f(fd, one), close(fd);
}

static int names_dir(int level) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/l%d", level == LEVELS ? fti.at.dir : fti.at.names, level);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// Calls f for the files of a folder that have a name.
static void each_file(int dir, const struct named *one,
                      void (*f)(int dir, const char *file, int names, const char *name)) {
    char name[NAME_MAX + 1];
    struct dirent *e;
    int copy = dup(dir), names = names_dir(one->level);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (d != NULL) rewinddir(d);
    while (d != NULL && (e = readdir(d)) != NULL)
        if (name_of(e->d_name, one, name, sizeof name)) f(dir, e->d_name, names, name);
    if (d != NULL)
        closedir(d);
    else if (copy >= 0)
        close(copy);
    if (names >= 0) close(names);
}

static void forget_file(int dir, const char *file, int names, const char *name) {
    if (names < 0 || (faccessat(names, name, F_OK, 0) != 0 && errno == ENOENT)) unlinkat(dir, file, 0);
}

static void forget(int dir, const struct named *one) { each_file(dir, one, forget_file); }

void layout_forget(void) {
    struct named one = read_named();
    if (one.epoch == 0) return;
    each_local(one.epoch, forget, &one);
    MPI_Barrier(FTI_COMM_WORLD); // names at level 4 are asked for by all leaders
    each_global(one.epoch, forget, &one);
    MPI_Barrier(FTI_COMM_WORLD);
}

static bool failed; // a name could not be made

static void name_file(int dir, const char *file, int names, const char *name) {
    struct stat a, b;
    if (names < 0) {
        failed = true;
        return;
    }
    if (fstatat(dir, file, &a, 0) != 0) return;
    if (fstatat(names, name, &b, 0) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) return;
    unlinkat(names, "new", 0);
    if (linkat(dir, file, names, "new", 0) != 0 || renameat(names, "new", names, name) != 0) failed = true;
}

static void name_files(int dir, const struct named *one) {
    if (one->level < LEVELS || fti.rank == 0) each_file(dir, one, name_file);
}

// Local files at level 4 have no names: they are there until the core removes them.
static void give_names(const struct named *one) {
    char path[PATH_MAX + 16];
    bool mine = one->level == LEVELS ? fti.rank == 0 : fti.at.leader;
    if (!mine) return;
    snprintf(path, sizeof path, "%s/l%d", one->level == LEVELS ? fti.at.dir : fti.at.names, one->level);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) failed = true;
    if (one->level == LEVELS)
        each_global(one->epoch, name_files, one);
    else
        each_local(one->epoch, name_files, one);
}

// Removes the names that another checkpoint has had.
static void drop_names(const struct named *one) {
    char keep[32];
    snprintf(keep, sizeof keep, "Ckpt%d-", one->id);
    for (int level = 1; level <= LEVELS; level++) {
        struct dirent *e;
        if (level == LEVELS ? fti.rank != 0 : !fti.at.leader || fti.at.local[0] == 0) continue;
        int fd = names_dir(level);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        while (d != NULL && (e = readdir(d)) != NULL)
            if (strncmp(e->d_name, "Ckpt", 4) == 0 &&
                (level != one->level || strncmp(e->d_name, keep, strlen(keep)) != 0))
                unlinkat(fd, e->d_name, 0);
        if (d != NULL) closedir(d);
    }
}

void layout_name(int level, int id) {
    struct named one = {.level = level, .id = id};
    if (level == 0) {
        one = read_named();
    } else {
        if (fti.rank == 0) one.epoch = last_epoch();
        one = share(one);
    }
    if (one.epoch == 0) return;
    failed = false;
    give_names(&one);
    if (level == 0) return;
    // A checkpoint without all its names has none that count.
    if (fti_agree(!failed) == 0) one.epoch = 0;
    if (fti.rank == 0) write_named(one);
    drop_names(&one);
}

// ---- the end -------------------------------------------------------------------------------------

static void remove_all(int at, const char *name, int depth) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    while (d != NULL && (e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (unlinkat(fd, e->d_name, 0) != 0 && depth > 0) remove_all(fd, e->d_name, depth - 1);
    }
    if (d != NULL) closedir(d);
    unlinkat(at, name, AT_REMOVEDIR);
}

// The local directory has node<n>/set-*/epoch-*/ with files, that of the execution epoch-*/.
void layout_remove(void) {
    if (fti.at.leader && fti.at.local[0] != 0) remove_all(AT_FDCWD, fti.at.local, 4);
    if (fti.rank == 0) remove_all(AT_FDCWD, fti.at.dir, 2);
}

void layout_end(void) {
    free(fti.at.node_of);
    fti.at = (struct layout){0};
}
