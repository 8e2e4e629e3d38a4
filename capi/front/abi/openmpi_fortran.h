// SPDX-License-Identifier: Apache-2.0
//
// openmpi_fortran.h: what our libmpi and our part of libmpi_mpifh share.
#ifndef CKPT_OPENMPI_FORTRAN_H
#define CKPT_OPENMPI_FORTRAN_H

#include "front/front.h"

double PMPI_Wtime(void);
double PMPI_Wtick(void);
int PMPI_Abort(MPI_Comm, int);
int PMPI_Comm_call_errhandler(MPI_Comm, int);
int PMPI_Comm_create_keyval(MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *, int *, void *);
int PMPI_Type_create_keyval(MPI_Type_copy_attr_function *, MPI_Type_delete_attr_function *, int *, void *);
int PMPI_Win_create_keyval(MPI_Win_copy_attr_function *, MPI_Win_delete_attr_function *, int *, void *);
MPI_Comm PMPI_Comm_f2c(MPI_Fint);
MPI_Datatype PMPI_Type_f2c(MPI_Fint);
MPI_Win PMPI_Win_f2c(MPI_Fint);
MPI_Group PMPI_Group_f2c(MPI_Fint);
MPI_Request PMPI_Request_f2c(MPI_Fint);
int PMPI_Status_c2f(const MPI_Status *, MPI_Fint *);
int PMPI_Type_match_size(int, int, MPI_Datatype *);
int PMPI_Comm_size(MPI_Comm, int *);
int PMPI_Comm_remote_size(MPI_Comm, int *);
int PMPI_Comm_test_inter(MPI_Comm, int *);
int PMPI_Alltoallw(const void *, const int *, const int *, const MPI_Datatype *, void *, const int *,
                   const int *, const MPI_Datatype *, MPI_Comm);
int PMPI_Ialltoallw(const void *, const int *, const int *, const MPI_Datatype *, void *, const int *,
                    const int *, const MPI_Datatype *, MPI_Comm, MPI_Request *);
int PMPI_Group_difference(MPI_Group, MPI_Group, MPI_Group *);
int PMPI_Group_intersection(MPI_Group, MPI_Group, MPI_Group *);
int PMPI_Group_union(MPI_Group, MPI_Group, MPI_Group *);
int PMPI_Group_excl(MPI_Group, int, const int *, MPI_Group *);
int PMPI_Group_incl(MPI_Group, int, const int *, MPI_Group *);
int PMPI_Group_range_excl(MPI_Group, int, int (*)[3], MPI_Group *);
int PMPI_Group_range_incl(MPI_Group, int, int (*)[3], MPI_Group *);
int PMPI_Request_free(MPI_Request *);
int PMPI_Wait(MPI_Request *, MPI_Status *);
int PMPI_Test(MPI_Request *, int *, MPI_Status *);
int PMPI_Waitall(int, MPI_Request *, MPI_Status *);
int PMPI_Testall(int, MPI_Request *, int *, MPI_Status *);
int PMPI_Waitany(int, MPI_Request *, int *, MPI_Status *);
int PMPI_Testany(int, MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Waitsome(int, MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Testsome(int, MPI_Request *, int *, int *, MPI_Status *);
int PMPI_Register_datarep(const char *, void *, void *, void *, void *);

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
