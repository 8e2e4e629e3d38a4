// SPDX-License-Identifier: Apache-2.0
//
// core.c: begin and end of the real MPI, and of the job.
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "back/about.h"
#include "back/calls.h"
#include "back/collective/clock.h"
#include "back/collective/deferred.h"
#include "back/collective/twophase.h"
#include "back/file/file.h"
#include "back/image/claim.h"
#include "back/image/drain.h"
#include "back/image/holds.h"
#include "back/image/section.h"
#include "back/impl/tags.h"
#include "back/jobs.h"
#include "back/message/bsend.h"
#include "back/message/drained.h"
#include "back/message/persist.h"
#include "back/message/sync.h"
#include "back/names.h"
#include "back/ports.h"
#include "back/table.h"
#include "back/window/window.h"

// ---- calls of low layers to higher ones ----

// Who is told that a communicator is freed.
static void (*const comm_gone[])(ckpt_vid) = {back_two_phase_freed, back_buffered_gone, back_requests_gone,
                                              back_drained_gone, NULL};

const struct back_above back_above = {
    .start_deferred = back_start_deferred,
    .sync_poll = back_sync_poll,
    .sync_ended = back_sync_ended,
    .sync_cancelled = back_sync_cancelled,
    .message_start = back_message_start,
    .coll_start = back_coll_start,
    .coll_end = back_coll_end,
    .file_test = file_test,
    .comm_made = back_two_phase_made,
    .comm_gone = comm_gone,
    .own_comm_saved = back_own_comm_saved,
};

// ---- callbacks of libckpt ----

static int ops_rank(void *ctx) {
    (void)ctx;
    return back.rank;
}

static int ops_ranks(void *ctx) {
    (void)ctx;
    return back.size;
}

static int ops_allgather(void *ctx, const void *mine, void *all, size_t bytes) {
    (void)ctx;
    if (bytes > INT32_MAX) return CKPT_E_ARG;
    int rc = MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, back.control);
    return rc == MPI_SUCCESS ? 0 : CKPT_E_PEER;
}

static int ops_progress(void *ctx) {
    (void)ctx;
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, back.control, &flag, MPI_STATUS_IGNORE);
    return 0;
}

static void ops_start(void *ctx) {
    (void)ctx;
    if (back.tables != NULL) back_start_deferred();
}

static int ops_rebuild(void *ctx, ckpt_kind kind, ckpt_vid vid, const void *descriptor, size_t bytes,
                       uint64_t *real) {
    (void)ctx;
    switch (kind) {
    case CKPT_KIND_COMM:
        return back_rebuild_comm(vid, descriptor, bytes, real);
    case CKPT_KIND_DATATYPE:
        return back_rebuild_type(vid, descriptor, bytes, real);
    case CKPT_KIND_OP:
        return back_rebuild_op(vid, descriptor, bytes, real);
    case CKPT_KIND_FILE:
        return back_rebuild_file(vid, descriptor, bytes, real);
    case CKPT_KIND_WIN:
        return back_rebuild_window(vid, descriptor, bytes, real);
    case CKPT_KIND_PORT:
        return back_rebuild_port(vid, descriptor, bytes, real);
    default:
        return CKPT_E_NOTSUP;
    }
}

static int bind_nulls(ckpt_job *job) {
    return ckpt_vid_bind(job, VID_COMM_NULL, TO_REAL(MPI_COMM_NULL)) ||
           ckpt_vid_bind(job, VID_TYPE_NULL, TO_REAL(MPI_DATATYPE_NULL)) ||
           ckpt_vid_bind(job, VID_OP_NULL, TO_REAL(MPI_OP_NULL)) ||
           ckpt_vid_bind(job, VID_REQUEST_NULL, TO_REAL(MPI_REQUEST_NULL)) ||
           ckpt_vid_bind(job, VID_WIN_NULL, TO_REAL(MPI_WIN_NULL)) ||
           ckpt_vid_bind(job, VID_FILE_NULL, TO_REAL(MPI_FILE_NULL)) ||
           ckpt_vid_bind(job, VID_MESSAGE_NULL, TO_REAL(MPI_MESSAGE_NULL)) ||
           ckpt_vid_bind(job, VID_MESSAGE_NO_PROC, TO_REAL(MPI_MESSAGE_NO_PROC));
}

