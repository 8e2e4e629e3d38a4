// SPDX-License-Identifier: Apache-2.0
//
// openmpi_fortran.h: what our libmpi and our part of libmpi_mpifh share.
#ifndef CKPT_OPENMPI_FORTRAN_H
#define CKPT_OPENMPI_FORTRAN_H

#include "front/front.h"

// front_alloc
void *ckpt_front_alloc(size_t bytes);
// Attributes by Fortran handle; sort: FRONT_COMM and so on.
int ckpt_front_attr_set(int sort, MPI_Fint object, int keyval, long value, int form);
int ckpt_front_attr_get(int sort, MPI_Fint object, int keyval, long *value, int *flag);
// An operation whose function is Fortran's.
int ckpt_front_op_create(void *function, int commute, MPI_Fint *op);
// A generalized request whose functions are Fortran's.
int ckpt_front_grequest_start(void *query, void *free_fn, void *cancel, void *extra, MPI_Fint *request);

// front_blocks: how many members, or neighbours, a call with something for each of them has.
int ckpt_front_blocks(MPI_Comm comm, int neighbors, int *out, int *in);

// ---- what our parts of the Fortran libraries share ----

extern MPI_Fint mpi_fortran_in_place_, mpi_fortran_bottom_;

// MPI_IN_PLACE and MPI_BOTTOM in C.
#define FORTRAN_IN_PLACE ((void *)1)

static inline void *fortran_address(void *buf) {
    return buf == &mpi_fortran_in_place_ ? FORTRAN_IN_PLACE : buf == &mpi_fortran_bottom_ ? NULL : buf;
}

// Calls from the module mpi_f08 may leave out the error code.
static inline void fortran_set(MPI_Fint *ierr, int rc) {
    if (ierr != NULL) *ierr = rc;
}

static inline MPI_Datatype *fortran_types(int n, const MPI_Fint *types) {
    MPI_Datatype *t = ckpt_front_alloc((size_t)n * sizeof *t + 1);
    for (int i = 0; i < n; i++) t[i] = PMPI_Type_f2c(types[i]);
    return t;
}

// The names of one function of libmpi_mpifh, ompi_LOWER_f.
#define FORTRAN_NAMED(target, name)                                       \
    extern __attribute__((visibility("default"))) __typeof__(target) name \
        __attribute__((weak, alias(#target)));
#define FORTRAN_NAMES(lower, upper, mixed)             \
    FORTRAN_NAMED(ompi_##lower##_f, MPI_##upper)       \
    FORTRAN_NAMED(ompi_##lower##_f, mpi_##lower)       \
    FORTRAN_NAMED(ompi_##lower##_f, mpi_##lower##_)    \
    FORTRAN_NAMED(ompi_##lower##_f, mpi_##lower##__)   \
    FORTRAN_NAMED(ompi_##lower##_f, MPI_##mixed##_f)   \
    FORTRAN_NAMED(ompi_##lower##_f, MPI_##mixed##_f08) \
    FORTRAN_NAMED(ompi_##lower##_f, PMPI_##upper)      \
    FORTRAN_NAMED(ompi_##lower##_f, pmpi_##lower)      \
    FORTRAN_NAMED(ompi_##lower##_f, pmpi_##lower##_)   \
    FORTRAN_NAMED(ompi_##lower##_f, pmpi_##lower##__)  \
    FORTRAN_NAMED(ompi_##lower##_f, PMPI_##mixed##_f)  \
    FORTRAN_NAMED(ompi_##lower##_f, PMPI_##mixed##_f08)

#endif
