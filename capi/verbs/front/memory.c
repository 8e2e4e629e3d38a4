// SPDX-License-Identifier: Apache-2.0
//
// memory.c: protection domains and registered memory.
#include "verbs/front/front.h"

#include <stdbool.h>

API struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct v_pd *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->p.context = context;
    long r = CROSS(V_PD, (long)p);
    return r ? FAILED(r, p) : &p->p;
}

API int ibv_dealloc_pd(struct ibv_pd *pd) {
    long r = CROSS(V_PD_END, (long)v_of(v_pd, p, pd));
    if (!r) free(v_of(v_pd, p, pd));
    return (int)r;
}

API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                    unsigned access) {
    if (access & IBV_ACCESS_ON_DEMAND) return FAILED(EOPNOTSUPP, NULL);
    struct v_mr *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->iova = iova;
    m->access = (int)access;
    m->m.context = pd->context;
    m->m.pd = pd;
    m->m.addr = addr;
    m->m.length = length;
    long r = CROSS(V_MR, (long)m);
    return r ? FAILED(r, m) : &m->m;
}

API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

API struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access) {
    return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

API int ibv_dereg_mr(struct ibv_mr *mr) {
    struct v_mr *m = v_of(v_mr, m, mr);
    long r = CROSS(V_MR_END, (long)m);
    if (!r) free(m);
    return (int)r;
}

API int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access) {
    int error = EINVAL;
    bool bad = flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)) ||
               (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!length || !addr));
    if (!bad && access & IBV_ACCESS_ON_DEMAND) bad = true, error = EOPNOTSUPP;
    long r = bad ? IBV_REREG_MR_ERR_INPUT
                 : CROSS(V_MR_AGAIN, (long)v_of(v_mr, m, mr), flags, (long)pd, (long)addr, (long)length,
                         access, (long)&error);
    if (r) errno = error;
    return (int)r;
}

// What is never offered.
API struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                     int access) {
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    return FAILED(EOPNOTSUPP, NULL);
}
API struct ibv_context *ibv_import_device(int fd) { return (void)fd, FAILED(EOPNOTSUPP, NULL); }
API struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle) {
    return (void)context, (void)handle, FAILED(EOPNOTSUPP, NULL);
}
API void ibv_unimport_pd(struct ibv_pd *pd) { (void)pd; }
API struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle) {
    return (void)pd, (void)handle, FAILED(EOPNOTSUPP, NULL);
}
API void ibv_unimport_mr(struct ibv_mr *mr) { (void)mr; }
API struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle) {
    return (void)context, (void)handle, FAILED(EOPNOTSUPP, NULL);
}
API void ibv_unimport_dm(struct ibv_dm *dm) { (void)dm; }
