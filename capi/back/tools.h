// SPDX-License-Identifier: Apache-2.0
//
// tools.h: the tools interface of the real MPI.
#ifndef CKPT_BACK_TOOLS_H
#define CKPT_BACK_TOOLS_H

#include "back/impl/process.h"

#pragma GCC visibility push(hidden)

// Called once the job is open.  After a restart, initializes the tools interface as often as the saved job
// had.
void back_tools_open(int restarted);
int back_tools_hold(char *why, size_t bytes);
ckpt_vid back_tool_type(MPI_Datatype type);
static inline MPI_T_pvar_handle real_pvar(long handle) {
    return handle == -1 ? MPI_T_PVAR_ALL_HANDLES : (MPI_T_pvar_handle)handle;
}
// Numbers of the tools interface, counted from 0.
static inline int canon_tool_verbosity(int v) {
    static const int real[9] = {
        MPI_T_VERBOSITY_USER_BASIC,   MPI_T_VERBOSITY_USER_DETAIL,   MPI_T_VERBOSITY_USER_ALL,
        MPI_T_VERBOSITY_TUNER_BASIC,  MPI_T_VERBOSITY_TUNER_DETAIL,  MPI_T_VERBOSITY_TUNER_ALL,
        MPI_T_VERBOSITY_MPIDEV_BASIC, MPI_T_VERBOSITY_MPIDEV_DETAIL, MPI_T_VERBOSITY_MPIDEV_ALL};
    for (int i = 0; i < 9; i++)
        if (real[i] == v) return i;
    return 0;
}
static inline int canon_tool_bind(int b) { return b - MPI_T_BIND_NO_OBJECT; }
static inline int canon_tool_scope(int s) { return s - MPI_T_SCOPE_CONSTANT; }
#define TOOL_CLASS_BASE MPI_T_PVAR_CLASS_STATE
static inline int canon_tool_class(int c) { return c - TOOL_CLASS_BASE; }

#pragma GCC visibility pop

#endif
