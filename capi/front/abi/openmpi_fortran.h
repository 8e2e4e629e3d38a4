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

#endif