static int ops_bind(void *ctx, ckpt_job *job) {
    (void)ctx;
    back.job = job;
    back.tables = job->tables;
    if (bind_nulls(job)) return CKPT_E_SYSTEM;
    for (int kind = 0; kind < (int)CKPT_KINDS; kind++) // binding index 0 made the page
        back.slots[kind] = back.tables->pages[kind] ? back.tables->pages[kind][0] : NULL;
    if (back_bind_constants(job) || back_bind_comms(job)) return CKPT_E_SYSTEM;
    return 0;
}

// ckptrun has it (capi/host/at_end.h); test programs that load a back do not.
extern void lower_at_end(const void *code) __attribute__((weak));

static long milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// MPICH 4.2 tells the launcher in a handler of exit, which nobody else would call.
//
// PMIx (to 5.0 at least) tells the launcher in MPI_Finalize and waits 2 s for the answer.  Where hundreds of
// ranks share a processor with mpiexec, it comes to read that later.  A rank that has ended by then is one
// "exiting improperly" to Open MPI's, which kills the others.  So a rank that had to wait stays a while, and
// leaves the processor to mpiexec.
static int end_mpi(void) {
    enum { PATIENCE = 2000, LONGEST = 10000 }; // ms
    long begun = milliseconds();
    int rc = MPI_Finalize();
    if (rc == MPI_SUCCESS && lower_at_end) lower_at_end((const void *)MPI_Finalize);
    long took = milliseconds() - begun, stay = 2 * took < LONGEST ? 2 * took : LONGEST;
    if (took >= PATIENCE) nanosleep(&(struct timespec){stay / 1000, stay % 1000 * 1000000}, NULL);
    return rc;
}

// "Then exit": the job is saved, and all ranks stand here.  MPI is finalized, so that the launcher sees a
// proper end.
static int ops_finalize(void *ctx) {
    (void)ctx;
    windows_end();
    return end_mpi() == MPI_SUCCESS ? 0 : CKPT_E_SYSTEM;
}

static int ops_holds(void *ctx, char *why, size_t bytes) {
    (void)ctx;
    return back_holds(why, bytes) || back_jobs_hold(why, bytes) || back_tools_hold(why, bytes);
}

static const ckpt_object_ops object_ops = {
    .size = sizeof object_ops, .bind = ops_bind, .rebuild = ops_rebuild};

static const ckpt_message_ops message_ops = {
    .size = sizeof message_ops,
    .one_sided = back_one_sided,
    .settle = back_settle,
    .drain = back_drain,
    .save = back_save,
    .load = back_load,
    .start_deferred = ops_start,
};

static const ckpt_sync_ops sync_ops = {
    .size = sizeof sync_ops,
    .pending = back_synchronous,
    .claims = back_claims,
    .judge = back_judge,
    .answered = back_answered,
};

static const ckpt_state_ops state_ops = {
    .size = sizeof state_ops,
    .holds = ops_holds,
    .inside = back_inside,
    .waiting = back_list_waiting,
    .files = back_files,
    .memory = back_window_memory,
};

static const ckpt_runtime_ops ops = {
    .size = sizeof ops,
    .rank = ops_rank,
    .ranks = ops_ranks,
    .oob_allgather = ops_allgather,
    .progress = ops_progress,
    .failure = back_failure,
    .finalize = ops_finalize,
    .objects = &object_ops,
    .messages = &message_ops,
    .sync = &sync_ops,
    .state = &state_ops,
};

// ---- begin ----

