// SPDX-License-Identifier: Apache-2.0
//
// window.c: memory windows.
#include "verbs/front/front.h"

struct ibv_mw *front_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type) {
    struct v_mw *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->w.context = pd->context;
    w->w.pd = pd;
    w->w.type = type;
    long r = CROSS(V_MW, (long)w);
    return r ? FAILED(r, w) : &w->w;
}

int front_dealloc_mw(struct ibv_mw *mw) {
    struct v_mw *w = v_of(v_mw, w, mw);
    long r = CROSS(V_MW_END, (long)w);
    if (!r) free(w);
    return (int)r;
}

int front_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
    return (int)CROSS(V_BIND, (long)v_of(v_qp, q, qp), (long)v_of(v_mw, w, mw), (long)bind);
}
