// SPDX-License-Identifier: Apache-2.0
//
// functions.h: the functions of the core of libckpt that the runtime's half calls: by name from the library that
// programs are linked with (core.c), by number through the gate under ckptrun (gated.c).
//
// F(result, name, parameters, arguments, the error that is to be filled, result of a call that cannot be made), and C
// the same of those that ckpt.h does not have.
// The number of a function is its place in CKPT_FORWARDED, which images rely on: new ones come at the end, behind
// CKPT_CORE_ONLY (internal/house/testdata/functions.txt).  The first argument is always the job, which is another
// one on the core's side.  Types are compared with ckpt.h by the compiler, names by a house test.
#ifndef EMBED_FUNCTIONS_H
#define EMBED_FUNCTIONS_H

#include "ckpt.h"

// clang-format off
#define CKPT_FORWARDED(F, C) \
    F(ckpt_vid, ckpt_vid_new, (ckpt_job *job, ckpt_kind kind, uint64_t real, const void *descriptor, size_t bytes, const ckpt_vid *needs, size_t nneeds, uint64_t order), (job, kind, real, descriptor, bytes, needs, nneeds, order), NULL, CKPT_VID_NONE) \
    F(int, ckpt_vid_reserve, (ckpt_job *job, ckpt_kind kind, ckpt_vid *ids, int n), (job, kind, ids, n), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_vid_adopt, (ckpt_job *job, ckpt_vid vid, const void *descriptor, size_t bytes, const ckpt_vid *needs, size_t nneeds), (job, vid, descriptor, bytes, needs, nneeds), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_vid_bind, (ckpt_job *job, ckpt_vid vid, uint64_t real), (job, vid, real), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_vid_describe, (ckpt_job *job, ckpt_vid vid, const void *descriptor, size_t bytes, const ckpt_vid *needs, size_t nneeds), (job, vid, descriptor, bytes, needs, nneeds), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_vid_set_name, (ckpt_job *job, ckpt_vid vid, const char *name), (job, vid, name), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_vid_free, (ckpt_job *job, ckpt_vid vid), (job, vid), NULL, CKPT_E_NOTSUP) \
    F(long, ckpt_vid_descriptor, (ckpt_job *job, ckpt_vid vid, void *buffer, size_t bytes), (job, vid, buffer, bytes), NULL, CKPT_E_NOTSUP) \
    F(ckpt_vid, ckpt_vid_find, (ckpt_job *job, ckpt_kind kind, uint64_t real), (job, kind, real), NULL, CKPT_VID_NONE) \
    F(int, ckpt_vid_grow, (ckpt_job *job, ckpt_kind kind), (job, kind), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_comm_describe, (ckpt_job *job, ckpt_vid comm, int rank, int size, const int *world, int npeers, uint64_t identity), (job, comm, rank, size, world, npeers, identity), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_comm_set_members, (ckpt_job *job, ckpt_vid comm, const int *world, int n, uint64_t identity), (job, comm, world, n, identity), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_coll_call, (ckpt_job *job, ckpt_vid comm, uint64_t k, int mode), (job, comm, k, mode), NULL, CKPT_COLL_ENTER) \
    F(int, ckpt_coll_permitted, (ckpt_job *job, ckpt_vid comm, uint64_t k), (job, comm, k), NULL, CKPT_COLL_ENTER) \
    F(void, ckpt_coll_returned, (ckpt_job *job, ckpt_vid comm, uint64_t k), (job, comm, k), NULL, (void)0) \
    F(void, ckpt_coll_withdrawn, (ckpt_job *job, ckpt_vid comm, uint64_t k, int deferred), (job, comm, k, deferred), NULL, (void)0) \
    F(int, ckpt_coll_start, (ckpt_job *job, ckpt_vid *comm, uint64_t *k), (job, comm, k), NULL, 0) \
    F(void, ckpt_coll_started, (ckpt_job *job, ckpt_vid comm, uint64_t k), (job, comm, k), NULL, (void)0) \
    F(uint64_t, ckpt_group_call_begin, (ckpt_job *job, ckpt_vid comm, uint64_t parent, int tag, const int *world, int n, const char *name), (job, comm, parent, tag, world, n, name), NULL, 0) \
    F(uint64_t, ckpt_intercomm_call_begin, (ckpt_job *job, const ckpt_intercomm_call *call, const char *name), (job, call, name), NULL, 0) \
    F(int, ckpt_group_call_ready, (ckpt_job *job, uint64_t number), (job, number), NULL, CKPT_COLL_ENTER) \
    F(void, ckpt_group_call_end, (ckpt_job *job, uint64_t number), (job, number), NULL, (void)0) \
    F(int, ckpt_allgather, (ckpt_job *job, uint64_t tag, const void *mine, void *all, size_t bytes, ckpt_error *error), (job, tag, mine, all, bytes, error), error, CKPT_E_NOTSUP) \
    F(int, ckpt_barrier, (ckpt_job *job, uint64_t tag, ckpt_error *error), (job, tag, error), error, CKPT_E_NOTSUP) \
    F(int, ckpt_signal_send, (ckpt_job *job, int process, unsigned kind, const void *bytes, size_t n, ckpt_error *error), (job, process, kind, bytes, n, error), error, CKPT_E_NOTSUP) \
    F(size_t, ckpt_launch_env, (ckpt_job *job, const char *name, char *text, size_t bytes), (job, name, text, bytes), NULL, 0) \
    CKPT_CORE_ONLY(C) \
    F(int, ckpt_task_region, (ckpt_job *job, int rank, void *base, size_t bytes, unsigned flags, ckpt_error *error), (job, rank, base, bytes, flags, error), error, CKPT_E_NOTSUP) \
    F(int, ckpt_tasks_saved, (ckpt_job *job, ckpt_saved *saved, ckpt_error *error), (job, saved, error), error, CKPT_E_NOTSUP) \
    F(int, ckpt_task_load, (ckpt_job *job, int rank, void **base, ckpt_error *error), (job, rank, base, error), error, CKPT_E_NOTSUP)

