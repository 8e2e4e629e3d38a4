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
#define TOOL_VERBOSITY_BASE MPI_T_VERBOSITY_USER_BASIC
#define TOOL_BIND_BASE MPI_T_BIND_NO_OBJECT
#define TOOL_SCOPE_BASE MPI_T_SCOPE_CONSTANT
#define TOOL_CLASS_BASE MPI_T_PVAR_CLASS_STATE

#pragma GCC visibility pop

#endif
