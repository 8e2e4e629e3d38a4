/* SPDX-License-Identifier: Apache-2.0
 *
 * mpix_checkpoint.h: checkpoint/restart for applications.
 *
 * Link with -lckpt.  The program runs the same with and without ckptrun; without it every call
 * below answers MPIX_CR_STATE_IGNORE and the program goes on.
 *
 * All functions return 0 (MPI_SUCCESS) or a positive MPI error class; none of them aborts, prints,
 * or changes errno.  None may be called from a signal handler or from a callback of MPI.
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
    MPIX_CR_STATE_IGNORE = 3      /* nothing was saved: no ckptrun, or the job cannot be saved now */
} MPIX_CR_state_t;

/* Saves the job.
 *
 * Collective over MPI_COMM_WORLD (before MPI_Init, or in a program without MPI: local).  One thread
 * of each process calls it, outside any other MPI call; other threads may compute, but not be inside
 * MPI.  state must not be NULL; it receives the same value on every rank.  Returns once the
 * snapshot is taken: the image is written in the background and the epoch exists when its manifest
 * does (`ckptctl ls`).  On restart the program continues from this call with
 * MPIX_CR_STATE_RESTART.
 *
 * Errors: MPI_ERR_ARG (12) when state is NULL.  A checkpoint that fails is no error of the call:
 * *state is MPIX_CR_STATE_ERROR, or MPIX_CR_STATE_IGNORE when the job is in a state that cannot be
 * saved; MPIX_Checkpoint_reason says why. */
int MPIX_Checkpoint(MPIX_CR_state_t *state);

/* Why the last MPIX_Checkpoint of this process answered ERROR or IGNORE, as one line without a
 * newline; "" otherwise.  Copies at most bytes-1 characters and a NUL.  Thread-safe. */
int MPIX_Checkpoint_reason(char *text, size_t bytes);

/* Regions mode, which is not built yet: nothing is saved without ckptrun, and under ckptrun the whole process
 * is, so that these two calls change nothing.  The program will name the memory that makes up its state: id is
 * its own number of the region, base its first byte, bytes its length; a second call with the same id replaces
 * the first.  Returns 0. */
int MPIX_Checkpoint_protect(int id, void *base, size_t bytes);

/* Regions mode, see above: will load what was protected from the newest committed epoch.  *state is
 * MPIX_CR_STATE_IGNORE: nothing was loaded. */
int MPIX_Checkpoint_recover(MPIX_CR_state_t *state);

#ifdef __cplusplus
}
#endif
#endif
