// SPDX-License-Identifier: Apache-2.0
//
// embed.c: all that tmpi does for libckpt, and with it.  The page to read for those who have a runtime of their own.
//
// libckpt calls up for six things, in the order of this file:
//
//   who we are      rank and ranks count processes; the first start's all-gather goes over files
//   tasks           each rank calls ckpt_checkpoint; libckpt gathers those of one process by park and unpark
//   quiet           quiesce(1): from now on no worker touches a rail; then libckpt asks the rails themselves
//                   whether they are quiet, closes them, saves the process, and opens them again (rail_*.c)
//   collective calls   each rank counts its own, so that none is half done when somebody outside asks
//   requests        ckpt_poll, in the progress loop, says that somebody outside asks for a checkpoint
//   the job         ckpt_open at the start, ckpt_close at the end
//
// No message is counted for libckpt: a rail is quiet when the other side has acknowledged all that was sent, and
// whatever has arrived is in the lists of match.c, which are saved with all other memory.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inside.h"

static struct rail *const rails[] = {&rail_tcp, &rail_shm};
enum { RAILS = sizeof rails / sizeof *rails };

// Who holds the lock may touch rails.  After quiesce(1) nobody does but libckpt, by the rails' own callbacks.
static struct {
    pthread_mutex_t lock;
    bool quiesced;
    // Checkpoints of this process: over for one of its tasks at least, and asked for from the outside (atomic).
    int done, wanted;
    int called;    // tasks that are in tmpi_checkpoint
    bool together; // all are, and it is their turn
} progress = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- who we are ---------------------------------------------------------------------------------

static int op_rank(void *ctx) {
    (void)ctx;
    return tmpi.process;
}

static int op_ranks(void *ctx) {
    (void)ctx;
    return tmpi.processes;
}

// The environment in an image is that of the launcher of then.
const char *embed_env(const char *name, char text[256]) {
    text[0] = 0;
    if (tmpi.job != NULL)
        ckpt_launch_env(tmpi.job, name, text, 256);
    else if (getenv(name) != NULL)
        snprintf(text, 256, "%s", getenv(name));
    return text;
}

static bool read_whole(const char *path, void *bytes, size_t n) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && read(fd, bytes, n) == (ssize_t)n;
    if (fd >= 0) close(fd);
    return good;
}

// Over files in the folder that tmpirun made: ROUND.PROCESS appears by a rename, so it is whole when it is there.
// Another folder is another launcher's, and its rounds begin anew.
static int op_allgather(void *ctx, const void *mine, void *all, size_t bytes) {
    static char folder[256];
    static int round;
    char now[256], path[400], made[420];
    (void)ctx;
    if (tmpi.processes == 1) return memcpy(all, mine, bytes), 0;
    if (*embed_env("TMPI_MEET", now) == 0) return CKPT_E_ARG;
    if (strcmp(now, folder) != 0) strcpy(folder, now), round = 0;
    round++;
    snprintf(path, sizeof path, "%s/%d.%d", folder, round, tmpi.process);
    snprintf(made, sizeof made, "%s.new", path);
    int fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, mine, bytes) == (ssize_t)bytes;
    if (fd >= 0) close(fd);
    if (!good || rename(made, path) != 0) return CKPT_E_SYSTEM;
    for (int i = 0; i < tmpi.processes; i++) {
        snprintf(path, sizeof path, "%s/%d.%d", folder, round, i);
        while (!read_whole(path, (char *)all + (size_t)i * bytes, bytes)) {
            if (access(folder, F_OK) != 0) return CKPT_E_PEER; // tmpirun has given up
            usleep(1000);
        }
    }
    return 0;
}

// ---- tasks --------------------------------------------------------------------------------------
//
// Tasks that wait in ckpt_checkpoint wait as in tmpi_recv.  So other ranks go on meanwhile, on the same workers, until
// the last one has come.

static int op_local_tasks(void *ctx) {
    (void)ctx;
    return tmpi.local;
}

static int op_task_rank(void *ctx, int local_task) {
    (void)ctx;
    return tmpi.first + local_task;
}

static void op_park(void *ctx, int local_task) {
    (void)ctx, (void)local_task;
    task_park();
}

static void op_unpark(void *ctx, int local_task) {
    (void)ctx;
    task_unpark(tmpi.tasks[local_task]);
}

// A worker's own stack has no other task to go to.
static void op_yield(void *ctx) {
    (void)ctx;
    if (task_self() != NULL)
        task_yield();
    else
        sched_yield();
}

// ---- quiet --------------------------------------------------------------------------------------

static int op_quiesce(void *ctx, int on) {
    (void)ctx;
    pthread_mutex_lock(&progress.lock); // whoever is inside a rail comes out first
    progress.quiesced = on;
    pthread_mutex_unlock(&progress.lock);
    if (tmpi.slots) sched_hold(on); // ranks are saved as they stand
    return 0;
}

