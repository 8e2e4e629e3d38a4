/* SPDX-License-Identifier: Apache-2.0
 *
 * mpix_checkpoint.h: checkpoint/restart for applications.
 *
 * Link with -lckpt.  The program runs the same with and without ckptrun.  Under ckptrun the whole process is
 * saved.  Without it a program can name the memory that is its state (regions mode, below), and that is saved; when
 * no rank names any, MPIX_Checkpoint answers MPIX_CR_STATE_IGNORE and the program goes on.
 *
 * All functions return 0 (MPI_SUCCESS) or a positive number, MPIX_CR_ERR_* where none is named; none of them aborts
 * or prints.  None may be called from a signal handler or from a callback of MPI.
 */
#ifndef MPIX_CHECKPOINT_H
#define MPIX_CHECKPOINT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call did.  The values are part of the ABI and never reused. */
typedef enum {
    MPIX_CR_STATE_ERROR = 0,      /* tried and failed; the job goes on, the last epoch is whole */
    MPIX_CR_STATE_CHECKPOINT = 1, /* the state was saved; this is the run that saved it */
    MPIX_CR_STATE_RESTART = 2,    /* this is a run continued from the saved state */
    MPIX_CR_STATE_IGNORE = 3      /* nothing was saved: there is nothing, or the job cannot be saved now */
} MPIX_CR_state_t;

/* Saves the job.
 *
 * Collective over MPI_COMM_WORLD, or the processes of `ckptrun --ranks` (before MPI_Init, or in another program
 * without MPI: local).  One thread
 * of each process calls it, outside any other MPI call; other threads may compute, but not be inside
 * MPI.  state must not be NULL; it receives the same value on every rank.  Returns once the
 * snapshot is taken: the image is written in the background and the epoch exists when its manifest
 * does (`ckptctl ls`).  On restart the program continues from this call with
 * MPIX_CR_STATE_RESTART.  In regions mode it returns when the epoch is committed.
 *
 * Errors: MPI_ERR_ARG (12) when state is NULL.  A checkpoint that fails is no error of the call:
 * *state is MPIX_CR_STATE_ERROR, or MPIX_CR_STATE_IGNORE when the job is in a state that cannot be
 * saved; MPIX_Checkpoint_reason says why. */
int MPIX_Checkpoint(MPIX_CR_state_t *state);

/* Why the last call of this process (but of this function) failed, or answered ERROR or IGNORE, as one line without a
 * newline; after MPIX_Checkpoint_recover also which newer epochs could not be loaded.  "" otherwise.  Copies at most
 * bytes-1 characters and a NUL.  Thread-safe. */
int MPIX_Checkpoint_reason(char *text, size_t bytes);

/* ---- regions mode: without ckptrun, the program names its state --------------------------------------
 *
 * Under plain mpiexec of MPICH or Open MPI, under a launcher without MPI (PMI, Slurm, or CKPT_RANK and CKPT_SIZE), or
 * alone.  The directory of the checkpoints is CKPT_DIR, "ckpt" unless given; it belongs to one job at a time.
 *
 *     MPI_Init
 *     MPIX_Checkpoint_protect(0, u, n * sizeof *u);      each piece of the state
 *     MPIX_Checkpoint_protect(1, &step, sizeof step);
 *     MPIX_Checkpoint_recover(&state);                   RESTART: they have what was saved.  IGNORE: a fresh start
 *     while (step < last) {
 *         ...
 *         MPIX_Checkpoint(&state);                       returns when the epoch is committed
 *     }
 *     MPI_Finalize
 *
 * One thread at a time calls these functions: after MPI_Init and before MPI_Finalize, where the program uses MPI.
 * Collective ones are called by all ranks of MPI_COMM_WORLD, outside any other call of MPI, and return the same.
 *
 * Under ckptrun nothing of this is needed, and these calls change nothing: protect, unprotect, distribute, level
 * and raise return 0, recover answers IGNORE, and saved, recover_one and recover(NULL) return MPIX_CR_ERR_NONE. */

enum {
    MPIX_CR_ERR_ARG = 12,   /* an argument is wrong */
    MPIX_CR_ERR_OTHER = 15, /* it did not work, or not in this state */
    MPIX_CR_ERR_NONE = 37   /* there is nothing to be loaded */
};

/* Names a piece of the state: id is the program's own number of it, 0 or more, base its first byte, bytes its length.
 * A second call with the same id replaces the first: base and bytes may be others.  Not collective: ranks may name
 * different pieces.  Pieces do not overlap. */
int MPIX_Checkpoint_protect(int id, void *base, size_t bytes);
int MPIX_Checkpoint_unprotect(int id);

/* Loads what was saved into all that is protected, before the first checkpoint.  Collective.  *state is
 * MPIX_CR_STATE_RESTART, or MPIX_CR_STATE_IGNORE: there is nothing.  The newest epoch is taken whose images are whole
 * on all ranks; MPIX_Checkpoint_reason says what had to be passed over.  It has what each rank protects now, with the
 * same lengths, or nothing is loaded on any rank: MPIX_CR_ERR_OTHER, and *state is MPIX_CR_STATE_ERROR.
 * state NULL: only looks.  0: there is an epoch; MPIX_CR_ERR_NONE: there is none. */
int MPIX_Checkpoint_recover(MPIX_CR_state_t *state);
/* The length of a piece of this rank in the epoch that was found, to make room for it.  Not collective. */
int MPIX_Checkpoint_saved(int id, size_t *bytes);
/* Loads one piece, which is protected with that length, after MPIX_Checkpoint_recover(NULL).  Not collective. */
int MPIX_Checkpoint_recover_one(int id);

/* Says that piece id is this rank's part of an array that is spread over all ranks: in each of dims dimensions (at most
 * 8, the last one running fastest) count elements from element first on, of whole; the piece is count[0] * ... *
 * count[dims-1] * element bytes long, without gaps.  dims 0 (and NULL, NULL, NULL): all ranks have the same content.
 * When each piece is distributed, any number of ranks can load it, each its part as it says then.  Otherwise that is
 * refused.  Again after each MPIX_Checkpoint_protect of the same id, which takes it back. */
int MPIX_Checkpoint_distribute(int id, int dims, const size_t *whole, const size_t *first,
                               const size_t *count, size_t element);

/* What the next checkpoints survive: 1 the end of a process, to 4 that of all nodes; the same on all ranks.  CKPT_LEVEL
 * unless called, else what CKPT_LEVELS says of each checkpoint; 4 without CKPT_LOCAL.  Levels 1 to 3 need a local
 * directory of each node (CKPT_LOCAL), and are MPIX_CR_ERR_OTHER without.  MPIX_Checkpoint returns when the images are on
 * stable storage on their nodes; what is between that and the level is done in the background, and MPI_Finalize waits
 * for it. */
int MPIX_Checkpoint_level(int level);
/* Brings the last checkpoint of this start to that level too, and returns when it is there: the same level again only
 * waits.  Collective.  MPIX_CR_ERR_OTHER: there is no
 * checkpoint, or it could not be raised, and stays at the levels that it has. */
int MPIX_Checkpoint_raise(int level);

#ifdef __cplusplus
}
#endif
#endif
