// SPDX-License-Identifier: Apache-2.0
//
// openmpi_cxx.c: our part of libmpi_cxx.so.40, the C++ companion of Open MPI.
//
// This library has the real library's name, so that the linker finds it first, and needs the real
// library, which has all functions that are not here.  Here are those functions that look into the
// object behind a handle instead of asking libmpi.
#include <stdlib.h>

#include "front/abi/openmpi_cxx.h"

// Programs and other libraries know these by their names: no header of ours declares them.
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define EXPORT __attribute__((visibility("default")))

// Returns 1 for intra, 2 for inter, 3 for cartesian, 4 for graph, and 0 for any other.
EXPORT int ompi_cxx_comm_get_type(MPI_Comm comm) {
    int inter = 0, topology = MPI_UNDEFINED;
    if (PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS) return 0;
    if (inter) return 2;
    PMPI_Topo_test(comm, &topology);
    return topology == out_topo(CANON_CART) ? 3 : topology == out_topo(CANON_GRAPH) ? 4 : 1;
}

// These are in the real library.
extern __attribute__((weak)) openmpi_cxx_invoke ompi_mpi_cxx_comm_errhandler_invoke,
    ompi_mpi_cxx_win_errhandler_invoke, ompi_mpi_cxx_file_errhandler_invoke;

EXPORT MPI_Errhandler ompi_cxx_errhandler_create_comm(void *function) {
    return ckpt_front_cxx_errhandler(FRONT_COMM, function, ompi_mpi_cxx_comm_errhandler_invoke);
}
EXPORT MPI_Errhandler ompi_cxx_errhandler_create_win(void *function) {
    return ckpt_front_cxx_errhandler(FRONT_WIN, function, ompi_mpi_cxx_win_errhandler_invoke);
}
EXPORT MPI_Errhandler ompi_cxx_errhandler_create_file(void *function) {
    return ckpt_front_cxx_errhandler(FRONT_FILE, function, ompi_mpi_cxx_file_errhandler_invoke);
}

// Called when MPI begins, for MPI::ERRORS_THROW_EXCEPTIONS.
EXPORT void ompi_cxx_errhandler_set_callbacks(void *errhandler, openmpi_cxx_throw *comm,
                                              openmpi_cxx_throw *file, openmpi_cxx_throw *win) {
    (void)errhandler;
    ckpt_front_cxx_throws(FRONT_COMM, comm);
    ckpt_front_cxx_throws(FRONT_FILE, file);
    ckpt_front_cxx_throws(FRONT_WIN, win);
}

EXPORT int ompi_cxx_errhandler_invoke_comm(MPI_Comm comm, int code, const char *text) {
    (void)text;
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

EXPORT int ompi_cxx_errhandler_invoke_file(MPI_File file, int code, const char *text) {
    (void)text;
    PMPI_File_call_errhandler(file, code);
    return code;
}

// Makes the state that a data representation of C++ is called with; the state is never freed.
EXPORT void *ompi_cxx_new_intercept_state(void *read, void *write, void *extent, void *extra) {
    void **state = malloc(4 * sizeof *state);
    if (state == NULL) return NULL;
    state[0] = read;
    state[1] = write;
    state[2] = extent;
    state[3] = extra;
    return state;
}