static bool move(void) {
    bool moved = false;
    for (int i = 0; i < RAILS; i++) moved |= rails[i]->poll();
    return moved;
}

// Calls the handlers of signals, as ckpt_poll does, but does not ask whether a checkpoint is due.
static void hear(void) {
    size_t none = 0;
    ckpt_signal_recv(tmpi.job, SIGNAL_NONE, NULL, NULL, &none, NULL);
}

// While the last task waits for other processes, they may wait for its messages, or for a connection.
static int op_progress(void *ctx) {
    (void)ctx;
    if (tmpi.job == NULL || pthread_mutex_trylock(&progress.lock) != 0) return 0; // or another worker does it
    if (!progress.quiesced) move(), hear();
    pthread_mutex_unlock(&progress.lock);
    return 0;
}

// ---- collective calls ---------------------------------------------------------------------------
//
// Each rank has a view of the communicator of all ranks, with an id and counters of its own.  Counting is inline; libckpt
// is called only while somebody outside asks for a checkpoint.  Its members are told again after a restart.

static int tell_members(struct task *t) {
    int all[tmpi.size];
    for (int i = 0; i < tmpi.size; i++) all[i] = i;
    return ckpt_comm_set_members(tmpi.job, t->view, all, tmpi.size, CKPT_VID_PREDEFINED);
}

static int op_rebuild(void *ctx, ckpt_kind kind, ckpt_vid vid, const void *index, size_t bytes,
                      uint64_t *real) {
    (void)ctx, (void)kind, (void)vid, (void)bytes, (void)real;
    return tell_members(tmpi.tasks[*(const int *)index]);
}

static void make_view(struct task *t) {
    t->view =
        ckpt_vid_new(tmpi.job, CKPT_KIND_COMM, (uint64_t)t->rank + 1, &t->index, sizeof t->index, NULL, 0, 0);
    // No messages are counted over it, so it has no peers.
    if (t->view == CKPT_VID_NONE || ckpt_vid_task(tmpi.job, t->view, t->index) != 0 ||
        ckpt_comm_describe(tmpi.job, t->view, t->rank, tmpi.size, NULL, 0, CKPT_VID_PREDEFINED) != 0 ||
        ckpt_vid_set_name(tmpi.job, t->view, "world") != 0 || tell_members(t) != 0)
        tmpi_die("rank %d cannot have a communicator", t->rank);
}

void embed_enter(const char *name, ckpt_coll *call) {
    struct task *t = task_self();
    embed_serve(t);
    if (tmpi.slots) return; // counters are the process's: a rank may be saved half way, with its messages
    int answer = ckpt_coll_begin(tmpi.job, t->view, name, CKPT_COLL_BLOCKING, call);
    while (answer == CKPT_COLL_WAIT) { // for ranks that have not come, or for the checkpoint
        task_yield();
        embed_serve(t);
        answer = ckpt_coll_again(tmpi.job, CKPT_COLL_BLOCKING, call);
    }
}

void embed_return(const ckpt_coll *call) {
    if (!tmpi.slots) ckpt_coll_end(tmpi.job, call);
}

// ---- requests -----------------------------------------------------------------------------------
//
// A checkpoint is asked for from the outside, or by the program on all ranks.  For libckpt these are two: it waits
// until the programs of all processes have called, and meanwhile makes those of others.  So the tasks of a process
// always come for the same one.  For one of others they come from wherever they are, tmpi_checkpoint too.  For the
// program's they come when all of them are in tmpi_checkpoint and no other is due; from then on nobody looks for
// others, until it is over.

static void wake_all(void) {
    for (int i = 0; i < tmpi.local; i++) task_unpark(tmpi.tasks[i]);
}

// With progress locked.
static void look(void) {
    if (progress.together || progress.wanted > progress.done)
        hear();
    else if (ckpt_poll(tmpi.job) == CKPT_POLL_CHECKPOINT) {
        __atomic_store_n(&progress.wanted, progress.done + 1, __ATOMIC_SEQ_CST);
        wake_all(); // those that wait for messages, too
    }
}

bool embed_progress(void) {
    if (pthread_mutex_trylock(&progress.lock) != 0) return false;
    bool moved = false;
    if (!progress.quiesced) {
        moved = move();
        look();
    }
    pthread_mutex_unlock(&progress.lock);
    return moved;
}

static void take_part(struct task *t) {
    if (tmpi.slots) return move_wait(t);
    ckpt_error error = {.size = sizeof error};
    ckpt_state state = CKPT_STATE_ERROR;
    if (ckpt_checkpoint(tmpi.job, t->index, &state, &error) != 0 && t->index == 0)
        fprintf(stderr, "tmpi: process %d: checkpoint: %s\n", tmpi.process, error.message);
    t->taken++;
    t->state = state;
    pthread_mutex_lock(&progress.lock);
    if (progress.done < t->taken) { // it is the first one to come back
        progress.done = t->taken;
        if (progress.together) progress.called = 0;
        progress.together = false;
    }
    pthread_mutex_unlock(&progress.lock);
}