// The runtime does not see these.
#define CKPT_CORE_ONLY(F) \
    F(int, ckpt_core_signal_next, (ckpt_job *job, unsigned *kind, int *from, void *bytes, size_t *n), (job, kind, from, bytes, n), NULL, 0) \
    F(int, ckpt_core_ignore_fd, (ckpt_job *job, int fd, int on), (job, fd, on), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_core_shm_make, (ckpt_job *job, const ckpt_shm *shm, char *path, size_t bytes, ckpt_error *error), (job, shm, path, bytes, error), error, CKPT_E_NOTSUP) \
    F(int, ckpt_core_shm_mapped, (ckpt_job *job, const char *name, void *at, int failure, ckpt_error *error), (job, name, at, failure, error), error, CKPT_E_NOTSUP) \
    F(int, ckpt_core_shm_unmapping, (ckpt_job *job, const char *name, void **at, size_t *bytes), (job, name, at, bytes), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_core_shm_unmapped, (ckpt_job *job, const char *name), (job, name), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_core_vid_task, (ckpt_job *job, ckpt_vid comm, int local_task), (job, comm, local_task), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_core_tasks_left, (ckpt_job *job), (job), NULL, CKPT_E_NOTSUP)

// What the runtime calls by other ways: names only.
#define CKPT_BY_HAND(N) \
    N(ckpt_open) N(ckpt_close) N(ckpt_checkpoint) N(ckpt_restarted) N(ckpt_restart_thread_level) \
    N(ckpt_runtime_state) N(ckpt_thread_is_mine) N(ckpt_hold) N(ckpt_upcall) N(ckpt_vid_task) \
    N(ckpt_named_open) N(ckpt_named_close) N(ckpt_named_level) N(ckpt_named_save) N(ckpt_named_look) \
    N(ckpt_named_load) N(ckpt_named_load_one) N(ckpt_named_bytes) N(ckpt_named_raise)
// clang-format on

// The oldest signal that has come, as ckpt_signal_recv; *kind is set.  When it does not fit, CKPT_E_ARG and its length.
int ckpt_core_signal_next(ckpt_job *job, unsigned *kind, int *from, void *bytes, size_t *n);
// The descriptor is left out of images, or no more.
int ckpt_core_ignore_fd(ckpt_job *job, int fd, int on);
// ckpt_shm_map in two steps: the path of the segment's file, which the caller maps; then where it is, or why (errno)
// it could not be.  ckpt_shm_unmap, too: where it is, which the caller unmaps; then that it is gone.
int ckpt_core_shm_make(ckpt_job *job, const ckpt_shm *shm, char *path, size_t bytes, ckpt_error *error);
int ckpt_core_shm_mapped(ckpt_job *job, const char *name, void *at, int failure, ckpt_error *error);
int ckpt_core_shm_unmapping(ckpt_job *job, const char *name, void **at, size_t *bytes);
int ckpt_core_shm_unmapped(ckpt_job *job, const char *name);
// ckpt_vid_task, for a task that there is.
int ckpt_core_vid_task(ckpt_job *job, ckpt_vid comm, int local_task);
// All local tasks have left: checkpoints of the programs do not wait for a call of this process.
int ckpt_core_tasks_left(ckpt_job *job);

#endif
