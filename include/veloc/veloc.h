/* SPDX-License-Identifier: Apache-2.0
 *
 * veloc.h: the functions of VeloC with which a program names its memory, as libckpt_veloc.so has them: names, types and
 * numbers are VeloC's, so that its programs are compiled unchanged; what is done is libckpt's, see mpix_checkpoint.h.
 *
 * Compile with the MPI's mpicc, -I of this folder, and link with -lckpt_veloc -lckpt, libckpt_veloc.so being that of the
 * MPI (lib/ckpt/veloc/mpich, lib/ckpt/veloc/openmpi).  docs/veloc.md says what of VeloC is there, and what is different.
 */
#ifndef CKPT_VELOC_H
#define CKPT_VELOC_H

#include <mpi.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return, where nothing else is said. */
#define VELOC_SUCCESS 0
#define VELOC_FAILURE (-1)

#define VELOC_MAX_NAME 1024 /* bytes of a name, with its NUL */

/* Which regions. */
#define VELOC_CKPT_ALL 0
#define VELOC_CKPT_SOME 1 /* those in ids */
#define VELOC_CKPT_REST 2 /* those not in ids */
#define VELOC_RECOVER_ALL 0
#define VELOC_RECOVER_SOME 1
#define VELOC_RECOVER_REST 2

/* After MPI_Init and before MPI_Finalize.  comm has the ranks of MPI_COMM_WORLD.  drain not 0: waits, as
 * VELOC_Checkpoint_wait.  Checkpoints stay.  Both are collective. */
int VELOC_Init(MPI_Comm comm, const char *cfg_file);
int VELOC_Finalize(int drain);

/* A region: count elements of base_size bytes.  Not collective. */
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);
int VELOC_Mem_unprotect(int id);
int VELOC_Mem_clear(void);

/* A checkpoint: begin, one of selective and mem, end.  Versions grow.  success not 1 on a rank: there is none, and
 * VELOC_FAILURE on all.  end is collective, as are those below. */
int VELOC_Checkpoint_begin(const char *name, int version);
int VELOC_Checkpoint_selective(int mode, int *ids, int id_count);
int VELOC_Checkpoint_mem(void);
int VELOC_Checkpoint_end(int success);
/* Waits until the last checkpoint is where the configuration wants it. */
int VELOC_Checkpoint_wait(void);
/* All of it: waits for the last one, and makes the next. */
int VELOC_Checkpoint(const char *name, int version);

/* The version of the last checkpoint, if it has that name and a version below this one (0: any); or VELOC_FAILURE.
 * Collective. */
int VELOC_Restart_test(const char *name, int version);
/* Loads it: begin, one or more of selective and mem, end; before the first checkpoint of this start. */
int VELOC_Restart_begin(const char *name, int version);
int VELOC_Recover_selective(int mode, int *ids, int id_count);
int VELOC_Recover_mem(void);
/* Bytes of a region in the checkpoint, or -1. */
int VELOC_Recover_size(int id);
int VELOC_Restart_end(int success);
int VELOC_Restart(const char *name, int version);

#ifdef __cplusplus
}
#endif
#endif
