// SPDX-License-Identifier: Apache-2.0
//
// about.c: which MPI this back was compiled for, for people (internal/backs reads it from the file) and for itself: the
// dynamic linker may find the library of another one.
#include <ctype.h>
#include <stdio.h>

#include "back/about.h"
#include "back/impl/process.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

// Those that have the ABI of MPICH say that they are it, too (which.in).
#if defined(I_MPI_VERSION)
#define MPI_CALLED "Intel MPI"
#define MPI_IS_VERSION I_MPI_VERSION
#elif defined(MVAPICH_VERSION)
#define MPI_CALLED "MVAPICH"
#define MPI_IS_VERSION MVAPICH_VERSION
#elif defined(MVAPICH2_VERSION)
#define MPI_CALLED "MVAPICH2"
#define MPI_IS_VERSION MVAPICH2_VERSION
#elif defined(CRAY_MPICH_VERSION)
#define MPI_CALLED "Cray MPICH"
#define MPI_IS_VERSION TEXT(CRAY_MPICH_VERSION)
#elif defined(MPICH_VERSION)
#define MPI_CALLED "MPICH"
#define MPI_IS_VERSION MPICH_VERSION
#elif defined(OPEN_MPI)
#define MPI_CALLED "Open MPI"
#define MPI_IS_VERSION TEXT(OMPI_MAJOR_VERSION) "." TEXT(OMPI_MINOR_VERSION) "." TEXT(OMPI_RELEASE_VERSION)
#else
#define MPI_CALLED "the standard ABI"
#define MPI_IS_VERSION TEXT(MPI_ABI_VERSION) "." TEXT(MPI_ABI_SUBVERSION)
#endif

#ifndef BACK_COMPILER // who compiles gives these
#define BACK_COMPILER ""
#endif
#ifndef BACK_LIBCKPT
#define BACK_LIBCKPT ""
#endif

#define KEY_VERSION "version "
static const char about[] __attribute__((section(".ckptback"), used)) =
    "libckpt-back 1\nis " BACK_NAME "\nmpi " MPI_CALLED "\n" KEY_VERSION MPI_IS_VERSION
    "\nstandard " TEXT(MPI_VERSION) "." TEXT(MPI_SUBVERSION) "\ncompiler " BACK_COMPILER
                                                             "\nlibckpt " BACK_LIBCKPT "\n";

#if defined(OPEN_MPI) || defined(MPICH_NAME)
// Whether major.minor of a version stands in a text as a number of its own: 4.1 is not in 4.10, nor in 14.1.
static int says(const char *text, const char *version, size_t n) {
    for (const char *at = text; (at = strstr(at, version)) != NULL; at++)
        if ((at == text || (!isdigit((unsigned char)at[-1]) && at[-1] != '.')) &&
            !isdigit((unsigned char)at[n]))
            return 1;
    return 0;
}

int back_other_mpi(char *why, size_t bytes) {
    char loaded[MPI_MAX_LIBRARY_VERSION_STRING], version[64];
    int length = 0;
    // Not the literal: whoever looks into the file and this function see the same.
    const char *const volatile record = about;
    const char *own = strstr((const char *)record, KEY_VERSION) + sizeof KEY_VERSION - 1;
    size_t n = strcspn(own, ".\n");
    if (own[n] == '.') n += 1 + strcspn(own + n + 1, ".\n");
    if (n >= sizeof version || MPI_Get_library_version(loaded, &length) != MPI_SUCCESS) return 0;
    memcpy(version, own, n);
    version[n] = 0;
    loaded[strcspn(loaded, "\n")] = 0;
    if (says(loaded, version, n)) return 0;
    snprintf(
        why, bytes,
        "this back was compiled for %s %s, and the library that was loaded is \"%.200s\": LD_LIBRARY_PATH may lead to "
        "another MPI; if that is the one to use, `ckptctl back add --replace MPICC` with its compiler makes a "
        "back for it",
        MPI_CALLED, version, loaded);
    return 1;
}
#else
int back_other_mpi(char *why, size_t bytes) {
    (void)why, (void)bytes; // any MPI that has the ABI
    return 0;
}
#endif
