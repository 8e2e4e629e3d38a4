// SPDX-License-Identifier: Apache-2.0
//
// jobs.c: communicators with processes of other jobs.
//
// Such a communicator cannot be made again without those processes, so it holds a checkpoint back until it is
// disconnected or freed; the refusal names the call that made it.  A call that waits for processes of other
// jobs holds a checkpoint back too.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/impl/special.h"
#include "back/jobs.h"
#include "back/object/comm.h"
#include "back/object/outside.h"
#include "back/ports.h"

// The call in which a thread of this rank waits for processes of another job.
static const char *waits;

const char *back_inside(void *ctx) {
    (void)ctx;
    return __atomic_load_n(&waits, __ATOMIC_RELAXED);
}

int back_jobs_hold(char *why, size_t bytes) {
    const char *call = back_inside(NULL);
    if (call != NULL) {
        snprintf(why, bytes, "%s waits for processes of another job", call);
        return 1;
    }
    call = back_outside_call();
    if (call != NULL)
        snprintf(why, bytes, "a communicator with processes of another job (%s) is not disconnected or freed",
                 call);
    return call != NULL;
}

static void begin(const char *call) {
    back_outside_making = call;
    __atomic_store_n(&waits, call, __ATOMIC_RELAXED);
}

// Gives an id to the communicator that such a call made.
static long end(int rc, MPI_Comm comm, ckpt_vid parent, ckpt_vid *vid) {
    __atomic_store_n(&waits, NULL, __ATOMIC_RELAXED);
    long canon = rc == MPI_SUCCESS ? back_new_comm(comm, comm, parent, 0, vid) : back_error(rc);
    back_outside_making = NULL;
    return canon;
}

// ---- starting processes ----

// A program that was built for the real MPI is started without ckptrun.  Above another MPI the started
// program needs a front as this one does: ckptrun is started to start it, with a checkpoint directory of its
// own in the working directory.
static char **wrap(char *dir, char *command, char **argv) {
    int n = 0;
    while (argv != NULL && argv[n] != NULL) n++;
    char **wrapped = calloc((size_t)n + 7, sizeof(char *)), **p = wrapped;
    if (wrapped == NULL) return NULL;
    *p++ = "--dir";
    *p++ = dir;
    *p++ = "--mpi";
    *p++ = BACK_NAME;
    *p++ = "--";
    *p++ = command;
    for (int i = 0; i < n; i++) *p++ = argv[i];
    return wrapped;
}

struct programs {
    int count;
    char **commands, ***argvs;
    int wrapped; // both are ours then
    char ckptrun[4096], dir[64];
    MPI_Info *infos;
};

static void programs_free(struct programs *p) {
    for (int i = 0; i < p->count; i++) {
        if (p->infos) back_info_done(&p->infos[i]);
        if (p->wrapped && p->argvs) free(p->argvs[i]);
    }
    free(p->infos);
    if (p->wrapped) {
        free(p->commands);
        free(p->argvs);
    }
}

static int programs_of(struct programs *p, const long *a) {
    ARGS(Comm_spawn) args = (const void *)a;
    const char *const *contents = args->infos;
    *p = (struct programs){.count = args->count, .commands = args->commands, .argvs = args->argvs};
    size_t n = (size_t)(p->count > 0 ? p->count : 1);
    p->infos = calloc(n, sizeof *p->infos);
    if (p->infos == NULL) return -1;
    for (int i = 0; i < p->count; i++) p->infos[i] = back_info(contents[i]);
    if (strcmp(args->abi, BACK_NAME) == 0) return 0;
    static unsigned serial;
    char **commands = p->commands, ***argvs = p->argvs;
    snprintf(p->dir, sizeof p->dir, "ckpt-spawned-%ld-%u", (long)getpid(),
             __atomic_fetch_add(&serial, 1, __ATOMIC_RELAXED));
    p->wrapped = 1;
    p->commands = calloc(n, sizeof *p->commands);
    p->argvs = calloc(n, sizeof *p->argvs);
    ssize_t length = readlink("/proc/self/exe", p->ckptrun, sizeof p->ckptrun - 1);
    if (p->commands == NULL || p->argvs == NULL || length < 0) return -1;
    p->ckptrun[length] = 0;
    for (int i = 0; i < p->count; i++) {
        p->commands[i] = p->ckptrun;
        p->argvs[i] = wrap(p->dir, commands[i], argvs ? argvs[i] : NULL);
        if (p->argvs[i] == NULL) return -1;
    }
    return 0;
}