// Settings of the real MPI.  Most of them give way to what the user has set.
//
// UCX's cache of registered memory is off: it does not see what the upper half unmaps, and would send from
// pages that no longer exist.  With the cache MPICH 4.0 also rounds the address of a window down to a
// multiple of 16.
//
// Debian's Open MPI leaves out the windows that need nothing but messages (osc pt2pt).  It then has no
// windows on the program's memory for one rank, nor where the network has none of its own.  "^ucx" replaces
// Debian's list. These windows do not support several threads at once.
//
// MPICH's thread for asynchronous progress is off: it would call operations of the program's own, which need
// a thread of the program's; and it would go on while the program is stopped.
static void configure(int required) {
    setenv("UCX_RCACHE_ENABLE", "n", 0);
    unsetenv("MPICH_ASYNC_PROGRESS");
    unsetenv("MPIR_CVAR_ASYNC_PROGRESS");
    unsetenv("MPIR_PARAM_ASYNC_PROGRESS");
    const char *network = getenv("OMPI_MCA_pml");
    if (window_above_openmpi() && required != CANON_THREAD_MULTIPLE &&
        (network == NULL || strstr(network, "ucx") == NULL))
        setenv("OMPI_MCA_osc", "^ucx", 0);
}

// The real MPI is being started.
static bool starting;

