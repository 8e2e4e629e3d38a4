// SPDX-License-Identifier: Apache-2.0
//
// fortran.c: what the interfaces of fti.f90 call.  Where the C compiler has no header for Fortran's descriptors there is
// no Fortran compiler either, and nothing of this.
#if __has_include(<ISO_Fortran_binding.h>)
#include <ISO_Fortran_binding.h>

#include "state.h"

// A text of Fortran, without the blanks at its end.  "" when it is too long, which nothing takes.
struct text {
    char c[PATH_MAX];
};
static struct text text(const CFI_cdesc_t *d) {
    struct text t = {""};
    const char *s = d->base_addr;
    size_t n = s != NULL ? d->elem_len : 0;
    while (n > 0 && s[n - 1] == ' ') n--;
    if (n < sizeof t.c) memcpy(t.c, s, n);
    return t;
}

// Of Fortran's names for C.
#define FORTRAN(result, name, ...)   \
    EXPORT result name(__VA_ARGS__); \
    EXPORT result name(__VA_ARGS__)

FORTRAN(void, ckpt_fti_init, const CFI_cdesc_t *config, int *comm, int *err) {
    struct text path = text(config);
    *err = FTI_Init(path.c, MPI_Comm_f2c(*comm));
    if (*err == FTI_SCES) *comm = MPI_Comm_c2f(FTI_COMM_WORLD);
}

FORTRAN(void, ckpt_fti_status, int *status) { *status = FTI_Status(); }
FORTRAN(void, ckpt_fti_finalize, int *err) { *err = FTI_Finalize(); }

FORTRAN(int, ckpt_fti_inittype, const size_t *bytes) {
    fti_id_t type;
    return *bytes <= INT_MAX && FTI_InitType(&type, (int)*bytes) == FTI_SCES ? type : FTI_NSCS;
}

FORTRAN(int, ckpt_fti_initcomposite, const CFI_cdesc_t *name, const size_t *bytes) {
    struct text t = text(name);
    return FTI_InitCompositeType(t.c, *bytes, NULL);
}

FORTRAN(int, ckpt_fti_addscalar, const int *id, const CFI_cdesc_t *name, const int *type,
        const size_t *offset) {
    struct text t = text(name);
    return FTI_AddScalarField(*id, t.c, *type, (int64_t)*offset);
}

FORTRAN(int, ckpt_fti_addvector, const int *id, const CFI_cdesc_t *name, const int *type,
        const size_t *offset, const int *dims, const int *sizes) {
    struct text t = text(name);
    int64_t wide[CFI_MAX_RANK];
    if (*dims < 1 || *dims > CFI_MAX_RANK)
        return fti_fail(FTI_NSCS, "field %s has %d dimensions: want 1 to %d", t.c, *dims, CFI_MAX_RANK);
    for (int i = 0; i < *dims; i++) wide[i] = sizes[i];
    return FTI_AddVectorField(*id, t.c, *type, (int64_t)*offset, *dims, wide);
}

// A variable of any type and rank.  Its elements are bytes here.
FORTRAN(void, ckpt_fti_protect, const int *id, const CFI_cdesc_t *d, int *err) {
    size_t bytes = d->elem_len;
    for (int i = 0; i < d->rank; i++) {
        if (d->dim[i].extent < 0) {
            *err = fti_fail(FTI_NSCS, "variable %d has no size", *id);
            return;
        }
        if (d->dim[i].extent > 1 && d->dim[i].sm != (CFI_index_t)bytes) {
            *err = fti_fail(FTI_NSCS, "variable %d is not contiguous", *id);
            return;
        }
        bytes *= (size_t)d->dim[i].extent;
    }
    *err = FTI_Protect(*id, d->base_addr, (int64_t)bytes, FTI_CHAR);
}

FORTRAN(void, ckpt_fti_protect_address, const int *id, void *address, const int *count, const int *type,
        int *err) {
    *err = FTI_Protect(*id, address, *count, *type);
}

FORTRAN(void, ckpt_fti_checkpoint, const int *id, const int *level, int *err) {
    *err = FTI_Checkpoint(*id, *level);
}

FORTRAN(void, ckpt_fti_recover, int *err) { *err = FTI_Recover(); }
FORTRAN(void, ckpt_fti_snapshot, int *err) { *err = FTI_Snapshot(); }

FORTRAN(void, ckpt_fti_initicp, const int *id, const int *level, const CFI_cdesc_t *activate, int *err) {
    const char *bytes = activate->base_addr; // a LOGICAL: true where a byte is not 0
    bool yes = false;
    for (size_t i = 0; i < activate->elem_len; i++) yes = yes || bytes[i] != 0;
    *err = FTI_InitICP(*id, *level, yes);
}

FORTRAN(void, ckpt_fti_addvaricp, const int *id, int *err) { *err = FTI_AddVarICP(*id); }
FORTRAN(void, ckpt_fti_finalizeicp, int *err) { *err = FTI_FinalizeICP(); }
FORTRAN(void, ckpt_fti_getstoredsize, const int *id, int64_t *bytes) { *bytes = FTI_GetStoredSize(*id); }

FORTRAN(void, ckpt_fti_realloc, const int *id, void **address, int *err) {
    *address = FTI_Realloc(*id, *address);
    *err = *address != NULL ? FTI_SCES : FTI_NSCS;
}

FORTRAN(void, ckpt_fti_recovervarinit, int *err) { *err = FTI_RecoverVarInit(); }
FORTRAN(void, ckpt_fti_recovervar, const int *id, int *err) { *err = FTI_RecoverVar(*id); }
FORTRAN(void, ckpt_fti_recovervarfinalize, int *err) { *err = FTI_RecoverVarFinalize(); }

FORTRAN(void, ckpt_fti_setid, const CFI_cdesc_t *name, int *id) {
    struct text t = text(name);
    *id = FTI_setIDFromString(t.c);
}

FORTRAN(void, ckpt_fti_getid, const CFI_cdesc_t *name, int *id) {
    struct text t = text(name);
    *id = FTI_getIDFromString(t.c);
}
#endif