// count, commands, argvs, maxprocs, infos, root, comm, id out, error codes, the front's ABI
static long spawn(const long *a, const char *call) {
    ARGS(Comm_spawn) args = (const void *)a;
    struct programs p;
    MPI_Comm comm = MPI_COMM_NULL;
    int rc = MPI_ERR_NO_MEM, *errcodes = args->errcodes;
    begin(call);
    if (programs_of(&p, a) == 0)
        rc = MPI_Comm_spawn_multiple(p.count, p.commands, p.argvs, args->maxprocs, p.infos, args->root,
                                     real_comm(args->comm), &comm, errcodes ? errcodes : MPI_ERRCODES_IGNORE);
    if (rc != MPI_SUCCESS && errcodes != NULL) // on success each of them is 0, as everywhere
        for (int i = 0; i < p.count; i++)
            for (int k = 0; k < (args->maxprocs)[i]; k++, errcodes++) *errcodes = (int)back_error(*errcodes);
    programs_free(&p);
    return end(rc, comm, args->comm, args->intercomm);
}

long back_Comm_spawn(const long *a) { return spawn(a, "MPI_Comm_spawn"); }

long back_Comm_spawn_multiple(const long *a) { return spawn(a, "MPI_Comm_spawn_multiple"); }

// The parent gets its id once.  After the program has disconnected from the parent that id is stale, and the
// program gets the null handle.
long back_Comm_get_parent(const long *a) {
    ARGS(Comm_get_parent) p = (const void *)a;
    MPI_Comm parent = MPI_COMM_NULL;
    ckpt_vid *vid = p->parent;
    int rc = MPI_Comm_get_parent(&parent);
    *vid = VID_COMM_NULL;
    if (rc != MPI_SUCCESS || parent == MPI_COMM_NULL) return back_error(rc);
    *vid = ckpt_vid_find(back.job, CKPT_KIND_COMM, TO_REAL(parent));
    if (*vid != CKPT_VID_NONE) return 0;
    back_outside_making = "MPI_Comm_get_parent";
    long canon = back_new_comm(parent, parent, VID_COMM_WORLD, 0, vid);
    back_outside_making = NULL;
    return canon;
}

// ---- ports ----

long back_Lookup_name(const long *a) {
    ARGS(Lookup_name) p = (const void *)a;
    MPI_Info info = back_info(p->info);
    int rc = MPI_Lookup_name(p->service_name, info, p->port_name);
    back_info_done(&info);
    // One of ours is what the program calls it, also when the name was published for others.
    const char *said = rc == MPI_SUCCESS ? back_port_said(p->port_name) : p->port_name;
    if (said != p->port_name) strcpy(p->port_name, said);
    return back_error(rc);
}

typedef int meet_fn(const char *, MPI_Info, int, MPI_Comm, MPI_Comm *);

// port, info, root, comm, id out
static long met(const long *a, const char *call, meet_fn *meet) {
    ARGS(Comm_accept) p = (const void *)a;
    MPI_Comm comm = MPI_COMM_NULL;
    const char *port;
    begin(call);
    long lost = back_port_meet(p->port_name, p->root, real_comm(p->comm), &port);
    if (lost != 0) {
        end(MPI_ERR_PORT, comm, p->comm, p->newcomm);
        return lost;
    }
    MPI_Info info = back_info(p->info);
    int rc = meet(port, info, p->root, real_comm(p->comm), &comm);
    back_info_done(&info);
    return end(rc, comm, p->comm, p->newcomm);
}

long back_Comm_accept(const long *a) { return met(a, "MPI_Comm_accept", MPI_Comm_accept); }

long back_Comm_connect(const long *a) { return met(a, "MPI_Comm_connect", MPI_Comm_connect); }

long back_Comm_join(const long *a) {
    ARGS(Comm_join) p = (const void *)a;
    MPI_Comm comm = MPI_COMM_NULL;
    begin("MPI_Comm_join");
    int rc = MPI_Comm_join(p->fd, &comm);
    return end(rc, comm, VID_COMM_SELF, p->intercomm);
}
