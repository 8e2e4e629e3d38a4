// SPDX-License-Identifier: Apache-2.0
//
// functions.h: the functions of ckpt.h that the core of libckpt has, for those who stand in its place: the library
// that programs are linked with (core.c), and the program's half of a process under ckptrun (front/stub.c).
//
// F(result, name, parameters, arguments, the error that is to be filled, result of a call that cannot be made)
// Types are compared with ckpt.h by the compiler, names by a house test.
#ifndef EMBED_FUNCTIONS_H
#define EMBED_FUNCTIONS_H

// clang-format off
#define CKPT_FUNCTIONS(F) \
    F(ckpt_job *, ckpt_open, (const ckpt_config *config, const ckpt_runtime_ops *ops, void *ctx, ckpt_error *error), (config, ops, ctx, error), error, NULL) \
    F(int, ckpt_close, (ckpt_job *job, ckpt_error *error), (job, error), error, CKPT_E_NOTSUP) \
    F(int, ckpt_restart_thread_level, (void), (), NULL, -1) \
    F(int, ckpt_restarted, (ckpt_job *job), (job), NULL, 0) \
    F(void *, ckpt_runtime_state, (ckpt_job *job, size_t bytes), (job, bytes), NULL, NULL) \
    F(int, ckpt_thread_is_mine, (ckpt_job *job), (job), NULL, CKPT_E_NOTSUP) \
    F(int, ckpt_hold, (ckpt_job *job), (job), NULL, CKPT_E_NOTSUP) \
    F(long, ckpt_upcall, (ckpt_job *job, void *function, const long args[6]), (job, function, args), NULL, CKPT_E_NOTSUP) \
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
    F(void, ckpt_group_call_end, (ckpt_job *job, uint64_t number), (job, number), NULL, (void)0)
// clang-format on

// What a call that cannot be made leaves in its error.
void embed_say(ckpt_error *error, int code, const char *why);

#endif
