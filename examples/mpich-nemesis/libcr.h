// SPDX-License-Identifier: Apache-2.0
//
// libcr.h: what MPICH's nemesis channel uses of the interface of BLCR, over libckpt.
#ifndef LIBCR_H
#define LIBCR_H

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int cr_client_id_t;
typedef int cr_callback_id_t;
typedef int (*cr_callback_t)(void *arg);

enum { CR_THREAD_CONTEXT = 0 }; // the callback runs on a thread of libcr's

struct cr_restart_info {
    pid_t requester; // the new environment is in /tmp/hydra-env-file-REQUESTER:RANK
};

// Opens the job.  Collective over all ranks, after PMI_Init.  -1 and errno on failure.
cr_client_id_t cr_init(void);

// Calls f on every rank when somebody asks for a checkpoint.  One callback a process.  -1 and errno on failure.
cr_callback_id_t cr_register_callback(cr_callback_t f, void *arg, int flags);

// Inside the callback, on all ranks: saves the job.  0: the run goes on, whether there is an epoch or not, which
// those who asked are told; 1: this is the process that was continued from the image.
int cr_checkpoint(int flags);

// Of the restart that cr_checkpoint told of last.
const struct cr_restart_info *cr_get_restart_info(void);

#ifdef __cplusplus
}
#endif
#endif