void embed_serve(struct task *t) {
    int *done = tmpi.slots ? &progress.done : &t->taken;
    while (__atomic_load_n(&progress.wanted, __ATOMIC_SEQ_CST) > __atomic_load_n(done, __ATOMIC_SEQ_CST))
        take_part(t);
}

void embed_between(void) {
    if (tmpi.slots) move_meet();
}

// With slots the worker that has made the checkpoint says so, before any task goes on.
void embed_met(ckpt_state state) {
    pthread_mutex_lock(&progress.lock);
    for (int i = 0; i < tmpi.local; i++) {
        struct task *t = tmpi.tasks[i];
        t->state = state;
        if (progress.together) t->called = false;
    }
    if (progress.together) progress.called = 0;
    progress.together = false;
    __atomic_fetch_add(&progress.done, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&progress.lock);
}

void embed_moved(int called) { progress.called = called; }

static bool all_called(void) {
    pthread_mutex_lock(&progress.lock);
    if (!progress.together && progress.called == tmpi.local) {
        look();
        progress.together = progress.wanted <= progress.done;
        if (progress.together) wake_all();
    }
    bool together = progress.together;
    pthread_mutex_unlock(&progress.lock);
    return together;
}

int tmpi_checkpoint(void) {
    struct task *t = task_self();
    pthread_mutex_lock(&progress.lock);
    progress.called++;
    t->called = tmpi.slots;
    pthread_mutex_unlock(&progress.lock);
    do { // again in an image that was made for others
        while (embed_serve(t), !all_called()) task_park();
        take_part(t);
    } while (t->called);
    return (int)t->state;
}

// ---- the job ------------------------------------------------------------------------------------

static const ckpt_object_ops objects = {.size = sizeof objects, .rebuild = op_rebuild};
static const ckpt_runtime_ops ops = {.size = sizeof ops,
                                     .rank = op_rank,
                                     .ranks = op_ranks,
                                     .oob_allgather = op_allgather,
                                     .progress = op_progress,
                                     .objects = &objects,
                                     .local_tasks = op_local_tasks,
                                     .park = op_park,
                                     .unpark = op_unpark,
                                     .yield = op_yield,
                                     .task_rank = op_task_rank,
                                     .quiesce = op_quiesce};

// With slots tasks meet in move.c, and libckpt sees the process alone.
static const ckpt_runtime_ops slot_ops = {.size = sizeof slot_ops,
                                          .rank = op_rank,
                                          .ranks = op_ranks,
                                          .oob_allgather = op_allgather,
                                          .progress = op_progress,
                                          .quiesce = op_quiesce};

void embed_open(void) {
    ckpt_error error = {.size = sizeof error};
    const ckpt_config config = {.size = sizeof config,
                                .api_major = CKPT_API_MAJOR,
                                .api_minor = CKPT_API_MINOR,
                                .runtime = "tmpi",
                                .thread_level = CKPT_THREAD_MULTIPLE,
                                .flags = tmpi.slots ? CKPT_OPEN_REGIONS : 0};
    tmpi.job = ckpt_open(&config, tmpi.slots ? &slot_ops : &ops, NULL, &error);
    if (tmpi.job == NULL) tmpi_die("ckpt_open: %s", error.message);
}

void embed_rails(void) {
    ckpt_error error = {.size = sizeof error};
    int all[tmpi.processes]; // each process finds ranks by division
    if (ckpt_allgather(tmpi.job, TAG_START, &tmpi.size, all, sizeof *all, &error) != 0)
        tmpi_die("%s", error.message);
    for (int i = 0; i < tmpi.processes; i++)
        if (all[i] != tmpi.size) tmpi_die("%d ranks by this process, %d by process %d", tmpi.size, all[i], i);

    for (int i = 0; i < tmpi.local && !tmpi.slots; i++) make_view(tmpi.tasks[i]);

    char text[256];
    for (int i = 0; i < RAILS; i++) {
        struct rail *r = rails[i];
        if (*embed_env("TMPI_RAILS", text) != 0 && strstr(text, r->ops.name) == NULL) continue;
        if (ckpt_rail_register(tmpi.job, &r->ops, r, &r->known, &error) != 0) tmpi_die("%s", error.message);
        if (!r->open()) tmpi_die("rail %s cannot be opened", r->ops.name);
    }
}

void embed_leave(struct task *t) {
    if (tmpi.slots)
        move_leave(t);
    else
        ckpt_task_leave(tmpi.job, t->index);
}

void embed_close(void) {
    ckpt_error error = {.size = sizeof error};
    if (ckpt_close(tmpi.job, &error) != 0) tmpi_die("ckpt_close: %s", error.message); // all ranks have ended
    for (int i = 0; i < RAILS; i++)
        if (rails[i]->known != NULL) rails[i]->ops.close(rails[i]);
}
