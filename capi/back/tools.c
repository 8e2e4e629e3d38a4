// SPDX-License-Identifier: Apache-2.0
//
// tools.c: the tools interface of the real MPI.
//
// Handles of the tools interface are addresses in the real MPI, so a handle or session that is in use holds a
// checkpoint back.  The whole interface may be called before MPI_Init, when there is no job yet.
#include <stdio.h>

#include "back/impl/error.h"
#include "back/impl/handles.h"
#include "back/impl/special.h"
#include "back/object/fresh.h"
#include "back/tools.h"

static int inits;   // calls of MPI_T_init_thread that are not finalized
static int handles; // of control variables; and sessions, which free their handles with them

static int level; // thread level that the first MPI_T_init_thread asked for

static void remember(int change) {
    int n = __atomic_add_fetch(&inits, change, __ATOMIC_RELAXED);
    if (back.state != NULL) {
        back.state->tools = n;
        back.state->tools_level = level;
    }
}

void back_tools_open(int restarted) {
    int provided, n = back.state->tools;
    if (!restarted) {
        remember(0);
        return;
    }
    level = back.state->tools_level;
    for (int i = 0; i < n; i++) MPI_T_init_thread(real_level(level), &provided);
    inits = n;
}

int back_tools_hold(char *why, size_t bytes) {
    int n = __atomic_load_n(&handles, __ATOMIC_RELAXED);
    if (n > 0)
        snprintf(why, bytes,
                 "%d handle%s or sessions of the tools interface (MPI_T_cvar_handle_alloc, "
                 "MPI_T_pvar_session_create) in use",
                 n, n == 1 ? "" : "s");
    return n > 0;
}

long back_T_init_thread(const long *a) {
    ARGS(T_init_thread) p = (const void *)a;
    int rc = MPI_T_init_thread(real_level(p->required), p->provided);
    if (rc == MPI_SUCCESS) {
        *p->provided = canon_level(*p->provided);
        if (inits == 0) level = p->required;
        remember(1);
    }
    return back_canon_class(rc);
}

long back_T_finalize(const long *a) {
    (void)a;
    int rc = MPI_T_finalize();
    if (rc == MPI_SUCCESS) remember(-1);
    return back_canon_class(rc);
}

static long counted(int rc, int change) {
    if (rc == MPI_SUCCESS) __atomic_fetch_add(&handles, change, __ATOMIC_RELAXED);
    return back_canon_class(rc);
}

// The real handle of an object, at place, for the length of the call: variables keep what they need of it.
static void *real_object(ckpt_vid vid, uint64_t *place) {
    if (vid == CKPT_VID_NONE || back.tables == NULL) return NULL;
    *place = back_slot((ckpt_kind)CKPT_VID_KIND(vid), vid)->real;
    return place; // little-endian: an int handle is its first half
}

// index, id of the object, handle out, count out
long back_T_cvar_handle_alloc(const long *a) {
    ARGS(T_cvar_handle_alloc) p = (const void *)a;
    uint64_t place;
    return counted(MPI_T_cvar_handle_alloc(p->cvar_index, real_object((ckpt_vid)p->obj_handle, &place),
                                           (MPI_T_cvar_handle *)p->handle, p->count),
                   1);
}

long back_T_cvar_handle_free(const long *a) {
    ARGS(T_cvar_handle_free) p = (const void *)a;
    return counted(MPI_T_cvar_handle_free((MPI_T_cvar_handle *)p->handle), -1);
}

long back_T_pvar_session_create(const long *a) {
    ARGS(T_pvar_session_create) p = (const void *)a;
    return counted(MPI_T_pvar_session_create((MPI_T_pvar_session *)p->session), 1);
}

long back_T_pvar_session_free(const long *a) {
    ARGS(T_pvar_session_free) p = (const void *)a;
    return counted(MPI_T_pvar_session_free((MPI_T_pvar_session *)p->session), -1);
}

// session, index, id of the object, handle out, count out
long back_T_pvar_handle_alloc(const long *a) {
    ARGS(T_pvar_handle_alloc) p = (const void *)a;
    uint64_t place;
    return back_canon_class(MPI_T_pvar_handle_alloc((MPI_T_pvar_session)p->session, p->pvar_index,
                                                    real_object((ckpt_vid)p->obj_handle, &place),
                                                    (MPI_T_pvar_handle *)p->handle, p->count));
}

// The types that a variable may have.
ckpt_vid back_tool_type(MPI_Datatype type) {
    static const struct {
        MPI_Datatype real;
        int canon;
    } types[] = {
        {MPI_INT, CANON_DATATYPE_INT},
        {MPI_UNSIGNED, CANON_DATATYPE_UNSIGNED},
        {MPI_UNSIGNED_LONG, CANON_DATATYPE_UNSIGNED_LONG},
        {MPI_UNSIGNED_LONG_LONG, CANON_DATATYPE_UNSIGNED_LONG_LONG},
        {MPI_COUNT, CANON_DATATYPE_COUNT},
        {MPI_CHAR, CANON_DATATYPE_CHAR},
        {MPI_DOUBLE, CANON_DATATYPE_DOUBLE},
        {MPI_BYTE, CANON_DATATYPE_BYTE},
        {MPI_C_BOOL, CANON_DATATYPE_C_BOOL},
        {MPI_LONG, CANON_DATATYPE_LONG},
        {MPI_INT32_T, CANON_DATATYPE_INT32_T},
        {MPI_UINT32_T, CANON_DATATYPE_UINT32_T},
        {MPI_INT64_T, CANON_DATATYPE_INT64_T},
        {MPI_UINT64_T, CANON_DATATYPE_UINT64_T},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].real == type) return CKPT_VID(CKPT_KIND_DATATYPE, types[i].canon);
    return VID_TYPE_NULL;
}
