// SPDX-License-Identifier: Apache-2.0
//
// abi.h: the types and constants of the ABI, and how a front declares an MPI function.
//
// The ABI is chosen with -DFRONT_ABI=...
#ifndef CKPT_FRONT_ABI_H
#define CKPT_FRONT_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "canon/mpi_canon.h"

// Types that are the same in all ABIs.
typedef long MPI_Aint, MPI_Count;
typedef long MPI_Offset;
typedef int MPI_Fint;
enum { MPI_SUCCESS = 0, MPI_UNDEFINED = -32766 };

#if FRONT_ABI == 1
#include "front/abi/mpich_abi.h"
#elif FRONT_ABI == 2
#include "front/abi/openmpi_abi.h"
#elif FRONT_ABI == 3
#include "front/abi/std_abi.h"
#else
#error "FRONT_ABI: 1 for MPICH, 2 for Open MPI, 3 for the standard"
#endif

#if FRONT_ABI != 3 // what both have as the canonical numbers
enum { MPI_IDENT = 0, MPI_CONGRUENT = 1, MPI_SIMILAR = 2, MPI_UNEQUAL = 3 };
static inline int in_level(int l) { return l; }
static inline int out_level(int l) { return l; }
static inline int out_compare(int c) { return c; }
static inline int in_amode(int a) { return a; }
static inline int out_amode(int a) { return a; }
static inline int in_whence(int w) { return w; }
static inline MPI_Offset in_viewat(MPI_Offset at) { return at; }
static inline long in_pvar(const void *handle) { return (long)handle; }
enum { FLAVOR_BASE = 0 };
#define FRONT_IS_DUP_FN(function) 0
#define ABI_T_CLASS(code) 0
#define T_VERBOSITY(v) ((v) + T_VERBOSITY_BASE)
#endif
#define T_BIND(b) ((b) + T_BIND_BASE)
#define T_SCOPE(s) ((s) + T_SCOPE_BASE)
#define T_CLASS(c) ((c) + T_CLASS_BASE)

// The word that tells the back where to write a status, in the application's memory (mpi_status.h).
static inline long out_status(const MPI_Status *s) { return is_status(s) ? status_word(FRONT_ABI, s) : 0; }

typedef void(MPI_User_function)(void *, void *, int *, MPI_Datatype *);
typedef void(MPI_Comm_errhandler_function)(MPI_Comm *, int *, ...);
typedef void(MPI_Win_errhandler_function)(MPI_Win *, int *, ...);
typedef void(MPI_File_errhandler_function)(MPI_File *, int *, ...);
typedef int(MPI_Comm_copy_attr_function)(MPI_Comm, int, void *, void *, void *, int *);
typedef int(MPI_Comm_delete_attr_function)(MPI_Comm, int, void *, void *);
typedef int(MPI_Type_copy_attr_function)(MPI_Datatype, int, void *, void *, void *, int *);
typedef int(MPI_Type_delete_attr_function)(MPI_Datatype, int, void *, void *);
typedef int(MPI_Win_copy_attr_function)(MPI_Win, int, void *, void *, void *, int *);
typedef int(MPI_Win_delete_attr_function)(MPI_Win, int, void *, void *);

#include "front/gen/zz_pmpi.h"

// Declares an MPI function: what follows is PMPI_name, and MPI_name is a weak name of it, so that a
// tool can define MPI_name itself.
#define FRONT(result, name, params)                                                  \
    __attribute__((visibility("default"))) result PMPI_##name params;                \
    extern __attribute__((visibility("default"), weak,                               \
                          alias("PMPI_" #name))) __typeof__(PMPI_##name) MPI_##name; \
    result PMPI_##name params

// Two more names of a function: Open MPI has persistent collectives as an extension.
#if FRONT_ABI == 2
#define FRONT_EXTENSION(name)                                                          \
    extern __attribute__((visibility("default"), weak,                                 \
                          alias("PMPI_" #name))) __typeof__(PMPI_##name) PMPIX_##name, \
        MPIX_##name;
#else
#define FRONT_EXTENSION(name)
#endif

#endif