// An MPI that the launcher of another one started may end the process by itself, as MPICH 5 does, which knows what
// PMIx is, but not how to use it.  Rank 0 says what is wrong, and the others wait for that: a launcher ends all ranks
// when the first of them has ended.  ckpt/process.go says the same where the MPI starts.
static void ended_at_start(void) {
    if (!starting || strcmp(BACK_NAME, "abi") == 0) return; // any launcher may be that one's
    const bool openmpi = strcmp(BACK_NAME, "openmpi") == 0;
    const char *ranks = getenv(openmpi ? "PMI_SIZE" : "OMPI_COMM_WORLD_SIZE"),
               *rank = getenv(openmpi ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK");
    if (ranks == NULL || rank == NULL || getenv(openmpi ? "PMIX_RANK" : "PMI_RANK"))
        return; // its own launcher, or none
    if (atoi(rank) > 0) {
        sleep(3);
        return;
    }
    fprintf(
        stderr,
        "libckpt: the launcher started %s ranks, and the MPI below, %s, ended when it was started: launcher and MPI do "
        "not match. Start the job with the mpiexec of that MPI, or name the launcher's MPI with --mpi (ckptctl back "
        "list shows which there are)\n",
        ranks, BACK_NAME);
}

// Starts the real MPI, with canonical thread levels.  Returns its error code.
static int start_mpi(int required, int *provided) {
    configure(required);
    starting = atexit(ended_at_start) == 0;
    int rc = MPI_Init_thread(NULL, NULL, real_level(required), provided);
    starting = false;
    if (rc != MPI_SUCCESS) return rc;
    *provided = canon_level(*provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    back.shared = *provided == CANON_THREAD_MULTIPLE;
    MPI_Comm_rank(MPI_COMM_WORLD, &back.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &back.size);
    rc = MPI_Comm_dup(MPI_COMM_SELF, &back.self);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_dup(MPI_COMM_WORLD, &back.control);
    if (rc == MPI_SUCCESS) rc = back_two_phase_made(VID_COMM_WORLD, MPI_COMM_WORLD);
    // MPI_Comm_group has a purpose: MPI_Comm_create_group of MPICH 4.0 crashes on a communicator whose group
    // was never asked for.
    if (rc == MPI_SUCCESS) rc = MPI_Comm_group(back.control, &back.world);
    back.everyone = back.world;
    return rc;
}

// level: the highest thread level that a rank asked for.
static int open_job(int level, ckpt_error *error) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(version, &n);
    version[strcspn(version, "\n")] = 0;
    const ckpt_config config = {.size = sizeof config,
                                .api_major = CKPT_API_MAJOR,
                                .api_minor = CKPT_API_MINOR,
                                .runtime = BACK_NAME,
                                .runtime_version = version,
                                .thread_level = level};
    back.job = ckpt_open(&config, &ops, NULL, error);
    if (back.job == NULL) return error->code ? error->code : CKPT_E_SYSTEM;
    back.tables = back.job->tables;
    if (back_clock_world() == 0) back.state = ckpt_runtime_state(back.job, sizeof *back.state);
    if (back.state == NULL) {
        snprintf(error->message, sizeof error->message, "no memory for what is kept of MPI_COMM_WORLD");
        return CKPT_E_SYSTEM;
    }
    back_tools_open(ckpt_restarted(back.job));
    return 0;
}

long back_Init_thread(const long *a) {
    ARGS(Init_thread) p = (const void *)a;
    ckpt_error error = {.size = sizeof error};
    int provided, level = p->required, rc = start_mpi(level, &provided);
    if (rc == MPI_SUCCESS) rc = MPI_Allreduce(MPI_IN_PLACE, &level, 1, MPI_INT, MPI_MAX, back.control);
    if (rc != MPI_SUCCESS) return back_canon_class(rc);
    if (open_job(level, &error) != 0) {
        if (error.message[0] != 0) // else rank 0 has said it
            fprintf(stderr, "libckpt: the job cannot be opened: %s\n", error.message);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    back.state->level = p->required;
    back.state->provided = provided;
    back.state->tag_ub = back_tag_ub();
    ckpt_vid parent; // gets its id now: whoever started this job may still be connected
    const long parent_out[] = {(long)&parent};
    back_Comm_get_parent(parent_out);
    ckpt_thread_is_mine(back.job);
    *p->provided = provided;
    return 0;
}

long back_Init(const long *a) {
    (void)a;
    return back_missing(a); // the front calls Init_thread
}

// No rank runs the program before all know its ports.  A port that cannot be opened is no reason to lose the job
// either: many programs meet nobody after their beginning.
static int open_ports(ckpt_error *error) {
    char why[1000];
    int lost, rc = back_ports_open(&lost, why, sizeof why);
    if (rc != 0) snprintf(error->message, sizeof error->message, "%s", back_failure(NULL));
    if (rc == 0 && lost > 0)
        fprintf(
            stderr,
            "libckpt: rank %d: %d port%s of MPI_Open_port could not be opened again by %s; calls that need "
            "%s are the error MPI_ERR_PORT, and names that lead there are not published: %s\n",
            back.rank, lost, lost == 1 ? "" : "s", BACK_NAME, lost == 1 ? "it" : "them", why);
    return rc;
}

// No rank runs the program before all names are published again.  A name that cannot be published is no
// reason to lose the job: the job continues, and MPI_Lookup_name of that name fails as for any unknown name.
static void publish_again(void) {
    char why[1000];
    int lost = back_names_open(why, sizeof why);
    if (lost > 0)
        fprintf(
            stderr,
            "libckpt: rank %d: %d name%s of MPI_Publish_name could not be published again, and the program "
            "must do it: %s\n",
            back.rank, lost, lost == 1 ? "" : "s", why);
    MPI_Barrier(back.control);
}

static int back_restart(ckpt_error *error) {
    int provided, level = ckpt_restart_thread_level(), rc = start_mpi(level, &provided);
    if (rc != MPI_SUCCESS) {
        snprintf(error->message, sizeof error->message, "MPI_Init_thread of %s failed", BACK_NAME);
        return CKPT_E_SYSTEM;
    }
    rc = open_job(level, error);
    if (rc == 0 && provided < back.state->provided) {
        snprintf(error->message, sizeof error->message,
                 "the program was given thread level %d by the MPI it was started under, and %s gives "
                 "level %d: restart it under the former",
                 back.state->provided, BACK_NAME, provided);
        return CKPT_E_NOTSUP;
    }
    if (rc == 0 && back.state->tag_ub > back_real_tag_ub()) {
        snprintf(
            error->message, sizeof error->message,
            "the program was told that tags go up to %d (MPI_TAG_UB), and those of %s end at %d: restart it "
            "under the MPI it was saved under",
            back.state->tag_ub, BACK_NAME, back_real_tag_ub());
        return CKPT_E_NOTSUP;
    }
    if (rc == 0 && back.state->tag_ub == 0) back.state->tag_ub = back_tag_ub();
    if (rc == 0 && back.state->bsend_bytes > 0)
        MPI_Buffer_attach(back.state->bsend_buffer, back.state->bsend_bytes);
    if (rc == 0) rc = open_ports(error);
    if (rc == 0) publish_again();
    return rc;
}

// ---- end ----

long back_Finalize(const long *a) {
    (void)a;
    ckpt_error error = {.size = sizeof error};
    ckpt_coll last;
    back_buffered_wait(CKPT_VID_NONE, "MPI_Finalize");
    back_gate(VID_COMM_WORLD, "MPI_Finalize", CKPT_COLL_GATED, &last);
    if (ckpt_close(back.job, &error) != 0)
        fprintf(stderr, "libckpt: rank %d: %s\n", back.rank, error.message);
    back_sync_finalize();
    back.job = NULL;
    back.tables = NULL;
    ops_end();
    MPI_Comm_free(&back.control);
    back_two_phase_freed(VID_COMM_WORLD);
    MPI_Comm_free(&back.self);
    MPI_Group_free(&back.world);
    return back_error(end_mpi());
}

long back_Abort(const long *a) {
    ARGS(Abort) p = (const void *)a;
    MPI_Comm comm = back.tables ? real_comm(p->comm) : MPI_COMM_WORLD;
    return back_error(MPI_Abort(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, p->errorcode));
}

// ---- questions about the real MPI ----

long back_Get_library_version(const long *a) {
    ARGS(Get_library_version) p = (const void *)a;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0, rc = MPI_Get_library_version(version, &n);
    if (rc != MPI_SUCCESS) return CANON_ERR(OTHER);
    *p->resultlen = snprintf(p->version, (size_t)p->room, "%s", version);
    if (*p->resultlen >= p->room) *p->resultlen = p->room - 1;
    return 0;
}

long back_Comm_get_attr(const long *a) {
    ARGS(Comm_get_attr) p = (const void *)a;
    static const int keyvals[CANON_ATTRS] = {
        [CANON_ATTR_TAG_UB] = MPI_TAG_UB,
        [CANON_ATTR_HOST] = MPI_HOST,
        [CANON_ATTR_IO] = MPI_IO,
        [CANON_ATTR_WTIME_IS_GLOBAL] = MPI_WTIME_IS_GLOBAL,
        [CANON_ATTR_UNIVERSE_SIZE] = MPI_UNIVERSE_SIZE,
        [CANON_ATTR_APPNUM] = MPI_APPNUM,
    };
    int *value = NULL, flag = 0;
    int rc = MPI_Comm_get_attr(MPI_COMM_WORLD, keyvals[p->attribute], &value, &flag);
    if (rc != MPI_SUCCESS) return back_error(rc);
    *p->flag = flag;
    if (flag) {
        int v = *value;
        if (p->attribute == CANON_ATTR_IO || p->attribute == CANON_ATTR_HOST) v = canon_rank(v);
        if (p->attribute == CANON_ATTR_TAG_UB)
            v = back.state != NULL && back.state->tag_ub > 0 ? back.state->tag_ub : back_tag_ub();
        *p->value = v;
    }
    return 0;
}

// ---- what ckptrun sees ----

static ckpt_coll entered; // the call of the thread that is in back_checkpoint

static int back_checkpoint(int *state, ckpt_error *error) {
    ckpt_state s = CKPT_STATE_IGNORE;
    if (back.job == NULL) return CKPT_E_STATE;
    int rc = ckpt_checkpoint(back.job, 0, &s, error);
    back_gate_return(&entered, 0);
    *state = (int)s;
    return rc;
}

// MPIX_Checkpoint counts as a collective call of all ranks, so that a checkpoint that ckptctl asks for does
// not find only some of them in it.
static void back_enter(void) { back_gate(VID_COMM_WORLD, "MPIX_Checkpoint", CKPT_COLL_BLOCKING, &entered); }

static ckpt_job *back_job(void) { return back.job; }

static ckpt_back self = {
    .size = sizeof self,
    .name = BACK_NAME,
    .nfn = CKPT_FN_MPI_END - CKPT_FN_MPI,
    .fn = NULL, // set below
    .restart = back_restart,
    .checkpoint = back_checkpoint,
    .enter = back_enter,
    .job = back_job,
    .calls_up = back_reducing,
};

__attribute__((visibility("default"))) const ckpt_back *ckpt_back_entry(const ckpt_back_host *host) {
    if (host->size < sizeof *host || back_other_mpi(host->why, host->why_bytes)) return NULL;
    back.host = host;
    back.calls = back_table;
    back.counted = back_counted_table();
    self.fn = back.counted;
    return &self;
}
